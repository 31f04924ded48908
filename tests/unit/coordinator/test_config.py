"""The coordinator's configuration: what wins, and what cannot be meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator.config import CoordinatorConfig
from coordinator.specification.run import RunSpec
from schemas.errors import UsageError


def test_config_prefers_flags_to_environment_to_file_to_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "glassfleet.toml"
    file.write_text('fleet = "file"\nkeepalive = 11\napi_port = 1\nsession_expiry = 7\n[coordinator]\nkeepalive = 12\n')
    monkeypatch.setenv("GLASSFLEET_FLEET", "environment")
    monkeypatch.setenv("GLASSFLEET_API_PORT", "2")
    monkeypatch.setenv("GLASSFLEET_COORDINATOR_SESSION_EXPIRY", "8")
    config = CoordinatorConfig.load(file, api_port=3, broker=None)
    link = config.connection
    assert (config.http.api_port, config.fleet, link.session_expiry, link.keepalive) == (3, "environment", 8, 12)
    assert config.broker == "mqtt://127.0.0.1:1883"
    assert CoordinatorConfig.load().connection.keepalive == 30, "the file is forgotten again"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"broker": "localhost"}, "mqtt://host:port"),
        ({"fleet": "a b"}, "valid id"),
        ({"api_host": "0.0.0.0"}, "api_expose"),
        ({"api_port": 70000}, "api_port"),
        ({"max_message_bytes": 10}, "max_message_bytes"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_config_names_the_setting_that_cannot_be_meant(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        CoordinatorConfig.load(**flags)
    with pytest.raises(UsageError, match="model: not a valid id: use 1 to 64 letters"):
        RunSpec.from_document({"scheme": "tree", "model": "a b"})


@pytest.mark.parametrize(
    ("text", "words"),
    [("fleet = [", "not valid TOML"), ("flet = 'x'", "no setting 'flet'"), ("coordinator = 1", "must be a table")],
)
def test_config_names_what_is_wrong_with_a_file(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "f.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=words):
        CoordinatorConfig.load(file)
