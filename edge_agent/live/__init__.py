"""Live samples: one small adapter for each kind of source, and the rows that samples make.

``adapters/`` has a file for each kind of source; ``port`` says what it must do; ``rows`` runs it, and makes rows of
what it gives, by a plan's ``[time]``.
"""
