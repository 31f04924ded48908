"""The settings of the processes: how many there are, and why."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import pytest

from console.settings import descriptions
from coordinator.config import CoordinatorConfig
from edge_agent.config import AgentConfig
from edge_agent.forecast.config import ForecastConfig
from schemas.log import Log, LogWriter
from schemas.settings import Settings, settings_of

PROCESSES: tuple[type[Settings], ...] = (AgentConfig, CoordinatorConfig, ForecastConfig)
MOST = 64 + 5
"""The five of private runs are a vehicle's own terms; ADR 8 says why they are settings. Three came with nights: what a
vehicle gives in a month, in bytes and seconds, and where messages go."""


def test_operators_have_few_settings_and_each_says_what_it_is_and_why_it_would_be_changed() -> None:
    assert len({key for process in PROCESSES for key in settings_of(process)}) <= MOST
    for process in PROCESSES:
        assert [key for key, (what, why) in descriptions(process).items() if not what or not why] == []


def test_settings_of_a_group_reach_it_whole() -> None:
    config = CoordinatorConfig.load(keepalive=12, protocol="5", fleet_bytes=1 << 20, api_port=3)
    link = config.connection.link("mqtt://x", "me")
    assert (link.keepalive, link.protocol, link.connect_timeout) == (12, "5", 5.0)
    assert (config.fleet_limits.fleet_bytes, config.http.api_port) == (1 << 20, 3)
    agent = AgentConfig.load(id="v", broker="mqtt://x", data="d.csv", answer_seconds=7, resend_longest=9)
    assert (agent.budget.seconds, agent.timing.longest) == (7.0, 9.0)


@pytest.mark.usefixtures("said")  # it puts the writer back
def test_lines_are_for_people_or_for_machines_and_no_text_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("console", "json"):
        Log.write = LogWriter("info", form, fleet="north")
        Log(agent="v1").debug("unseen")
        Log(agent="v1").info("connected", why="\x1b[2J", of=3)
    line, text = capsys.readouterr().err.splitlines()
    words = " ".join(line.partition("Z [info     ] ")[2].split())
    assert words == r"connected agent=v1 fleet=north of=3 why='\x1b[2J'"
    told = {"event": "connected", "level": "info", "fleet": "north", "agent": "v1", "why": "\x1b[2J", "of": 3}
    assert {**json.loads(text), "timestamp": ""} == {**told, "timestamp": ""}


def test_line_that_cannot_be_written_ends_nobodys_work(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115 - to close it is a fault
    for stderr in (full, full, None):  # first it is full, then closed
        monkeypatch.setattr(sys, "stderr", stderr)
        LogWriter("info")("info", "connected", {})
        with contextlib.suppress(OSError):
            full.close()


def test_odd_fields_are_json_still_and_a_trace_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("json", "console"):
        LogWriter("info", form)(
            "error", "failed", {"odd": {(1, 2): 3}, "far": float("nan"), "exception": "a\nb\x1b[2J"}
        )
    first, *others = capsys.readouterr().err.splitlines()
    assert (json.loads(first)["odd"], json.loads(first)["far"]) == ("{(1, 2): 3}", "nan")
    assert others[1:] == ["a", r"b\x1b[2J"]
