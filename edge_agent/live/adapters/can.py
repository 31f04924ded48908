"""Signals of a CAN bus, by a database that says what its frames mean; decoded as recordings of a bus are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import numpy as np

from edge_agent.live.port import Adapter, LiveSample, SampleRequest, log
from schemas.errors import DataError, UsageError

if TYPE_CHECKING:
    import can

    from edge_agent.recordings.databases import Databases
    from edge_agent.recordings.frames import Frames

AGAIN = 2.0
"""Seconds until a bus that went down is opened again."""

_AT_ONCE = 500
"""Most frames that are decoded together; what has come already is, and nothing is waited for."""

_EXAMPLE = "can:can0?database=car.dbc (a .dbc, .arxml, .kcd or .sym; &interface=..., if it is not socketcan)"


def read(asked: SampleRequest) -> Iterator[LiveSample | str]:
    """Open a channel, and the databases of its frames."""
    from edge_agent.recordings.databases import Databases  # noqa: PLC0415 - the extra `can`

    channel, _, query = asked.source.removeprefix("can:").partition("?")
    options = parse_qs(query)
    files = options.pop("database", [])
    interface = options.pop("interface", ["socketcan"])[-1]
    if not channel or not files or options:
        raise UsageError(f"--source {asked.source}: write {_EXAMPLE}")
    databases = Databases([Path(file) for file in files])
    return _samples(asked, channel, interface, databases, _opened(asked, channel, interface))


def _opened(asked: SampleRequest, channel: str, interface: str) -> can.BusABC:
    import can  # noqa: PLC0415 - the extra `can`

    more: dict[str, Any] = {"fd": True} if interface == "socketcan" else {}  # which takes the other frames, too
    try:
        return can.Bus(channel=channel, interface=interface, **more)
    except (can.CanError, OSError, ImportError, ValueError) as fault:
        mend = "Is the channel there, and up (ip link set can0 up type can bitrate 500000)?"
        raise DataError(f"cannot be opened ({str(fault)[:200]})", mend, f"--source {asked.source}") from fault


def _samples(
    asked: SampleRequest, channel: str, interface: str, databases: Databases, bus: can.BusABC
) -> Iterator[LiveSample | str]:
    import can  # noqa: PLC0415 - the extra `can`

    log.info("source-connected", source=asked.source)
    try:
        while not asked.stopping.is_set():
            try:
                found = _received(bus)
            except (can.CanError, OSError) as fault:
                log.warning("source-lost", source=asked.source, reason=str(fault)[:200], hint="it is tried again")
                bus.shutdown()
                bus = _again(asked, channel, interface) or bus
                continue
            if found:
                yield from _decoded(asked, databases, found)
    finally:
        bus.shutdown()


def _again(asked: SampleRequest, channel: str, interface: str) -> can.BusABC | None:
    while not asked.stopping.wait(AGAIN):
        try:
            return _opened(asked, channel, interface)
        except DataError:
            continue
    return None


def _received(bus: can.BusABC) -> list[can.Message]:
    """Return the frames of data that have come; waits a little for the first."""
    found, message = [], bus.recv(0.2)
    while message is not None:
        if not message.is_error_frame and not message.is_remote_frame:
            found.append(message)
        message = bus.recv(0.0) if len(found) < _AT_ONCE else None
    return found


def _decoded(asked: SampleRequest, databases: Databases, found: list[can.Message]) -> Iterator[LiveSample | str]:
    from edge_agent.recordings.bus import decode  # noqa: PLC0415 - the extra `can`

    values: dict[float, dict[str, Any]] = defaultdict(dict)
    for frames in _by_id(found):
        try:
            if databases.find(frames.frame_id, extended=frames.extended) is None:
                continue
            for signal in decode(Path(asked.source), [frames], databases, Counter()):
                name = _name(signal.name, frames.frame_id, asked.signals)
                if name:
                    asked.units[name] = signal.unit
                for at, value in zip(signal.time.tolist(), signal.value.tolist(), strict=True) if name else ():
                    values[at][name] = value
        except DataError as fault:
            yield str(fault)
    for at in sorted(values):
        yield LiveSample(values[at], at, is_whole=False)


def _by_id(found: list[can.Message]) -> list[Frames]:
    from edge_agent.recordings.frames import Frames  # noqa: PLC0415 - the extra `can`

    groups: dict[tuple[int, bool], list[can.Message]] = defaultdict(list)
    for message in found:
        groups[message.arbitration_id, message.is_extended_id].append(message)
    result = []
    for (frame_id, is_extended), messages in groups.items():
        sizes = np.array([len(message.data) for message in messages], dtype=np.uint8)
        data = np.zeros((len(messages), sizes.max()), dtype=np.uint8)
        for row, message in zip(data, messages, strict=True):
            row[: len(message.data)] = list(message.data)
        time = np.array([message.timestamp for message in messages])
        result.append(Frames("", frame_id, is_extended, time, data, sizes))
    return result


def _name(name: str, frame_id: int, wanted: tuple[str, ...]) -> str:
    """Return what the plan calls a signal, by its control unit where it tells several apart; empty: nothing."""
    if not wanted:
        return name
    return next((each for each in (f"{name} from {frame_id & 0xFF:02X}", name) if each in wanted), "")


ADAPTER = Adapter("signals of a CAN bus: can:CHANNEL?database=FILE", read, schemes=("can",))
