"""What all tests share: real data, free ports, real brokers, and no silent skips in continuous integration."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings

import glassfleet.schemes
from console.main import run
from glassfleet.contract import catalogue
from schemas.log import Log, LogWriter
from tests.support.datasets import data_folder
from tests.support.needs.programs import needs
from tests.support.postgres import PostgresServer
from tests.support.processes import Call, Processes, without_settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest_plugins = ["tests.support.needs.plugin"]

gc.set_threshold(10_000)  # as console.main, for its reason: modules and thousands of tests are objects that stay
# Texts are wrapped to the terminal; here it has one width, whoever runs the tests and wherever.
os.environ["COLUMNS"] = "120"

# Hypothesis would fail a test that is slow once, on a machine that is busy: no test here asserts how long things take.
# Fewer examples than its 100 for those that do not ask for a number: the schemes and readers have such tests in plenty.
settings.register_profile("glassfleet", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("glassfleet")

_TEARDOWN_SECONDS = 180
"""What a test may take to put everything away."""


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: made at collection (gzip stamps the time), two workers may disagree about them."""
    return argname if isinstance(val, bytes) else None


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach what the tests start, also when they run in the background."""
    # A shell without job control starts background work with SIGINT ignored, and children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave what was collected alone: Python would look through it for garbage again and again."""
    gc.freeze()


def _no_skips() -> bool:
    return os.environ.get("GLASSFLEET_NO_SKIPS") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure when ``GLASSFLEET_NO_SKIPS=1``: the checks must not lose a real part unnoticed."""
    report = yield
    if _no_skips() and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although GLASSFLEET_NO_SKIPS=1: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a whole file that skips itself."""
    report = yield
    if _no_skips() and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped although GLASSFLEET_NO_SKIPS=1: {report.longrepr}"
    return report


def _end_after(seconds: float, item: pytest.Item) -> None:
    """End this process of tests, with the stacks of its threads, unless that is taken back or put off in time."""
    stderr = item.config.stash[fault_handler_stderr_fd_key]  # which no capture takes
    faulthandler.dump_traceback_later(seconds, exit=True, file=stderr)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End what pytest-timeout cannot: its alarm never comes while a library in C does not return."""
    mark = item.get_closest_marker("timeout")
    limit = float(item.config.getini("timeout") if mark is None else mark.args[0])
    _end_after(limit + _TEARDOWN_SECONDS, item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """End what waits for ever while it puts a failed test away: such a test has no time limit any more.

    pytest-timeout leaves it to who may want to look at it. For a browser that hangs, say, the whole suite would wait.
    """
    _end_after(_TEARDOWN_SECONDS, item)
    return (yield)


@pytest.fixture(scope="session")
@needs("data")
def glassfleet_data() -> Path:
    """Folder of real datasets, from ``GLASSFLEET_DATA``."""
    return data_folder()


@pytest.fixture(scope="session")
@needs("postgresql")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that all tests of a process share; each takes a database of its own."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="module")
@needs("chromium")
def browser() -> Iterator[Browser]:
    """Chromium for a file. Not for the session: while it runs, nothing else in the process may use asyncio."""
    from tests.support.dashboard_world import chromium  # not for every test, as it takes long

    with chromium() as made:
        yield made


@pytest.fixture
def structlog_defaults(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    structlog.reset_defaults()
    monkeypatch.setattr(Log, "write", LogWriter())
    yield
    structlog.reset_defaults()
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.cancel()  # it would tell another test, up to a minute later, how many lines this one kept back


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Lines that agents and transports of this process tell, by their fields."""
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(Log, "write", lambda level, event, fields: lines.append({"event": event, **fields}))
    return lines


@pytest.fixture
@needs("postgresql")
def mortal() -> Iterator[PostgresServer]:
    """A server that the test may kill."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Commands of one state folder, the test's own; what goes on is ended with the test."""
    with Processes(tmp_path) as made:
        yield made


@pytest.fixture
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings from the environment, and a state folder of the test's own."""
    for name in os.environ.keys() - without_settings().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def call(
    processes: Processes,
    own_state: None,
    structlog_defaults: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Call:
    """Commands of the folder of `processes`, run here to their end: apart, they would mostly import."""
    monkeypatch.setenv("GLASSFLEET_STATE_DIR", str(processes.folder))
    return lambda *words: CompletedProcess(words, run(list(words)), *capsys.readouterr())


@pytest.fixture
def add_schemes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Let the catalogue find the schemes in a folder, beside ours, for one test."""

    def forget() -> None:
        catalogue._modules.cache_clear()
        catalogue._reason.cache_clear()

    def add(folder: Path) -> None:
        monkeypatch.setattr(glassfleet.schemes, "__path__", [*glassfleet.schemes.__path__, str(folder)])
        forget()

    known = set(sys.modules)
    yield add
    forget()
    for name in {each for each in set(sys.modules) - known if each.startswith("glassfleet.schemes.federated_")}:
        monkeypatch.delitem(sys.modules, name)
