"""Recordings as loggers write them: frames of a bus, its databases, and measurements."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import can

DBC = """VERSION ""
NS_ :
BS_:
BU_: ECU
BO_ 256 Engine: 8 ECU
 SG_ Speed : 7|16@0+ (0.01,0) [0|250] "km/h" Vector__XXX
 SG_ Coolant : 16|8@1+ (1,-40) [-40|210] "degC" Vector__XXX
 SG_ Gear : 24|4@1+ (1,0) [0|15] "" Vector__XXX
 SG_ Torque : 28|12@1- (0.5,0) [0|0] "Nm" Vector__XXX
 SG_ Rpm : 40|16@1+ (1,0) [0|0] "rpm" Vector__XXX
BO_ 2566851134 Climate: 8 ECU
 SG_ Page M : 0|8@1+ (1,0) [0|0] "" Vector__XXX
 SG_ Inside m0 : 8|8@1+ (0.5,-20) [0|0] "°C" Vector__XXX
 SG_ Outside m1 : 8|8@1+ (0.5,-40) [0|0] "°C" Vector__XXX
BO_ 300 Long: 64 ECU
 SG_ Far : 496|16@1+ (1,0) [0|60000] "m" Vector__XXX
 SG_ Exact : 0|64@1- (1,0) [0|0] "" Vector__XXX
CM_ SG_ 256 Speed "Speed of
 the wheels";
VAL_ 256 Gear 0 "Park" 1 "Drive" 2 "Reverse" 15 "SNA" ;
VAL_ 256 Torque 2047 "SNA" ;
SIG_VALTYPE_ 300 Exact : 2;
"""
"""Scaled, signed, big- and little-endian, states, a multiplexer with an extended id, CAN FD, and a double."""

J1939 = """VERSION ""
NS_ :
BS_:
BU_: ECU
BO_ 2364540158 EEC1: 8 ECU
 SG_ EngineSpeed : 24|16@1+ (0.125,0) [0|8031.875] "rpm" Vector__XXX
BA_DEF_ BO_ "VFrameFormat" ENUM "StandardCAN","ExtendedCAN","reserved","J1939PG";
BA_DEF_DEF_ "VFrameFormat" "J1939PG";
BA_ "VFrameFormat" BO_ 2364540158 3;
"""


def engine(speed: float, gear: int = 1, *, time: float = 0.0, **frame: Any) -> can.Message:
    """Return a frame of the database's `Engine` at 60 °C, 100 Nm and 2000 rpm."""
    raw = round(speed * 100)
    data = bytes([raw >> 8, raw & 0xFF, 100, gear | (200 & 0xF) << 4, 200 >> 4, 2000 & 0xFF, 2000 >> 8, 0])
    return message(256, data, time=time, **frame)


def message(frame_id: int, data: bytes, *, time: float = 0.0, **frame: Any) -> can.Message:
    """Return a frame."""
    extended = frame.pop("is_extended_id", frame_id > 0x7FF)
    channel = frame.pop("channel", 0)
    return can.Message(
        timestamp=time, arbitration_id=frame_id, data=data, is_extended_id=extended, channel=channel, **frame
    )


DRIVE = (
    engine(50.0, 0, time=100.0),
    message(0x18FF0A3E, bytes([0, 90, 0, 0, 0, 0, 0, 0]), time=100.5),
    engine(300.0, 1, time=101.0),  # faster than the database says that it can be
    message(0x18FF0A3E, bytes([1, 60, 0, 0, 0, 0, 0, 0]), time=101.5),
    engine(52.5, 15, time=102.0),
    message(0x123, b"\1", time=102.5),
)
"""A drive on the bus of `DBC`, and a frame of another."""


def write_log(path: Path, frames: Iterable[can.Message]) -> Path:
    """Write a log with python-can; the ending says which kind."""
    writers: dict[str, Any] = {
        ".asc": can.ASCWriter, ".blf": can.BLFWriter, ".log": can.CanutilsLogWriter, ".mf4": can.MF4Writer,
        ".trc": can.TRCWriter,
    }  # fmt: skip
    with writers[path.suffix](path) as log:
        for frame in frames:
            log(frame)
    return path


def mf4(records: Sequence[tuple[float, float, int]], *, sync: int = 1, claimed: int | None = None) -> bytes:
    """Return an MF4 file with its samples at the end, as loggers write it (asammdf writes them first).

    Parameters
    ----------
    records : sequence of (float, float, int)
        Time in s, speed in km/h, rpm; 14 bytes each at the end of the file.
    sync : int
        What the first is: 1 a time, 2 an angle, 3 a distance.
    claimed : int or None
        How many records the file says that it has.
    """
    out = bytearray(b"MDF     4.10    by hand " + struct.pack("<4xH34x", 410) + bytes(104))

    def block(kind: bytes, links: Sequence[int], body: bytes) -> int:
        place = len(out)
        head = struct.pack("<4s4xQQ", kind, 24 + 8 * len(links) + len(body), len(links))
        out.extend(head + struct.pack(f"<{len(links)}Q", *links) + body)
        out.extend(bytes(-len(out) % 8))
        return place

    def text(words: str) -> int:
        content = words.encode() + b"\0"
        return block(b"##TX", [], content + bytes(-len(content) % 8))

    def channel(name: str, unit: str, *layout: int) -> int:
        kind, data_type, place, bits, following = layout
        links = [following, 0, text(name), 0, 0, 0, text(unit), 0]
        fields = (kind, sync if kind == 2 else 0, data_type, 0, place, bits, 0, 0, 0, 0, *[0.0] * 6)
        return block(b"##CN", links, struct.pack("<BBBBIIIIBxHdddddd", *fields))

    history = block(b"##FH", [0, 0], struct.pack("<QhhB3x", 10**18, 0, 0, 0))
    rpm = channel("rpm", "rpm", 0, 0, 12, 16, 0)
    speed = channel("speed", "km/h", 0, 4, 8, 32, rpm)
    time = channel("time", "s", 2, 4, 0, 64, speed)
    count = len(records) if claimed is None else claimed
    group = block(b"##CG", [0, time, text("drive"), 0, 0, 0], struct.pack("<QQHH4xII", 0, count, 0, 0, 14, 0))
    data_group = block(b"##DG", [0, 0, 0, 0], bytes(8))
    samples = block(b"##DT", [], b"".join(struct.pack("<dfH", *record) for record in records))
    out[data_group + 24 : data_group + 56] = struct.pack("<4Q", 0, group, samples, 0)
    begin = struct.pack("<QhhBBBxdd", 1_700_000_000 * 10**9, 0, 0, 0, 0, 0, 0.0, 0.0)
    out[64:168] = struct.pack("<4s4xQQ6Q", b"##HD", 104, 6, data_group, history, 0, 0, 0, 0) + begin
    return bytes(out[: samples + 24 + 14 * len(records)])
