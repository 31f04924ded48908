"""A seeded selection of the fuzzer, in a process of its own with bounded memory. The long run is `make fuzz`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

INPUTS = 4_000


def test_nothing_breaks_when_peers_send_broken_messages():
    command = [sys.executable, "-m", "tests.fuzz", "--inputs", str(INPUTS), "--seed", "20261121", "--json"]
    result = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert result.stdout, result.stderr[-2000:]
    report = json.loads(result.stdout)
    again = "python -m tests.fuzz --seed 20261121 --replay TARGET --index INDEX"
    assert report["findings"] == [], f"make one again with: {again}"
    assert report["inputs"] >= INPUTS - 100
    assert report["grown_mb"] < 400, "memory of one target: a 64 MiB message, joined and decompressed"
    # The selection reaches what it means to reach: refusals by reason, and answers that pass.
    outcomes = report["outcomes"]
    assert outcomes["frt/coordinator"]["rejected"] > 15
    assert outcomes["frt/check"]["rejected"] > 30
    assert outcomes["parts"]["oversize"] > 2
    assert outcomes["agent"]["refusal"] > 15
