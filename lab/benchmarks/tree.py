"""The fuzzy tree: processor seconds of whole runs, and bytes."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np

from glassfleet.contract import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.simulation import federated
from lab.benchmarks.measure import made_up, print_table, timed, unit_domain
from lab.experiments.folds import Parts

RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tree", {}),
    ("tree, max_rules=12", {"max_rules": 12}),
    ("tree, compact", {"compact": True}),
)


def tree() -> None:
    """Whole runs of fifteen vehicles, and of one with 36,000 rows and a target that needs all rules."""
    _runs("15 vehicles x 2,367 rows", {f"vehicle-{i:02d}": made_up(2367, seed=i) for i in range(15)})
    _runs("One vehicle x 36,000 rows, a hard target", {"vehicle": hard(made_up(36_000))})


def hard(data: Dataset) -> Dataset:
    """Return rows with a target that bends, jumps and multiplies."""
    x = data.X.T
    y = np.sin(6 * x[0]) * x[1] + np.cos(5 * x[2] * x[3]) + 2 * (x[4] > 0.4) * x[5]
    y += np.abs(x[6] - 0.5) * x[7] + np.sin(8 * x[8] * x[0]) + np.random.default_rng(0).normal(0.0, 0.05, data.rows)
    return Dataset(data.features, data.target, data.X, (y - y.min()) / np.ptp(y))


def _runs(title: str, fleet: Parts) -> None:
    """Print what whole runs over rows as they are take of one core, and send."""
    scheme: Any = catalogue.load("tree")
    lines = []
    for name, settings in RUNS:
        parameters = scheme.Parameters(min_rows=1, **settings)
        run = partial(federated, scheme, parameters, unit_domain(), fleet)
        seconds, outcome = timed(run, 1, time.process_time)
        sent = f"{outcome.bytes_up / len(fleet) / 1e6:.2f}"
        lines.append([name, f"{seconds:.2f}", outcome.rounds, len(outcome.model.rules()), sent])
    header = ["model", "s", "rounds", "rules", "MB per vehicle"]
    print_table(f"{title}: a run in this process, processor time", header, lines)
