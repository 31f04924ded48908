"""The schemes, one folder each; :mod:`glassfleet.catalogue` finds them. A folder's ``__init__`` defines ``SCHEME``."""

DEFAULT = "tree"
"""Scheme that is learned where none is named."""
