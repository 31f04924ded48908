"""Metrics and log lines of a coordinator."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from coordinator.specification.run import RoundPolicy, RunSpec
from coordinator.telemetry import logs
from coordinator.telemetry.metrics import TABLE, Metrics, as_markdown
from glassfleet.data.dataset import Dataset, pool
from schemas.envelope import Envelope
from schemas.errors import StorageError
from schemas.log import Log
from schemas.messages import AgentState
from tests.support.agent_bench import domain_of, rows
from tests.support.coordinator_bench import Fleet
from tests.support.memory_broker import Faults
from tests.support.schedules import train_only
from tests.support.simulation import Simulation

ROOT = Path(__file__).parents[4]


def state(agent: str, software: str) -> bytes:
    """Return a birth certificate whose free texts are somebody else's."""
    body = AgentState(status="up", software=software, schemes=[software], features=[software], incarnation=software)
    return Envelope(fleet="f", body=body, agent=agent, time=1.0).to_bytes()


DASHBOARD = ROOT / "deploy" / "grafana" / "glassfleet.json"


class Watched:
    """A coordinator with scripted agents, and what a scrape of it says."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.room: int | None = 4096
        self.begin()

    def begin(self) -> None:
        fleet = self.fleet
        self.metrics = Metrics(lambda: fleet.hub.now)
        core = fleet.core
        self.metrics.watch(
            (core.topics.fleet, core.presence.software),
            core.metrics,
            core.runs,
            agents=core.fleet.counts,
            queue=lambda: (3, 300, 1),
            connected=lambda: True,
            journal_bytes=self.journal_bytes,
        )
        fleet.core.observers = [self.metrics]

    def journal_bytes(self) -> int:
        if self.room is None:
            raise StorageError("the database is away")
        return self.room

    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Return all samples by full name and labels."""
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.metrics.page().decode())
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        """Return a sample by its full name."""
        return self.samples()[name, frozenset(labels.items())]


def test_metrics_count_rounds_answers_and_bytes_of_a_finished_run() -> None:
    watched = Watched()
    watched.fleet.begin("a", "b")
    assert watched.value("glassfleet_runs", state="recruiting") == 1
    assert watched.value("glassfleet_agents", status="up") == 2
    before = watched.value("glassfleet_received_bytes_total"), watched.value("glassfleet_published_bytes_total")
    watched.fleet.answer("a")
    sizes = [len(message.payload) for message in watched.fleet.seen[-2:]]
    after = watched.value("glassfleet_received_bytes_total"), watched.value("glassfleet_published_bytes_total")
    assert [after[0] - before[0], after[1] - before[1]] == sizes, "a contribution in, a receipt out"
    watched.fleet.answer("a")
    watched.fleet.finish("b", "a")
    assert watched.value("glassfleet_rounds_total", phase="statistics", end="complete") == 3
    assert watched.value("glassfleet_round_seconds_count", phase="statistics") == 3
    assert watched.value("glassfleet_answers_total", outcome="accepted") == 6
    # One of ours, and one of `finish`, which lets everybody answer again.
    assert watched.value("glassfleet_answers_total", outcome="duplicate") == 2
    assert watched.value("glassfleet_runs_ended_total", outcome="finished") == 1
    assert watched.value("glassfleet_nullified_cells_total") == 6
    assert watched.value("glassfleet_live_nullified_cells") == 0
    assert watched.value("glassfleet_runs", state="learning") == 0
    assert watched.value("glassfleet_models_published_total") == 1
    transactions = watched.value("glassfleet_journal_append_seconds_count")
    assert transactions == watched.fleet.core.metrics["journal.transactions"]


def test_metrics_say_how_long_the_broker_was_away_and_count_a_restart() -> None:
    watched = Watched()
    watched.metrics.link_up()
    assert watched.value("glassfleet_recovery_seconds_count", cause="broker") == 0
    watched.metrics.link_lost()
    watched.fleet.hub.advance(4)
    watched.metrics.link_lost()
    watched.fleet.hub.advance(1)
    watched.metrics.link_up()
    assert watched.value("glassfleet_recovery_seconds_sum", cause="broker") == pytest.approx(5)
    watched.metrics.resumed(0.5, 0)
    watched.metrics.resumed(0.25, 2)
    assert watched.value("glassfleet_recovery_seconds_count", cause="restart") == 1


