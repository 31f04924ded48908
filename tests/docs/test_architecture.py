"""The architecture page is true: picture and rooms follow the import rules, its names exist, its walk happens."""

from __future__ import annotations

import ast
import operator
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, partialmethod
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import numpy as np
import pytest

from coordinator.core import Coordinator
from coordinator.journal.sql import SqlJournal
from coordinator.specification.run import RoundPolicy, RunSpec
from deploy.site import architecture, size
from edge_agent.agent import Agent
from edge_agent.effects import Effects
from edge_agent.sources import read_source
from glassfleet.contract import catalogue
from glassfleet.data.domain import Domain, Variable
from glassfleet.explain.summary import summary
from tests.support.authorities import TestCa
from tests.support.docs.pages import ROOT
from tests.support.schedules import quiet
from tests.support.simulation import Simulation

PLACES = re.compile(r"`([\w/]+\.py)`: (`[\w.]+`(?:, `[\w.]+`)*)")
"""A file and what it holds, as the page's tables write them."""


STARTS_PROCESSES = {
    # Of ours: a vehicle's long answers, recordings, brokers, workers, folds, all of demo, chaos, benchmarks, tests.
    "edge_agent/worker.py", "edge_agent/recordings/signals.py", "broker/servers/process.py",
    "coordinator/process/intake.py",
    "lab/experiments/workers.py", "lab/processes.py",
    # Of tests: each says beside it why it is not one of `lab.processes`.
    "tests/support/docs/demo_pictures.py",
    *(f"tests/support/{name}.py" for name in ("netns", "postgres", "processes", "transports")),
    "tests/support/needs/make_test.py",
}  # fmt: skip
"""The only modules with a ``subprocess.Popen``."""


ENTERED = {"answers": (15, 17), "scores": (19, 19), "arrives": (18, 18), "closes": (24, 24)}
"""So many files of ours are entered, as a rule and at most, without what a scheme computes (`glassfleet/`). A vehicle
gets a request and sends its answer, or its scores. The coordinator takes one; it takes the last one, and asks on."""

OTHERS = "tests/", ".venv/", "schemas/log.py"


@pytest.fixture
def text() -> str:
    return architecture.PAGE.read_text(encoding="utf-8")


def places(text: str) -> list[tuple[str, str]]:
    """Return (file, name) for everything that is named in the page's tables, in order."""
    return [(path, name) for path, names in PLACES.findall(text) for name in re.findall(r"`([\w.]+)`", names)]


