"""Where rows are: what the name or URL of a source means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote

from schemas.errors import UsageError

WINDOW: Final = ".window"
"""How the name of a window store ends."""

DATABASES: Final = ("sqlite", "postgresql", "postgres")

_PASSWORD = re.compile(r"^([a-z0-9+.-]+://[^:/@?#]*):([^@/]*)@", re.IGNORECASE)
_QUERY_PASSWORD = re.compile(r"([?&]password=)([^&]*)", re.IGNORECASE)
_LONGEST_QUERY = 60


@dataclass(frozen=True)
class Location:
    """Where rows are.

    Attributes
    ----------
    text : str
        Path, or the URL of a database without its query.
    kind : str
        ``csv`` (plain or gzip-compressed), ``parquet``, ``window`` or ``database``.
    query : str
        SQL that selects the rows; empty unless it was given.
    table : str
        Table or view whose rows are taken; empty unless it was given.
    shown : str
        What may be shown and logged: the URL without a password, a long query cut.
    """

    text: str
    kind: Literal["csv", "parquet", "window", "database"]
    query: str = ""
    table: str = ""
    shown: str = ""


def locate(source: Path | str) -> Location:
    """Tell what a source's name means.

    Parameters
    ----------
    source : Path or str
        A file, or ``sqlite:///file.db?query=...``, ``postgresql://user@host/database?query=...`` (or ``?table=NAME``).
        The query is the last part of the URL and may be written as it is, or percent-encoded.

    Raises
    ------
    UsageError
        It is a URL of something else, or one that names neither query nor table.

    Examples
    --------
    >>> locate("sqlite:///drives.db?query=SELECT speed, quality FROM rows").query
    'SELECT speed, quality FROM rows'
    """
    text = str(source)
    scheme = re.match(r"^([A-Za-z][A-Za-z0-9+.-]+)://", text)
    if scheme is None:
        kind: Literal["csv", "parquet", "window"] = "csv"
        if text.endswith(".parquet"):
            kind = "parquet"
        elif text.endswith(WINDOW):
            kind = "window"
        return Location(text, kind, shown=text)
    name = scheme.group(1).lower()
    if name.partition("+")[0] not in DATABASES:
        raise UsageError(f"{without_password(text)}: {_advice(name)}")
    found = re.search(r"[?&](query|table)=(.*)$", text, re.DOTALL)
    if found is None or not found.group(2).strip():
        raise UsageError(
            f"{without_password(text)}: say which rows: end the URL with ?query=SELECT ... or ?table=NAME, in quotes"
        )
    url, words = text[: found.start()], unquote(found.group(2)).strip()
    short = words if len(words) <= _LONGEST_QUERY else f"{words[:_LONGEST_QUERY]}..."
    shown = f"{without_password(url)}{text[found.start()]}{found.group(1)}={' '.join(short.split())}"
    if found.group(1) == "table":
        return Location(url, "database", table=words, shown=shown)
    return Location(url, "database", query=words, shown=shown)


def without_password(text: str) -> str:
    """Return a URL with *** for its password, to show and to log."""
    return _QUERY_PASSWORD.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text))


def refuse_password(text: str, option: str) -> None:
    """Raise UsageError when a URL on a command line holds a password: all users of the machine can list processes."""
    if without_password(text) != text:
        raise UsageError(
            f"{option} {without_password(text)}: a password on a command line can be read by every user of this "
            "machine. Leave it out, and put it into ~/.pgpass or PGPASSWORD; or put the whole URL into an environment "
            "variable (GLASSFLEET_AGENT_DATA) or a file of settings"
        )


def _advice(name: str) -> str:
    if name in ("mqtt", "mqtts"):
        return (
            "a live stream is collected into a window first, with glassfleet data collect --source URL "
            "--store drive.window; then give drive.window here"
        )
    return f"{name}:// is not known here; give a .csv, .csv.gz, .parquet or .window file, sqlite:/// or postgresql://"
