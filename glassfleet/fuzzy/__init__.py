"""Fuzzy building blocks: partitions and memberships (:mod:`.partition`), linguistic terms (:mod:`.terms`)."""

from glassfleet.fuzzy.partition import Memberships, condition, fuzzify, linguistic_terms

__all__ = ["Memberships", "condition", "fuzzify", "linguistic_terms"]
