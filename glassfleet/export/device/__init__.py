"""Engines that go into exported files: in C99 and in Python, without dependencies, with the model's own arithmetic.

The Python engines are ordinary modules of this package, so they are linted, typed and tested as such; an exported file
is a model's tables followed by the text of ``common.py`` and of one engine. The C engines are the files ``*.c``; in
them ``gf_`` and ``GF_`` stand for the prefix of the exported header.

Every operation is in the order in which the package does it, so that answers are the same to the last bit where
doubles are IEEE 754 and products are not fused into additions.
"""
