"""Private runs whose processes are killed at every place where that could cost or tell something.

Each run ends by a name; a finished one has the model that one place learns from its cohort's rows, bit for bit.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link, Message
from lab.fleet import Fleet
from schemas.record import ModelRecord
from schemas.topics import Topics
from tests.support.cloud import CoordinatorProcess, Start, begin_run, ended, record_of
from tests.support.dying import VARIABLE, found
from tests.support.privacy.private_fleet import Host, check_model, hosted, sources, spec
from tests.support.processes import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]
PROGRAM = (sys.executable, "-m", "tests.support.dying")
APPENDED = "coordinator.journal.sql:SqlJournal.append/after/"


def kinds(state_dir: Path) -> Counter[str]:
    """Return how many entries of each kind the journal has."""
    with contextlib.closing(sqlite3.connect(state_dir / "journal.sqlite")) as database:
        return Counter(kind for (kind,) in database.execute("SELECT kind FROM records"))


def twice(state_dir: Path) -> list[bytes]:
    """Return the answers that the journal has more than once."""
    with contextlib.closing(sqlite3.connect(state_dir / "journal.sqlite")) as database:
        bodies = Counter(body for (body,) in database.execute("SELECT body FROM records WHERE kind = 'answer'"))
    return [body for body, count in bodies.items() if count > 1]


def killed(coordinator: CoordinatorProcess) -> None:
    """Wait until a coordinator has died where it should."""
    assert coordinator.reap(30) == -signal.SIGKILL, coordinator.logged()


@pytest.mark.slow
def test_private_run_is_exact_when_the_coordinator_dies_in_pairing_and_between_answers_sums_and_editions(
    start: Start, broker: str, tmp_path: Path
) -> None:
    state, agents, fleet = tmp_path / "coordinator", tmp_path / "agents", sources(range(15))
    stay = {name: source for name, source in fleet.items() if name < "v010"}

    def dies(kind: str, number: int) -> CoordinatorProcess:
        return start(state, program=PROGRAM, environment={VARIABLE: f"{APPENDED}{kind}={number}"})

    with Fleet(stay, broker=broker, state_dir=agents, resend_first=0.3):
        with hosted(broker, agents, range(10, 15), resend_first=0.3):
            pairing = dies("answer", 6)
            with pairing.api() as api:
                begin_run(api, spec("r1", fleet))
            killed(pairing)
            assert 6 <= kinds(state)["answer"] < 15, "it died among the announcements"
            killed(dies("answer", 15 + 5 - kinds(state)["answer"]))
            assert 20 <= kinds(state)["answer"] < 30, "among the masked answers"
            killed(dies("answer", 30 - kinds(state)["answer"]))
            assert kinds(state)["answer"] == 30, "between a sum and the next request"
        deciding = dies("refused", 5)
        eventually(lambda: kinds(state)["answer"] == 40)
        with hosted(broker, tmp_path / "lost", range(10, 15)):  # the state folders of a third of the fleet are gone
            killed(deciding)
        assert (kinds(state)["answer"], kinds(state)["refused"]) == (40, 5), "between an edition and its request"
        last = start(state)
        with last.api() as api:
            run = ended(api, "r1")
        assert (run["outcome"], run["reason"], run["cohort"]) == ("finished", "", sorted(stay))
        assert last.end() == 0
    check_model(record_of(state, "r1"), fleet, stay)
    assert twice(state) == []


@contextlib.contextmanager
def killed_at(url: str, run: str, host: Host, number: int) -> Iterator[list[str]]:
    """Kill a host when the run's `number`-th message passes the broker; give the kinds of all that passed."""
    seen: list[str] = []
    topics = Topics("fleet")

    def take(message: Message) -> None:
        seen.append(topics.parse(message.topic).kind)
        if len(seen) == number:
            host.kill()

    transport = PahoTransport(Link(url, "gf-fleet-watch", session_expiry=0))
    transport.subscribe(topics.request(run))
    transport.subscribe(topics.contributions())
    transport.start(Handlers(take, lambda: None, lambda _why: None))
    try:
        eventually(lambda: transport.is_connected)
        yield seen
    finally:
        transport.stop()


