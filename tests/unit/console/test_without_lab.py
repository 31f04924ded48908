"""An installation without the laboratory, as a vehicle or a coordinator may have it."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.processes import python

WITHOUT_LAB = """
import sys
sys.modules["lab"] = None  # to import it, or what is in it, is to find that it is not there
from console.main import run
sys.exit(run(sys.argv[1:]))
"""


def glassfleet(*arguments: str) -> subprocess.CompletedProcess[str]:
    return python(WITHOUT_LAB, *arguments, check=False)


@pytest.mark.parametrize("command", ["", "agent", "coordinator", "run", "model", "doctor"])
def test_command_of_a_vehicle_or_a_coordinator_works_without_the_laboratory(command: str) -> None:
    done = glassfleet(*command.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage:" in done.stdout


def test_completion_goes_on_without_the_laboratory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COMPLETE": "bash_complete", "COMP_WORDS": "glassfleet ag", "COMP_CWORD": "1"}.items():
        monkeypatch.setenv(f"_GLASSFLEET_{name}" if name == "COMPLETE" else name, value)
    assert (glassfleet().stdout.split(), glassfleet().stderr) == (["plain,agent"], "")


def test_command_of_the_laboratory_says_what_is_missing() -> None:
    done = glassfleet("demo")
    assert done.returncode == 2
    assert done.stderr == (
        "glassfleet: error: this is a command of the laboratory, the package lab, which is left out here: install all "
        "of glassfleet\n"
    )
