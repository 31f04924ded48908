"""Where rows are, and what a kind of source is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from numpy.typing import NDArray

from schemas.errors import UsageError
from schemas.text import without_password

Rows: TypeAlias = AbstractContextManager[tuple[tuple[str, ...], Iterator[list[list[Any]]]]]
"""The columns' names, and blocks of rows; cells are numbers, texts or None."""


@dataclass(frozen=True)
class Origin:
    """Where a file comes from, as far as it tells it.

    Attributes
    ----------
    plan : str
        SHA-256 of the plan that it was made by, which a person may have changed; empty: by none.
    units : mapping of str to str
        Of columns.
    """

    plan: str = ""
    units: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reader:
    """A kind of source: which names mean it, and how its rows are read. All functions raise DataError.

    Attributes
    ----------
    help : str
        What it is, for the list in ``glassfleet data --help``.
    rows : callable
        Opens a location.
    endings : tuple of str
        How the names of its files end, in lower case; a name may have them in any.
    schemes : tuple of str
        How its URLs begin, before ``://`` or ``+``; such a URL ends with a query or a table.
    columns : callable or None
        Returns names and columns at once, where they are stored so; a column with nulls has dtype object and None.
    mark : callable or None
        Of rows that change while an agent runs: opens a location and returns a function, whose value differs from the
        one before when the rows do. None: the rows stay as they are.
    origin : callable
        Of a location: where its file comes from.
    is_text : bool
        Whether its files are texts as loggers and spreadsheets write them: looked at, and converted where they need it.
    is_gappy : bool
        Whether its rows are taken as they come from a vehicle: one without a target, or without an input where empty
        cells are not taken, is left out and counted, and no fault of all rows.
    """

    help: str
    rows: Callable[[Location], Rows]
    endings: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    columns: Callable[[Location], tuple[tuple[str, ...], list[NDArray[Any]]]] | None = None
    mark: Callable[[Location], Callable[[], object]] | None = None
    origin: Callable[[Location], Origin] = lambda _: Origin()
    is_text: bool = False
    is_gappy: bool = False


@dataclass(frozen=True)
class Location:
    """Where rows are.

    Attributes
    ----------
    text : str
        Path, or the URL of a database without its query.
    reader : Reader
    query : str
        SQL that selects the rows; empty unless it was given.
    table : str
        Table or view whose rows are taken; empty unless it was given.
    shown : str
        What may be shown and logged: the URL without a password, a long query cut.
    """

    text: str
    reader: Reader
    query: str = ""
    table: str = ""
    shown: str = ""


def refuse_password(text: str, option: str) -> None:
    """Raise UsageError when a URL on a command line holds a password: all users of the machine can list processes."""
    if without_password(text) != text:
        raise UsageError(
            f"{option} {without_password(text)}: a password on a command line can be read by every user of this "
            "machine. Leave it out, and put it into ~/.pgpass or PGPASSWORD; an agent also takes the whole "
            "URL from GLASSFLEET_AGENT_DATA, or from a file of settings"
        )
