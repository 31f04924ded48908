"""Private runs whose processes are killed at every place where that could cost or tell something.

Each run ends by a name; a finished one has the model that one place learns from its cohort's rows, bit for bit.
"""

from __future__ import annotations

import contextlib
import signal
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from edge_agent.fleet import Fleet
from tests.support.cloud import CoordinatorProcess, Start, has_ended, record_of
from tests.support.dying import VARIABLE
from tests.support.private_fleet import check_model, hosted, sources, spec
from tests.support.processes import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]
PROGRAM = ("-m", "tests.support.dying")
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
    code, told = coordinator.end(0) if coordinator.process.poll() is None else coordinator.end()
    assert code == -signal.SIGKILL, told


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
                assert api.post("/api/runs", json=spec("r1", fleet)).status_code == 201
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
            eventually(lambda: has_ended(api, "r1"))
            run = api.get("/api/runs/r1").json()
        assert (run["outcome"], run["reason"], run["cohort"]) == ("finished", "", sorted(stay))
        assert last.end()[0] == 0
    check_model(record_of(state, "r1"), fleet, stay)
    assert twice(state) == []
