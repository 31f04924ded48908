"""Two coordinators with different journals on one fleet: which of them gives way. Pure.

One journal has a lock (`coordinator.process.standby`); nothing but the broker knows of two journals. The retained
``coordinator/state`` carries the *incarnation* of a coordinator's life, and in the envelope's time its *term*: the wall
clock at its start, but always above every term that was read before it started (as in Raft). So the order of two terms
is the order of two starts, also when a clock was wrong.

- Who starts, looks first (`coordinator.fleet.leader_probe`): is somebody up, and does it answer? Then it refuses,
  unless told to take over.
- Who runs and reads a state that is not its own birth certificate publishes its own again. Such a state is a last will
  of a life before, a retained state that a broker brought back from its disk, or the question of somebody who starts.
- Who runs and reads, `SIGHTINGS` times, that a *later* term is up, stops: somebody took over. Once is
  not enough: brokers deliver late copies. A coordinator that lives repeats its birth when it reads ours.

The earlier one stops, never both; and neither goes on beside the other, throwing it out of the broker for ever because
both connect under the same client id.
"""

from __future__ import annotations

SIGHTINGS = 2
"""So often another must be seen before this coordinator stops."""

APART = 0.2
"""Seconds between two sightings at least: what comes closer together is one."""

QUIET = 30.0
"""Seconds after which another that was not seen again is forgotten."""

PAUSE = 0.25
"""Seconds between two birth certificates that are published again, at least."""


class Election:
    """What a running coordinator knows about others.

    Parameters
    ----------
    own : str
        Incarnation of this life.
    term : float
        Of this life.
    """

    def __init__(self, own: str, term: float) -> None:
        self.own = own
        self.term = term
        self.due: float | None = None
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
            self.due = max(at, self._published + PAUSE)
        if status != "up" or (term, incarnation) < (self.term, self.own):
            return False
        if incarnation != self._other or at - self._last > QUIET:
            self._other, self._count, self._last = incarnation, 0, float("-inf")
        if at - self._last >= APART:
            self._count, self._last = self._count + 1, at
        elif self._count:
            return False
        if self._count >= SIGHTINGS:
            return True
        if self.due is None:
            self.due = max(at, self._published + PAUSE)
        return False

    def published(self, at: float) -> None:
        """Note that the birth certificate was published."""
        self.due, self._published = None, at
