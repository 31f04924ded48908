"""Recordings of a bus: frames, and databases that tell what they mean, become signals.

All frames of one id are decoded together, so this takes less time than reading them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cantools.database.can import Message
from cantools.database.can.signal import Signal as Layout
from numpy.typing import NDArray

from edge_agent.recordings import frames as logs
from edge_agent.recordings import values
from edge_agent.recordings.databases import Databases
from edge_agent.recordings.frames import Frames, extract, is_usual, span
from edge_agent.recordings.signals import Signal
from schemas.errors import DataError, UsageError


def read(path: Path, databases: Sequence[Path], left_out: Counter[str]) -> Iterator[Signal]:
    """Yield the signals of a log of a bus: the reader of ASC, BLF, candump and TRC (a `Recording`)."""
    known = databases_for(path, databases)
    yield from decode(path, logs.read(path, left_out), known, left_out)


def databases_for(path: Path, databases: Sequence[Path]) -> Databases:
    """Return the databases of frames; raises UsageError when there are none."""
    if not databases:
        raise UsageError(f"{path}: frames of a bus; say with --database what they mean (a .dbc, .arxml, .kcd or .sym)")
    return Databases(databases)


def decode(path: Path, found: Sequence[Frames], databases: Databases, left_out: Counter[str]) -> Iterator[Signal]:
    """Yield the signals of frames; raises DataError when the databases are not those of this bus."""
    known: list[tuple[Frames, Path, Message]] = []
    for frames in found:
        place = databases.find(frames.frame_id, extended=frames.extended)
        if place is None:
            left_out["frames of an id that no database has"] += len(frames.time)
        else:
            known.append((frames, *place))
    if not known:
        ids = list(dict.fromkeys(f"{frames.frame_id:#x}" for frames in found))
        some = ", ".join(ids[:5]) + (" ..." if len(ids) > 5 else "")
        what = f"none of its {len(ids)} ids is in {databases.names}: {some}"
        raise DataError(what, "Give the database of the bus that was recorded", str(path))
    senders: dict[int, list[Frames]] = defaultdict(list)
    for frames, _, message in known:
        senders[id(message)].append(frames)
    for frames, database, message in known:
        who = _who(frames, senders[id(message)])
        if not message.is_container:
            _check_lengths(path, database, frames, message)
        read_signals = _contained if message.is_container else _plain
        for layout, rows, raw in read_signals(frames, message, left_out):
            read_as = values.read(raw, layout, j1939=message.protocol == "j1939")
            yield Signal(
                databases.name(database, message, layout) + who,
                layout.unit or "",
                frames.time[rows],
                read_as.value,
                read_as.low,
                read_as.high,
                " ".join((layout.comment or "").split()),
                read_as.missing,
            )


def _who(frames: Frames, all_of_message: list[Frames]) -> str:
    """Return what tells apart signals of one message that more than one channel or control unit sent."""
    ids = {other.frame_id for other in all_of_message}
    who = ""
    if len(ids) > 1:  # of J1939 alone: the last byte is the sender
        same = [other for other in ids if other & 0xFF == frames.frame_id & 0xFF]
        who = f" from {frames.frame_id & 0xFF:02X}" if len(same) == 1 else f" from {frames.frame_id:08X}"
    if len({other.channel for other in all_of_message}) > 1:
        who += f" on {frames.channel}"
    return who


def _check_lengths(path: Path, database: Path, frames: Frames, message: Message) -> None:
    needed = max((span(layout)[1] for layout in message.signals if not layout.multiplexer_ids), default=0)
    longest = int(frames.sizes.max())
    if 8 * longest < needed:
        frame = f"{message.name} of {database.name}"
        what = f"frames {frames.frame_id:#x} have {longest} bytes, but {frame} {message.length}"
        raise DataError(what, "It is the database of another bus, or of another version", str(path))


def _plain(frames: Frames, message: Message, left_out: Counter[str]) -> Iterator[tuple[Layout, Any, NDArray[Any]]]:
    layouts = {layout.name: layout for layout in message.signals}
    bits = 8 * frames.sizes.astype(np.int64)
    there: dict[str, NDArray[np.bool_]] = {}

    def has(layout: Layout) -> NDArray[np.bool_]:
        """Return which frames have the signal: they are long enough, and their multiplexer says so."""
        if layout.name not in there:
            rows = bits >= span(layout)[1]
            selector = layouts.get(layout.multiplexer_signal or "")
            if layout.multiplexer_ids and selector is not None and selector is not layout:
                rows &= has(selector)
                rows[rows] = np.isin(extract(frames.data[rows], selector), layout.multiplexer_ids)
            there[layout.name] = rows
        return there[layout.name]

    for layout in message.signals:
        if not is_usual(layout):
            left_out["signals of more than 64 bits, or of an odd form"] += 1
            continue
        rows = has(layout)
        if not layout.multiplexer_ids:
            left_out["values beyond the end of a frame"] += int(np.count_nonzero(~rows))
        if rows.all():
            yield layout, slice(None), extract(frames.data, layout)
        elif rows.any():
            yield layout, rows, extract(frames.data[rows], layout)


def _contained(frames: Frames, message: Message, left_out: Counter[str]) -> Iterator[tuple[Layout, Any, NDArray[Any]]]:
    """Yield the signals of a container (AUTOSAR); its messages stand where each frame says, so frame by frame."""
    found: dict[int, tuple[Layout, list[int], list[Any]]] = {}
    for index, (data, size) in enumerate(zip(frames.data, frames.sizes, strict=True)):
        try:
            parts: Any = message.decode(data[:size].tobytes(), False, False, decode_containers=True)
        except Exception:  # noqa: BLE001 - whatever cantools says of a frame that it cannot decode
            left_out["frames without the container of the database"] += 1
            continue
        for inner, numbers in parts:
            if not isinstance(numbers, dict) or not isinstance(inner, Message):
                left_out["messages of a container that the database does not know"] += 1
                continue
            for layout in inner.signals:
                if layout.name in numbers and is_usual(layout):
                    _, rows, raw = found.setdefault(id(layout), (layout, [], []))
                    rows.append(index)
                    raw.append(numbers[layout.name])
    for layout, rows, raw in found.values():
        kind = np.float64 if layout.is_float else np.int64 if layout.is_signed else np.uint64
        yield layout, np.array(rows), np.array(raw, dtype=kind)
