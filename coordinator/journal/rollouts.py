"""What a database journal drops of rollouts: the events of those that ended long ago."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from coordinator.journal.port import ROLLOUT_STARTED, ROLLOUTS
from coordinator.journal.tables import DECISIONS


def forget_rollouts(connection: sa.Connection, since: Mapping[str, float]) -> None:
    """Drop the events before the first rollout of a name that began at its time in `since`, or later."""
    columns = DECISIONS.c
    for name, at in since.items():
        began = sa.and_(columns.name == name, columns.kind == ROLLOUT_STARTED, columns.at >= at)
        first = connection.execute(sa.select(columns.number).where(began).order_by(columns.number).limit(1)).scalar()
        if first is not None:
            is_event = sa.func.substr(columns.kind, 1, len(ROLLOUTS)) == ROLLOUTS  # not LIKE: see `SqlJournal.compact`
            connection.execute(sa.delete(DECISIONS).where(columns.name == name, columns.number < first, is_event))
