"""A fleet of processes: over their lives, and none is left behind."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from lab.processes import ProcessError, ProcessFleet


def test_fleet_kills_freezes_restarts_and_leaves_no_process_behind(tmp_path: Path) -> None:
    others = set(psutil.Process().children())  # servers of other tests
    with ProcessFleet(tmp_path / "logs", module="http.server") as fleet:
        server = fleet.add("server", ["0", "--bind", "127.0.0.1"], {})
        other = fleet.add("other", ["0", "--bind", "127.0.0.1"], {})
        fleet.add("never-started", [], {})
        server.start()
        server.kill()
        assert not server.is_running
        server.check()  # who was killed on purpose is no fault
        server.start()
        other.start()
        other.freeze()
        assert (server.lives, server.is_running, other.is_frozen) == (2, True, True)
        children = set(psutil.Process().children()) - others
        assert len(children) == 2
    assert not [child for child in children if child.is_running()]
    assert (server.ends, other.ends) == ([-15], [-15])


def test_a_process_that_ended_by_itself_is_told_with_its_exit_code_and_its_last_error(tmp_path: Path) -> None:
    with ProcessFleet(tmp_path / "logs") as fleet:
        agent = fleet.add("agent", ["no-such-command"], {})
        agent.start()
        assert agent.reap() == 2
        agent.start()
        while not agent.has_ended:
            time.sleep(0.02)
        with pytest.raises(
            ProcessError, match="agent ended with exit code 2: No such command 'no-such-command'"
        ) as told:
            agent.check()
    assert told.value.exit_code == 2
