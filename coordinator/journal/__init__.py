"""The journal: append before effects, resume by folding. `port` is the contract; `sql` fulfils it."""

from coordinator.journal.port import Decision, Entry, Journal, StoredModel

__all__ = ["Decision", "Entry", "Journal", "StoredModel"]
