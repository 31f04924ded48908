"""What this vehicle has told, run by run: for its owner, `glassfleet agent ledger` prints it.

Written before an answer is sent, so it never says less than what left. It holds no rows and no answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edge_agent.session.own_database import explained, opened, read_only

NAME = "told.sqlite"
"""In the agent's folder."""

KEPT_RUNS = 10_000
"""Runs that are remembered, some hundred bytes each; the oldest go first."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS told (
    run TEXT PRIMARY KEY,
    scheme TEXT NOT NULL,
    began REAL NOT NULL,
    last REAL NOT NULL,
    answers INTEGER NOT NULL,
    numbers INTEGER NOT NULL,
    protection TEXT NOT NULL,
    members TEXT NOT NULL
);
"""

_explained = partial(explained, about="the list of what this vehicle has told")

_COLUMNS = ("run", "scheme", "began", "last", "answers", "numbers", "protection", "members")


class Disclosures:
    """The list of runs that were answered. Used by one thread.

    Parameters
    ----------
    path : Path
        Database file; created when missing.
    wall : callable
        Seconds since the epoch.

    Raises
    ------
    StorageError
        The file cannot be opened or written.
    """

    def __init__(self, path: Path, wall: Callable[[], float]) -> None:
        self._path = path
        self._wall = wall
        with _explained("open", path):
            self._database = opened(path, _SCHEMA)

    def note(
        self, run: str, scheme: str, numbers: int, protection: Mapping[str, int] | None, members: Sequence[str]
    ) -> None:
        """Count one answer of a run.

        Parameters
        ----------
        run, scheme : str
            `scheme`: of its first answer that is about learning or scores, as far as there is one.
        numbers : int
            How many leave with it.
        protection : Mapping or None
            ``floor`` and ``company`` of a private run; None: coordinator and broker read the numbers.
        members : sequence of str
            Over whom the answer is summed; empty in a plain run. The smallest set of a run is kept.
        """
        now, terms = self._wall(), json.dumps(dict(protection or {}), sort_keys=True)
        with _explained("write", self._path):
            self._database.execute(
                "INSERT INTO told VALUES (?, ?, ?, ?, 1, ?, ?, ?) ON CONFLICT (run) DO UPDATE SET "
                "last = excluded.last, answers = answers + 1, numbers = numbers + excluded.numbers, "
                "scheme = CASE WHEN scheme IN ('private', 'domain', 'pairs') THEN excluded.scheme ELSE scheme END, "
                "members = CASE WHEN excluded.members = '[]' THEN members ELSE excluded.members END",
                (run, scheme, now, now, numbers, terms, json.dumps(list(members))),
            )
            self._database.execute(
                "DELETE FROM told WHERE run NOT IN (SELECT run FROM told ORDER BY last DESC, run LIMIT ?)", (KEPT_RUNS,)
            )

    def was_private(self, run: str) -> bool:
        """Whether this vehicle answered a run as a private one, by its own record."""
        with _explained("read", self._path):
            row = self._database.execute("SELECT protection FROM told WHERE run = ?", (run,)).fetchone()
        return row is not None and bool(json.loads(row[0]))

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._database.close()


def read(path: Path) -> list[dict[str, Any]]:
    """Return what a vehicle has told, the oldest run first; empty when it has told nothing.

    Each has ``run``, ``scheme``, ``began`` and ``last`` (seconds since the epoch), ``answers``, ``numbers``,
    ``protection`` (``{}``: none) and ``members``.

    Raises
    ------
    StorageError
        The file cannot be read.
    """
    with _explained("read", path):
        selected = read_only(path, f"SELECT {', '.join(_COLUMNS)} FROM told ORDER BY began, run")  # noqa: S608
    rows = [dict(zip(_COLUMNS, row, strict=True)) for row in selected]
    return [{**row, **{name: json.loads(row[name]) for name in ("protection", "members")}} for row in rows]


def numbers_in(contribution: Mapping[str, Any]) -> int:
    """Return how many numbers an answer holds: of its sums, and of what is no sum."""
    return _count(contribution.get("sums")) + _count(contribution.get("values"))


def _count(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.size)
    if isinstance(value, Mapping):
        return sum(_count(each) for each in value.values())
    if isinstance(value, list | tuple):
        return sum(_count(each) for each in value)
    return int(isinstance(value, int | float))
