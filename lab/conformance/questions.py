"""Rows that everybody can have, and every question of discovery, frt and tree over them, with the exact answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Next, Task
from glassfleet.contract.scheme import private_parameters
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.discovery import DISCOVERY, DiscoveryParameters, discover
from glassfleet.errors import TaskError
from schemas.errors import RunFailedError

FOLDER: Final = Path("docs/reference/vectors")
ROWS: Final = 240


@dataclass(frozen=True)
class Question:
    """A task, and what must come back.

    Attributes
    ----------
    name : str
        For people: which run of which scheme it is of, and its number there.
    task : Task
    expected : Contribution
    exact : bool
        Whether the answer is one alone. False: the vehicle condenses its rows by a secret.
    """

    name: str
    task: Task
    expected: Contribution
    exact: bool = True


def tables() -> dict[str, str]:
    """Return the files of rows as CSV, by name: numbers, and texts, empty cells and classes."""
    state = 2023

    def draw(size: int) -> int:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % size

    numbers, mixed = ["heat,pressure,flat,stops,wear,split"], ["heat,gear,slope,ride,split"]
    for _ in range(ROWS):
        heat, pressure = draw(601) - 200, 10130 + draw(200) - 100
        stops = (0, 0, 0, 1, 2, draw(900))[draw(6)]
        wear = 50 + heat // 4 + (stops and 30) + (pressure - 10130) // 10 + draw(20)
        numbers.append(f"{heat / 10},{pressure / 10},3,{stops},{wear / 10},train")
        gear, slope = "abcd"[min(draw(5), 3)], draw(201) - 100
        rough = heat + (300 if gear in "ad" else 0) + 2 * slope + draw(80)
        ride = ("calm", "fair", "wild")[(rough > 150) + (rough > 400)]
        mixed.append(f"{heat / 10},{gear},{'' if draw(8) == 0 else slope / 10},{ride},train")
    return {name: "\n".join(lines) + "\n" for name, lines in (("rows.csv", numbers), ("mixed.csv", mixed))}


def questions(data: Dataset, offered: tuple[str, ...]) -> Iterator[Question]:
    """Yield the questions of runs over one vehicle's rows: of discovery, and of each scheme among `offered`."""
    classes, has_texts = data.y.dtype.kind != "f", bool(data.categories)
    missing = bool(np.isnan(data.X).any())
    plain = DiscoveryParameters(
        features=data.features, target=data.target, labels=classes, categories=has_texts, missing=missing
    )
    runs = {"small counts": plain, "all counts": plain.model_copy(update={"min_count": 0})}
    if not classes and not has_texts:
        bounds: dict[str, tuple[float, float]] = {data.features[0]: (-10.0, 30.0)}
        runs["bounds"] = DiscoveryParameters(features=data.features, target=data.target, bounds=bounds, bins=256)
        runs["private"] = DISCOVERY.private(plain)
    for name, parameters in runs.items():
        yield from _asked(f"domain, {name}", DISCOVERY, DISCOVERY.server.start(parameters), data)
    domain = discover(plain, [data])
    for scheme_name in (name for name in ("frt", "tree") if name in offered):
        scheme: Any = catalogue.load(scheme_name)
        for name, update in _runs(scheme_name, domain).items():
            chosen = scheme.Parameters(**update)
            if update.get("support"):
                chosen = private_parameters(scheme, chosen)
            try:
                first = scheme.server.start(chosen, domain, 0)
                for one in _asked(f"{scheme_name}, {name}", scheme, first, data):
                    yield replace(one, exact=chosen.group_rows == 1)
            except RunFailedError:
                continue  # these rows give no model; what was asked stands


def _runs(scheme: str, domain: Domain) -> Mapping[str, dict[str, Any]]:
    if scheme == "tree":
        plain = {"min_rows": 1, "max_rules": 4}
        return {
            "plain": plain,
            "compact": plain | {"compact": True, "max_regressors": 2},
            "condensed": {"max_rules": 2},
        }
    if domain.classes or any(each.categories or each.missing is not None for each in domain.features):
        return {}
    small = {"min_rows": 1, "nullify": False, "n_sets": 3}
    return {
        "first order": small,
        "zero order": small | {"order": 0, "n_sets": 5, "max_depth": 2},
        "nullified": {"min_rows": 1, "n_sets": 3},
        "support": small | {"support": 3},
        "condensed": {"n_sets": 3, "max_depth": 1},
    }


