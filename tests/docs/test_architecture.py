"""The architecture page is true: picture and rooms follow the import rules, its names exist, its walk happens."""

from __future__ import annotations

import ast
import operator
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cache, partial, partialmethod
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import numpy as np
import pytest
import structlog

from coordinator import core
from coordinator.core import Coordinator
from coordinator.journal.sql import SqlJournal
from coordinator.specification.run import RoundPolicy, RunSpec
from deploy.site import architecture, masks
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


HOUSE = {
    **dict.fromkeys(("schemas", "glassfleet", "broker", "coordinator", "edge_agent", "console", "deploy"), "product"),
    "lab": "lab",
    "tests": "tests",
}
"""Which part of the house a top folder belongs to."""

MOST_FILES = 20
"""Most modules in one folder."""

MOST_LINES = {"product": 96_900, "lab": 17_200, "tests": 56_500}
"""Most lines of Python. Whoever raises one says in the commit for what, and what could not go instead."""

STARTS_PROCESSES = {
    # Of ours: a vehicle's long answers, recordings, brokers, folds, all of demo, chaos, benchmarks and tests.
    "edge_agent/compute/worker.py", "edge_agent/recordings/apart.py", "broker/servers/child.py",
    "lab/experiments/workers.py", "lab/processes.py",
    # Of tests: each says beside it why it is not one of `lab.processes`.
    *(f"tests/support/{name}.py" for name in ("demo_pictures", "netns", "postgres", "processes", "transports")),
    "tests/support/needs/make_test.py",
}  # fmt: skip
"""The only modules with a ``subprocess.Popen``."""


DATA = """
    state.agents state.frozen state.open state.spec state.store spec.policy start.plan record.parameters
    scheme.abilities
    training.dropped roster.terms config.http model.domain fired.rule forecast.errors score.metric verdict.model
    verdict.personal source.train source.test data.X X.flags y.flags y.dtype rules.classes rules.first file.name
    directory.parent parent.parent url.path c.at scheme.server
"""
"""What a longer chain of names may pass through: values, files, addresses; and a scheme's halves, its contract."""

HANDED_ON = """
    console/common.py:call console/run/connection.py:call console/settings.py:call
    console/lazy.py:__init__ console/sections.py:__init__
    coordinator/http/access.py:__init__
    coordinator/engine/draft.py:update coordinator/fleet/directory.py:_counted coordinator/models/registry.py:_written
    glassfleet/conformance/messages.py:variant lab/chaos/child.py:make
"""
"""What may take ``**name: Any``, for it hands all on as it is: what click passes to any command and to its own classes;
fields of a record that replace others; arguments of another class, whose place it takes."""


ENTERED = {"answers": (16, 18), "scores": (21, 21), "arrives": (22, 22), "closes": (27, 28)}
"""As a rule, and at most, so many files of ours, without what a scheme computes (`glassfleet/`): a vehicle gets a
request and sends its answer, or its scores; the coordinator takes one; it takes the last one, and asks on."""

OTHERS = re.compile(r"(broker/memory|tests/|\.venv/)")

GROUP = r"\bconfig\.\w+$"
"""A nested model of a process's settings."""

READ = """
    A reason begins with the name of its cause, and journals keep it so: coordinator/engine/answers.py
    coordinator/engine/machine.py coordinator/engine/rounds.py
    coordinator/runs/effects.py glassfleet/private/words.py lab/chaos/report.py
    Vehicles say it as text (no test rows): console/run/gate.py
    A model's notes say it as text: coordinator/http/dashboard/show.py
    Other libraries say it as text: broker/connection.py broker/tls.py edge_agent/sources/files.py
    edge_agent/sources/window.py edge_agent/imports/engine.py edge_agent/imports/inputs.py
    An import's own notes, shortened for its one line: edge_agent/imports/report.py
"""
"""Who looks into a text that is made for people, and why."""


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


def test_rooms_are_small_and_the_house_grows_only_on_purpose() -> None:
    modules = [path.relative_to(ROOT) for room in HOUSE for path in sorted((ROOT / room).rglob("*.py"))]
    folders = Counter(str(path.parent) for path in modules)
    lines: Counter[str] = Counter()
    arrows = set[tuple[str, str]]()
    for path in modules:
        text = (ROOT / path).read_text(encoding="utf-8")
        lines[HOUSE[path.parts[0]]] += text.count("\n")
        rooms = re.findall(r"from coordinator\.(\w+)", text) if path.parts[0] == "coordinator" else []
        arrows |= {(path.parts[1].removesuffix(".py"), room) for room in rooms}
    assert {folder: count for folder, count in folders.items() if count > MOST_FILES} == {}
    more = {part: count for part, count in lines.items() if count > MOST_LINES[part]}
    assert more == {}, "remove what is double or unused, or raise MOST_LINES and say in the commit for what"
    assert sum(room != other for room, other in arrows) <= 57  # among the rooms of coordinator/


