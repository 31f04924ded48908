"""Commands about runs, and the coordinator that they ask: not there yet, killed meanwhile, without that run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from subprocess import CompletedProcess

import httpx
import pytest

from broker.servers.process import free_port
from console.main import run
from tests.support.processes import Processes, eventually, policy_file


@pytest.mark.slow
def test_run_start_wait_waits_for_a_coordinator_that_is_not_there_yet_and_for_one_that_was_killed(
    processes: Processes,
) -> None:
    port = free_port()
    at = ("--coordinator", f"http://127.0.0.1:{port}")
    waiting = processes.start("run", "start", *at, "--run", "r1", "--wait")
    eventually(lambda: waiting.logged().count("no coordinator answers") == 1)
    processes.start("broker", "--kind", "embedded", "--port", "0")
    eventually(lambda: processes.note("broker-url"))
    first = processes.start("coordinator", "--api-port", str(port))
    eventually(processes.is_healthy)
    url = processes.note("api-url")
    eventually(lambda: httpx.get(f"{url}/api/runs/r1", trust_env=False).is_success)
    first.kill()
    eventually(lambda: waiting.logged().count("no coordinator answers") == 2)
    processes.start("coordinator", "--api-port", str(port), "--take-over")
    eventually(processes.is_healthy)
    assert processes.note("api-url") == url
    assert processes.call("run", "cancel", "r1").returncode == 0
    assert waiting.reap(60) == 6
    assert waiting.logged().count("no coordinator answers") == 2
    assert "cancelled" in waiting.logged()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A broker and a coordinator."""
    with Processes(tmp_path_factory.mktemp("running")) as made:
        made.start("broker", "--kind", "embedded", "--port", "0")
        eventually(lambda: made.note("broker-url"))
        made.start("coordinator", "--api-port", "0")
        eventually(made.is_healthy)
        yield made


@pytest.fixture
def call(running, own_state, monkeypatch, capsys):
    """Runs commands in this process: as processes of their own they would mostly import."""
    monkeypatch.setenv("GLASSFLEET_STATE_DIR", str(running.folder))
    return lambda *arguments: CompletedProcess(arguments, run(list(arguments)), *capsys.readouterr())


def test_operator_is_told_what_cannot_be_done_with_a_run(running: Processes, call) -> None:
    none = call("model", "report", "nosuch")
    assert (none.returncode, "there are none yet" in none.stderr) == (9, True)
    failed = call("run", "start", "--run", "base", *policy_file(running.folder, rounds={"gather_timeout": 2}), "--wait")
    assert failed.returncode == 6
    result, end = failed.stderr.splitlines()
    assert re.search(
        r": needs 2 vehicles that can answer \(to learn from fewer: --min-agents\): no vehicle is up; waits until "
        r"(\S{10} )?[\d:]{8} UTC for others$",
        result,
    )
    assert "not-enough-agents" in end
    assert call("run", "start", "--run", "other").returncode == 0

    cancelled = call("run", "cancel", "other")
    assert (cancelled.returncode, cancelled.stdout) == (0, "other cancelled\n")
    again = call("run", "cancel", "other")
    assert (again.returncode, again.stdout) == (0, "other had been cancelled already\n")
    ended = call("run", "cancel", "base")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "base has ended already (failed); nothing to cancel" in ended.stderr
    shown = call("run", "show", "last", "--wait", "--json")
    assert (shown.returncode, json.loads(shown.stdout)["run"], "cancelled" in shown.stderr) == (6, "other", True)
    reported = call("model", "report", "last", "-o", str(running.folder / "report.html"))
    assert "report of other" in reported.stdout, reported.stderr
    for words in (("model", "report", "nosuch"), ("run", "cancel", "nosuch"), ("run", "show", "nosuch")):
        unknown = call(*words)
        assert unknown.returncode == 9
        assert "no run 'nosuch'; the newest: other, base. All of them: glassfleet run list" in unknown.stderr


def test_run_whose_answers_may_be_too_large_says_so_before_it_begins(running: Processes, call) -> None:
    features = [f"x{number}" for number in range(40)]
    words = "with 40 inputs an answer may have up to 96 MB where 67 MB can be sent: ask for fewer rules (max_rules)"
    for run_id, rules, is_said in (("usual", 40, False), ("large", 128, True)):
        asked = policy_file(running.folder, features=features, parameters={"max_rules": rules})
        started = call("run", "start", "--run", run_id, "--target", "y", *asked)
        page = httpx.get(f"{running.note('api-url')}/runs/{run_id}", trust_env=False).text
        shown = [words in started.stderr, words in call("run", "show", run_id).stdout, words in page]
        assert shown == [is_said] * 3
        assert call("run", "cancel", run_id).returncode == 0


def test_operator_reads_without_the_token_and_is_told_of_it_when_it_is_needed(running: Processes, call) -> None:
    token = running.note("api-token")
    (running.folder / "api-token").unlink()
    (running.folder / "api-token").mkdir()  # unreadable for root, too
    listed = call("run", "list")
    assert (listed.returncode, listed.stderr) == (0, "")
    refused = call("run", "start", "--run", "r1")
    assert (refused.returncode, "api-token" in refused.stderr) == (2, True)
    assert "give --token (or GLASSFLEET_TOKEN)" in refused.stderr
    assert call("run", "start", "--run", "r1", "--token", token).returncode == 0
    (running.folder / "api-token").rmdir()
    (running.folder / "api-token").write_text(token)
