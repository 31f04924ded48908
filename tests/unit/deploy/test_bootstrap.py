"""Setting up shows what pip says only when it fails, and then all of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deploy.bootstrap import run_quietly

TALKS = "import sys; print('WARNING: old', file=sys.stderr); print('told'); sys.exit(int(sys.argv[1]))"


def test_bootstrap_says_nothing_when_a_command_only_warns(capfd: pytest.CaptureFixture[str]) -> None:
    run_quietly([sys.executable, "-c", TALKS, "0"])
    assert capfd.readouterr() == ("", "")


def test_bootstrap_shows_all_of_it_when_a_command_fails(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run_quietly([sys.executable, "-c", TALKS, "3"])
    assert failed.value.returncode == 3
    shown = capfd.readouterr().err
    assert "WARNING: old" in shown
    assert "told" in shown
