"""Who takes part in runs, and how those stand that do not count: what the last runs tell of each vehicle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from coordinator.engine import RunState
from coordinator.engine.asking import REFUSED
from coordinator.runs.directory import Runs
from coordinator.runs.view import Stands, rows_of, stands, stands_out
from schemas.errors import NotFoundError
from schemas.rounds import LATE

RECENT_RUNS = 5
"""So many of the last runs are asked what they tell of each vehicle."""


@dataclass(frozen=True)
class Attendance:
    """Which vehicles took part in a run, and how those stand that do not count.

    Attributes
    ----------
    missed : Mapping of str to (str, str)
        How those stand that were lost, dropped or late, and why.
    stands_out : tuple of (str, str)
        Vehicles whose rows or sums do, each with why.
    about : Mapping
        ``spec``, ``outcome`` and ``false_answers`` of its document, and ``agents``: those that `missed` it.
    """

    run: str
    asked: frozenset[str]
    missed: Mapping[str, Stands]
    rows: Mapping[str, int]
    stands_out: tuple[tuple[str, str], ...]
    about: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        run: str,
        agents: Mapping[str, Stands],
        rows: Mapping[str, int],
        stands_out: Iterable[Sequence[str]],
        about: Mapping[str, Any],
    ) -> Self:
        """Return it from how each vehicle stands in the run."""
        asked = frozenset(agent for agent, (status, _) in agents.items() if status != "idle")
        missed = {agent: each for agent, each in agents.items() if each[0] in ("lost", "dropped", "late")}
        reasons = {agent: {"reason": reason} for agent, (_, reason) in missed.items()}
        outside = tuple((agent, words) for agent, words in stands_out if agent not in about["false_answers"])
        return cls(run, asked, missed, rows, outside, {**about, "agents": reasons})

    @classmethod
    def of_state(cls, state: RunState) -> Self:
        """Return what a run that goes on tells: its document would hold each vehicle in each round."""
        about = {"spec": state.spec.to_document(), "outcome": None, "false_answers": state.false_answers}
        return cls.of(state.run, stands(state), rows_of(state), stands_out(state), about)

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Self:
        """Return what a run that has ended tells."""
        agents = {agent: (each["status"], each["reason"]) for agent, each in document["agents"].items()}
        about = {name: document[name] for name in ("spec", "outcome", "false_answers")}
        return cls.of(document["run"], agents, document["rows"], document["far_out"], about)

    def has_refused(self, agent: str) -> bool:
        """Whether one of those that `missed` it said itself that it cannot answer."""
        return self.missed[agent][1].startswith(REFUSED)


class Recent:
    """What the last runs tell; those that have ended are read once."""

    def __init__(self) -> None:
        self._ended: Mapping[str, Attendance] = {}  # replaced, never changed: several threads read it

    def of(self, runs: Runs) -> list[Attendance]:
        """Return the last runs, the newest first; from any thread."""
        past, live, last = runs.past, runs.live, []
        for run in runs.newest(RECENT_RUNS):
            with suppress(NotFoundError):  # forgotten between the two looks
                if run in live:
                    last.append(Attendance.of_state(live[run]))
                else:
                    last.append(self._ended.get(run) or Attendance.of_document(runs.document(run)))
        self._ended = {each.run: each for each in last if each.run in past}
        return last


def reason_words(reason: str) -> str:
    """Return why a vehicle does not count, as the pages say it.

    >>> reason_words("deadline"), reason_words("went down")
    ('no answer by the deadline', 'went down')
    """
    return {"deadline": "no answer by the deadline", LATE: "answered after the end"}.get(reason, reason)