def test_processes_are_started_in_few_places() -> None:
    paths = {path.relative_to(ROOT) for room in HOUSE for path in (ROOT / room).rglob("*.py")}
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


def reached_through(node: ast.expr) -> list[str]:
    """Return the names of a chain like ``a.b.c.d``, without a leading ``self``; none where it is no chain of names."""
    names = list[str]()
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return []
    return names if node.id == "self" else [node.id, *names]


@cache
def trees() -> dict[Path, list[ast.AST]]:
    """Return the nodes of each module of product and laboratory, the module itself first."""
    paths = sorted(path for room in HOUSE if room != "tests" for path in (ROOT / room).rglob("*.py"))
    return {path.relative_to(ROOT): list(ast.walk(ast.parse(path.read_text(encoding="utf-8")))) for path in paths}


def test_nobody_reaches_through_two_objects() -> None:
    data, chains = set(DATA.split()), list[str]()
    for path, nodes in trees().items():
        imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        modules = {(name.asname or name.name).partition(".")[0] for node in imports for name in node.names}
        for names in (reached_through(node) for node in nodes if isinstance(node, ast.Attribute)):
            if not data.issuperset(map(".".join, pairwise(names[1:-1]))) and names[0] not in modules:
                chains.append(f"{path}: {'.'.join(names)}")
    assert chains == []


def test_private_names_are_used_in_their_own_module_alone() -> None:
    used = list[str]()
    for path, nodes in trees().items():
        defined, theirs, own = set[str](), list[str](), set[str]()
        for node in nodes:
            match node:
                case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.Name(name, ast.Store()):
                    defined.add(name)
                case ast.Attribute(attr=name, ctx=ast.Store()):
                    defined.add(name)
                case ast.Attribute(ast.Name("self"), name):
                    own.add(name)
                case ast.ImportFrom():
                    theirs += [alias.name for alias in node.names]
                case ast.Call(ast.Name("getattr" | "setattr"), [_, ast.Constant(str(name)), *_]):
                    theirs.append(name)
        # Apart: classes that extend a library's; and estimators, whose public names are what their users see.
        if path.name != "amqtt_patches.py" and path.parent.name != "estimators":
            used += [f"{path}: {name}" for name in [*theirs, *own - defined] if re.match("_[^_]", name)]
    assert used == []


def test_engine_and_coordinator_are_put_together_and_inherit_nothing_of_other_modules() -> None:
    names = [f"coordinator.engine.{path.stem}" for path in (ROOT / "coordinator/engine").glob("[a-z]*.py")]
    modules = {name: vars(import_module(name)).values() for name in (core.__name__, *names)}
    own = [each for name in modules for each in modules[name] if isinstance(each, type) and each.__module__ == name]
    bases = {base.__module__: each for each in own for base in each.__bases__ if base.__module__ != each.__module__}
    assert [str(each) for module, each in bases.items() if module.startswith("coordinator.")] == []
    assert is_dataclass(core.Coordinator)  # its collaborators are handed in, by `main` alone
    makers = [path.name for path in (ROOT / "coordinator").rglob("*.py") if "= Coordinator(" in path.read_text("utf-8")]
    assert makers == ["main.py"]


def test_no_scheme_is_named_outside_its_own_rooms() -> None:
    named, names = list[str](), set(catalogue.names())
    # Apart: a scheme has one or two estimators; an attack is on the answers of one scheme; a page shows runs of some.
    rooms = ("lab/", "glassfleet/schemes/", "glassfleet/estimators/", "glassfleet/audit/", "deploy/site/payloads.py")
    # "tree" is a word too, and a kind of picture: alone it names the scheme, where no pictures are drawn.
    drawn = ("glassfleet/export/", "console/model/export.py", "coordinator/http/dashboard/growth.py")
    for path, nodes in trees().items():
        about = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
        for node in nodes if not str(path).startswith(rooms) else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in about:
                named_here = names.intersection(re.split(r"[^\w\]]+", node.value))
                if named_here - {"tree"} or (node.value == "tree" and not str(path).startswith(drawn)):
                    named.append(f"{path}: {node.value}")
    assert named == [], "ask the catalogue which schemes have a trait (glassfleet/contract/abilities.py)"


