"""Tests that need what is absent are left out and said once; none starts a program without having asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.needs import programs

pytest_plugins = ["pytester"]

TESTS = """
import subprocess
import pytest
from tests.support.needs.programs import needs

@pytest.fixture
@needs("fish")
def shell():
    return "fish"

def test_of_a_fixture(shell):
    raise AssertionError

@pytest.mark.needs("fish", "jq")
def test_of_two():
    raise AssertionError

def test_that_did_not_ask():
    subprocess.run(["/nowhere/jq"])

@pytest.mark.needs("jq")
def test_that_asked():
    with pytest.raises(FileNotFoundError):
        subprocess.run(["/nowhere/jq"])

def test_that_is_skipped():
    pytest.skip("no time")
"""


@pytest.fixture
def only_jq(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with jq alone."""
    monkeypatch.setattr(programs, "find", lambda program: "/bin/jq" if program == "jq" else None)
    programs.why_not.cache_clear()
    yield
    programs.why_not.cache_clear()


@pytest.mark.usefixtures("only_jq")
def test_what_is_absent_is_left_out_and_said_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_inprocess("-p", "tests.support.needs.plugin", "-p", "no:schemathesis")
    done.assert_outcomes(passed=1, failed=1, skipped=3)
    done.stdout.fnmatch_lines(
        ["    2 tests: fish is not installed: apt install fish", "    1 test: no time", "All of them: apt install fish"]
    )
    done.stdout.fnmatch_lines(["*not everywhere: @pytest.mark.needs('jq')"])
