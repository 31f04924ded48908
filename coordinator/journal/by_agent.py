"""Tables with one row for each vehicle (heads of its log of forecasts that were seen; its scores) or address."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from coordinator.journal.port import Kept
from coordinator.journal.rows import is_whole, sum_of
from coordinator.journal.tables import NOTICES, SCORES, WITNESSED

_AT_ONCE = 500
"""Vehicles named in one statement; databases bound that."""


TABLES: dict[Kept, sa.Table] = {"witnessed": WITNESSED, "scores": SCORES, "notices": NOTICES}


def put(connection: sa.Connection, what: Kept, values: Mapping[str, Sequence[Mapping[str, Any]]], most: int) -> int:
    """Let values take the place of what is there of these vehicles; return of how many there was no room."""
    table, agents, known = TABLES[what], list(values), set[str]()
    named = table.c.agent
    for start in range(0, len(agents), _AT_ONCE):
        some = sa.select(named).where(named.in_(agents[start : start + _AT_ONCE]))
        known |= set(connection.execute(some).scalars())
    agents.sort(key=lambda agent: agent not in known)  # a newcomer takes nobody's place
    for start in range(0, len(agents), _AT_ONCE):
        connection.execute(sa.delete(table).where(named.in_(agents[start : start + _AT_ONCE])))
    room = most - connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
    rows = [{"agent": agent, "body": json.dumps(values[agent])} for agent in agents[: max(0, room)]]
    if rows:
        connection.execute(sa.insert(table), [{**row, "checksum": sum_of(table, row)} for row in rows])
    return len(agents) - len(rows)


def of(what: Kept, agent: str) -> sa.Select[Any]:
    """Return the query for what is there of a vehicle."""
    return sa.select(TABLES[what]).where(TABLES[what].c.agent == agent)


def values_of(what: Kept, rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the values in the row of a vehicle; none where it is damaged."""
    return [value for row in rows if is_whole(TABLES[what], row) for value in json.loads(row.body)]
