"""The kinds of live sources. Each module with an `ADAPTER` is one; nothing else names it."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path

from edge_agent.live.port import Adapter
from edge_agent.recordings import RECORDINGS
from edge_agent.sources.readers import kind_of
from schemas.errors import UsageError
from schemas.text import without_password


@cache
def adapters() -> tuple[Adapter, ...]:
    """Return every adapter, by the name of its module."""
    modules = (import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return tuple(module.ADAPTER for module in modules)


def adapter_of(source: str) -> Adapter:
    """Return the adapter of a source; raises UsageError for a URL of something else."""
    scheme = source.partition(":")[0]
    for adapter in adapters():
        if scheme in adapter.schemes and scheme != source:
            return adapter
    if "://" in source:
        known = ", ".join(f"{name}:" for adapter in adapters() for name in adapter.schemes)
        raise UsageError(
            f"--source {without_password(source)}: no live source is called {scheme}:. Give one of {known} a file or "
            "pipe of JSON lines, a table or recording to replay, or -"
        )
    kind = "table" if is_table(source) else "lines"
    return next(adapter for adapter in adapters() if adapter.files == kind)


def is_table(source: str) -> bool:
    """Whether a source is a recording or table, to be replayed: of a kind that stays as it is."""
    if Path(source.partition("?")[0]).suffix.lower() in RECORDINGS:
        return True
    _, reader = kind_of(source)
    return reader is not None and reader.mark is None