def test_every_labelled_counter_has_a_series_for_each_listed_value_from_the_start() -> None:
    watched = Watched()
    samples = watched.samples()
    for each in TABLE:
        if each.kind == "counter" and len(each.labels) == 1:
            for value in re.findall(r"`([a-z-]+)`", each.what):
                assert samples[each.name, frozenset({(each.labels[0], value)})] == 0
    watched.fleet.core.metrics["ignored.never-heard-of"] += 1
    assert watched.value("glassfleet_messages_ignored_total", code="never-heard-of") == 1


def test_metrics_list_every_fault_that_a_message_may_be_ignored_for() -> None:
    """What the readers of messages raise, read from their source: a new code must be listed."""
    files = ("schemas/envelope.py", "schemas/codec.py", "schemas/messages.py", "schemas/topics.py")
    raised = {
        code
        for name in (*files, "coordinator/messages.py")
        for code in re.findall(
            r'(?:WireError|Ignored)\(\s*(?:#[^\n]*)?\s*"([a-z-]+)"', (ROOT / name).read_text("utf-8")
        )
    }
    listed = {
        dict(labels)["code"] for name, labels in Watched().samples() if name.startswith("glassfleet_messages_ign")
    }
    assert len(raised) > 5
    assert raised <= listed


def test_series_stay_few_whatever_hostile_messages_say() -> None:
    watched = Watched()
    watched.fleet.begin("a", rounds={"deadline": 10, "min_agents": 1})
    before = len(watched.metrics.page().splitlines())
    for number in range(100):
        name = f"evil-{number}.{'x' * 40}"
        for topic in (f"agent/{name}/state", f"agent/{name}/contribution/0", f"agent/{name}/evaluation"):
            watched.fleet.publish(f"gf/1/f/{topic}", b"\xc1" + name.encode())
        watched.fleet.publish(f"gf/1/f/agent/{name}/state", state(name, f"code-{number}"))
    page = watched.metrics.page().decode()
    assert "evil" not in page
    assert "code-" not in page
    assert len(page.splitlines()) < before + 20
    assert sum(1 for line in page.splitlines() if line.startswith("glassfleet_messages_ignored_total{")) < 11


# Page, dashboard and code


