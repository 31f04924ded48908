"""What a run lacks while it waits: told at once, not only when it has failed. Functions of its state.

Only what cannot be met with the agents that are up now is said: a round that merely goes on lacks nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.engine import asking
from coordinator.engine.state import Round, RunState


@dataclass(frozen=True)
class Waiting:
    """What a run lacks with the agents that are up now.

    Attributes
    ----------
    lack : str
        What it needs, and what there is.
    awaited : str
        Who could help; empty: nobody.
    why_not : str
        Why those cannot that are up and do not count, see `asking.why_not`.
    otherwise : str
        What happens at the deadline if nobody comes; empty: the run fails, after all extensions.
    """

    lack: str
    awaited: str
    why_not: str
    otherwise: str = ""

    def words(self, until: str) -> str:
        """Return one sentence.

        Parameters
        ----------
        until : str
            When the run gives up, or with `otherwise` goes on, for people.
        """
        if self.otherwise:
            return f"{self.lack}; waits until {until} for {self.awaited}; {self.otherwise}"
        hope = (
            f"waits until {until} for {self.awaited}"
            if self.awaited
            else f"cannot be met: nobody else is asked; fails at {until}"
        )
        return f"{self.lack}; {hope}{self.why_not}"


def waiting(state: RunState) -> Waiting | None:
    """Return what a run lacks; None when those that are up can bring it as far as it asks now."""
    if state.phase == "gathering":
        return _gathering(state)
    current = state.open
    if current is None:
        return None
    needed = asking.quorum(state, current)
    answered = state.store.get(current.digest, {})
    done = {*answered, *current.dropped}
    left = [agent for agent in current.asked if agent not in done]
    if current.former and not left:
        return _former(current)
    # First without a look at everybody: nearly always nothing is amiss.
    if len(answered) + sum(agent in state.agents for agent in left) >= needed:
        return None
    if current.limited:
        return _limited(state, current, needed, left)
    left = [agent for agent in asking.able(state) if agent not in done]
    if len(answered) + len(left) >= needed:
        return None
    unable = {**asking.unable(state), **current.dropped}
    return Waiting(_lack(state, needed, left, "that can answer"), "others", asking.why_not(unable))


def _former(current: Round) -> Waiting:
    one = len(current.former) == 1
    return Waiting(
        f"{'a vehicle' if one else 'vehicles'} of an earlier run over the same rows {_is(len(current.former))} missing",
        asking.named(current.former),
        "",
        f"without {'it' if one else 'them'} others are left out, too",
    )


def _gathering(state: RunState) -> Waiting:
    settled, up = asking.settled(state), asking.count_up(state)
    unable = asking.unable(settled)
    able = len(asking.able(settled)) if settled.features else 0
    wanted, way_out = asking.wanted(state)
    there = f"{up or 'no vehicle'} {_is(up)} up" + (f", {able or 'none'} can" if able < up else "")
    needs = f"needs {_count(wanted, 'vehicle')} that can answer{way_out and f' ({way_out})'}: {there}"
    return Waiting(needs, "others", asking.why_not(unable))


def _limited(state: RunState, current: Round, needed: int, left: list[str]) -> Waiting:
    away = [agent for agent in left if agent not in state.agents]
    return Waiting(
        _lack(state, needed, left, "of the cohort" if state.is_fixed else "of those asked"),
        asking.named(away),
        asking.why_not({**(state.lost if state.is_fixed else {}), **current.dropped}),
    )


def _lack(state: RunState, needed: int, left: list[str], which: str) -> str:
    """Say it in a form that stays while answers come in: who has answered is still up, as a rule."""
    up = sum(agent in state.agents for agent in (*state.accepted, *left))
    gone = sum(agent not in state.agents for agent in state.accepted)
    more = f", {gone} more {'have' if gone > 1 else 'has'} answered" if gone else ""
    return f"needs {_count(needed, 'answer')}: {_count(up, 'vehicle')} {which} {_is(up)} up{more}"


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'s' if number > 1 else ''}"


def _is(number: int) -> str:
    return "are" if number > 1 else "is"