def _asked(run: str, scheme: Any, step: Any, data: Dataset) -> Iterator[Question]:
    """Yield what is asked of the vehicle alone."""
    number = 0
    while isinstance(step, Next):
        number += 1
        answer = scheme.client.contribute(step.task, data, np.random.default_rng(0))
        yield Question(f"{run}, question {number} ({step.task.kind})", step.task, answer)
        step = scheme.server.reduce(step.state, [replace(answer, agent="v")])


def answer(task: Task, data: Dataset) -> Contribution:
    """Return the exact answer to any of these tasks; raises TaskError for others."""
    if task.scheme != "domain" and task.scheme not in catalogue.names():
        raise TaskError(f"no scheme {task.scheme!r}")
    client = DISCOVERY.client if task.scheme == "domain" else catalogue.load(task.scheme).client
    given: Contribution = client.contribute(task, data, np.random.default_rng(0))
    return given


# --- what each number of an answer is, in the words of the pages: which formula a cell that differs belongs to --------


_LEVEL = "over the rows that reach the node; s = w * 2^B, of a cell (w * 2^B) * degree"
_NEWTON = 'tree, "On the wire", newton'
FORMULAS: Final[Mapping[tuple[str, str, str], tuple[str, str]]] = {
    ("domain", "histogram", "counts"): ("bin", "rows by bin; small counts joined towards the median"),
    ("domain", "histogram", "outside"): ("column side", "values beyond the outer edges, in round 1"),
    ("domain", "histogram", "vehicles"): ("stretch", "1 for each stretch with a count"),
    ("domain", "histogram", "row_counts"): ("bin", "1 in the bin of the number of rows"),
    ("domain", "histogram", "gaps"): ("column", "1 where a cell is empty"),
    ("frt", "level", "node_count"): ("node", f"1, {_LEVEL}"),
    ("frt", "level", "node_ws"): ("node", f"rint(s), {_LEVEL}"),
    ("frt", "level", "node_wls"): ("node", f"rint(s * y), {_LEVEL}"),
    ("frt", "level", "node_wss"): ("node", f"rint((s * y) * y), {_LEVEL}"),
    ("frt", "level", "cell_count"): ("node input set", f"1, {_LEVEL}"),
    ("frt", "level", "cell_strong"): ("node input set", "1 where s >= 0.5^(depth + 1) * 2^B"),
    ("frt", "level", "cell_ws"): ("node input set", f"rint(s), {_LEVEL}"),
    ("frt", "level", "cell_wls"): ("node input set", f"rint(s * y), {_LEVEL}"),
    ("frt", "level", "cell_wss"): ("node input set", f"rint((s * y) * y), {_LEVEL}"),
    ("frt", "leaves", "gram_high"): ("leaf pair", "high limb of the products of rint((c * sqrt(w)) * 2^gram_bits)"),
    ("frt", "leaves", "gram_low"): ("leaf pair", "low limb of the products of rint((c * sqrt(w)) * 2^gram_bits)"),
    ("frt", "leaves", "ws"): ("leaf", "rint(w * 2^B)"),
    ("frt", "leaves", "count"): ("leaf", "rows that reach the leaf"),
    ("frt", "weights", "ws"): ("leaf", "rint(w * 2^B)"),
    ("frt", "weights", "wq"): ("leaf", "rint((w * q) * 2^B), q = 1 - min(abs(o - y), 1)"),
    ("frt", "columns", "rows"): ("column cell", "histogram of different rows in 256 cells"),
    ("frt", "support", "rows"): ("node input set", "different rows with rint((w * 2^B) * degree) > 0, ended"),
    ("tree", "levels", "categories"): ("category sum", "rows, targets, numbers and rows of each category"),
    ("tree", "levels", "numbers"): ("pair", "products of [1, numbers, targets] on the grid of 2^20"),
    ("tree", "scan", "histogram"): ("input cell", "all rows in 512 cells"),
    ("tree", "scan", "gram"): ("part pair", "P(1), z = [1, inputs, targets]; training, then held out"),
    ("tree", "scan", "rows"): ("part", "training rows, then those held out by their hashes"),
    ("tree", "bins", "gram"): ("part pair-of-leaves pair", "P(w_i * w_j) of a pair of leaves"),
    ("tree", "bins", "target"): ("part leaf sum", "V(w, z * y) for all z, then V(w, y * y), for each target"),
    ("tree", "bins", "scores"): ("leaf input bin sum", "S(w), then S(w * r) of each target"),
    ("tree", "bins", "slopes"): ("leaf input group sum", "S(x * (w * r)) for each target and regressor"),
    ("tree", "bins", "means"): ("leaf input group column", "S(z * (w * w))"),
    ("tree", "ramps", "squares"): ("ramp side pair", "l = mu * w: P(l * l), P(l * (w - l))"),
    ("tree", "ramps", "scores"): ("ramp sum", "V(l, z * r) of each target, then V(l, 1)"),
    ("tree", "newton", "squares"): ("leaf scores pair", f"{_NEWTON}: P(w * p_a (1 - p_a)), P(w * p_a p_b)"),
    ("tree", "newton", "expected"): ("leaf score column", f"{_NEWTON}: V(w * p_a, z)"),
    ("tree", "newton", "observed"): ("leaf score column", f"{_NEWTON}: V(w * y_a, z)"),
    ("tree", "newton", "weight"): ("leaf", f"{_NEWTON}: V(w, 1)"),
    ("tree", "newton", "errors"): ("line tree", f"{_NEWTON}: squared errors of rows that are not summed"),
}
"""By scheme, kind and sum: what each index counts, and the formula."""


