"""Logs of the coordinator: structlog, as lines for people or JSON for machines, on stderr."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from typing import Any

import structlog

from schemas.log import Log

PEERS_LINES = {
    "answered": ("outcome", 200),
    "message-ignored": ("code", 200),
    "refused": ("code", 20),
    "cannot-take-connections": ("reason", 1),
    "failed": ("reason", 1),
    "fault-page-failed": ("fault", 1),
    "page-failed": ("fault", 1),
    "wrong-token": ("", 1),
}
"""Events that any peer can cause as often as it likes, the field by which they are told apart, and how many of one kind
are told in `LINES_SECONDS`: a flood of messages must not become one of lines."""
LINES_SECONDS = 60.0


def configure(level: str, style: str, *, fleet: str = "") -> None:
    """Set up structlog for this process.

    Parameters
    ----------
    level : str
        ``debug``, ``info``, ``warning`` or ``error``.
    style : str
        ``console`` or ``json``.
    fleet : str
        Said on every line of a service; empty: not said.
    """
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            Bounded(),
            *([lambda _logger, _method, line: {"fleet": fleet, **line}] if fleet else []),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks if style == "json" else structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    Log.write = lambda level, event, fields: getattr(structlog.get_logger(), level)(event, **fields)


class Bounded:
    """A processor that drops lines of `PEERS_LINES` beyond the bound, and tells how many when the time is over."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}
        self._untold: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def __call__(self, _logger: Any, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """Return the line, or drop it."""
        event = str(line.get("event"))
        if event not in PEERS_LINES or "untold" in line:
            return line
        field, most = PEERS_LINES[event]
        kind, now = (event, str(line.get(field, ""))), time.monotonic()
        with self._lock:
            begun, count = self._seen.get(kind, (now, 0))
            if now - begun >= LINES_SECONDS:
                begun, count = now, 0
            self._seen[kind] = begun, count + 1
            if count < most:
                return line
            self._untold[kind] += 1
            if self._untold[kind] == 1:
                later = threading.Timer(LINES_SECONDS, self._tell_rest, (kind, field))
                later.daemon = True
                later.start()
        raise structlog.DropEvent

    def _tell_rest(self, kind: tuple[str, str], field: str) -> None:
        with self._lock:
            untold = self._untold.pop(kind)
        about = {field: kind[1]} if field else {}
        structlog.get_logger("coordinator").warning(kind[0], untold=untold, **about)
