"""Pictures as SVG text, for the dashboard's pages, reports and files: no script, no inline style, a text for each.

All functions are pure and escape what they are given. Colours come from the classes of ``pictures.css``, which knows
light and dark.

- :mod:`.shapes` what all share
- :mod:`.trees` trees of rules and of populations
- :mod:`.sets` partitions; :mod:`.charts` shares and scores; :mod:`.rounds` the rounds of a run
- :mod:`.effects` curves over an input
"""
