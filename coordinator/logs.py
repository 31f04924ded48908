"""Logs of the coordinator: structlog, as lines for people or JSON for machines, on stderr."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from schemas.trace import trace_ids

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


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
            *([_naming(fleet, traced=style == "json")] if fleet else []),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks if style == "json" else structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def _naming(fleet: str, *, traced: bool) -> structlog.typing.Processor:
    """Return a processor that adds the fleet, and the trace of the run that a line is about."""

    def name(_logger: Any, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        line.setdefault("fleet", fleet)
        if traced and line.get("run"):
            line["trace_id"] = trace_ids(fleet, str(line["run"]))[0]
        return line

    return name
