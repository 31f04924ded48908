"""What a recording is read into: signals, each with its own times; the contract between readers and the importer."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import signal as signals
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.errors import DataError, UsageError, os_faults_as


@dataclass(frozen=True)
class Signal:
    """One signal of a recording.

    Attributes
    ----------
    name : str
        As its recording or database has it; unlike that of any other signal of the recording.
    unit : str
        As its recording or database has it; empty: none is told.
    time : ndarray of float64, shape (n,)
        Seconds, in the order of the recording: since its begin, or since 1970 in UTC where it tells the date.
    value : ndarray, shape (n,)
        float64 with NaN, or object of str with None, for no value.
    low, high : float or None
        The least and the greatest that the database or format says it can be; None: it tells nothing.
    description : str
        What it is, in words.
    missing : mapping of str to int
        How many of the values without a number are missing for which reason.
    """

    name: str
    unit: str
    time: NDArray[np.float64]
    value: NDArray[Any]
    low: float | None = None
    high: float | None = None
    description: str = ""
    missing: Mapping[str, int] = field(default_factory=dict)


class Recording(Protocol):
    """A reader of one kind of recording."""

    def __call__(self, path: Path, databases: Sequence[Path], left_out: Counter[str]) -> Iterator[Signal]:
        """Yield the recording's signals.

        Parameters
        ----------
        path : Path
        databases : sequence of Path
            What frames of a bus mean; the first one that knows a frame counts.
        left_out : Counter of str
            Gets what is left out of the recording, by reason (``"error frames"``); complete at the end of the signals.

        Raises
        ------
        schemas.errors.DataError
            It cannot be read; the text names the fault and the way out.
        schemas.errors.UsageError
            An option does not fit: no database for frames of a bus.
        """
        ...


# --- recordings are read in a process of their own, with a limit of memory --------------------------------------------
#
# Its libraries are extras that the agent need not load, and those for MF4 are partly written in C: a damaged file may
# end the process that reads it.


_MEGABYTE: Final = 1 << 20
LEAST_MEMORY: Final = 1024 * _MEGABYTE
"""Of the process; each byte of a recording allows it for some more."""


def read(kind: str, path: Path, databases: Sequence[Path], left_out: Counter[str]) -> Iterator[Signal]:
    """Read a recording of a kind ("bus" or "mf4"); see `Recording`."""
    with os_faults_as(DataError, f"{path}: cannot be read"):
        size = path.stat().st_size
        path.open("rb").close()
    if not size:
        raise DataError("is empty", where=str(path))
    described = sum(database.stat().st_size for database in databases if database.exists())
    most = LEAST_MEMORY + 8 * size + 100 * described
    seconds = 600 + (size + described) // 50_000
    command = [sys.executable, "-P", "-m", "edge_agent.recordings.process", kind, str(path), str(most), str(seconds)]
    command += map(str, databases)
    with subprocess.Popen(  # noqa: S603 - our own program
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert isinstance(process.stdout, io.BufferedReader)
        with contextlib.suppress(OSError):
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, _MEGABYTE)
        end = None
        try:
            end = yield from _received(process.stdout)
        except (EOFError, ValueError):
            process.wait()  # it ended amid a signal
        finally:
            process.kill()
    if end is None:
        raise _ended(path, process.returncode, most)
    _raise(path, end, most)
    left_out.update(end["left_out"])


def _received(stream: io.BufferedReader) -> Generator[Signal, None, dict[str, Any] | None]:
    time: NDArray[np.float64] = np.empty(0)
    while line := stream.readline():
        about = json.loads(line)
        if "signal" not in about:
            return dict(about)
        if not about["same"]:
            time = _array(stream, about["values"])
        value: NDArray[Any] = _array(stream, about["values"])
        if about["words"] is not None:
            words = np.array([*about["words"], None], dtype=object)
            value = words[value.astype(np.intp)]
        name, unit, low, high, description, missing = about["signal"]
        yield Signal(name, unit, time, value, low, high, description, missing)
    return None


def _array(stream: io.BufferedReader, number: int) -> NDArray[np.float64]:
    array = np.empty(number)
    place, view = 0, array.view(np.uint8).data
    while place < len(view):
        more = stream.readinto(view[place:])
        if not more:
            raise EOFError
        place += more
    return array


def _raise(path: Path, end: dict[str, Any], most: int) -> None:
    if "data" in end:
        raise DataError(*end["data"])
    if "usage" in end:
        raise UsageError(end["usage"])
    if "module" in end:
        extra = "mf4" if end["module"] == "asammdf" else "can"
        raise UsageError(
            f"{path}: needs the package {end['module']}, which is not installed; install with:"
            f" pip install 'glassfleet[{extra}]'"
        )
    if "memory" in end:
        raise _too_much(path, most)
    if "broken" in end:
        raise DataError(f"is cut, damaged, or not what its name says ({end['broken']})", where=str(path))


def _ended(path: Path, code: int, most: int) -> DataError:
    if code == -signals.SIGXCPU:
        return DataError("takes much longer to read than a file of its size can", "It is damaged", str(path))
    how = signals.Signals(-code).name if code < 0 else f"exit code {code}"
    if code == -signals.SIGKILL:
        return _too_much(path, most)
    return DataError(f"is damaged: what reads such files ended over it ({how})", where=str(path))


def _too_much(path: Path, most: int) -> DataError:
    what = f"takes more than {most // _MEGABYTE} MB of memory to read"
    return DataError(what, "It is damaged, or to be split where it was recorded", str(path))
