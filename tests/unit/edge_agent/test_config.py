"""The agent's configuration: order of sources, and errors in words."""

import os
from pathlib import Path

import pytest

from edge_agent.config import SHARED, AgentConfig, load_config
from schemas.errors import UsageError
from schemas.settings import settings_of

GIVEN = {"id": "v1", "broker": "mqtt://here", "data": "rows.csv"}


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in os.environ:
        if name.startswith("GLASSFLEET_"):
            monkeypatch.delenv(name)


def test_config_takes_flags_over_environment_over_file_over_defaults(tmp_path, monkeypatch):
    file = tmp_path / "fleet.toml"
    file.write_text(
        'broker = "mqtt://file"\nfleet = "file"\nlog_level = "debug"\napi_port = 1\n'
        '[agent]\nid = "file"\ndata = "file.csv"\nslow = 1.0\nfleet = "table"\n[coordinator]\napi = false\n'
    )
    monkeypatch.setenv("GLASSFLEET_BROKER", "mqtt://env")
    monkeypatch.setenv("GLASSFLEET_AGENT_SLOW", "2.5")
    monkeypatch.setenv("GLASSFLEET_FLEET", "env")
    config = load_config(file, id="flag", fleet=None)
    assert (config.id, config.broker, config.fleet, config.slow) == ("flag", "mqtt://env", "env", 2.5)
    assert (config.data, config.log_level, config.connection.keepalive) == (Path("file.csv"), "debug", 30)


def test_config_does_not_take_the_folder_of_test_data_for_the_vehicles_rows(monkeypatch):
    monkeypatch.setenv("GLASSFLEET_DATA", "datasets")
    assert load_config(**GIVEN).data == Path("rows.csv")
    assert {*settings_of(AgentConfig), *AgentConfig.retired} >= SHARED


def test_config_keeps_agents_apart_that_share_a_state_directory(tmp_path, monkeypatch):
    one, two = (load_config(**{**GIVEN, "id": name}, state_dir=tmp_path) for name in ("v1", "v2"))
    assert one.directory == tmp_path / "agents" / "fleet" / "v1"
    assert one.directory != two.directory
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    assert load_config(**GIVEN).state_dir == tmp_path / "home" / "glassfleet"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"id": None}, "id is missing: give --id, set GLASSFLEET_AGENT_ID, or write it in the --config file"),
        ({"broker": None}, "broker is missing: give --broker, set GLASSFLEET_BROKER"),
        ({"id": "v/1"}, "id is not a valid id: use 1 to 64 letters"),
        ({"slow": -1}, "slow: Input should be greater than or equal to 0 (--slow, GLASSFLEET_AGENT_SLOW or --config)"),
        ({"slow": "soon"}, "slow: Input should be a valid number"),
        ({"max_message_bytes": 10}, "max_message_bytes: Input should be greater than or equal to 4096"),
        ({"resend_first": 90.0}, "resend_longest 60.0 is below resend_first 90.0"),
    ],
)
def test_config_names_setting_fault_and_where_to_give_it(flags, said):
    with pytest.raises(UsageError) as caught:
        load_config(**{**GIVEN, **flags})
    assert said in str(caught.value)
