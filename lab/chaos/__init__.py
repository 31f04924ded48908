"""``glassfleet lab chaos``: a real fleet, a real broker, a seeded schedule of faults, an audit of the result.

``schedule`` decides (pure), ``fleet`` and ``proxy`` can hurt, ``certificate_office`` renews and revokes, ``conduct``
does, ``audit`` looks (``breaches``: at what private runs summed, and at what concerns identities), ``report``
tells.
"""
