"""What is found out about a table: its columns, and each fault with its place and how to mend it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from schemas.errors import DataError


@dataclass(frozen=True)
class Fault:
    """Something about a table.

    Attributes
    ----------
    level : str
        ``error``: an agent refuses the table; ``warning``: worth a look; ``note``: good to know.
    what : str
        What is so, in words.
    mend : str
        What to do; may be empty for a note.
    column : str
        Empty: the whole table.
    lines : tuple of int
        The first places: lines of a CSV file (the header is line 1), else rows, counted from 1.
    count : int
        How many such places there are.
    """

    level: Literal["error", "warning", "note"]
    what: str
    mend: str = ""
    column: str = ""
    lines: tuple[int, ...] = ()
    count: int = 0


@dataclass
class Column:
    """What a column holds.

    Attributes
    ----------
    name : str
    role : str
        ``input``, ``target`` or ``split``.
    kind : str
        ``number``, ``text``, or ``empty``.
    missing : int
        Cells without a value.
    different : int
        How many different values there are.
    low, high, mean : float or None
        Of the finite numbers; None for text.
    common : dict of str to int
        The most frequent texts and how often each occurs.
    """

    name: str
    role: str = "input"
    kind: str = "empty"
    missing: int = 0
    different: int = 0
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    common: dict[str, int] = field(default_factory=dict)


@dataclass
class Cells:
    """A table as it stands: cells by column, and where each row is.

    Attributes
    ----------
    names : tuple of str
        As written, possibly empty or double.
    columns : list of list
        Cells, as text or as the database's values.
    lines : list of int
        Place of each row, as `Findings.place` says.
    """

    names: tuple[str, ...]
    columns: list[list[Any]]
    lines: list[int]


@dataclass
class Findings:
    """What was found.

    Attributes
    ----------
    source : str
        File, or URL without a password.
    rows : int
        Rows that could be read.
    train : int or None
        Of those, how many train; None without a split column.
    place : str
        What `Fault.lines` count: ``line`` or ``row``.
    columns : list of Column
    faults : list of Fault
        Errors first.
    """

    source: str
    rows: int = 0
    train: int | None = None
    place: str = "line"
    columns: list[Column] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def refuse(self, fault: DataError) -> None:
        """Add why the table cannot be read."""
        where = "" if fault.where in {"", self.source} else f"{fault.where}: "
        self.faults.append(Fault("error", where + fault.what, fault.mend))

    @property
    def usable(self) -> bool:
        """Whether an agent takes the table: there is no error."""
        return all(fault.level != "error" for fault in self.faults)

    def to_document(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {**asdict(self), "usable": self.usable}
