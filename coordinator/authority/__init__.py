"""The fleet's certificate authority: it issues, renews and revokes certificates.

``certificates`` is pure (keys and times come in, certificates go out); ``register`` knows what was issued; ``store``
keeps the authority's folder; ``web`` is the small server where vehicles enrol and renew.
"""
