"""One level's statistics, the first answer, whole trees, and domain discovery, against plain numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from glassfleet.contract import catalogue
from glassfleet.contract.messages import Done, Next, Task
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.discovery import DISCOVERY, DiscoveryParameters
from glassfleet.simulation import central, federated
from lab.benchmarks import reference
from lab.benchmarks.measure import data_folder, ms, print_table, timed
from lab.experiments.folds import Parts, plan_of, rows_of
from lab.experiments.rows import read_rows
from schemas.codec import encode

INPUTS = 15
RNG = np.random.default_rng(0)
FRT = catalogue.load("frt")
WHOLE = {"california": "MedianHouseValue", "weather_izmir": "Mean_temperature"}


def made_up(rows: int, seed: int = 1) -> Dataset:
    """Return rows like a vehicle's: 15 inputs in [0, 1], a target that depends on three of them."""
    rng = np.random.default_rng(seed)
    X = rng.beta(2.0, 2.0, (rows, INPUTS))
    y = np.clip(np.where(X[:, 0] > 0.5, X[:, 1], X[:, 2] ** 2) + rng.normal(0.0, 0.05, rows), 0.0, 1.0)
    return Dataset(tuple(f"x{index}" for index in range(INPUTS)), "y", X, y)


def unit_domain() -> Domain:
    """Return limits 0 and 1 for :func:`made_up`."""
    features = tuple(Variable(name=f"x{index}", low=0.0, high=1.0) for index in range(INPUTS))
    return Domain(features=features, target=Variable(name="y", low=0.0, high=1.0))


def first_levels(data: Dataset, count: int) -> list[Task]:
    """Return the tasks of the first `count` levels of a run over `data`."""
    tasks: list[Task] = []
    step: Next | Done = FRT.server.start(FRT.Parameters(), unit_domain(), 0)
    while isinstance(step, Next) and len(tasks) < count:
        tasks.append(step.task)
        step = FRT.server.reduce(step.state, [FRT.client.contribute(step.task, data, RNG)])
    return tasks


def level() -> None:
    """One level's statistics over 1e4, 1e5 and 1e6 rows."""
    rows = []
    small = made_up(10_000)
    tasks = first_levels(small, 2)
    for n in (10_000, 100_000, 1_000_000):
        data = small if n == 10_000 else made_up(n)
        repeats = 5 if n < 1_000_000 else 1
        for name, task in zip(("root", "second level"), tasks, strict=True):
            paths = _paths(task)

            def answer(task: Task = task, data: Dataset = data) -> None:
                # Fresh: scaling and memberships are part of the work, as in an agent's first answer.
                FRT.client.contribute(task, Dataset(data.features, data.target, data.X, data.y), RNG)

            def plain(paths: list[reference.Path] = paths, data: Dataset = data) -> None:
                # In blocks, or a million rows would need 600 MB.
                for start in range(0, data.rows, 50_000):
                    mu = reference.memberships(data.X[start : start + 50_000], 5)
                    y = data.y[start : start + 50_000]
                    for path in paths:
                        reference.node_statistics(reference.strength_of(mu, path), mu, y, len(path))

            ours, theirs = timed(answer, repeats)[0], timed(plain, repeats)[0]
            rows.append([f"{n:,}", name, len(paths), ms(ours), ms(theirs), f"{theirs / ours:.1f}"])
    print_table(
        f"One level's statistics, {INPUTS} inputs, 5 sets, exact sums, from raw rows (ms)",
        ["rows", "level", "nodes", "Glassfleet", "plain numpy, dense", "ratio"],
        rows,
    )


def _paths(task: Task) -> list[reference.Path]:
    tree = task.body["tree"]
    parent, feature, fuzzy_set = (tree[name] for name in ("parent", "feature", "set"))
    paths = []
    for node in task.body["nodes"]:
        path: list[tuple[int, int]] = []
        at = int(node)
        while parent[at] >= 0:
            path.insert(0, (int(feature[at]), int(fuzzy_set[at])))
            at = int(parent[at])
        paths.append(tuple(path))
    return paths


def first_answer() -> None:
    """The first answer of an agent over 36,000 rows, and discovery's."""
    data = made_up(36_000)
    task = first_levels(data, 1)[0]
    fresh = timed(lambda: FRT.client.contribute(task, Dataset(data.features, data.target, data.X, data.y), RNG), 9)[0]
    again = timed(lambda: FRT.client.contribute(task, data, RNG), 9)[0]
    step = DISCOVERY.server.start(DiscoveryParameters(features=data.features, target="y"))
    coarse, answer = timed(lambda: DISCOVERY.client.contribute(step.task, data, RNG), 5)
    following = DISCOVERY.server.reduce(step.state, [answer])
    assert isinstance(following, Next)
    fine, second = timed(lambda: DISCOVERY.client.contribute(following.task, data, RNG), 5)
    print_table(
        f"An agent's answers over 36,000 rows x {INPUTS} inputs",
        ["answer", "ms", "bytes"],
        [
            ["level, root, first time", ms(fresh), _size(task, data)],
            ["level, root, rows prepared", ms(again), _size(task, data)],
            ["domain, coarse round", ms(coarse), len(encode(answer.to_value()))],
            ["domain, fine round", ms(fine), len(encode(second.to_value()))],
        ],
    )


def _size(task: Task, data: Dataset) -> int:
    return len(encode(FRT.client.contribute(task, data, RNG).to_value()))


def trees() -> None:
    """Whole trees on real data: one fold of the paper's protocol."""
    rows = []
    for name, target in WHOLE.items():
        parts, domain = _fold(data_folder() / f"{name}.csv.gz", target)
        parameters = FRT.Parameters(min_rows=1)
        pooled = pool(list(parts.values()))

        def fresh(parts: Parts = parts) -> dict[str, Dataset]:
            return {agent: Dataset(d.features, d.target, d.X, d.y) for agent, d in parts.items()}

        fl, outcome = timed(lambda: federated(FRT, parameters, domain, fresh()), 7)  # noqa: B023 - used at once
        cl, alone = timed(lambda: central(FRT, parameters, domain, fresh({"c": pooled})["c"]), 7)  # noqa: B023 - used at once
        X, y = domain.scale_inputs(pooled.X), domain.scale_target(pooled.y)
        plain, tree = timed(lambda: reference.grow(X, y), 3)  # noqa: B023 - used at once
        sizes, single = outcome.model.complexity(), alone.model.complexity()
        rows.append(
            [
                name,
                f"{pooled.rows:,}",
                f"{fl:.3f}",
                f"{cl:.3f}",
                f"{plain:.3f}",
                f"{plain / cl:.1f}",
                f"{sizes['leaves']} / {single['leaves']} / {len(tree.leaves)}",
                outcome.rounds,
                f"{outcome.bytes_up / outcome.rounds / len(parts) / 1000:.1f}",
                f"{outcome.bytes_up / len(parts) / 1000:.0f}",
            ]
        )
    print_table(
        "A whole FRT, first fold of the paper's protocol, 5 clients in this process (s)",
        [
            "dataset",
            "rows",
            "FL",
            "CL",
            "plain numpy CL",
            "ratio to CL",
            "leaves FL / CL / plain",
            "rounds",
            "kB per agent and round",
            "kB per agent",
        ],
        rows,
    )


def _fold(path: Path, target: str) -> tuple[Parts, Domain]:
    data = read_rows(path, target, FRT)
    rows = rows_of(plan_of(FRT, data, {}, ()), data.X, data.y, 0)
    return rows.train, rows.domain
