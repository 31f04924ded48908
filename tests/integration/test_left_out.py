"""What pytest says and does where programs are absent, on several processes of tests as in ``make test``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.processes import ROOT

TESTS = """
import subprocess
import pytest
from tests.support.needs.programs import needs

@pytest.fixture(scope="module")
@needs("zsh")
def shell():
    raise AssertionError("it is not made")

def test_one(shell): ...

@pytest.mark.needs("zsh", "chromium")
def test_another(): ...

@pytest.mark.needs("data")
def test_data(): ...

def test_odd():
    pytest.skip("the moon is full")

def test_forgetful():
    subprocess.run([PROGRAM])
"""


def test_absent_programs_are_said_once_and_a_test_that_forgot_to_ask_fails_wherever_it_runs(tmp_path: Path) -> None:
    for number, program in enumerate(("curl", "/bin/sh")):
        (tmp_path / f"test_{number}.py").write_text(TESTS.replace("PROGRAM", f"'{program}'"))
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.needs.plugin", "-n", "2", str(tmp_path)]
    environment = {**os.environ, "GLASSFLEET_BARE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed, 8 skipped" in done.stdout, done.stdout + done.stderr
    assert "starts a program that is not everywhere: @pytest.mark.needs('curl')" in done.stdout
    _, _, left = done.stdout.partition("tests left out")
    words = [line.strip() for line in left.splitlines()[1:6]]
    assert words[0] == "2 tests: chromium is not installed: apt install chromium fonts-dejavu-core"
    assert words[1].startswith("2 tests: no real data sets here: set GLASSFLEET_DATA")
    assert words[2:] == [
        "4 tests: zsh is not installed: apt install zsh",
        "2 tests: the moon is full",
        "All of them: apt install chromium fonts-dejavu-core zsh",
    ]
