"""Measurements in ASAM MDF files (MF4, and MDF 3): samples as they were taken, and the frames of buses among them.

asammdf reads them. It is loaded in a process of its own alone (``process``): it is large, and its part in C trusts
what a file says about itself.
"""

from __future__ import annotations

import re
import shutil
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Final

import numpy as np
from asammdf import MDF
from asammdf.blocks.utils import MdfException
from numpy.typing import NDArray

from edge_agent.recordings import bus
from edge_agent.recordings.frames import ERROR, REMOTE, Frames
from edge_agent.recordings.signals import Signal
from schemas.errors import DataError

MOST_TOGETHER: Final = 1 << 26
"""Bytes of samples that are read at once."""
INVALID: Final = "marked invalid"
NO_NUMBER: Final = "no number in the file"
NO_TEXT: Final = "no text in the file"
_BUS_EVENT: Final = 2
_LIMITS_VALID: Final = 0x10
_MASTERS: Final = {2: "an angle", 3: "a distance", 4: "an index"}
_FRAME: Final = "CAN_DataFrame"


@dataclass(frozen=True)
class _Channel:
    group: int
    index: int
    name: str
    described: Any


def read(path: Path, databases: Sequence[Path], left_out: Counter[str]) -> Iterator[Signal]:
    """Yield the signals of a measurement (a `Recording`); its frames are decoded when there are databases."""
    with TemporaryDirectory() as folder, _opened(path, Path(folder), left_out) as mdf:
        begin = mdf.header.start_time
        # Without a zone it is the logger's own clock; taken as UTC, so that no machine's own counts.
        start = (begin if begin.tzinfo else begin.replace(tzinfo=UTC)).timestamp()
        channels: list[_Channel] = []
        frames: list[Frames] = []
        for number, group in enumerate(mdf.groups):
            is_bus = getattr(group.channel_group, "flags", 0) & _BUS_EVENT
            if is_bus and any("Frame" in channel.name for channel in group.channels):
                frames.extend(_frames(mdf, number, start, left_out))
            else:
                channels.extend(_channels(mdf, number, left_out))
        read_any = False
        for signal in _measured(mdf, channels, start, left_out):
            read_any = True
            yield signal
        if frames and not databases and read_any:
            left_out["frames of a bus, without a database"] += sum(len(of_id.time) for of_id in frames)
        elif frames:
            yield from bus.decode(path, frames, bus.databases_for(path, databases), left_out)
        elif not read_any:
            raise DataError("no samples in it", where=str(path))


def _opened(path: Path, folder: Path, left_out: Counter[str]) -> Any:
    """Open a measurement; of one that was cut in its samples a copy that says so, as asammdf refuses it."""
    options: dict[str, Any] = {"process_bus_logging": False}
    try:
        return MDF(path, **options)
    except MdfException:
        copy = folder / "cut.mf4"
        shutil.copyfile(path, copy)
        with copy.open("r+b") as file:
            if not _shortened(file, path.stat().st_size):
                raise
    mdf = MDF(copy, **options)
    left_out["ends cut off"] += 1
    return mdf


def _shortened(file: BinaryIO, size: int) -> bool:
    """Make blocks of samples (DT) end where the file does; return whether one did not."""

    def words(place: int, number: int) -> tuple[int, ...]:
        file.seek(place)
        return struct.unpack(f"<{number}Q", file.read(8 * number))

    shortened = False
    seen: set[int] = set()
    try:
        (group,) = words(64 + 24, 1)  # behind the identification: the header, whose first link it is
        while group and group not in seen:
            seen.add(group)
            group, _, samples, _ = words(group + 24, 4)
            file.seek(samples)
            if samples and file.read(4) == b"##DT" and samples + words(samples + 8, 1)[0] > size:
                file.seek(samples + 8)
                file.write(struct.pack("<Q", size - samples))
                shortened = True
    except (struct.error, OSError, ValueError):
        return False
    return shortened


