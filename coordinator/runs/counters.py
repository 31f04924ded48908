"""Counters apart from the rest: so that the journal need not hold a record for each answer that was turned away.

A peer may repeat itself, or send nonsense, as fast as the network carries it. Each such message gets its receipt and is
counted at its round, and changes nothing else; the journal takes the sum of them, as one `Counted`, with
the next record that matters. A crash before that costs the counts since then, and nothing but the counts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from coordinator.engine.events import Counted
from coordinator.engine.state import Round, RoundSummary, RunState

_COUNTERS = ("late", "duplicate", "rejected")


def is_counted_only(before: RunState, after: RunState) -> bool:
    """Whether two states of a run differ in nothing but counters and the time."""
    if any(getattr(before, name) is not getattr(after, name) for name in _FIELDS):
        return False
    if not _alike(before.open, after.open) or len(before.rounds) != len(after.rounds):
        return False
    # Equal rounds are the same objects but for the one that was counted in.
    return all(one is two or _alike(one, two) for one, two in zip(before.rounds, after.rounds, strict=True))


def _alike(one: Round | RoundSummary | None, two: Round | RoundSummary | None) -> bool:
    if one is two:
        return True
    if one is None or two is None:
        return False
    counters = {name: getattr(two, name) for name in _COUNTERS}
    return replace(one, **counters) == two


_FIELDS = tuple(name for name in RunState.__dataclass_fields__ if name not in ("at", "open", "rounds"))


class Counters:
    """What was counted since the last record of one run.

    Attributes
    ----------
    at : float
        Time of the last count.
    """

    def __init__(self) -> None:
        self.at = 0.0
        self._counts: dict[str, Counter[str]] = {}

    def add(self, state: RunState, digest: str, outcome: str, at: float) -> None:
        """Count one answer; `state` is the run before it."""
        known = (state.open is not None and state.open.digest == digest) or any(
            summary.task_digest == digest for summary in state.rounds
        )
        # Digests that nobody asked for are of one kind: made-up ones must not fill the record.
        self._counts.setdefault(digest if known else "", Counter())[outcome] += 1
        self.at = max(self.at, at)

    def event(self) -> Counted:
        """Return the sum as an event for the journal."""
        return Counted(self.at, {digest: dict(counts) for digest, counts in self._counts.items()})

    def copy(self) -> Counters:
        """Return a copy that can be added to without changing this one."""
        other = Counters()
        other.at = self.at
        other._counts = {digest: Counter(counts) for digest, counts in self._counts.items()}
        return other
