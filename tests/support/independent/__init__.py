"""A vehicle that imports nothing of Glassfleet, written from the pages: they are complete if no guess is left.

What had to be guessed when it was first held against vectors and kit, and is message by the pages since:

1. the keys of an array's map are not sorted, but `__nd__`, `shape`, `data`;
2. an indicator of empty cells counts as a text of two categories when rows are condensed;
3. a birth that would be the fifth within a second waits, and is not left out.
"""
