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
from glassfleet.discovery import DISCOVERY, DiscoveryParameters
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
    domain: Domain | None = None
    for name, parameters in runs.items():
        steps = _asked(f"domain, {name}", DISCOVERY, DISCOVERY.server.start(parameters), data)
        while True:
            try:
                yield next(steps)
            except StopIteration as end:
                domain = domain or end.value
                break
    assert domain is not None
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


def _asked(run: str, scheme: Any, step: Any, data: Dataset) -> Any:
    """Yield what is asked of the vehicle alone; return what the run came to."""
    number = 0
    while isinstance(step, Next):
        number += 1
        answer = scheme.client.contribute(step.task, data, np.random.default_rng(0))
        yield Question(f"{run}, question {number} ({step.task.kind})", step.task, answer)
        step = scheme.server.reduce(step.state, [replace(answer, agent="v")])
    return step.model


def answer(task: Task, data: Dataset) -> Contribution:
    """Return the exact answer to any of these tasks; raises TaskError for others."""
    if task.scheme != "domain" and task.scheme not in catalogue.names():
        raise TaskError(f"no scheme {task.scheme!r}")
    client = DISCOVERY.client if task.scheme == "domain" else catalogue.load(task.scheme).client
    given: Contribution = client.contribute(task, data, np.random.default_rng(0))
    return given
