"""Births that cannot be read: who sent one, and why; told to whoever sent it, and shown to the operator."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST = 100
"""So many agents are remembered; the one whose last is oldest goes first."""

AGAIN = 10.0
"""Seconds after which the same fault of the same agent is told again: it may be another start of its process."""


@dataclass(eq=False)
class Unreadable:
    """The faults by agent.

    Attributes
    ----------
    known : dict of str to (str, float)
        Why, and when it came last, seconds since the epoch. Any thread may copy it.
    """

    known: dict[str, tuple[str, float]] = field(default_factory=dict)

    def note(self, agent: str, reason: str, at: float) -> bool:
        """Remember a fault; returns whether the agent is to be told."""
        former, last = self.known.pop(agent, ("", 0.0))
        if len(self.known) >= MOST:
            self.known.pop(next(iter(self.known)))
        is_news = former != reason or at - last >= AGAIN
        self.known[agent] = (reason, at if is_news else last)
        return is_news

    def listed(self) -> list[tuple[str, tuple[str, float]]]:
        """Return whose births cannot be read, why, and since when, by id; from any thread."""
        return sorted(dict(self.known).items())
