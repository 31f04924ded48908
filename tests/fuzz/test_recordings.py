"""Damaged recordings and databases: read as far as they go, or refused with a fault of ours; within time and memory."""

from __future__ import annotations

import random
import resource
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import can
import cantools
import pytest

from edge_agent.recordings import RECORDINGS
from edge_agent.recordings.process import read_here
from schemas.errors import GlassfleetError
from tests.support.vehicle.recordings import DBC, DRIVE, mf4, write_log

PIECES = (
    b"\0",
    b"\xff" * 8,
    b"\n",
    b" ",
    b"9" * 25,
    b"-1",
    b"LOBJ",
    b"#",
    b"R",
    b"x",
    b"<",
    b"&a;",
    b"\0" * 8,
    b"##DG",
)
SECONDS = 20
MEGABYTES = 600
"""That one file may take beyond what the libraries did."""


@contextmanager
def in_time() -> Iterator[None]:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends the test, wherever a library is
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)


def damaged(draw: random.Random, content: bytes) -> bytes:
    """Return a file that was cut, or that holds something else in one place or more."""
    kind = draw.randrange(5)
    if kind == 0:
        return content[: draw.randrange(len(content))]
    data = bytearray(content)
    for _ in range(draw.choice([1, 2, 10])):
        place = draw.randrange(len(data))
        piece = draw.choice(PIECES)
        if kind == 1:
            data[place] = draw.randrange(256)
        elif kind == 2:
            data[place : place + len(piece)] = piece
        elif kind == 3:
            data[place:place] = piece
        else:
            end = place + draw.randrange(1, 60)
            data[place:end] = b"" if draw.random() < 0.5 else data[place:end] * 2
        data = data or bytearray(b"x")
    return bytes(data)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_logs_and_databases(tmp_path):
    dbc = tmp_path / "bus.dbc"
    dbc.write_text(DBC, encoding="utf-8")
    known = cantools.database.load_file(dbc)
    assert isinstance(known, cantools.database.Database)
    errors = [can.Message(is_error_frame=True, timestamp=103.0, channel=0)]
    log = write_log(tmp_path / "drive.log", DRIVE)
    files = [write_log(tmp_path / f"drive{ending}", [*DRIVE * 6, *errors]) for ending in (".asc", ".blf", ".log")]
    files.append(write_log(tmp_path / "drive.trc", DRIVE))
    contents = [(file.suffix, file.read_bytes()) for file in files]
    contents += [(".dbc", DBC.encode()), (".kcd", known.as_kcd_string().encode())]
    contents.append((".sym", known.as_sym_string().encode()))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends: Counter[str] = Counter()
    longest = 0
    draw = random.Random(36)
    for number in range(20_000):
        ending, content = draw.choice(contents)
        path = tmp_path / f"damaged-{number % 50}{ending}"
        path.write_bytes(damaged(draw, content))
        source, database = (log, path) if ending in {".dbc", ".kcd", ".sym"} else (path, dbc)
        try:
            with in_time():
                list(read_here("bus", source, [database], Counter()))
            ends["read"] += 1
        except GlassfleetError as fault:
            signal.alarm(0)
            ends["refused"] += 1
            longest = max(longest, len(str(fault)))
    assert longest < 1000
    assert min(ends["read"], ends["refused"]) > 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEGABYTES << 10


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_measurements(tmp_path):
    """Each is read in a process of its own, which may end over it."""
    whole = mf4([(number / 10, number * 0.5, number % 7) for number in range(300)])
    buses = write_log(tmp_path / "bus.mf4", DRIVE).read_bytes()
    draw = random.Random(36)
    ends: Counter[str] = Counter()
    longest = 0
    for _ in range(300):
        path: Path = tmp_path / "damaged.mf4"
        path.write_bytes(damaged(draw, draw.choice([whole, buses])))
        try:
            list(RECORDINGS[".mf4"](path, [], Counter()))
            ends["read"] += 1
        except GlassfleetError as fault:
            ends["refused"] += 1
            longest = max(longest, len(str(fault)))
    assert longest < 1000
    assert min(ends.values()) > 10
