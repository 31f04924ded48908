"""The chaos harness: a real fleet over a real broker, a seeded schedule of faults, and an audit of what came of it.

``schedule`` decides (pure), ``fleet`` and ``proxy`` can hurt, ``conduct`` does, ``audit`` looks, ``report`` tells.
"""
