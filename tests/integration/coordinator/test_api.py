"""The HTTP API under a fuzzer, and characters that nobody sees."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from broker.servers.launch import launch
from coordinator.specification.run import RunSpec
from lab.fleet import Fleet
from schemas.messages import AgentState
from schemas.text import HIDDEN, show_hidden
from tests.support import sample_models
from tests.support.cloud import SOURCES, CoordinatorProcess, begin_run, ended, spec
from tests.support.coordinator_http import publish, served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CASES = 25
"""Generated for each address, beside those that its description suggests; about a minute and a half for all of them."""


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("fuzzed")
    broker = launch(state_dir=folder / "broker")
    process = CoordinatorProcess(broker.url, folder / "coordinator")
    try:
        with Fleet(SOURCES, broker=broker.url, state_dir=folder / "agents") as _, process.api() as api:
            begin_run(api, spec("r1", model="m"))
            ended(api, "r1")
            yield api
        assert (process.end(), "page-failed" in process.logged()) == (0, False), process.logged()[-3000:]
    finally:
        process.kill()
        broker.stop()


@pytest.mark.parametrize("known", [True, False], ids=["what-is-there", "any-name"])
def test_coordinator_answers_an_openapi_fuzzer_as_it_says_it_does(
    coordinator: httpx.Client, tmp_path: Path, known: bool
) -> None:
    names = '"path.name" = "m"\n"path.run" = "r1"\n"path.version" = 1\n' if known else ""
    (tmp_path / "schemathesis.toml").write_text(f"[parameters]\n{names}")
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", f"{coordinator.base_url.join('/api/openapi.json')}",
         "--header", f"Authorization: {coordinator.headers['Authorization']}",
         "--checks", "not_a_server_error,response_schema_conformance", "--phases", "examples,coverage,fuzzing",
         "--max-examples", str(CASES), "--seed", "1", "--warnings", "off", "--no-color"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


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
        result = []
        for address in ("/", "/runs/r1", "/api/agents", "/api/runs/r1", "/api/models/m/1", "/runs/none%1b%c2%9b"):
            text = client.get(address).text
            assert HIDDEN.search(text) is None, address
            result += [address] * (SHOWN in text)
        assert result == ["/", "/runs/r1", "/api/agents", "/api/runs/r1"]
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
