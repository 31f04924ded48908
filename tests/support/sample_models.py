"""What is learned in this process, for tests: small domains, a search for limits, and models.

There is one small model of every scheme and way to answer, for tests of what is done with finished models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Done, Next, Task
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.discovery import DISCOVERY, DiscoveryParameters
from glassfleet.model.protocol import Model
from schemas.codec import decode, encode

NAMES = ("snr", "dist", "load", "speed")
FEATURES = tuple(
    Variable(name=name, low=0.0, high=high, unit=unit)
    for name, high, unit in zip(NAMES, (10.0, 100.0, 1.0, 5.0), ("dB", "m", "", "m/s"), strict=True)
)
OTHERS = {
    "frt": {"inference": "weighted_average"},
    "tsk": {"inference": "weighted_average"},
    "frbc": {"association": "strength*weight"},
}
"""Parameters that change how a finished model answers."""

FARES = ("business, first", "coach", "économie", 'the "quiet" one', "under 26?", "zone 1", "zone 2", "zone\\3")
TEXTUAL = ("dp_tree-text", "fedga-numbers-text", "tree-numbers-text", "tree-text")
"""Models with columns of text; :func:`trips` are their rows."""
GAPPY = ("tree-numbers-gaps", "tree-gaps")
"""The same, and some distances are missing; :func:`trips` with `gaps` are their rows."""
TRIP = (
    Variable(name="day", low=0.0, high=6.0, categories=("Fri", "Mon", "Sat", "Sun", "Thu", "Tue", "Wed")),
    Variable(name="dist", low=0.0, high=250_000.0, unit="m"),
    Variable(name="fare", low=0.0, high=7.0, categories=tuple(sorted(FARES))),
    Variable(name="gate", low=0.0, high=1.0, categories=("0", "1")),
)

KINDS = (
    *("frt", "frt-other", "tree", "tree-excess", "tree-classes", "tsk", "tsk-other", "frbc", "frbc-other"),
    *("fedga-numbers", "fedga-classes", "dp_tree", "fedavg_mlp-numbers", "fedavg_mlp-classes"),
)


def rows(count: int = 500, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).random((count, 4)) * [10.0, 100.0, 1.0, 5.0]


def step_and_slopes(n: int = 600, seed: int = 1) -> Dataset:
    """Rows of the unit domain of a, b and c: beyond a step in a, y follows b; everywhere c, a little; and noise."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    y = np.where(X[:, 0] > 0.5, X[:, 1], 0.3) + 0.2 * X[:, 2] + rng.normal(0, 0.03, n)
    return Dataset(("a", "b", "c"), "y", X, np.clip(y, 0, 1))


def wide_rows(count: int, seed: int = 1) -> NDArray[np.float64]:
    """Rows all over the domain, a tenth of its range beyond it, and on the edges of its sets."""
    rng = np.random.default_rng(seed)
    X = (rng.random((count, 4)) * 1.2 - 0.1) * [10.0, 100.0, 1.0, 5.0]
    edges = rng.integers(0, 13, (count // 4, 4)) / 12 * [10.0, 100.0, 1.0, 5.0]
    return np.concatenate([X, edges])


def trips(count: int = 500, seed: int = 0, *, gaps: bool = False, unknown: bool = False) -> NDArray[np.float64]:
    """Rows of the models with columns of text: positions among the categories, and metres, some of them missing."""
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, len(variable.categories), count) if variable.categories else None for variable in TRIP]
    columns = [rng.random(count) * 250_000.0 if code is None else code.astype(float) for code in codes]
    if gaps:
        columns[1][rng.random(count) < 0.2] = np.nan
    return np.column_stack(columns) + unknown * 0.5 * (rng.random((count, 4)) < 0.1) * [1, 0, 1, 1]


def texts(row: NDArray[np.float64]) -> list[str]:
    """Return a trip as people write it; half a step behind a category stands one that the model does not know."""
    return [
        f"{variable.categories[int(value)]}{'~' * (value % 1 > 0)}" if variable.categories else repr(value)
        for variable, value in zip(TRIP, row.tolist(), strict=True)
    ]


def _textual(kind: str) -> Model:
    """A tree that splits on its columns of text, or on whether a cell is empty."""
    scheme: Any = catalogue.load(kind.partition("-")[0])
    X, features = trips(), TRIP
    if kind in GAPPY:
        X = trips(2000, gaps=True)
        features = (TRIP[0], TRIP[1].model_copy(update={"missing": 100_000.0}), *TRIP[2:])
    names = tuple(variable.name for variable in TRIP)
    y = X[:, 1] / 50_000.0 + 3.0 * (X[:, 2] > 4.5) + 2.0 * (X[:, 0] % 3.0 == 1.0) + (X[:, 2] == 1.0) * X[:, 3]
    y = np.where(np.isnan(X[:, 1]), 9.0 - 4.0 * X[:, 3], y)
    if "numbers" in kind:
        target = Variable(name="price", low=0.0, high=11.0, unit="EUR")
        domain = Domain(features=features, target=target)
    else:
        domain = Domain(features=features, label="price", classes=("high", "low", "middle"))
        y = np.where(y > np.quantile(y, 0.6), "high", np.where(y > np.quantile(y, 0.3), "middle", "low"))
    parameters = scheme.abilities.trial or scheme.Parameters()
    alone = scheme.abilities.alone
    data = Dataset(names, "price", X, y)
    made: Model = (
        alone(parameters, domain, data) if alone else simulation.central(scheme, parameters, domain, data).model
    )
    return made