def _channels(mdf: Any, number: int, left_out: Counter[str]) -> Iterator[_Channel]:
    """Yield the channels of a group that are measured over time."""
    group = mdf.groups[number]
    master = mdf.masters_db.get(number)
    over = None if master is None else _MASTERS.get(getattr(group.channels[master], "sync_type", 1))
    for index, channel in enumerate(group.channels):
        if index == master:
            continue
        if master is None or over:
            left_out[f"channels over {over}, not over time" if over else "channels without times"] += 1
        elif not mdf.groups[number].channel_group.cycles_nr:
            left_out["channels without samples"] += 1
        else:
            yield _Channel(number, index, channel.name, channel)


def _names(mdf: Any, channels: list[_Channel]) -> list[str]:
    """Return a name of each channel; where more than one has it, with what its group is called, or with its place."""
    once = Counter(channel.name for channel in channels)
    called = {channel.group: getattr(mdf.groups[channel.group].channel_group, "acq_name", "") for channel in channels}
    longer = [f"{c.name} ({called[c.group]})" if called[c.group] else c.name for c in channels]
    twice = Counter(longer)
    return [
        channel.name
        if once[channel.name] == 1
        else name
        if twice[name] == 1
        else f"{channel.name} ({channel.group + 1}.{channel.index + 1})"
        for channel, name in zip(channels, longer, strict=True)
    ]


