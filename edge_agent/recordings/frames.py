"""Frames of a bus out of its log: ASC, BLF, candump and TRC, each message read by python-can."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import can
import numpy as np
from cantools.database.can.signal import Signal as Layout
from numpy.typing import NDArray

from edge_agent.recordings.blf import Containers
from edge_agent.recordings.lines import AscLines, LogLines, TrcLines
from schemas.errors import DataError, os_faults_as
from schemas.text import counted


def span(layout: Layout) -> tuple[int, int]:
    """Return the first bit of a signal and the first behind it, in the order of its own bytes."""
    start = int(layout.start)
    if layout.byte_order == "big_endian":
        start = 8 * (start // 8) + 7 - start % 8
    return start, start + int(layout.length)


def is_usual(layout: Layout) -> bool:
    """Whether `extract` can read a signal of this kind: a number of at most 64 bits."""
    return 0 < layout.length <= 64 and (not layout.is_float or layout.length in (16, 32, 64))


def extract(data: NDArray[np.uint8], layout: Layout) -> NDArray[np.generic]:
    """Return a signal's raw numbers, shape (n,): uint64, int64, or floats of its length.

    Parameters
    ----------
    data : ndarray of uint8, shape (n, bytes)
        Frames side by side, with all bytes of the signal.
    layout : Layout
        With `is_usual`.
    """
    first, end = span(layout)
    taken = data[:, first // 8 : (end + 7) // 8]  # nine bytes at most
    if layout.byte_order != "big_endian":
        taken, below = taken[:, ::-1], first % 8
    else:
        below = -end % 8
    # Big-endian by now: the last eight bytes hold all bits but those of a ninth before them.
    low = np.zeros((len(data), 8), dtype=np.uint8)
    low[:, max(0, 8 - taken.shape[1]) :] = taken[:, -8:]
    raw: NDArray[np.uint64] = low.view(">u8").ravel().astype(np.uint64) >> np.uint64(below)
    if taken.shape[1] == 9:
        raw |= taken[:, 0].astype(np.uint64) << np.uint64(64 - below)
    if layout.length < 64:
        raw &= np.uint64((1 << layout.length) - 1)
    if layout.is_float:
        return raw.astype(f"u{layout.length // 8}").view(f"f{layout.length // 8}")
    if not layout.is_signed:
        return raw
    sign = np.uint64(1 << (layout.length - 1))
    return ((raw ^ sign) - sign).view(np.int64)


REMOTE: Final = "remote frames"
ERROR: Final = "error frames"
MOST_FAULTS: Final = 10_000
"""Of lines without a frame: behind so many a file is no log."""

_MEND: Final = "Is it a log of a bus, and of this format?"


@dataclass(frozen=True)
class Frames:
    """The frames of one id on one channel.

    Attributes
    ----------
    channel : str
        Empty: the log tells none.
    frame_id : int
    extended : bool
        Whether the id has 29 bits.
    time : ndarray of float64, shape (n,)
    data : ndarray of uint8, shape (n, bytes)
        Shorter frames end with zeros.
    sizes : ndarray of uint8, shape (n,)
        Bytes of each.
    """

    channel: str
    frame_id: int
    extended: bool
    time: NDArray[np.float64]
    data: NDArray[np.uint8]
    sizes: NDArray[np.uint8]


class Feed(Protocol):
    """A log as python-can is given it."""

    start: float
    first_channel: int
    given: int
    no_frames: str

    def again(self) -> Any:
        """Return the file for a new reader, which goes on behind what was read."""
        ...


def read(path: Path, left_out: Counter[str]) -> list[Frames]:
    """Read a log of a bus; raises DataError when it is none. What is no frame of data is counted in `left_out`."""
    found: dict[tuple[Any, int, bool], tuple[array[float], bytearray, bytearray]] = {}
    frames = 0
    with os_faults_as(DataError, f"{path}: cannot be read"), path.open("rb") as file:
        feed, reader = _open(path, file, left_out)
        for message in _messages(path, feed, reader):
            frames += 1
            if message.is_error_frame:
                left_out[ERROR] += 1
                continue
            if message.is_remote_frame:
                left_out[REMOTE] += 1
                continue
            key = (message.channel, message.arbitration_id, message.is_extended_id)
            kept = found.get(key)
            if kept is None:
                kept = found[key] = (array("d"), bytearray(), bytearray())
            kept[0].append(message.timestamp)
            kept[1].append(len(message.data))
            kept[2].extend(message.data)
    left_out[feed.no_frames] += feed.given - frames
    if not found:
        rest = ", ".join(counted(number, what) for what, number in left_out.items() if number)
        what = "no frames of data in it" + (f", but {rest}" if rest else "")
        raise DataError(what, _MEND, str(path))
    return [
        Frames(
            "" if channel is None else str(channel + feed.first_channel if isinstance(channel, int) else channel),
            frame_id,
            extended,
            np.frombuffer(times) + feed.start,
            *_side_by_side(np.frombuffer(data, dtype=np.uint8), np.frombuffer(sizes, dtype=np.uint8)),
        )
        for (channel, frame_id, extended), (times, sizes, data) in found.items()
    ]


def _side_by_side(data: NDArray[np.uint8], sizes: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    width = int(sizes.max())
    if (sizes == width).all():
        return data.reshape(len(sizes), width), sizes
    table = np.zeros((len(sizes), width), dtype=np.uint8)
    table[np.arange(width) < sizes[:, None]] = data
    return table, sizes


def _open(path: Path, file: Any, left_out: Counter[str]) -> tuple[Feed, Callable[[Any], Iterable[can.Message]]]:
    ending = path.suffix.lower()
    if ending == ".blf":
        return Containers(path, file, left_out), can.BLFReader
    if ending == ".asc":
        return AscLines(path, file, left_out), can.ASCReader
    if ending == ".trc":
        return TrcLines(path, file, left_out), can.TRCReader
    return LogLines(path, file, left_out), can.CanutilsLogReader


def _messages(path: Path, feed: Feed, reader: Callable[[Any], Iterable[can.Message]]) -> Iterator[can.Message]:
    """Yield what python-can reads; it stops at the first thing that it cannot read, and is begun again behind it."""
    faults = frames = 0
    given = -1
    while True:
        try:
            for message in reader(feed.again()):
                frames += 1
                yield message
        except (DataError, OSError):
            raise
        except Exception as fault:  # its readers raise whatever a broken line brings about
            faults += 1
            if given == feed.given:  # nothing was read since the fault before
                raise DataError(f"cannot be read ({fault})", _MEND, str(path)) from fault
            given = feed.given
            if faults > MOST_FAULTS and faults > frames:
                raise DataError(f"{faults} lines or objects are no frames, {frames} are", _MEND, str(path)) from fault
        else:
            return