def test_what_a_command_is_given_has_types() -> None:
    loose, untyped = set[str](), re.compile(r"\bAny\b|\b(dict|Mapping)\[str, (Any|object)\]")
    for path, nodes in trees().items():
        for node in nodes:
            match node:
                case ast.FunctionDef(name, args, decorator_list=decorators):
                    is_command = any(re.search(r"\.(command|group)\(", ast.unparse(each)) for each in decorators)
                    given = [each for each in [*args.args, *args.kwonlyargs] if is_command or each.arg == "options"]
                    typed = [(f"{name}: {each.arg}", each.annotation) for each in given]
                    typed += [(name, args.kwarg.annotation)] if args.kwarg else []
                case ast.ClassDef(name, body=body) if name.endswith("Options"):
                    typed = [(name, field.annotation) for field in body if isinstance(field, ast.AnnAssign)]
                case _:
                    continue
            loose |= {f"{path}:{name}" for name, kind in typed if kind and untyped.search(ast.unparse(kind))}
    assert sorted(loose) == sorted(HANDED_ON.split()), "give them types: a dataclass, a TypedDict, or names"


def test_texts_for_people_are_not_taken_apart() -> None:
    asks = r"(startswith|endswith|removeprefix|removesuffix|partition|rpartition|split|find|index)$"
    text = re.compile(r"(^|[.(\"])(reasons?|why|fault|errors?|notes?|detail)\b(\"\])?\)*$")
    found = set[str]()
    for path, nodes in trees().items():
        for node in nodes:
            match node:
                case ast.Call(ast.Attribute(of, name)) if re.match(asks, name):
                    read = [of]
                case ast.Call(ast.Attribute(_, "match" | "search" | "fullmatch" | "findall" | "finditer"), args):
                    read = args
                case ast.Compare(ast.Constant() | ast.JoinedStr(), [ast.In() | ast.NotIn()], [of]):
                    read = [of]
                case _:
                    continue
            found |= {str(path) for each in read if text.search(ast.unparse(each))}
    assert sorted(found) == sorted(re.findall(r"\S+\.py", READ)), "let it travel as data"


def test_elements_of_pictures_are_written_in_one_place() -> None:
    shape = re.compile(r"<(svg|g|path|rect|line|polyline|polygon|circle|ellipse|text)\b")
    places = set[str]()
    for path, nodes in trees().items():
        about = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
        texts = [node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in about]
        places |= {str(path.parent) for text in texts if isinstance(text, str) and shape.search(text)}
    # Apart: the site's diagrams of processes and formulas; trees, sets and rounds come from the package.
    assert places == {"glassfleet/export/svg", "deploy/site"}


def test_a_group_of_settings_is_handed_over_whole() -> None:
    copied = list[str]()
    for path, nodes in trees().items():
        for node in (each for each in nodes if isinstance(each, ast.Call)):
            given = [*node.args, *(each.value for each in node.keywords)]
            of = Counter(ast.unparse(each.value) for each in given if isinstance(each, ast.Attribute))
            copied += [f"{path}: {ast.unparse(node)}" for group in of if of[group] > 2 and re.search(GROUP, group)]
    assert copied == []


def test_picture_of_masks_is_the_one_that_is_drawn_and_its_sum_is_right() -> None:
    assert masks.PICTURE.read_text(encoding="utf-8") == masks.picture(), "python -m deploy.site.masks"
    assert sum(map(masks.masked, masks.NUMBERS)) % masks.MODULUS == sum(masks.NUMBERS.values())


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
        is_ours = path and not OTHERS.match(path) and "broker/memory" not in by
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


def learn(folder: Path, vehicles: int) -> Simulation:
    quiet()
    sources = {f"v{number}": read_source(rows(folder / "v.csv"), target="minutes") for number in range(vehicles)}
    fleet = Simulation(sources, folder / "state", ca=TestCa())
    fleet.journal = SqlJournal(f"sqlite:///{folder / 'journal.sqlite'}")  # type: ignore[assignment]
    fleet.begin(5)
    sides = {name: Variable(name=name, low=0.0, high=1.0) for name in ("speed", "load")}
    domain = Domain(features=tuple(sides.values()), target=Variable(name="minutes", low=0.0, high=2.0))
    policy = RoundPolicy(min_agents=1, deadline=5, gather_agents=vehicles)
    spec = RunSpec(scheme="tree", parameters={"max_rules": 3}, policy=policy, domain=domain, model="m")
    ended = fleet.run_until_ended(fleet.start_run(spec), within=300)
    assert ended["outcome"] == "finished", ended["reason"]
    fleet.advance(5)
    structlog.reset_defaults()
    return fleet


def test_contribution_takes_the_way_that_the_page_tells_when_a_fleet_learns(text: str, tmp_path: Path) -> None:
    result = places(text.partition("## One contribution")[2].partition("\n## ")[0])
    with calls_of(set(result)) as calls:
        record = learn(tmp_path, 1).record("m")
        assert record is not None
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
