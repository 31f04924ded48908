"""The table of heads of vehicles' logs of forecasts that were seen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from coordinator.journal.rows import is_whole, sum_of
from coordinator.journal.tables import WITNESSED

_AT_ONCE = 500
"""Vehicles named in one statement; databases bound that."""


def put(connection: sa.Connection, heads: Mapping[str, Sequence[Mapping[str, Any]]], most: int) -> int:
    """Let heads take the place of what is there of these vehicles; return of how many there was no room."""
    agents, known = list(heads), set[str]()
    for start in range(0, len(agents), _AT_ONCE):
        some = sa.select(WITNESSED.c.agent).where(WITNESSED.c.agent.in_(agents[start : start + _AT_ONCE]))
        known |= set(connection.execute(some).scalars())
    agents.sort(key=lambda agent: agent not in known)  # a newcomer takes nobody's place
    for start in range(0, len(agents), _AT_ONCE):
        connection.execute(sa.delete(WITNESSED).where(WITNESSED.c.agent.in_(agents[start : start + _AT_ONCE])))
    room = most - connection.execute(sa.select(sa.func.count()).select_from(WITNESSED)).scalar_one()
    rows = [{"agent": agent, "body": json.dumps(heads[agent])} for agent in agents[: max(0, room)]]
    if rows:
        connection.execute(sa.insert(WITNESSED), [{**row, "checksum": sum_of(WITNESSED, row)} for row in rows])
    return len(agents) - len(rows)


def of(agent: str) -> sa.Select[Any]:
    """Return the query for what is there of a vehicle."""
    return sa.select(WITNESSED).where(WITNESSED.c.agent == agent)


def heads_of(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the heads in the row of a vehicle; none where it is damaged."""
    return [head for row in rows if is_whole(WITNESSED, row) for head in json.loads(row.body)]
