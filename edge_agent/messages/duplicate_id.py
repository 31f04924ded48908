"""Two processes with one agent id: which of them stops. Pure.

Birth certificates and wills carry the incarnation of a process and the time when it started, and an agent reads its own
topic. What it reads there is mostly its own past: the retained birth of the life before, that life's will, copies of
both that come late. The id is used twice only if the other is alive: it keeps coming back after we were born,
`SIGHTINGS` times, over at least `SPAN` seconds. Then the one that started later is the intruder and stops;
ties are broken by the incarnation, so both sides come to the same conclusion. Clocks need not agree: a wrong one lets
the wrong one stop, never both. Only if the intruder does not stop, for ten times as long and three times as
often, the first one does.

Each sighting is answered with our birth certificate, which is what the other side sights.

A broker that is killed before it has saved comes back with what it knew before: our past's birth or will, once more, in
place of our birth. (Found by the chaos harness: two such kills within four seconds made an agent stop for its own
past.) So copies that come together count as one sighting (`APART`), more sightings are asked for than a few restarts of
a broker give, and what has not been seen for `QUIET` seconds is forgotten. Two living processes throw each other out of
the broker several times a second.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SIGHTINGS = 6
"""So often the other is seen before the one that came later stops."""

APART = 0.2
"""Seconds between two sightings at least: what comes closer together is one."""

QUIET = 30.0
"""Seconds after which another incarnation that was not seen again is forgotten."""

SPAN = 1.5
"""Seconds over which the other must be seen, so that late copies of our past's last words do not count."""

PATIENCE, STUBBORN = 10, 3
"""So many times `SPAN` and `SIGHTINGS` before the one that came first stops, should the other not."""

REMEMBERED = 64
"""Other incarnations that are counted at once."""


@dataclass
class OwnId:
    """What an agent knows about its own id.

    Attributes
    ----------
    own : str
        Incarnation of this process.
    started : float
        When it started, seconds since the epoch by its own clock; its state messages carry it.
    born : bool
        Whether our own birth certificate has come back to us.
    """

    own: str
    started: float = 0.0
    born: bool = False
    _sightings: dict[str, tuple[int, float, float]] = field(default_factory=dict)

    def judge(self, incarnation: str, status: str, started: float, at: float) -> str:
        """Return what to do about a state that was read from our own topic at `at` (any steady clock).

        Returns
        -------
        str
            ``""`` (nothing), ``"repeat"`` (publish the birth certificate again: the retained one is not ours) or
            ``"stop"``.
        """
        if incarnation == self.own:
            if status == "up":
                self.born = True
                return ""
            return "repeat"  # our own will, from a connection that was lost: we are up
        if not self.born:
            return ""
        count, first, last = self._sightings.get(incarnation, (0, at, float("-inf")))
        if at - last > QUIET:
            count, first = 0, at
        if at - last >= APART:
            count, last = count + 1, at
        if incarnation in self._sightings or len(self._sightings) < REMEMBERED:
            self._sightings[incarnation] = (count, first, last)
        is_intruder = (self.started, self.own) > (started, incarnation)
        patience, sightings = (1, 1) if is_intruder else (PATIENCE, STUBBORN)
        if count >= sightings * SIGHTINGS and at - first >= SPAN * patience:
            return "stop"
        return "repeat"
