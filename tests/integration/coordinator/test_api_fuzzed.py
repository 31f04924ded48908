"""A live coordinator with a model, asked by an OpenAPI fuzzer: no fault of its own, no answer other than described."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from broker.servers.launch import launch
from edge_agent.fleet import Fleet
from tests.support.cloud import SOURCES, CoordinatorProcess, has_ended, spec
from tests.support.processes import eventually

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
            assert api.post("/api/runs", json=spec("r1", model="m")).status_code == 201
            eventually(lambda: has_ended(api, "r1"))
            yield api
        code, told = process.end()
        assert (code, "page-failed" in told) == (0, False), told[-3000:]
    finally:
        process.process.kill()
        process.process.communicate()
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
