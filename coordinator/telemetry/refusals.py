"""Why answers did not count: the reasons of receipts, which the journal need not keep, for operators to read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from coordinator.engine import Effect, RunState, SendReceipt
from coordinator.runs.effects import Observer

RUNS = 100
"""Runs whose reasons are told apart, more than anybody looks at; the one that began to be refused first gives way."""

REASONS = 40
"""Reasons of one run that are told apart: a few kinds, with a few details; the others are counted together."""

AGENTS = 50
"""Agents that are named with one reason: more nobody reads."""


@dataclass
class RefusalReason:
    """One reason.

    Attributes
    ----------
    count : int
        Receipts that gave it.
    agents : dict of str to None
        Whom, the first `AGENTS`.
    """

    count: int = 0
    agents: dict[str, None] = field(default_factory=dict)


class Refusals(Observer):
    """An `Observer` that remembers the receipts other than ``accepted`` since the process began, bounded, by run."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, dict[tuple[str, str], RefusalReason]] = OrderedDict()
        self._lock = threading.Lock()

    def performed(self, effect: Effect, state: RunState | None, now: float) -> None:
        """Note a receipt."""
        del state, now
        if not isinstance(effect, SendReceipt) or effect.receipt.outcome in ("accepted", "duplicate"):
            return
        outcome, reason = effect.receipt.outcome, effect.receipt.reason
        with self._lock:
            reasons = self._runs.setdefault(effect.run, {})
            key = (outcome, reason)
            if key not in reasons and len(reasons) >= REASONS:
                key = (outcome, "other reasons")
            known = reasons.setdefault(key, RefusalReason())
            known.count += 1
            if len(known.agents) < AGENTS:
                known.agents[effect.agent] = None
            while len(self._runs) > RUNS:
                self._runs.popitem(last=False)

    def of(self, run: str) -> list[tuple[str, str, int, list[str]]]:
        """Return a run's reasons: outcome, reason, how often, whom; the most frequent first. From any thread."""
        with self._lock:
            lines = [
                (outcome, reason, known.count, list(known.agents))
                for (outcome, reason), known in self._runs.get(run, {}).items()
            ]
        return sorted(lines, key=lambda line: -line[2])
