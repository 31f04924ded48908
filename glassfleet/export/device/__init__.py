"""Parts of exported files, in C99 and in Python: conditions, evaluators, and what they share. They need nothing.

The Python parts are ordinary modules of this package, so they are linted, typed and tested as such. An exported file
is a model's tables, then the texts of ``common``, of one kind of conditions (:class:`glassfleet.model.tables.RuleList`
is ``rule_list``, and so on) and of one evaluator. In the C parts ``gf_`` and ``GF_`` stand for the prefix of the
header.

Every operation is in the order in which the package does it, so that answers are the same to the last bit where
doubles are IEEE 754 and products are not fused into additions.
"""
