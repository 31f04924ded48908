"""The journal: append before effects, resume by folding. `port` is the contract; SQL and memory fulfil it."""

from coordinator.journal.memory import MemoryJournal
from coordinator.journal.port import Decision, Entry, Journal, StoredModel

__all__ = ["Decision", "Entry", "Journal", "MemoryJournal", "StoredModel"]