def test_scrape_shows_exactly_the_metrics_of_the_table() -> None:
    watched = Watched()
    watched.fleet.publish("gf/1/f/agent/a/state", b"\xc1 not msgpack")
    result = {}
    for family in text_string_to_metric_families(watched.metrics.page().decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        if not name.endswith("_created"):
            result[name] = (family.type, labels)
    assert result == {each.name: (each.kind, set(each.labels)) for each in TABLE}


def test_page_shows_the_table_of_the_code() -> None:
    assert as_markdown() in (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")


def queries() -> Iterator[tuple[str, str]]:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("panel", "expression"), [pytest.param(*each, id=each[0]) for each in queries()])
def test_dashboard_asks_only_for_metrics_and_labels_that_exist(panel: str, expression: str) -> None:
    known = {each.name: each for each in TABLE}
    used = re.findall(r"(glassfleet_\w+)\{([^}]*)\}", expression)
    assert used, f"{panel} shows nothing of ours"
    assert len(used) == len(re.findall("glassfleet_", expression)), "every metric is asked with the job's label"
    labels = {"job", "le"}
    for name, selector in used:
        described = known[name.removesuffix("_bucket") if name not in known else name]
        assert (described.kind == "histogram") == name.endswith("_bucket")
        if described.kind == "counter":
            assert re.search(rf"(rate|increase)\({name}", expression), "a counter alone says nothing"
        labels |= set(described.labels)
        assert set(re.findall(r"(\w+)\s*(?:=~|!=|=)", selector)) <= {"job", *described.labels}
    for group in re.findall(r"by \(([^)]*)\)", expression):
        assert {label.strip() for label in group.split(",")} <= labels
    assert expression.count("(") == expression.count(")")


# Logs


def test_coordinator_writes_one_line_per_round_that_says_everything() -> None:
    watched = Watched()
    with structlog.testing.capture_logs() as lines:
        watched.fleet.begin("a", "b", rounds={"deadline": 10})
        watched.fleet.answer("a")
        watched.fleet.pass_time(10)
        watched.fleet.finish("a")
    closed = [line for line in lines if line["event"] == "round-closed"]
    assert [(line["run"], line["round"], line["end"]) for line in closed] == [
        ("r1", 1, "partial"),
        ("r1", 2, "complete"),
        ("r1", 3, "complete"),
    ]
    assert closed[0]["dropped"] == {"b": "deadline"}
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert [field for field in closed[0] if f"`{field}`" not in page and field != "log_level"] == []


NAMES = ("v1", "v2", "v3")
OF_AGENTS = {"answered", "resent", "receipt", "refused", "outbox-full"}
pytestmark = pytest.mark.usefixtures("structlog_defaults")
OF_COORDINATOR = {"run-started", "run-resumed", "round-opened", "round-closed", "model-published", "run-ended"}


def spec(data: dict[str, Dataset], *, deadline: float = 20.0) -> RunSpec:
    domain = domain_of(pool(list(data.values())))
    return RunSpec(
        run="r1",
        scheme="frt",
        model="m",
        domain=domain,
        parameters={"nullify": False, "min_rows": 1, "max_depth": 2},
        rounds=RoundPolicy(deadline=deadline, gather_agents=3, gather_timeout=30, min_agents=1),
    )


def fleet(folder: Path, **more: Any) -> tuple[Simulation, dict[str, Dataset]]:
    data = {name: rows(number, 40) for number, name in enumerate(NAMES)}
    sources = {name: train_only(each) for name, each in data.items()}
    there = Simulation(sources, folder, **more)
    there.begin(2.0)
    return there, data


def about(lines: Sequence[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    """Lines that concern a run: they name it, or they are of a kind that only a run causes."""
    return [line for line in lines if "run" in line or line["event"] in OF_AGENTS | OF_COORDINATOR]


def test_every_line_about_a_run_names_run_and_round_when_the_network_is_bad_and_processes_die(
    tmp_path: Path, said: list[dict[str, Any]]
) -> None:
    with structlog.testing.capture_logs() as lines:
        there, data = fleet(
            tmp_path, seed=3, faults=Faults(delay=(0.0, 0.5), duplicate=0.2, loss=0.1, reconnect=(0.2, 2.0))
        )
        there.start_run(spec(data))
        there.advance(1.0)
        there.kill_agent("v2")
        there.start_agent("v2")
        there.kill_coordinator()
        there.start_coordinator()
        there.run_until_ended("r1", within=600.0)
    result = about([*lines, *said])
    # By the coordinator and by vehicles: an answer's receipt is a line of both.
    assert {line["event"] for line in result} >= OF_COORDINATOR | {"answered", "resent", "receipt"}
    assert [line for line in result if line.get("run") != "r1"] == []
    # Of a run that has ended, nobody remembers which task was of which round.
    of_live = [line for line in result if line.get("reason") != "the run has ended" or line["event"] != "answered"]
    assert [line for line in of_live if not isinstance(line.get("round"), int)] == []
    assert {line["round"] for line in of_live} >= {1, 2}
    of_agents = [line for line in result if line["event"] in OF_AGENTS]
    assert [line for line in of_agents if line.get("agent") not in NAMES] == []
    assert {line["agent"] for line in of_agents} == set(NAMES)


def test_what_modules_write_that_vehicles_have_comes_out_as_the_coordinators_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("info", "json", fleet="north")
    Log(agent="v1").debug("unseen")
    for number in range(30):  # of "refused", a peer's, 20 lines are told
        Log(agent="v1").warning("refused", code="bad", number=number)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    told = {"event": "refused", "level": "warning", "fleet": "north", "agent": "v1", "code": "bad", "number": 0}
    assert (len(lines), lines[0]) == (20, {**told, "timestamp": lines[0]["timestamp"]})


def test_log_tells_of_a_flood_in_bounded_lines_and_counts_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    log = structlog.get_logger("coordinator")
    for number in range(1000):
        log.info("answered", run=f"r{number}", agent="v1", outcome="unknown-run", reason="")
        log.info("run-ended", run=f"r{number}")
    lines = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert (lines.count("answered"), lines.count("run-ended")) == (200, 1000)


def test_log_tells_how_many_lines_were_not_told_when_the_flood_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logs, "LINES_SECONDS", 0.05)
    logs.configure("info", "json")
    for _ in range(7):
        structlog.get_logger("coordinator").warning("wrong-token", peer="127.0.0.1")
    text = ""
    while text.count("\n") < 2:
        time.sleep(0.02)  # reading without a pause loses what is written meanwhile
        text += capsys.readouterr().err
    first, rest = (json.loads(line) for line in text.splitlines())
    assert (first["peer"], rest["event"], rest["untold"]) == ("127.0.0.1", "wrong-token", 6)
