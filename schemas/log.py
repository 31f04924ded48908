"""Lines about what happens, an event and its fields each, on standard error: ``Log(agent="v1").info("connected")``.

A vehicle writes its lines itself: structlog brings asyncio and more, 5 MB and 25 ms of every start (measured). The
coordinator has structlog, and sends through it what modules write that vehicles have, too.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Final

from schemas.text import escaped

LEVELS: Final = ("debug", "info", "warning", "error")

_COLOURS: Final = {"debug": 32, "info": 32, "warning": 33, "error": 31}


class LogWriter:
    """Writes lines for people or as JSON.

    Parameters
    ----------
    level : str
        This one of `LEVELS` and above.
    form : str
        ``console`` or ``json``.
    fields
        Said on every line.
    """

    def __init__(self, level: str = "warning", form: str = "console", **fields: str) -> None:
        self._levels = LEVELS[LEVELS.index(level) :]
        self._render = _as_json if form == "json" else _for_people
        self._fields = fields

    def __call__(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        """Write one line, where its level is told; where that cannot be, it is lost, and the work goes on."""
        if level not in self._levels or sys.stderr is None or sys.stderr.closed:
            return
        time = dt.datetime.now(dt.UTC).isoformat().replace("+00:00", "Z")
        line = self._render(time, level, event, {**self._fields, **fields})
        with suppress(OSError, ValueError):  # a full disk, or it was closed meanwhile
            sys.stderr.write(f"{line}\n")


def _as_json(time: str, level: str, event: str, fields: dict[str, Any]) -> str:
    line = {**fields, "event": event, "level": level, "timestamp": time}
    try:
        return json.dumps(line, default=repr, allow_nan=False)
    except (TypeError, ValueError):
        return json.dumps({name: value if isinstance(value, str) else repr(value) for name, value in line.items()})


def _for_people(time: str, level: str, event: str, fields: dict[str, Any]) -> str:
    trace = "".join(f"\n{escaped(line)}" for line in fields.pop("exception", "").splitlines())
    shown = f"{level:9}"
    if sys.stderr.isatty():
        shown = f"\x1b[{_COLOURS[level]}m{shown}\x1b[0m"
    words = [f"{time} [{shown}] {event:30}", *(f"{name}={_word(fields[name])}" for name in sorted(fields))]
    return " ".join(words).rstrip() + trace


def _word(value: Any) -> str:
    """Return a value so that one can see where it ends; a text may be a peer's, and must not move the cursor."""
    is_plain = isinstance(value, str) and value.isprintable() and not set(value) & set(" ='\"")
    return str(value) if is_plain else repr(value)


class Log:
    """Tells events, all with the same fields beside their own.

    Attributes
    ----------
    write : callable
        Of the whole process: takes level, event and fields.
    """

    write: ClassVar[Callable[[str, str, Mapping[str, Any]], None]] = LogWriter()

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def debug(self, event: str, **fields: Any) -> None:
        """Tell what helps to find a fault."""
        Log.write("debug", event, {**self._fields, **fields})

    def info(self, event: str, **fields: Any) -> None:
        """Tell what is as it should be."""
        Log.write("info", event, {**self._fields, **fields})

    def warning(self, event: str, **fields: Any) -> None:
        """Tell what somebody may have to look at."""
        Log.write("warning", event, {**self._fields, **fields})

    def error(self, event: str, **fields: Any) -> None:
        """Tell what failed."""
        Log.write("error", event, {**self._fields, **fields})

    def exception(self, event: str, **fields: Any) -> None:
        """Tell what failed, with the traceback of the exception that is being handled."""
        self.error(event, exception=traceback.format_exc().rstrip(), **fields)