def _names(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.Assign():
            return [ast.unparse(target) for target in node.targets]
        case ast.AnnAssign():
            return [ast.unparse(node.target)]
    return []


def holds(path: str, name: str) -> bool:
    """Whether a file defines a function, a class, a method or a constant."""
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for part in name.split("."):
        node = next((node for node in body if part in _names(node)), None)
        if node is None:
            return False
        body = getattr(node, "body", [])
    return True


def test_picture_and_rooms_are_those_of_the_import_rules(text: str) -> None:
    again = "python -m deploy.site.architecture"

    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.picture(), again
    assert text == architecture.page(text), again


def test_processes_are_started_in_few_places() -> None:
    paths = {path.relative_to(ROOT) for part in size.PARTS for path in size.modules(part)}
    opens = re.compile(r"\bPopen\(|import .*\bPopen\b")
    assert {str(path) for path in paths if opens.search((ROOT / path).read_text("utf-8"))} == STARTS_PROCESSES


def test_tests_lie_as_the_product_does_and_share_only_what_is_in_support() -> None:
    tests = ROOT / "tests"
    files = [path.relative_to(tests) for path in tests.rglob("*.py")]
    folders = {path.parent.relative_to("unit") for path in files if path.parts[0] == "unit"}
    assert [str(folder) for folder in folders if not (ROOT / folder).is_dir()] == []
    # What is fuzzed is a program of its own; the others are packages that a test installs.
    others = ("support", "fuzz", "conformance/toy", "property/tiny", "__init__.py")
    assert [
        str(path) for path in files if path.name[:5] not in {"test_", "conft"} and not str(path).startswith(others)
    ] == []
    taken = re.compile(r"^ *(?:from|import) tests\..*\b(?:test_|conftest)", re.MULTILINE)
    assert [each for path in files for each in taken.findall((tests / path).read_text("utf-8"))] == []


def test_every_name_in_the_tables_is_in_its_file(text: str) -> None:
    named = places(text)

    assert len(named) > 40
    assert [f"{path}: {name}" for path, name in named if not holds(path, name)] == []


def test_every_room_says_in_a_whole_sentence_what_it_is_for() -> None:
    result = dict(re.findall(r"\| \*?\*?`([\w/]+/)`\*?\*? \| (.*) \|", architecture.rooms()))

    assert len(result) > 40
    assert [folder for folder, words in result.items() if not words.endswith(".") or len(words.split()) < 5] == []


@contextmanager
def calls_of(known: set[tuple[str, str]] | None = None) -> Iterator[list[tuple[str, str]]]:
    """Collect the files and functions of ours that are entered, in order: some, or all but the simulated broker's."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        path, by = (each.f_code.co_filename.partition(f"{ROOT}/")[2] for each in (frame, frame.f_back or frame))
        call = path, frame.f_code.co_qualname
        is_ours = path and not path.startswith(OTHERS) and not by.startswith("tests/support/")
        if event == "call" and (call in known if known else is_ours):
            calls.append(call)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def rows(path: Path) -> Path:
    """A vehicle's file: two inputs and a target, some rows to test."""
    table = np.random.default_rng(1).random((60, 2)).tolist()
    lines = [f"{a:.4f},{b:.4f},{a + b * b:.4f},{'train' if n % 5 else 'test'}" for n, (a, b) in enumerate(table)]
    path.write_text("speed,load,minutes,split\n" + "\n".join(lines) + "\n")
    return path


@quiet()
def learn(folder: Path, vehicles: int) -> Simulation:
    sources = {f"v{number}": read_source(rows(folder / "v.csv"), target="minutes") for number in range(vehicles)}
    fleet = Simulation(sources, folder / "state", ca=TestCa())
    fleet.journal = SqlJournal(f"sqlite:///{folder / 'journal.sqlite'}")  # type: ignore[assignment]
    fleet.begin(5)
    sides = {name: Variable(name=name, low=0.0, high=1.0) for name in ("speed", "load")}
    domain = Domain(features=tuple(sides.values()), target=Variable(name="minutes", low=0.0, high=2.0))
    policy = RoundPolicy(min_agents=1, deadline=5, gather_agents=vehicles)
    spec = RunSpec(scheme="tree", parameters={"max_rules": 3}, rounds=policy, domain=domain, model="m")
    ended = fleet.run_until_ended(fleet.start_run(spec), within=300)
    assert ended["outcome"] == "finished", ended["reason"]
    fleet.advance(5)
    return fleet


def test_contribution_takes_the_way_that_the_page_tells_when_a_fleet_learns(text: str, tmp_path: Path) -> None:
    result = places(text.partition("## One contribution")[2].partition("\n## ")[0])
    with calls_of(set(result)) as calls:
        record = learn(tmp_path, 1).record("m")
        summary(catalogue.load("tree").from_document(record.document))
    position, at = -1, list[int]()
    for step in result:
        assert step in calls[position + 1 :], f"{step} does not follow {result[len(at) - 1]}"
        position = calls.index(step, position + 1)
        at.append(position)
    # One vehicle answers each round once: were two steps told in the wrong order, the walk would need a second round.
    answered = next(index for (_, name), index in zip(result, at, strict=True) if name == "Publisher.receipt")
    assert [name for _, name in calls[:answered]].count("SumScheme.reduce") == 1


def test_one_answer_enters_few_files_and_its_task_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = {name: list[set[str]]() for name in ENTERED}
    asked, read = dict[Effects, list[tuple[str, str]]](), list[int]()

    def take(owner: Any, calls: list[tuple[str, str]]) -> None:
        names = {name for _, name in calls}
        files = {path for path, _ in calls if not path.startswith("glassfleet/")}
        if "Agent.handle" in names:
            asked[owner._effects] = calls
        elif "Outbox.put" in names:  # after the request that came last: a vehicle answers at once
            calls += asked[owner]
            kind = "scores" if "edge_agent/models/summed.py" in files else "answers"
            entered[kind].append({path for path, _ in calls if not path.startswith("glassfleet/")})
            read.append(sum(name == "Task.from_value" for _, name in calls))
        elif "Publisher.receipt" in names and "ModelPublisher.model" not in names:  # which is another way
            entered["closes" if any(name.endswith(".reduce") for name in names) else "arrives"].append(files)

    def followed(method: Callable[..., None], owner: Any, *given: Any) -> None:
        with calls_of() as calls:
            method(owner, *given)
        take(owner, calls)

    for owner, method in ((Agent, "handle"), (Effects, "work"), (Coordinator, "handle")):
        monkeypatch.setattr(owner, method, partialmethod(partial(followed, getattr(owner, method))))
    learn(tmp_path, 3)

    result = {name: (int(median(map(len, ways))), max(map(len, ways))) for name, ways in entered.items()}
    more = [name for name in ENTERED if any(map(operator.gt, result[name], ENTERED[name]))]
    assert more == [], (result, {name: sorted(set.union(*entered[name])) for name in more})
    assert set(read) == {1}
