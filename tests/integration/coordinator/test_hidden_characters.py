"""Characters that nobody sees, in every text that a vehicle may choose: pages, JSON and live pages show them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator.specification.run import RunSpec
from schemas.messages import AgentState
from schemas.text import HIDDEN, show_hidden
from tests.support import sample_models
from tests.support.coordinator_http import publish, served

NASTY = "gnp.\u202egpj\x9b31m\x1b]0;\u2066\u200f"
SHOWN = r"gnp.\u202egpj\u009b31m\u001b]0;\u2066\u200f"


def test_hidden_characters_of_a_vehicle_are_shown_everywhere(tmp_path: Path) -> None:
    with served(tmp_path) as (service, client):
        state = AgentState(
            status="up", incarnation="i1", software=NASTY, schemes=["frt"], features=[NASTY], target=NASTY
        )
        service.coordinator.fleet.up("v1", state)
        service.coordinator.start_run(RunSpec(run="r1", scheme="frt", target=NASTY, features=["a"]))
        publish(service, sample_models.model("frt"), "m", ["a"])
        told = []
        for address in ("/", "/runs/r1", "/api/agents", "/api/runs/r1", "/api/models/m/1", "/runs/none%1b%c2%9b"):
            text = client.get(address).text
            assert HIDDEN.search(text) is None, address
            told += [address] * (SHOWN in text)
        assert told == ["/", "/runs/r1", "/api/agents", "/api/runs/r1"]
        assert client.get("/api/agents").json()[0]["software"] == NASTY  # to programs it is the text that it was
        with client.stream("GET", "/events/runs/r1") as live:
            lines = live.iter_lines()
            data = next(line for line in lines if line.startswith("data: "))
        assert HIDDEN.search(data) is None


@pytest.mark.parametrize("text", [NASTY, "\ud800", "é µ ≤ 😀\n\t", "a\u2028b"])
def test_json_with_shown_characters_is_the_same_value(text: str) -> None:
    written = show_hidden(json.dumps([text], ensure_ascii=False))
    assert json.loads(written) == [text]
    assert HIDDEN.search(written) is None
    assert written.encode()
