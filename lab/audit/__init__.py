"""Attacks on what a run discloses: rows computed from sums, and what is counted as read.

``transcript`` is what an attacker holds. ``sums``, ``strengths``, ``tree``, ``banded`` and ``model`` are the attacks:
functions from it to candidate rows. ``report`` compares these with the rows that there are, and ``measured`` does so
for a run of the journal or a simulated fleet.
"""