def _beyond(scheme: Any) -> Model:
    """A tree some of whose inputs go on beyond their limits, with slopes of their own."""
    ends = {"snr": {"highest": 30.0}, "dist": {"lowest": -50.0, "highest": 150.0}, "load": {"lowest": -1.0}}
    features = tuple(one.model_copy(update=ends.get(one.name, {})) for one in FEATURES)
    X, rng = rows(1500), np.random.default_rng(3)
    X[:60, 0] = 10.0 + 20.0 * rng.random(60)
    X[60:120, 1] = rng.choice([-50.0, 150.0], 60) * rng.random(60)
    y = X[:, 0] * 2 + np.sin(X[:, 1].clip(0, 100) / 20) * 8 + 0.5 * (X[:, 1] - X[:, 1].clip(0, 100)) + X[:, 2] * X[:, 3]
    target = Variable(name="mos", low=float(y.min()), high=float(y.max()), unit="points")
    domain = Domain(features=features, target=target)
    made: Model = simulation.central(scheme, scheme.abilities.trial, domain, Dataset(NAMES, "mos", X, y)).model
    return made


@cache
def model(kind: str) -> Model:
    if kind in (*TEXTUAL, *GAPPY):
        return _textual(kind)
    name, _, other = kind.partition("-")
    scheme = catalogue.load(name)
    X = rows()
    y = X[:, 0] * 2 + np.sin(X[:, 1] / 20) * 8 + X[:, 2] * X[:, 3]
    if other == "excess":
        return _beyond(scheme)
    if other == "classes" or "regression" not in scheme.purpose:
        labels = np.where(y > np.quantile(y, 0.6), "good", np.where(y > np.quantile(y, 0.3), "fair", "bad"))
        domain = Domain(features=FEATURES, label="quality", classes=("bad", "fair", "good"))
        data = Dataset(NAMES, "quality", X, labels)
    else:
        target = Variable(name="mos", low=float(y.min()), high=float(y.max()), unit="points")
        domain = Domain(features=FEATURES, target=target)
        data = Dataset(NAMES, "mos", X, y)
    parameters: Any = scheme.abilities.trial or scheme.Parameters()
    if name in ("fedga", "dp_tree"):
        made: Model = simulation.learn_local(scheme, parameters, domain, {"": data})[""].model
        return made
    made = simulation.central(scheme, parameters, domain, data).model
    if other != "other":
        return made
    document = made.to_document()
    return scheme.from_document({**document, "parameters": {**document["parameters"], **OTHERS[name]}})


@cache
def population() -> Model:
    scheme: Any = catalogue.load("fedga")
    X = rows(120)
    domain = Domain(features=FEATURES, label="quality", classes=("bad", "good"))
    data = Dataset(NAMES, "quality", X, np.where(X[:, 0] > 5.0, "good", "bad"))
    made: Model = simulation.central(scheme, scheme.abilities.trial, domain, data).model
    return made


def unit_domain(names: Iterable[str], target: str = "y", low: float = 0.0, high: float = 1.0) -> Domain:
    """Return a domain of inputs in [0, 1], and of a target in [`low`, `high`]."""
    return Domain(features=_inputs(names), target=Variable(name=target, low=low, high=high))


def class_domain(names: Iterable[str], label: str, *classes: str) -> Domain:
    """Return a domain of inputs in [0, 1], and of these classes."""
    return Domain(features=_inputs(names), label=label, classes=classes)


def _inputs(names: Iterable[str]) -> tuple[Variable, ...]:
    return tuple(Variable(name=name, low=0.0, high=1.0) for name in names)


def curve(count: int = 200, seed: int = 1) -> Dataset:
    """Rows of two inputs, on the unit interval as their target is."""
    X = np.random.default_rng(seed).random((count, 2))
    return Dataset(("a", "b"), "y", X, np.clip(X[:, 0] ** 2 * X[:, 1], 0, 1))


def search(
    parameters: DiscoveryParameters,
    fleet: Sequence[Dataset],
    result: Callable[[Task, Contribution], Contribution] = lambda _, answer: answer,
) -> tuple[list[tuple[Next, list[Contribution]]], Done]:
    """Search for the limits of a fleet's columns, in messages as they go over the wire.

    Returns the rounds with the answers of vehicles ``v00`` and so on, each of which can be true, and the end.

    `told` is what becomes of an answer on its way.
    """
    step: Next | Done = DISCOVERY.server.start(parameters)
    rng = np.random.default_rng(0)
    rounds = []
    while isinstance(step, Next):
        answers = []
        for number, data in enumerate(fleet):
            given = decode(encode(DISCOVERY.client.contribute(step.task, data, rng).to_value()))
            answers.append(result(step.task, replace(Contribution.from_value(given), agent=f"v{number:02d}")))
            DISCOVERY.server.check(step.task, answers[-1])
        rounds.append((step, answers))
        step = DISCOVERY.server.reduce(decode(encode(dict(step.state))), answers)
    return rounds, step
