"""A CAN bus as a source: python-can's virtual bus, and the same frames recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from edge_agent.live.plan import LivePlan
from edge_agent.live.port import LiveSample, SampleRequest
from edge_agent.live.rows import LiveRows, Samples
from edge_agent.recordings import RECORDINGS
from glassfleet.data.alignment import Series, align
from glassfleet.data.cells import is_empty
from glassfleet.data.clock import cleaned_together
from glassfleet.data.timeplan import TimePlan
from schemas.errors import DataError, UsageError

can = pytest.importorskip("can")
pytest.importorskip("cantools")

DBC = """VERSION ""
BU_: Engine
BO_ 291 Motion: 4 Engine
 SG_ Speed : 0|16@1+ (0.01,0) [0|300] "km/h" Vector__XXX
 SG_ Brake : 16|8@1+ (1,0) [0|100] "%" Vector__XXX
BO_ 512 Gearbox: 1 Engine
 SG_ Gear : 0|4@1+ (1,0) [0|7] "" Vector__XXX
VAL_ 512 Gear 0 "Park" 1 "Reverse" 2 "Neutral" 3 "Drive" ;
"""
PLAN = TimePlan.from_document(
    {
        "column": "t",
        "rows": "Speed",
        "start": 0,
        "inputs": {
            "speed": {"signal": "Speed", "seconds": 1},
            "mean": {"signal": "Speed", "take": "mean", "seconds": 0.02},
            "slope": {"signal": "Speed", "take": "slope", "seconds": 0.02},
            "braked": {"signal": "Brake", "take": "count", "seconds": 0.01},
            "gear": {"signal": "Gear", "seconds": 1},
        },
    }
)


@pytest.fixture
def source(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    (tmp_path / "car.dbc").write_text(DBC)
    return f"can:{request.node.name}?database={tmp_path / 'car.dbc'}&interface=virtual"


@pytest.fixture
def bus(request: pytest.FixtureRequest) -> Iterator[Any]:
    with can.Bus(channel=request.node.name, interface="virtual", preserve_timestamps=True) as bus:
        yield bus


def frame(number: int, data: list[int], at: float = 0.0, **more: Any) -> Any:
    return can.Message(arbitration_id=number, is_extended_id=False, data=data, timestamp=at, **more)


def motion(speed: float, brake: int, at: float = 0.0) -> Any:
    return frame(291, [*round(speed * 100).to_bytes(2, "little"), brake, 0], at)


def rows_of(samples: Iterator[Any]) -> list[dict[str, Any]]:
    rows = LiveRows(LivePlan(PLAN))
    return [row for sample in samples for row in rows.push(sample)] + rows.flush()


def test_bus_its_recording_replayed_and_its_recording_imported_give_the_same_rows(
    source: str, bus: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    log = tmp_path / "drive.log"
    samples = Samples(SampleRequest(source, signals=PLAN.signals))
    with can.Bus(channel=request.node.name, interface="virtual") as listener, can.CanutilsLogWriter(log) as writer:
        for number in range(200):
            at = round(1.7e9 + number / 200 + number**2 % 7 / 3000, 6)
            bus.send(motion(number % 37, number % 101, at))
            if number % 7 == 0:
                bus.send(frame(512, [number // 7 % 4], at + (1 + number % 3) / 1e4))
            bus.send(frame(999, [1], at))
        while (message := listener.recv(0)) is not None:
            writer.on_message_received(message)
    live = rows_of(islice(samples, 229))
    samples.close()

    databases = (tmp_path / "car.dbc",)
    found = {signal.name: signal for signal in RECORDINGS[".log"](log, databases, Counter())}
    clean = cleaned_together([signal.time for signal in found.values()], PLAN.gap)
    series = {
        name: Series(each.time, signal.value, each.drive)
        for (name, signal), each in zip(found.items(), clean, strict=True)
    }
    table = align(series, PLAN)
    columns = {"t": table.time, **table.columns}
    imported = [
        dict(zip(columns, cells, strict=True)) for cells in zip(*(c.tolist() for c in columns.values()), strict=True)
    ]
    assert len(live) == 200
    assert live == [{name: None if is_empty(cell) else cell for name, cell in row.items()} for row in imported]
    assert live == rows_of(
        iter(Samples(SampleRequest(f"{log}?database={databases[0]}", signals=PLAN.signals, speed=0.0)))
    )
    assert {row["gear"] for row in live} == {None, "Park", "Reverse", "Neutral", "Drive"}


def test_frame_that_is_too_short_or_unknown_ends_nothing(source: str, bus: Any) -> None:
    samples = Samples(SampleRequest(source))
    bus.send(frame(291, [], is_remote_frame=True))
    bus.send(frame(291, [], is_error_frame=True))
    bus.send(frame(291, [1], 1.0))
    short = next(iter(samples))
    assert isinstance(short, str)
    assert "frames 0x123 have 1 bytes, but Motion of car.dbc 4" in short
    bus.send(motion(12.5, 3, 2.0))
    assert next(iter(samples)) == LiveSample({"Speed": 12.5, "Brake": 3.0}, 2.0, is_whole=False)
    samples.close()


@pytest.mark.parametrize(
    ("source", "fault", "words"),
    [
        ("can:can0", UsageError, r"write can:can0\?database=car.dbc"),
        ("can:?database=car.dbc", UsageError, "write can:can0"),
        ("can:can0?database=car.dbc&baud=3", UsageError, "write can:can0"),
        ("can:can0?database=none.dbc", DataError, "none.dbc: cannot be read"),
        ("can:nobody0?database=car.dbc", DataError, "cannot be opened .*Is the channel there, and up"),
        ("can:x?database=car.dbc&interface=teapot", DataError, "cannot be opened .*teapot"),
    ],
)
def test_bus_that_cannot_be_opened_is_told_with_the_way_out(
    source: str, fault: type[Exception], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "car.dbc").write_text(DBC)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fault, match=words):
        Samples(SampleRequest(source))
