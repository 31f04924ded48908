"""The demonstration over mutual TLS: every process with its own certificate, and nobody without one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.acceptance, pytest.mark.mosquitto, pytest.mark.timeout(240)]
ROOT = Path(__file__).resolve().parents[2]


def test_fleet_learns_the_central_model_over_mutual_tls_when_vehicles_are_killed(tmp_path: Path) -> None:
    arguments = ["--vehicles", "4", "--deadline", "2", "--pace", "0.1", "--timeout", "120", "--seed", "3"]
    done = subprocess.run(
        [sys.executable, "-m", "console.main", "demo", "--secure", "--json", "--keep", str(tmp_path / "w"), *arguments],
        capture_output=True, text=True, cwd=ROOT, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["verify"]["federated"] == summary["verify"]["central"]
    assert "mutual TLS" in done.stderr
    work = tmp_path / "w"
    lines = (work / "broker" / "mosquitto.conf").read_text().splitlines()
    assert {"require_certificate true", "use_identity_as_username true", "tls_version tlsv1.3"} <= set(lines)
    assert len([line for line in lines if line.startswith("listener ")]) == 1
    # The broker knows each by the name in its certificate (u'...'), which is also its client id.
    log = (work / "broker" / "mosquitto.log").read_text()
    for name in ("coordinator", *(f"vehicle-{number:02}" for number in range(4))):
        assert f" as {name} (" in log
        assert f"u'{name}'" in log


def test_secure_demo_without_mosquitto_is_misuse() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "console.main", "demo", "--secure", "--broker-kind", "embedded"],
        capture_output=True, text=True, cwd=ROOT, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "the embedded broker has no TLS" in done.stderr
