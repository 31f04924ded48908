"""The process that reads one recording, for ``edge_agent.recordings.signals``.

Called with the kind of recording, its file, bytes of memory, seconds, and the databases. It writes signals to standard
output: a line of JSON, and behind it the bytes of its arrays.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from edge_agent.recordings.signals import Signal
from schemas.errors import DataError, UsageError, one_line


def main() -> None:
    """Read within the limits."""
    kind, name, most, seconds, *databases = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_DATA, (int(most), resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(1), "wb", buffering=1 << 20)
    os.dup2(2, 1)  # what a library prints is no signal
    left_out: Counter[str] = Counter()
    try:
        last: NDArray[np.float64] | None = None
        for signal in read_here(kind, Path(name), [*map(Path, databases)], left_out):
            last = _write(out, signal, last)
        end: dict[str, Any] = {"left_out": +left_out}
    except DataError as fault:
        end = {"data": [fault.what, fault.mend, fault.where]}
    except UsageError as fault:
        end = {"usage": str(fault)}
    except ModuleNotFoundError as fault:
        end = {"module": fault.name}
    except BrokenPipeError:
        return
    except MemoryError:
        end = {"memory": True}
    except Exception as fault:  # noqa: BLE001 - libraries raise whatever a broken file brings about
        end = {"broken": f"{type(fault).__name__}: {one_line(fault)}"}
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))  # room to say so
    out.write(json.dumps(end).encode() + b"\n")
    out.flush()
    os._exit(0)  # libraries have nothing more to do


def read_here(kind: str, path: Path, databases: Sequence[Path], left_out: Counter[str]) -> Iterator[Signal]:
    """Read a recording of a kind ("bus" or "mf4") in this process; see `Recording`."""
    if kind == "mf4":
        from edge_agent.recordings.mf4 import read  # noqa: PLC0415 - each is an extra
    else:
        from edge_agent.recordings.bus import read  # noqa: PLC0415
    yield from read(path, databases, left_out)


def _write(out: BinaryIO, signal: Signal, last: NDArray[np.float64] | None) -> NDArray[np.float64]:
    words = None
    value = signal.value
    if value.dtype.kind == "O":
        given = [word for word in dict.fromkeys(value.tolist()) if word is not None]
        codes = {None: -1} | {word: code for code, word in enumerate(given)}
        value, words = np.array([codes[word] for word in value.tolist()], dtype=np.float64), given
    same = last is not None and (signal.time is last or np.array_equal(signal.time, last, equal_nan=True))
    about = [signal.name, signal.unit, signal.low, signal.high, signal.description, dict(signal.missing)]
    out.write(json.dumps({"signal": about, "values": len(value), "words": words, "same": same}).encode() + b"\n")
    arrays = [value] if same else [signal.time, value]
    out.writelines(np.ascontiguousarray(array, dtype=np.float64).data for array in arrays)
    return signal.time


if __name__ == "__main__":
    main()
