"""The kinds of live sources: found by their names, small, and told where a name is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edge_agent.live import adapters
from edge_agent.live.adapters import adapter_of
from edge_agent.live.plan import LivePlan
from edge_agent.live.port import LiveSample, SampleRequest
from edge_agent.live.rows import LiveRows, Samples
from glassfleet.data.timeplan import Input, TimePlan
from schemas.errors import UsageError


def test_each_adapter_is_one_small_file_and_no_two_take_the_same_names() -> None:
    files = [path for path in Path(adapters.__path__[0]).glob("*.py") if path.name != "__init__.py"]
    assert len(files) == len(adapters.adapters())
    assert all(len(path.read_text("utf-8").splitlines()) <= 150 for path in files)
    schemes = [scheme for adapter in adapters.adapters() for scheme in adapter.schemes]
    assert len(schemes) == len(set(schemes))


@pytest.mark.parametrize(
    ("source", "help_"),
    [
        ("-", "JSON object on each line"),
        ("kuksa", "JSON object on each line"),
        ("samples.jsonl", "JSON object on each line"),
        ("mqtts://u@h/a/b", "JSON objects on a topic"),
        ("viss+mqtt://h/VIN", "VISS v2"),
        ("kuksas://h", "databroker"),
        ("can:can0?database=a.dbc", "CAN bus"),
        ("drive.CSV", "a table or a recording"),
        ("drive.blf?database=a.dbc", "a table or a recording"),
    ],
)
def test_source_is_told_by_its_name(source: str, help_: str) -> None:
    assert help_ in adapter_of(source).help


def test_name_of_no_source_is_told_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"no live source is called amqp:\. Give one of can:, kuksa:.* or -$"):
        adapter_of("amqp://user:secret@host/q")
    with pytest.raises(UsageError, match="name the topic too"):
        Samples(SampleRequest("mqtt://127.0.0.1"))


def test_values_one_by_one_are_aligned_as_they_come_from_a_file(tmp_path: Path) -> None:
    lines = [{"ts": second, "path": "speed", "value": second} for second in range(4)]
    lines.insert(2, {"ts": 1.0, "path": "load", "value": None})
    lines.insert(2, {"ts": 0.5, "path": "load", "value": 7})
    path = tmp_path / "long.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    inputs = {"speed": Input(signal="speed", seconds=1), "load": Input(signal="load", seconds=9)}
    rows = LiveRows(LivePlan(TimePlan(column="t", rows="speed", inputs=inputs)))
    made = [row for sample in Samples(SampleRequest(str(path))) for row in rows.push(sample)] + rows.flush()  # type: ignore[arg-type]
    assert made == [{"t": second, "speed": second, "load": None} for second in range(4)]


def test_replay_has_the_times_of_its_rows_and_goes_as_fast_as_it_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "drive.csv"
    path.write_text("t,a\n0,1\n0.25,2\n3600,3\n")
    samples = list(Samples(SampleRequest(str(path), time="t", speed=20.0)))
    assert [sample.time for sample in samples if isinstance(sample, LiveSample)] == [0, 0.25, 3600]
