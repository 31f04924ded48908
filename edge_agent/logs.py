"""Logging of an agent: structlog to standard error, as lines for people or as JSON."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def configure(level: str = "info", form: str = "console") -> None:
    """Send logs of `level` and above to standard error; `form` is ``console`` or ``json``."""
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
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if form == "json" else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def get_logger(name: str, **bound: Any) -> Any:
    """Return a logger with fixed fields."""
    return structlog.get_logger(name, **bound)
