"""Two processes with one agent id: which of them stops. Pure.

Birth certificates and wills carry the incarnation of a process and the time when it started, and an agent reads its own
topic. What it reads there is mostly its own past: the retained birth of the life before, that life's will, copies of
both that come late. It is a duel only if the other is alive, that is if it keeps coming back after we were born:
`Duel.sightings` times, over at least `Duel.span` seconds. Then the one that started later is the intruder and stops;
ties are broken by the incarnation, so both sides come to the same conclusion. Clocks need not agree: a wrong one lets
the wrong one stop, never both. Only if the intruder does not stop, for ten times as long and three times as
often, the first one does.

Each sighting is answered with our birth certificate, which is what the other side sights.

A broker that is killed before it has saved comes back with what it knew before: our past's birth or will, once more, in
place of our birth (found by the chaos harness: two such kills within four seconds made an agent stop for its own
past). So copies that come together count as one sighting (`Duel.apart`), more sightings are asked for than a few
restarts of a broker give, and what has not been seen for `Duel.quiet` seconds is forgotten. Two living processes throw
each other out of the broker several times a second.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Duel:
    """How sure an agent must be that another process uses its id.

    Attributes
    ----------
    sightings : int
        So often the other is seen before the one that came later stops, >= 1.
    apart : float
        Seconds between two sightings at least: what comes closer together is one.
    quiet : float
        Seconds after which another incarnation that was not seen again is forgotten.
    span : float
        Seconds over which the other must be seen, so that late copies of our past's last words do not count.
    patience, stubborn : int
        So many times `span` and `sightings` before the one that came first stops, should the other not.
    remembered : int
        Other incarnations that are counted at once.
    """

    sightings: int = 6
    apart: float = 0.2
    quiet: float = 30.0
    span: float = 1.5
    patience: int = 10
    stubborn: int = 3
    remembered: int = 64


@dataclass
class Identity:
    """What an agent knows about its own id.

    Attributes
    ----------
    own : str
        Incarnation of this process.
    started : float
        When it started, seconds since the epoch by its own clock; its state messages carry it.
    born : bool
        Whether our own birth certificate has come back to us.
    duel : Duel
        How sure we must be.
    """

    own: str
    started: float = 0.0
    born: bool = False
    duel: Duel = Duel()
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
        duel = self.duel
        count, first, last = self._sightings.get(incarnation, (0, at, float("-inf")))
        if at - last > duel.quiet:
            count, first = 0, at
        if at - last >= duel.apart:
            count, last = count + 1, at
        if incarnation in self._sightings or len(self._sightings) < duel.remembered:
            self._sightings[incarnation] = (count, first, last)
        is_intruder = (self.started, self.own) > (started, incarnation)
        patience, sightings = (1, 1) if is_intruder else (duel.patience, duel.stubborn)
        if count >= sightings * duel.sightings and at - first >= duel.span * patience:
            return "stop"
        return "repeat"
