"""The coordinator's configuration, queue and policy."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from broker.port import Message
from coordinator.config import load_config
from coordinator.messages.queue import EventQueue
from schemas.errors import UsageError


def test_config_prefers_flags_to_environment_to_file_to_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "glassfleet.toml"
    file.write_text('fleet = "file"\nkeepalive = 11\napi_port = 1\nsession_expiry = 7\n[coordinator]\nkeepalive = 12\n')
    monkeypatch.setenv("GLASSFLEET_FLEET", "environment")
    monkeypatch.setenv("GLASSFLEET_API_PORT", "2")
    monkeypatch.setenv("GLASSFLEET_COORDINATOR_SESSION_EXPIRY", "8")
    config = load_config(file, api_port=3, broker=None)
    assert (config.http.api_port, config.fleet, config.connection.session_expiry, config.connection.keepalive) == (
        3,
        "environment",
        8,
        12,
    )
    assert config.broker == "mqtt://127.0.0.1:1883"
    assert load_config().connection.keepalive == 30, "the file is forgotten again"


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
        load_config(**flags)


@pytest.mark.parametrize(
    ("text", "words"),
    [("fleet = [", "not valid TOML"), ("flet = 'x'", "no setting 'flet'"), ("coordinator = 1", "must be a table")],
)
def test_config_names_what_is_wrong_with_a_file(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "f.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=words):
        load_config(file)


def test_config_may_be_exposed_when_asked_for() -> None:
    assert load_config(api_host="0.0.0.0", api_expose=True).http.api_host == "0.0.0.0"


def test_event_queue_drops_contributions_above_its_bounds_but_never_states() -> None:
    queue = EventQueue(max_messages=3, max_bytes=5000)
    for number in range(5):
        queue.put(Message(f"c/{number}", b"x"))
        queue.put(Message("agent/a/state", b"%d" % number))
    assert queue.dropped == 2
    batch = queue.get_batch(2, 0.0)
    assert [message.payload for message in batch.messages] == [b"4", b"x"], "of states only the latest is kept"
    queue.put(Message("c/big", b"y" * 4900))
    assert queue.dropped == 3
    assert queue.depth()[0] == 2


def test_event_queue_counts_topics_as_well_and_gives_states_no_endless_room() -> None:
    queue = EventQueue(max_messages=100, max_bytes=50_000)
    for number in range(20):
        queue.put(Message(f"c/{number:09000d}", b""))
        queue.put(Message(f"agent/{number:09000d}/state", b""))
    assert len(queue.get_batch(100, 0.0).messages) == 10, "five of each: their topics alone take 9 kB"
    assert queue.dropped == 30
    assert queue.depth() == (0, 0)


def test_event_queue_runs_calls_on_the_thread_that_takes_and_hands_back_what_they_raise() -> None:
    queue = EventQueue(10, 1000)
    futures = [queue.call(threading.get_ident), queue.call(lambda: 1 // 0)]
    for call in queue.get_batch(10, 0.0).calls:
        call()
    assert futures[0].result(0) == threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        futures[1].result(0)


def test_event_queue_stamps_messages_when_they_arrive_and_knows_the_oldest() -> None:
    now = [0.0]
    queue = EventQueue(max_messages=9, max_bytes=10_000, clock=lambda: now[0])
    assert queue.oldest() is None
    for now[0], topic in ((1.0, "c/1"), (2.0, "c/2"), (3.0, "agent/a/state")):
        queue.put(Message(topic, b"x"))
    batch = queue.get_batch(2, 0.0)
    assert [message.topic for message in batch.messages] == ["agent/a/state", "c/1"]
    assert batch.arrived == [1.0, 1.0], "a state goes first, at the time of what it overtook"
    assert queue.oldest() == 2.0
    queue.get_batch(9, 0.0)
    assert queue.oldest() is None
