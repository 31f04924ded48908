"""Leaves out the tests that need what is absent here (`tests.support.needs.programs`), and says so once, at the end.

A test asks with ``@pytest.mark.needs("chromium", "bash")``, a fixture with ``@needs("chromium")``, and so do then the
tests that use it. A test that starts a program of the table without having asked fails, also where it is installed.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs.programs import NEEDS, hidden, packages, why_not

_ABSENT = "absent"
"""Property of a test that is left out: what is absent."""
# Mosquitto is not here: a fleet's commands take it where they find it, and do without.
_NEEDED_FOR = {program: need for need, each in NEEDS.items() for program in each.programs if need != "mosquitto"}
_asked: frozenset[str] = frozenset(NEEDS)
"""By the test that runs; outside of tests nothing is held back."""


def _asks(item: pytest.Item) -> frozenset[str]:
    return frozenset(name for mark in item.iter_markers("needs") for name in mark.args)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a test the marks of its fixtures."""
    assert isinstance(item, pytest.Function)
    for *_, definition in item._fixtureinfo.name2fixturedefs.values():
        if names := getattr(definition.func, "needs", ()):
            item.add_marker(pytest.mark.needs(*names))
    if unknown := _asks(item) - NEEDS.keys():
        raise pytest.UsageError(f"{item.nodeid} needs {sorted(unknown)}: not in tests/support/needs/programs.py")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a test out where something that it asks for is absent."""
    absent = {name: why for name in sorted(_asks(item)) if (why := why_not(name))}
    if absent:
        item.user_properties.append((_ABSENT, list(absent)))
        pytest.skip("; ".join(absent.values()))


def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail where everything is hidden and a test that asks for some of it runs all the same."""
    assert not (hidden() and item.get_closest_marker("needs")), "it runs though everything that it asks for is hidden"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Remember what the test that runs has asked for."""
    global _asked  # noqa: PLW0603 - the hook below sees the process, and no test
    _asked = _asks(item)
    try:
        return (yield)
    finally:
        _asked = frozenset(NEEDS)


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        program = Path(os.fsdecode(arguments[0]))
        need = _NEEDED_FOR.get(program.name)
        is_ours = program.is_relative_to(sys.prefix)  # Playwright brings its own node
        if need is not None and need not in _asked and not is_ours:
            raise AssertionError(f"this test starts a program that is not everywhere: @pytest.mark.needs({need!r})")


sys.addaudithook(_look)


class LeftOut:
    """What did not run, and why, from all reports: those of all processes, where pytest-xdist has several."""

    def __init__(self, stats: Mapping[str, Sequence[Any]]) -> None:
        self.absent: Counter[str] = Counter()
        self.others: Counter[str] = Counter()
        for report in stats.get("skipped", ()):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            reason = reason.removeprefix("Skipped: ")
            names = dict(getattr(report, "user_properties", ())).get(_ABSENT)
            names = names or [name for name in NEEDS if why_not(name) == reason]  # rows that a test took in its middle
            self.absent.update(names)
            if not names:
                self.others[reason] += 1

    def lines(self) -> list[str]:
        """Name each absent thing once, with its number of tests and the way out."""
        installed = packages(self.absent)
        result = [f"{count:5} test{'s' * (count > 1)}: {why_not(name)}" for name, count in sorted(self.absent.items())]
        result += [f"{count:5} test{'s' * (count > 1)}: {why}" for why, count in sorted(self.others.items())]
        return [*result, f"All of them: apt install {' '.join(installed)}"] if installed else result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once what was left out."""
    if lines := LeftOut(terminalreporter.stats).lines():
        terminalreporter.section("tests left out")
        for line in lines:
            terminalreporter.write_line(line)