PLACES = (
    "edge_agent.session.private_rows:PrivateFiles.new_key/before/1",
    "edge_agent.session.private_rows:PrivateFiles.new_key/after/1",
    "edge_agent.session.private:PrivateAnswers.check/before/2",
    "edge_agent.session.outbox:Outbox.put/before/2",
    "edge_agent.session.outbox:Outbox.put/after/2",
)
"""Before the key is on the disk, before it is announced, after that, with the chain synced but no answer stored, and
with one that is not sent."""


def test_places_where_processes_die_are_there() -> None:
    for place in (*PLACES, APPENDED):
        assert callable(found(place)[-1]), place


@pytest.mark.slow
def test_private_run_loses_nobody_when_agents_die_before_and_after_each_thing_that_they_sync(
    start: Start, broker: str, tmp_path: Path
) -> None:
    state, agents, fleet = tmp_path / "coordinator", tmp_path / "agents", sources(range(13))
    stay = {name: source for name, source in fleet.items() if name < "v008"}
    with Fleet(stay, broker=broker, state_dir=agents), contextlib.ExitStack() as cleanup:
        hosts = []
        for index, place in enumerate(PLACES, start=8):
            hosts.append(host := Host(broker, agents, range(index, index + 1), resend_first=0.3))
            cleanup.callback(host.kill)
            host.begin(place)
        coordinator = start(state)
        with coordinator.api() as api:
            begin_run(api, spec("r1", fleet))
            for host in hosts:
                assert host.reap(120) == -signal.SIGKILL
                host.begin()
            run = ended(api, "r1")
        assert (run["outcome"], run["reason"], run["restarts"]) == ("finished", "", 0)
        assert coordinator.end() == 0
    check_model(record_of(state, "r1"), fleet, fleet)
    assert twice(state) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_private_run_is_exact_whichever_message_is_the_last_of_a_third_of_the_fleet(
    start: Start, broker: str, tmp_path: Path
) -> None:
    """``GLASSFLEET_KILL_EVERY``: at every so many messages only; default 1."""
    coordinator, passed, number = start(tmp_path / "coordinator"), 1, 1
    with coordinator.api() as api:
        while number <= passed:
            run, agents, fleet = f"r{number}", tmp_path / f"agents-{number}", sources(range(15), salt=number)
            stay = {name: source for name, source in fleet.items() if name < "v010"}
            with (
                Fleet(stay, broker=broker, state_dir=agents, evaluate=True),
                hosted(broker, agents, range(10, 15), number) as leavers,
                killed_at(broker, run, leavers, number) as seen,
            ):
                wanted = spec(run, fleet, domain=False, model=run, rounds={"deadline": 3.0})
                begin_run(api, wanted)
                document = ended(api, run)
                passed = len(seen)
            assert document["outcome"] == "finished", (number, document["reason"])
            record = ModelRecord.load(json.dumps(api.get(f"/api/models/{run}/1").json()).encode())
            check_model(record, fleet, document["cohort"])  # on a crowded machine others may be late, and leave, too
            number += int(os.environ.get("GLASSFLEET_KILL_EVERY", "1"))
    assert twice(tmp_path / "coordinator") == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("vehicles", "groups"), [(70, 2), (130, 4)])
def test_private_run_of_several_groups_is_exact_when_a_third_of_the_fleet_is_killed(
    start: Start, broker: str, tmp_path: Path, vehicles: int, groups: int
) -> None:
    state, agents, fleet = tmp_path / "coordinator", tmp_path / "agents", sources(range(vehicles))
    third = vehicles // 3
    coordinator = start(state)
    with coordinator.api() as api, contextlib.ExitStack() as up:
        for first in range(third, vehicles, 16):
            up.enter_context(hosted(broker, agents, range(first, min(first + 16, vehicles))))
        leavers = up.enter_context(hosted(broker, agents, range(third)))
        up.enter_context(killed_at(broker, "r1", leavers, 2 * vehicles + vehicles // 2))
        policy = {"deadline": 20.0, "gather_timeout": 120.0}
        begin_run(api, spec("r1", fleet, rounds=policy))
        run = ended(api, "r1")
        assert (run["outcome"], run["reason"]) == ("finished", "")
        assert run["private"]["groups"] == groups
        assert coordinator.end() == 0
    left = set(fleet) - leavers.names
    record = record_of(state, "r1")
    check_model(record, fleet, run["cohort"])
    assert left - set(record.cohort) == set(), "nobody had to keep company: a third is enough in each group"
