"""The logs of the processes under test, as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_lines(path: Path, begins: int = 0, ends: int | None = None) -> list[dict[str, Any]]:
    """Return the JSON lines of a log; a SIGKILL may have torn one, and the next life's line then follows in it.

    Parameters
    ----------
    path : Path
    begins, ends : int
        Which bytes of it; None: up to its end.
    """
    result = []
    for line in path.read_bytes()[begins:ends].decode("utf-8", errors="replace").splitlines():
        start = line.rfind('{"') if not line.startswith('{"') else 0
        try:
            result.append(json.loads(line[max(start, 0) :]))
        except json.JSONDecodeError:
            continue
    return [line for line in result if isinstance(line, dict)]
