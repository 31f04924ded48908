"""``glassfleet lab papers``: the papers' tables and figures, printed values beside ours.

A chapter names jobs (small computations whose results are kept as JSON) and turns their results into sections; what a
section holds is written as Markdown and as one HTML file.
"""
