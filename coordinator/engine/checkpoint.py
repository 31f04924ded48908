"""A run's state as a codec value: what the journal begins with anew when many rounds of an elastic run have closed.

An elastic run looks back at no round that has closed, so its state is all that is needed to go on. Vehicles are named
once, and sets of them are a bit each: ten thousand vehicles in a hundred rounds would be more values than are read from
one record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

import numpy as np
from immutables import Map

from coordinator.engine.events import Checkpoint, Offer
from coordinator.engine.state import Level, Round, RoundSummary, RunState
from glassfleet.contract.messages import Task
from glassfleet.data.domain import Domain
from schemas.codec import Value

BOUND: Final = 32 * 1024 * 1024
"""Bytes of answers after which the journal begins anew. What is read at a restart, and each answer's share of the
writing of checkpoints, stay small; a run with fewer answers keeps all of them, for `glassfleet lab audit`."""

_EMPTY = (
    *("store", "reason", "founders", "lost", "model", "summary", "errors", "drift", "harmful"),
    *("editions", "summed", "earlier", "runs_left", "counted_rows", "sealed", "met"),
    *("champion", "formers", "private", "scores", "false_answers"),
)
"""What an elastic run does not have while a round is open that nobody has answered; most is of private runs."""
_SETS = frozenset(
    {
        *("cohort", "domain_contributors", "silent"),
        *("asked", "former", "asked_agents", "accepted_agents", "late_agents"),
    }
)
_TABLES = frozenset({"agents", "frozen", "dropped", "dropped_agents"})


def is_due(state: RunState, size: int) -> bool:
    """Whether the journal of a run shall begin anew with its state.

    Parameters
    ----------
    state : RunState
        Right after rounds closed.
    size : int
        Bytes of the answers to them.
    """
    if state.spec.participation != "elastic" or state.open is None or any(getattr(state, name) for name in _EMPTY):
        return False
    total = sum(summary.bytes for summary in state.rounds)
    return (total - size) // BOUND < total // BOUND


def checkpoint_of(state: RunState) -> Checkpoint:
    """Return the event that a run can begin with instead of all that has happened to it; `is_due` says when."""
    fields = chain.from_iterable(vars(each).items() for each in (state, state.open, *state.rounds))
    fleet = _Fleet(chain.from_iterable(each for name, each in fields if name in _SETS | _TABLES))
    value = {
        **fleet.written(state),
        "domain": None if state.domain is None else state.domain.to_document(),
        "levels": [{**vars(level), "task": level.task.to_value()} for level in state.levels],
        "open": fleet.written(state.open),
        "rounds": [fleet.written(summary) for summary in state.rounds],
    }
    for name in ("spec", "parameters", *_EMPTY):
        del value[name]
    value["agents"]["values"] = [offer.to_value() for offer in value["agents"]["values"]]
    return Checkpoint(state.at, state.spec, list(fleet.agents), value)


def state_of(event: Checkpoint, parameters: Any) -> RunState:
    """Return the state of `checkpoint_of`; raises TypeError or KeyError for one with other fields."""
    fleet, value = _Fleet(event.agents), event.state
    offers = [Offer.from_value(each) for each in value["agents"]["values"]]
    fields = fleet.read({**value, "agents": {**value["agents"], "values": offers}})
    current = fleet.read(value["open"])
    fields |= {
        "features": tuple(value["features"]),
        "domain": None if value["domain"] is None else Domain.from_document(value["domain"]),
        "agents": Map(fields["agents"]),
        "frozen": Map({agent: tuple(answered) for agent, answered in fields["frozen"].items()}),
        "silent": frozenset(fields["silent"]),
        "levels": tuple(_level(each) for each in value["levels"]),
        "open": Round(**current | {"dropped": Map(current["dropped"])}),
        "rounds": tuple(RoundSummary(**fleet.read(each)) for each in value["rounds"]),
    }
    return RunState(spec=event.spec, parameters=parameters, **fields)


def _level(value: Mapping[str, Any]) -> Level:
    tuples = {"questions": tuple(value["questions"]), "members": tuple(value["members"])}
    return Level(**{**value, **tuples, "task": Task.from_value(value["task"])})


class _Fleet:
    """All vehicles that a state knows, in the order of id."""

    def __init__(self, agents: Iterable[str]) -> None:
        self.agents = tuple(sorted(set(agents)))
        self._known = np.array(self.agents, dtype=object)
        self._place = {agent: place for place, agent in enumerate(self.agents)}

    def written(self, value: Any) -> dict[str, Value]:
        """Return the fields of a state or a round, with sets and tables of vehicles as codec values."""
        return {
            name: self._set(each) if name in _SETS else self._table(each) if name in _TABLES else each
            for name, each in vars(value).items()
        }

    def read(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Undo `written`: sets become tuples in the order of id, tables dicts."""
        return {
            name: self._members(each) if name in _SETS else self._mapping(each) if name in _TABLES else each
            for name, each in value.items()
        }

    def _set(self, agents: Iterable[str]) -> Value:
        bits = np.zeros(len(self.agents), dtype=np.bool_)
        bits[[self._place[agent] for agent in agents]] = True
        return np.packbits(bits)

    def _members(self, bits: Value) -> tuple[str, ...]:
        return tuple(self._known[np.unpackbits(bits, count=len(self.agents)).astype(np.bool_)])

    def _table(self, by_agent: Mapping[str, Any]) -> dict[str, Value]:
        """Return who is in a table, its different values, and which of them is whose."""
        number: dict[Any, int] = {}
        which = [number.setdefault(by_agent[agent], len(number)) for agent in sorted(by_agent)]
        return {"agents": self._set(by_agent), "values": list(number), "which": np.array(which, dtype=np.int32)}

    def _mapping(self, table: Mapping[str, Any]) -> dict[str, Any]:
        values = table["values"]
        return {agent: values[each] for agent, each in zip(self._members(table["agents"]), table["which"], strict=True)}
