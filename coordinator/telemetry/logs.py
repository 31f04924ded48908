"""Logs of the coordinator: structlog, as lines for people or JSON for machines, on stderr."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import structlog

from schemas.trace import trace_ids

PEERS_LINES = {"answered": "outcome", "message-ignored": "code"}
"""Events that any peer can cause as often as it likes, and the field by which they are told apart."""
LINES_EACH = 200
LINES_SECONDS = 60.0
"""So many lines of one such kind in so many seconds: a flood of messages must not become one of lines."""


def configure(level: str, style: str, *, fleet: str = "") -> None:
    """Set up structlog for this process.

    Parameters
    ----------
    level : str
        ``debug``, ``info``, ``warning`` or ``error``.
    style : str
        ``console`` or ``json``.
    fleet : str
        Said on every line of a service; empty: not said. JSON lines about a run carry its ``trace_id``, too.
    """
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            Bounded(),
            *([_naming(fleet, traced=style == "json")] if fleet else []),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks if style == "json" else structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


class Bounded:
    """A processor that drops lines of `PEERS_LINES` beyond the bound; the next one that is told counts them."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def __call__(self, _logger: Any, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """Return the line, or drop it."""
        event = str(line.get("event"))
        # An accepted answer is one that was asked for, and counts once.
        if event not in PEERS_LINES or line.get("outcome") == "accepted":
            return line
        kind, now = (event, str(line.get(PEERS_LINES[event]))), time.monotonic()
        begun, count = self._seen.get(kind, (now, 0))
        if now - begun >= LINES_SECONDS:
            if count > LINES_EACH:
                line["untold"] = count - LINES_EACH
            begun, count = now, 0
        self._seen[kind] = begun, count + 1
        if count >= LINES_EACH:
            raise structlog.DropEvent
        return line


def _naming(fleet: str, *, traced: bool) -> structlog.typing.Processor:
    """Return a processor that adds the fleet, and the trace of the run that a line is about."""

    def name(_logger: Any, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        line.setdefault("fleet", fleet)
        if traced and line.get("run"):
            line["trace_id"] = trace_ids(fleet, str(line["run"]))[0]
        return line

    return name
