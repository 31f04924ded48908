"""Logging of an agent: structlog to standard error, as lines for people or as JSON."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def configure(level: str = "info", form: str = "console", *, fleet: str = "", agent: str = "") -> None:
    """Send logs to standard error.

    Parameters
    ----------
    level : str
        This one and above.
    form : str
        ``console`` or ``json``.
    fleet, agent : str
        Said on every line of a process with one agent; empty: not said.
    """
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *([_naming(fleet, agent)] if fleet else []),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if form == "json" else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _naming(fleet: str, agent: str) -> structlog.typing.Processor:
    """Return a processor that adds fleet and agent."""

    def name(_logger: Any, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        line.setdefault("fleet", fleet)
        line.setdefault("agent", agent)
        return line

    return name
