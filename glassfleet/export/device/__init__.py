"""Parts of exported headers, in C99: conditions, evaluators, and what they share. They need nothing.

A header is a model's tables, then the texts of ``common``, of one kind of conditions
(:class:`glassfleet.model.tables.RuleList` is ``rule_list``, and so on) and of one evaluator. ``gf_`` and ``GF_`` stand
for the header's prefix. Every operation is in the order in which the package does it, so that answers are the same to
the last bit where doubles are IEEE 754 and products are not fused into additions.
"""
