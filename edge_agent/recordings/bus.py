"""Recordings of a bus: frames, and databases that tell what they mean, become signals.

All frames of one id are decoded together, so this takes less time than reading them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from cantools.database.can import Message
from cantools.database.can.signal import Signal as Layout
from numpy.typing import NDArray

from edge_agent.recordings import frames as logs
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
            read_as = values_of(raw, layout, j1939=message.protocol == "j1939")
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


OUTSIDE: Final = "outside the range of the database"
NO_WORD: Final = "no word for it in the database"
ALL_ONES: Final = "all bits set, and no range in the database"
NOT_AVAILABLE: Final = "not available (J1939)"
ERROR: Final = "error (J1939)"
NOT_A_NUMBER: Final = "not a number"

_NO_STATE: Final = re.compile(
    r"(.*[_ ])?(sna|n/?a|not[_ -]?avail\w*|unavail\w*|invalid\w*|(signal|value)[_ ]?invalid)", re.IGNORECASE
)
"""Words that are no state of anything."""
_NO_NUMBER: Final = re.compile(
    _NO_STATE.pattern
    + r"|.*\b(err(or)?|faulty?|failure)\b.*|(init|reserved|unused|undefined|unknown|default)\w*([_ ].*)?",
    re.IGNORECASE,
)
"""Words that may name single values of a number."""


@dataclass(frozen=True)
class Values:
    """A signal's values, shape (n,), how many of them are missing, by reason, and its limits; see `Signal`."""

    value: NDArray[Any]
    missing: Counter[str]
    low: float | None = None
    high: float | None = None


def values_of(raw: NDArray[Any], layout: Layout, *, j1939: bool = False) -> Values:
    """Return what raw numbers mean.

    Parameters
    ----------
    raw : ndarray of uint64, int64 or floats, shape (n,)
    layout : cantools signal
    j1939 : bool
        Its message is one of SAE J1939, where the highest numbers of each length are no values.
    """
    words = None if layout.is_float else _words(layout)
    return _of_words(raw, words) if words else _of_numbers(raw, layout, j1939=j1939)


def _words(layout: Layout) -> dict[int, str] | None:
    """Return the words of a signal that is a state, None of one that is a number; decided by the database alone."""
    named = {int(number): str(word) for number, word in (layout.choices or {}).items()}
    if not named or layout.unit not in (None, "", "-") or (layout.scale, layout.offset) != (1, 0):
        return None
    low, high = _raw_range(layout)
    if all(number in named for number in range(low, high + 1)[: len(named) + 1]):
        return named
    states = [word for word in named.values() if not _NO_NUMBER.fullmatch(word)]
    return named if len(states) >= 2 and layout.length <= 8 else None


def _raw_range(layout: Layout) -> tuple[int, int]:
    low = -(1 << layout.length - 1) if layout.is_signed else 0
    high = low + (1 << layout.length) - 1
    if layout.minimum is not None and layout.maximum is not None:
        low, high = max(low, int(layout.minimum)), min(high, int(layout.maximum))
    return low, high


def _of_words(raw: NDArray[Any], named: dict[int, str]) -> Values:
    missing: Counter[str] = Counter()
    numbers, where, counts = np.unique(raw, return_inverse=True, return_counts=True)
    texts = np.empty(len(numbers), dtype=object)
    for index, (number, count) in enumerate(zip(numbers.tolist(), counts.tolist(), strict=True)):
        word = named.get(number)
        if word is not None and not _NO_STATE.fullmatch(word):
            texts[index] = word
        else:
            missing[NO_WORD if word is None else f"{word} (a word of the database)"] += count
    return Values(texts[where.reshape(-1)], missing)


def _of_numbers(raw: NDArray[Any], layout: Layout, *, j1939: bool) -> Values:
    missing: Counter[str] = Counter()
    value = raw.astype(np.float64) * float(layout.scale) + float(layout.offset)
    low, high = (None if end is None else float(end) for end in (layout.minimum, layout.maximum))

    def none(where: NDArray[np.bool_], why: str) -> None:
        where &= ~np.isnan(value)
        if number := int(np.count_nonzero(where)):
            missing[why] += number
            value[where] = np.nan

    if layout.is_float:
        missing.update({NOT_A_NUMBER: int(np.isnan(value).sum())} if np.isnan(value).any() else {})
        none(np.isinf(value), NOT_A_NUMBER)
    else:
        for number, word in (layout.choices or {}).items():
            scaled = float(number) * float(layout.scale) + float(layout.offset)
            if _NO_NUMBER.fullmatch(str(word)) or _is_outside(np.array([scaled]), layout)[0]:
                none(raw == number, f"{word} (a word of the database)")
        if j1939 and not layout.is_signed:
            _marks_of_j1939(raw, layout, none)
        if low is None and high is None and not layout.is_signed and layout.length >= 8 and not j1939:
            none(raw == (1 << layout.length) - 1, ALL_ONES)
    none(_is_outside(value, layout), OUTSIDE)
    return Values(value, missing, low, high)


def _marks_of_j1939(raw: NDArray[Any], layout: Layout, none: Any) -> None:
    if layout.length >= 8:
        top = raw >> np.uint64(layout.length - 8)
        none(top == 0xFF, NOT_AVAILABLE)
        none(top == 0xFE, ERROR)
    elif layout.length > 1:
        none(raw == (1 << layout.length) - 1, NOT_AVAILABLE)
        none(raw == (1 << layout.length) - 2, ERROR)


def _is_outside(value: NDArray[np.float64], layout: Layout) -> NDArray[np.bool_]:
    """Return which values are outside the range, by more than the rounding of the range itself."""
    half = 0.0 if layout.is_float else abs(float(layout.scale)) / 2
    outside = np.zeros(len(value), dtype=np.bool_)
    if layout.minimum is not None:
        outside |= value < float(layout.minimum) - half
    if layout.maximum is not None:
        outside |= value > float(layout.maximum) + half
    return outside
