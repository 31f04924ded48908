"""Processes are told to end twice: by an impatient Ctrl-C, or by whoever ends a group of processes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from coordinator.config import load_config
from coordinator.main import build
from edge_agent.forecast.source import Samples
from edge_agent.runner import Loop


def interrupted_everywhere(stop: Callable[[], None]) -> None:
    """Call `stop`, and once more at each line of it, as a second signal may do."""
    nested = False

    def at_line(_frame: FrameType, _event: str, _value: Any) -> Any:
        nonlocal nested
        if not nested:
            nested = True
            stop()
            nested = False
        return at_line

    sys.settrace(at_line)
    try:
        stop()
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("who", ["agent", "coordinator", "forecaster"])
def test_process_ends_when_a_second_signal_interrupts_the_first(who: str, tmp_path: Path) -> None:
    if who == "agent":
        stop = Loop([], queue_size=10, batch=10).stop
    elif who == "forecaster":
        (tmp_path / "samples").touch()
        stop = Samples(str(tmp_path / "samples"), follow=True).stop
    else:
        service = build(load_config(broker="mqtt://127.0.0.1:1", state_dir=tmp_path, api=False))
        stop = service.stop
    thread = threading.Thread(target=interrupted_everywhere, args=(stop,), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "the second waits for the first, which it interrupts"