def difference(task: Task, expected: Contribution, actual: Contribution) -> str:
    """Return the first thing in which an answer differs from the exact one, and its formula; empty: in nothing."""
    for name in ("kind", "rows", "nullified"):
        if (right := getattr(expected, name)) != (given := getattr(actual, name)):
            return f"{name} is {given!r}, expected {right!r}"
    if actual.sums.keys() != expected.sums.keys():
        return f"sums are {sorted(actual.sums)}, expected {sorted(expected.sums)}"
    for name in sorted(expected.sums):
        right, given = expected.sums[name], actual.sums[name]
        if right.shape != given.shape:
            return f"{name} has the shape {given.shape}, expected {right.shape}"
        if (right != given).any():
            axes, formula = FORMULAS.get((task.scheme, task.kind, name), ("", ""))
            place = [int(each) for each in np.argwhere(right != given)[0]]
            words = zip(axes.split(), place, strict=False)
            cell = ", ".join(f"{axis} {_named(task, axis, number)}" for axis, number in words) or str(place)
            return (
                f"{name}[{', '.join(map(str, place))}] ({cell}) is {given[tuple(place)]}, expected "
                f"{right[tuple(place)]}; {int((right != given).sum())} of {right.size} differ; formula: {formula}"
            )
    return _values(expected.values, actual.values)


def _named(task: Task, axis: str, number: int) -> str:
    """Return the number with its name where it is of an input or a column."""
    domain: Any = task.body.get("domain")
    if axis == "input" and domain:
        features = domain["features"]
        inputs: Any = task.body.get("features", range(len(features)))
        if inputs[number] < len(features):  # those after them tell which cells are empty
            return f"{number} {features[inputs[number]]['name']!r}"
    if axis == "column" and task.scheme == "domain":
        return f"{number} {sorted(task.body['columns'])[number]!r}"
    return str(number)


def _values(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> str:
    if expected.keys() != actual.keys():
        return f"values are {sorted(actual)}, expected {sorted(expected)}"
    for name, right in expected.items():
        given = actual[name]
        same = np.array_equal(right, given) if isinstance(right, np.ndarray) else right == given
        if not same:
            return f"{name} is {given!r}, expected {right!r}"[:400]
    return ""
