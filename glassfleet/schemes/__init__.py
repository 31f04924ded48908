"""The schemes, one folder each, whose ``__init__`` defines ``SCHEME``; `glassfleet.contract.catalogue` finds them."""

DEFAULT = "tree"
"""Scheme that is learned where none is named."""
