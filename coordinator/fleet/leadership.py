"""Two coordinators with different journals on one fleet: which of them gives way. Pure.

One journal has a lock; nothing but the broker knows of two journals. The retained ``coordinator/state`` carries the
*incarnation* of a coordinator's life, and in the envelope's time its *term*: the wall clock at its start, but always
above every term that was read before it started (as in Raft). So the order of two terms is the order of two starts,
also when a clock was wrong.

- Who starts, looks first (`coordinator.fleet.leader_probe`): is somebody up, and does it answer? Then it refuses,
  unless told to take over.
- Who runs and reads a state that is not its own birth certificate publishes that again: a last will of a life before, a
  retained state that a broker brought back from its disk, or the question of somebody who starts.
- Who runs and reads, `ElectionPolicy.sightings` times, that a *later* term is up, stops: somebody took over. Once is
  not enough: brokers deliver late copies. A coordinator that lives repeats its birth when it reads ours.

The earlier one stops, never both; and neither goes on beside the other, throwing it out of the broker for ever because
both connect under the same client id.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ElectionPolicy:
    """How sure a coordinator must be that another has taken over.

    Attributes
    ----------
    sightings : int
        So often the other must be seen, >= 1.
    apart : float
        Seconds between two sightings at least: what comes closer together is one.
    quiet : float
        Seconds after which another that was not seen again is forgotten.
    pause : float
        Seconds between two birth certificates that are published again, at least.
    """

    sightings: int = 2
    apart: float = 0.2
    quiet: float = 30.0
    pause: float = 0.25


class Election:
    """What a running coordinator knows about others.

    Parameters
    ----------
    own : str
        Incarnation of this life.
    term : float
        Of this life.
    policy : ElectionPolicy
    """

    def __init__(self, own: str, term: float, policy: ElectionPolicy = ElectionPolicy()) -> None:
        self.own = own
        self.term = term
        self.due: float | None = None
        self._policy = policy
        self._other = ""
        self._count = 0
        self._last = float("-inf")
        self._published = float("-inf")

    def is_lost(self, incarnation: str, status: str, term: float, at: float, *, retained: bool) -> bool:
        """Take a state read at `at` (any steady clock); whether this coordinator must stop.

        When it returns False, `due` may say when to publish the birth certificate again. What is `retained` came with
        our subscription, which is followed by our birth anyway.
        """
        if incarnation == self.own and status == "up":
            return False
        if not retained and self.due is None:
            self.due = max(at, self._published + self._policy.pause)
        if status != "up" or (term, incarnation) < (self.term, self.own):
            return False
        if incarnation != self._other or at - self._last > self._policy.quiet:
            self._other, self._count, self._last = incarnation, 0, float("-inf")
        if at - self._last >= self._policy.apart:
            self._count, self._last = self._count + 1, at
        elif self._count:
            return False
        if self._count >= self._policy.sightings:
            return True
        if self.due is None:
            self.due = max(at, self._published + self._policy.pause)
        return False

    def published(self, at: float) -> None:
        """Note that the birth certificate was published."""
        self.due, self._published = None, at
