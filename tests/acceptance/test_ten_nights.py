"""Ten scheduled nights of real processes, a minute apart.

Coordinator, stand-by, broker and vehicles are killed, the leader's disk runs full, and vehicles' clocks jump.
"""

from __future__ import annotations

import json
import random
import resource
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.chaos.fleet import Fleet, write_data
from lab.chaos.schedule import COORDINATOR, STANDBY

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(1800)]

NIGHTS, SECONDS = 10, 60
VEHICLES = [f"vehicle-{number:02d}" for number in range(4)]
SPEC = {
    "scheme": "frt",
    "parameters": {"nullify": False, "min_rows": 1, "max_depth": 3},
    "policy": {"min_agents": 2, "deadline": 5.0, "gather_agents": 2, "gather_timeout": 40.0, "extensions": 20},
    "model": "m",
}


@pytest.fixture
def fleet(tmp_path: Path):
    files = write_data(tmp_path / "data", 4, 1)
    limits = dict.fromkeys((COORDINATOR, *files), 128 * 1024)
    fleet = Fleet(tmp_path, files, "auto", limits, standby=True)
    yield fleet
    fleet.close()


def asked(fleet: Fleet, path: str, body: Any = None) -> Any:
    """Ask whoever leads, until somebody answers."""
    end = time.monotonic() + 120
    while True:
        fleet.watch()
        try:
            token = (fleet.coordinator_state / "api-token").read_text().strip()
            send: Callable[..., httpx.Response] = httpx.get if body is None else httpx.post
            more = {} if body is None else {"json": body, "headers": {"Authorization": f"Bearer {token}"}}
            answer = send(f"{fleet.api_url}{path}", timeout=5, trust_env=False, **more)
            if answer.status_code < 500:
                assert answer.status_code < 400, answer.text
                return answer.json()
        except (httpx.HTTPError, OSError):
            pass
        assert time.monotonic() < end, f"{path}: nobody answers"
        time.sleep(0.2)


def strike(fleet: Fleet, victim: str, chance: random.Random) -> None:
    match victim:
        case "broker":
            fleet.broker.kill()
        case "clock":
            fleet.mischief[chance.choice(VEHICLES)].change(wall_offset=chance.uniform(-86400, 86400))
        case "disk":  # the leader's next write to the journal fails, so it ends, and the stand-by leads
            asked(fleet, "/api/runs")
            leader = fleet.processes[COORDINATOR]
            resource.prlimit(leader.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
            assert leader.reap(120) in {1, 5}, leader.last_words()  # 1: its log cannot grow either
        case _:
            fleet.kill(victim)


def test_ten_nights_of_real_processes_keep_their_promises(fleet: Fleet, tmp_path: Path) -> None:
    chance = random.Random(1)
    for name in (*fleet.coordinators, *VEHICLES):
        fleet.start(name)
    fleet.wait_until_all_work(120)
    asked(fleet, "/api/schedules", {"name": "nightly", "at": "* * * * *", "spec": SPEC})
    faults = Counter[str]()
    begun = time.time()
    in_use: dict[str, int] = {}
    for night in range(NIGHTS):
        time.sleep(SECONDS - time.time() % SECONDS + chance.uniform(0, 6))
        victims = {chance.choice([COORDINATOR, STANDBY, "broker", "clock", *VEHICLES]) for _ in range(2)}
        if night % 4 == 1:
            victims = {"disk"}
        faults.update(victims)
        for victim in victims:
            strike(fleet, victim, chance)
        time.sleep(chance.uniform(1, 5))
        fleet.start_broker()
        fleet.watch()
        for name in (*fleet.coordinators, *VEHICLES):
            fleet.start(name)
        for path in (tmp_path / "vehicles").glob("agents/*/*/models/m.json"):
            record = json.loads(path.read_bytes())
            in_use.setdefault(record["digest"], record["version"])
    time.sleep(SECONDS - time.time() % SECONDS + 50)  # the last run ends, and its gate
    minutes = int(time.time() // SECONDS) - int(begun // SECONDS)

    nights = asked(fleet, "/api/schedules/nightly")["nights"]
    started = [each["run"] for each in nights if each["outcome"] == "started"]
    assert len(set(started)) == len(started), "a night was doubled"
    assert sum(each["count"] for each in nights) in {minutes, minutes - 1}, "a night was lost"
    assert all(each["reason"] for each in nights if each["outcome"] != "started"), "lost without a word"
    runs = {each["run"]: each for each in asked(fleet, "/api/runs") if each["run"].startswith("nightly-")}
    assert set(runs) == set(started)
    ended = [each for each in runs.values() if each["outcome"]]
    assert len(runs) - len(ended) <= 1
    assert all(each["outcome"] == "finished" or each["reason"] for each in ended)
    assert sum(each["outcome"] == "finished" for each in ended) >= NIGHTS // 3, runs
    history = asked(fleet, "/api/models/m/history")["decisions"]
    current = [each for each in history if each["kind"] == "current"]
    sequences = [each["sequence"] for each in current]
    assert sequences == sorted(set(sequences)), "two champions at a time"
    assert set(in_use.values()) <= {each["version"] for each in current}, "in use, though no gate passed it"
    assert faults.total() >= NIGHTS
    assert {"disk", "clock"} <= set(faults), faults
