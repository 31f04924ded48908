"""Samples as JSON: an object of fields, or one signal at a time, as {"ts": ..., "path": ..., "value": ...}."""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import Any, Final

from edge_agent.live.port import MAX_BYTES, LiveSample

TOO_LONG: Final = f"a sample of more than {MAX_BYTES} bytes"

_LATEST: Final = 1e11
"""Seconds; no clock is in the year 5138, so a larger number is one of milliseconds or less."""


def parse(data: bytes) -> LiveSample | str:
    """Return a sample, or in words why it is none."""
    if len(data) > MAX_BYTES:
        return TOO_LONG
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as fault:
        return f"not JSON: {fault}"[:200]
    if not isinstance(value, dict):
        return "a sample is a JSON object of field and value"
    if value.keys() == {"ts", "path", "value"} and isinstance(value["path"], str):
        try:
            return LiveSample({value["path"]: value["value"]}, seconds_of(value["ts"]), is_whole=False)
        except ValueError as fault:
            return f"ts: {fault}"
    return LiveSample(value)


def seconds_of(value: Any) -> float:
    """Return a time: a number of seconds, or an ISO 8601 text (of UTC, unless it says otherwise) as seconds since 1970.

    Raises
    ------
    ValueError
        It is none.
    """
    if isinstance(value, str):
        try:
            at = dt.datetime.fromisoformat(value)
            return (at if at.tzinfo else at.replace(tzinfo=dt.UTC)).timestamp()
        except ValueError:
            pass
        try:
            value = float(value)
        except ValueError:
            raise ValueError(f"{value[:40]!r} is no time: seconds, or 2026-03-01T14:05:09Z") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{str(value)[:40]} is no time: seconds, or 2026-03-01T14:05:09Z")
    if abs(value) > _LATEST:
        raise ValueError(f"{value:g} is no time in seconds: milliseconds? Divide by 1000")
    return float(value)
