"""The settings of the processes: how many there are, why, and what becomes of keys that are none any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.settings import descriptions
from coordinator.config import CoordinatorConfig
from edge_agent.config import SHARED, AgentConfig
from edge_agent.forecast.config import ForecastConfig
from schemas.settings import Settings, constant, settings_of

PROCESSES: tuple[type[Settings], ...] = (AgentConfig, CoordinatorConfig, ForecastConfig)
MOST = 64 + 5
"""The five of private runs are a vehicle's own terms; ADR 8 says why they are settings. Three came with nights: what a
vehicle gives in a month, in bytes and seconds, and where messages go."""


def test_operators_have_few_settings_and_each_says_what_it_is_and_why_it_would_be_changed() -> None:
    assert len({key for process in PROCESSES for key in settings_of(process)}) <= MOST
    for process in PROCESSES:
        assert [key for key, (what, why) in descriptions(process).items() if not what or not why] == []


def test_former_settings_name_constants_of_the_code_and_are_no_settings() -> None:
    for process in PROCESSES:
        assert not settings_of(process).keys() & process.retired.keys()
        for place in process.retired.values():
            assert isinstance(constant(place), int | float), place
    assert {*settings_of(AgentConfig), *AgentConfig.retired} >= SHARED


def test_settings_name_former_keys_and_go_on_when_flags_environment_or_file_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "glassfleet.toml"
    file.write_text("reconnect_first = 1.0\nkeepalive = 11\n[coordinator]\nrival_wait = 9\n[agent]\nduel_apart = 9\n")
    monkeypatch.setenv("GLASSFLEET_MAX_INFLIGHT", "7")
    monkeypatch.setenv("GLASSFLEET_AGENT_QUEUE_SIZE", "no number")
    agent = AgentConfig.load(file, id="v", broker="mqtt://x", data="d.csv", fetch_first="9")
    cloud = CoordinatorConfig.load(file, batch_messages=3)
    assert (agent.connection.keepalive, cloud.connection.keepalive) == (11, 11)
    assert sorted(agent.notes) == [
        "duel_apart is no longer a setting; the value is now 0.2",
        "fetch_first is no longer a setting; the value is now 5.0",
        "max_inflight is no longer a setting; the value is now 100",
        "queue_size is no longer a setting; the value is now 10000",
        "reconnect_first is no longer a setting; the value is now 0.25",
    ]
    retired = [note.partition(" ")[0] for note in cloud.notes]
    assert sorted(retired) == ["batch_messages", "max_inflight", "reconnect_first", "rival_wait"]


def test_settings_of_a_group_reach_it_whole() -> None:
    config = CoordinatorConfig.load(keepalive=12, protocol="5", fleet_bytes=1 << 20, api_port=3)
    link = config.connection.link("mqtt://x", "me")
    assert (link.keepalive, link.protocol, link.connect_timeout) == (12, "5", 5.0)
    assert (config.fleet_limits.fleet_bytes, config.http.api_port) == (1 << 20, 3)
    agent = AgentConfig.load(id="v", broker="mqtt://x", data="d.csv", answer_seconds=7, resend_longest=9)
    assert (agent.budget.seconds, agent.timing.longest) == (7.0, 9.0)
