"""``glassfleet lab chaos``: a real fleet, a real broker, a seeded schedule of faults, an audit of the result.

``schedule`` decides (pure), ``fleet`` and ``proxy`` can hurt, ``certificate_office`` renews and revokes, ``conduct``
does, ``audit`` looks (``signatures``: at what concerns identities; ``sums``: at what private runs summed), ``report``
tells.
"""