def _measured(mdf: Any, channels: list[_Channel], start: float, left_out: Counter[str]) -> Iterator[Signal]:
    names = _names(mdf, channels)
    whole: dict[int, int] = {}
    place = 0
    while place < len(channels):
        group = channels[place].group
        if group not in whole:
            whole[group] = _whole_records(mdf, group, left_out)
        together = max(1, MOST_TOGETHER // (8 * max(whole[group], 1)))
        end = place + 1
        while end < len(channels) and end < place + together and channels[end].group == group:
            end += 1
        if whole[group]:
            pairs: Any = [(None, channel.group, channel.index) for channel in channels[place:end]]
            samples = mdf.select(pairs, record_count=whole[group], copy_master=False)
            stamps = time = np.empty(0)
            for channel, name, sample in zip(channels[place:end], names[place:end], samples, strict=True):
                if sample.timestamps is not stamps:
                    stamps = sample.timestamps
                    time = np.asarray(stamps, dtype=np.float64) + start
                yield from _signal(channel, name, sample, time, left_out)
        place = end


def _whole_records(mdf: Any, number: int, left_out: Counter[str]) -> int:
    """Return how many records of a group its file has; of one that was cut fewer than it says."""
    group = mdf.groups[number]
    cycles = int(group.channel_group.cycles_nr)
    size = int(group.channel_group.samples_byte_nr) + int(getattr(group.channel_group, "invalidation_bytes_nr", 0))
    if not size or not hasattr(group, "get_data_blocks"):
        return cycles
    here = Path(mdf.name).stat().st_size
    there = 0
    for block in group.get_data_blocks():
        if block.address + block.compressed_size <= here:
            there += block.original_size
            continue
        if block.compressed_size == block.original_size:
            there += max(0, here - block.address)
        break
    if there // size < cycles:
        left_out["records cut at the end"] += cycles - there // size
    return min(cycles, there // size)


def _signal(
    channel: _Channel, name: str, sample: Any, time: NDArray[np.float64], left_out: Counter[str]
) -> Iterator[Signal]:
    values = np.asarray(sample.samples)
    if values.ndim != 1 or values.dtype.kind not in "biufSUO" or len(values) != len(time):
        left_out["channels of arrays, bytes or structures"] += 1
        return
    missing: Counter[str] = Counter()
    if values.dtype.kind in "SUO":
        values = _texts(values, sample.encoding or "utf-8", missing)
    else:
        values = values.astype(np.float64)
        values[np.isinf(values)] = np.nan
        missing[NO_NUMBER] += int(np.isnan(values).sum())
    if sample.invalidation_bits is not None and (invalid := np.asarray(sample.invalidation_bits, dtype=bool)).any():
        is_number = values.dtype.kind == "f"
        empty = np.isnan(values) if is_number else values == None  # noqa: E711 - of each
        missing[INVALID] += int((invalid & ~empty).sum())
        values[invalid] = np.nan if is_number else None
    has_limits = getattr(channel.described, "flags", 0) & _LIMITS_VALID
    yield Signal(
        name,
        sample.unit or "",
        time,
        values,
        float(channel.described.lower_limit) if has_limits else None,
        float(channel.described.upper_limit) if has_limits else None,
        " ".join(re.sub(r"<[^>]*>", " ", sample.comment or "").split()),
        +missing,
    )


def _texts(values: NDArray[Any], encoding: str, missing: Counter[str]) -> NDArray[Any]:
    """Return words, None for empty ones."""
    if values.dtype.kind == "O":
        found, where = np.unique([_word(value, encoding) for value in values], return_inverse=True)
    else:
        found, where = np.unique(values, return_inverse=True)
        found = np.array([_word(value, encoding) for value in found], dtype=object)
    words = np.empty(len(found), dtype=object)
    words[:] = [str(word).strip("\0 ") or None for word in found]
    texts = words[where.reshape(-1)]
    missing[NO_TEXT] += int(np.count_nonzero(texts == None))  # noqa: E711 - of each
    return texts


def _word(value: Any, encoding: str) -> str:
    return value.decode(encoding, errors="replace") if isinstance(value, bytes) else str(value)


def _frames(mdf: Any, number: int, start: float, left_out: Counter[str]) -> Iterator[Frames]:
    """Yield the frames of a group, by channel and id."""
    group = mdf.groups[number]
    names = {channel.name for channel in group.channels}
    cycles = int(group.channel_group.cycles_nr)
    if _FRAME not in names:
        kind = ERROR if "CAN_ErrorFrame" in names else REMOTE if "CAN_RemoteFrame" in names else "frames of no CAN bus"
        left_out[kind] += cycles
        return
    if not (cycles := _whole_records(mdf, number, left_out)):
        return
    places = {channel.name.removeprefix(f"{_FRAME}."): index for index, channel in enumerate(group.channels)}

    def part(name: str, otherwise: Any = None) -> NDArray[Any]:
        if name not in places:
            return np.full(cycles, otherwise)
        (sample,) = mdf.select([(None, number, places[name])], record_count=cycles, raw=True)
        return np.asarray(sample.samples)

    data = part("DataBytes")
    if "ID" not in places or data.ndim != 2:
        left_out["frames of a layout that is not read"] += cycles
        return
    time = np.asarray(mdf.get_master(number, record_count=cycles), dtype=np.float64) + start
    raw_ids = part("ID").astype(np.uint32)
    ids = raw_ids & np.uint32(0x1FFFFFFF)
    extended = part("IDE").astype(bool) if "IDE" in places else (raw_ids >> np.uint32(31)).astype(bool) | (ids > 0x7FF)
    sizes = np.minimum(part("DataLength", data.shape[1]), data.shape[1]).astype(np.uint8)
    channels = part("BusChannel", 0).astype(np.uint64)
    keys = (channels << np.uint64(32)) | (extended.astype(np.uint64) << np.uint64(31)) | ids
    order = np.argsort(keys, kind="stable")
    _, begins = np.unique(keys[order], return_index=True)
    for rows in np.split(order, begins[1:]):
        first = rows[0]
        channel = str(int(channels[first])) if "BusChannel" in places else ""
        width = int(sizes[rows].max())
        yield Frames(channel, int(ids[first]), bool(extended[first]), time[rows], data[rows, :width], sizes[rows])
