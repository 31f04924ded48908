"""Processes over their lives: killed, frozen, ended, and what they said."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.chaos.fleet import STARTED, Fleet
from lab.chaos.schedule import COORDINATOR
from lab.processes import ProcessError, ProcessFleet
from tests.support.processes import eventually

SAYS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print(os.getcwd())
print(os.environ["LIFE"], file=sys.stderr)
time.sleep(60)
"""


def test_process_is_killed_started_again_and_ended_when_it_is_frozen(tmp_path: Path) -> None:
    with ProcessFleet(tmp_path / "logs", {"LIFE": "none"}) as fleet:
        process = fleet.add("p", ["-c", SAYS], {"LIFE": "first"}, [sys.executable])
        process.results, process.folder = tmp_path / "p.out", tmp_path
        process.start()
        eventually(process.logged)
        assert (process.kill(), process.is_running, process.reap()) == (-signal.SIGKILL, False, None)
        process.environment = {**fleet.environment, "LIFE": "second"}
        process.start()
        eventually(process.logged)
        assert (process.logged(), process.printed()) == ("second\n", f"{tmp_path}\n" * 2)
        process.freeze()
    assert (process.ends, process.lives, process.is_running) == ([7], 2, False)


def test_process_that_ended_by_itself_is_told_with_its_last_words_and_code(tmp_path: Path) -> None:
    process = ProcessFleet(tmp_path).add("p", ["-c", "raise SystemExit('no such file')"], {}, [sys.executable])
    process.start()
    eventually(lambda: process.has_ended)
    with pytest.raises(ProcessError, match="p ended with exit code 1: no such file"):
        process.check()
    assert process.end() == 1


WORKER = f"""
import os, time
print('{{"event": "{STARTED}", "worker": 1, "pid": ' + str(os.getpid()) + "}}", flush=True)
time.sleep(60)
"""
"""A coordinator's log, whose intake worker is the process itself."""


def test_frozen_intake_worker_goes_on_when_its_coordinator_has_begun_another_life(tmp_path: Path) -> None:
    chaos: Any = object.__new__(Fleet)  # without a broker
    chaos.leader, chaos._frozen_workers = COORDINATOR, set()
    with ProcessFleet(tmp_path) as fleet:
        first, second = (fleet.add(name, ["-c", WORKER], {}, [sys.executable]) for name in ("first", "second"))
        for process in (first, second):
            process.start()
            eventually(process.logged)
        chaos.processes = {COORDINATOR: first}
        chaos.signal_worker(1, signal.SIGSTOP)
        state = Path(f"/proc/{json.loads(first.logged())['pid']}/stat")
        eventually(lambda: " T " in state.read_text())
        chaos.processes = {COORDINATOR: second}
        chaos.thaw_workers()
        eventually(lambda: " T " not in state.read_text())
