"""Attacks on what a run discloses: rows computed from sums, and what is counted as read.

``transcript`` is what an attacker holds; ``sums``, ``strengths``, ``trees`` and ``model`` are the attacks, each a
function from it to candidate rows; ``report`` compares these with the rows that there are.
"""
