"""The chaos harness: a real fleet over a real broker, a seeded schedule of faults, and an audit of what came of it.

``schedule`` decides (pure), ``fleet`` and ``proxy`` can hurt, ``certificate_office`` renews and revokes, ``conduct``
does, ``audit`` looks (``signatures``: at what concerns identities), ``report`` tells.
"""
