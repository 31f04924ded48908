"""Every scheme of the catalogue, and a toy of one folder, through one conformance suite."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner

from glassfleet.conformance import CHECKS, Bench, ConformanceError
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Next, Task
from glassfleet.contract.scheme import Scheme
from glassfleet.export import export
from glassfleet.model.protocol import Model
from lab.experiments.command import experiment

FOLDER = Path(__file__).parent / "toy"
sys.path.insert(0, str(FOLDER))
TOY = cast("Scheme", importlib.import_module("federated_mean").SCHEME)
SCHEMES = {**{name: catalogue.load(name) for name in catalogue.names()}, "toy": TOY}


@cache
def benches(name: str) -> list[Bench]:
    return Bench.all_of(SCHEMES[name])


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", SCHEMES)
def test_scheme_keeps_the_contract(name: str, check: str) -> None:
    for bench in benches(name):
        CHECKS[check](bench)


@pytest.fixture
def with_toy(add_schemes: Callable[[Path], None]) -> None:
    """The toy's folder lies beside those of our schemes; nothing else is changed."""
    add_schemes(FOLDER)


def test_scheme_is_found_and_used_when_its_folder_is_there(with_toy: None, tmp_path: Path) -> None:
    assert "federated_mean" in catalogue.names()
    assert catalogue.load("federated_mean").title == "Federated mean"
    table = tmp_path / "table.csv"
    table.write_text("a,b,y\n" + "".join(f"{n},{n * n % 7},{n % 5}\n" for n in range(40)))
    options = ["--scheme", "federated_mean", "--jobs", "1", "--folds", "2", "--clients", "2", "--json", "--csv"]
    result = CliRunner().invoke(experiment, [*options, str(table)])
    assert result.exit_code == 0, result.output
    settings = json.loads(result.stdout)["settings"]
    assert settings["federated"]["test_rmse"] == settings["central"]["test_rmse"]
    assert settings["federated"]["complexity"] == {"parameters": 1}


@pytest.mark.needs("gcc")
def test_scheme_has_c_fml_and_a_picture_when_its_folder_is_there(with_toy: None, tmp_path: Path) -> None:
    (bench,) = Bench.all_of(TOY)
    model = bench.outcome(bench.parameters).model
    (tmp_path / "model.h").write_bytes(export(model, "c"))
    main = '#include "model.h"\n#include <stdio.h>\nint main(void) { double x[4] = {60, -80, 2, 3}; int rule;'
    main += ' double y = model_predict(x, &rule); printf("%a %d", y, rule); return 0; }'
    (tmp_path / "main.c").write_text(main)
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic"]
    program = tmp_path / "program"
    subprocess.run(["gcc", *flags, "-o", program, tmp_path / "main.c", "-lm"], check=True)
    answer, rule = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    expected = model.predict(np.array([[60.0, -80.0, 2.0, 3.0]]))[0]
    assert (float.fromhex(answer), rule) == (expected, "0")
    assert f"<tskValue>{float(expected)!r}</tskValue>" in export(model, "fml").decode()
    assert b"<svg" in export(model, "svg")


class Broken:
    """The toy with one half, or one answer, spoilt."""

    def __init__(self, **changed: Any) -> None:
        self._changed = changed

    def __getattr__(self, name: str) -> Any:
        return self._changed.get(name, getattr(TOY, name))


class Spoilt:
    """A half whose one method is replaced."""

    def __init__(self, half: Any, **methods: Any) -> None:
        self._half = half
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._half, name)


def _careless(task: Any, contribution: Any) -> None:
    """Accept anything."""


def _willing(parameters: Any, domain: Any, seed: Any) -> Next:
    """Take a run with any target."""
    return Next({}, Task("federated_mean", "sum", {}))


def _counts_its_calls() -> Any:
    calls = []

    def contribute(task: Any, data: Any, rng: Any) -> Contribution:
        calls.append(1)
        given = TOY.client.contribute(task, data, rng)
        return Contribution(given.kind, given.rows, given.sums, {}, len(calls))

    return contribute


def _order_matters(state: Any, contributions: Any) -> Any:
    first = TOY.server.reduce(state, contributions)
    model: Any = first.model  # type: ignore[union-attr]  # the toy has one round
    model.mean *= 1 - 1e-6 * contributions[0].rows / 1000
    return first


def _trusting(document: Any) -> Model:
    known = ("scheme", "format", "parameters", "domain", "model")
    return TOY.from_document({member: document[member] for member in known if member in document})


def _hasty(task: Any, data: Any, rng: Any) -> Contribution:
    return TOY.client.contribute(task, data, rng) if task.body["domain"]["features"] else Contribution("sum", 0)


def _assuming(document: Any) -> Model:
    return TOY.from_document({**document, "model": document["model"] + 0.0})


BROKEN = {
    "declarations": Broken(purpose=frozenset({"prophecy"})),
    "refuses_domains": Broken(server=Spoilt(TOY.server, start=_willing)),
    "recomputable": Broken(client=Spoilt(TOY.client, contribute=_counts_its_calls())),
    "refuses_contributions": Broken(server=Spoilt(TOY.server, check=_careless)),
    "equality": Broken(server=Spoilt(TOY.server, reduce=_order_matters)),
    "document": Broken(from_document=_trusting),
    "damaged_messages": Broken(
        client=Spoilt(TOY.client, contribute=_hasty), abilities=replace(TOY.abilities, cost=lambda *_: None)
    ),
    "damaged_documents": Broken(from_document=_assuming),
}


@pytest.mark.parametrize("check", BROKEN)
def test_suite_finds_a_scheme_that_breaks_the_contract(check: str) -> None:
    bench = Bench.of(cast("Scheme", BROKEN[check]), TOY.Parameters(), "regression")
    with pytest.raises(ConformanceError):
        CHECKS[check](bench)
