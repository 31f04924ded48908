"""The TSK paper's protocol: its splits, its scaling, and ``glassfleet experiment --scheme tsk``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from glassfleet.catalogue import load
from glassfleet.data.dataset import Dataset
from glassfleet.local import federated
from lab.experiments.command import experiment
from lab.protocols.choice import protocol_of
from lab.protocols.tsk import PROTOCOL, client_folds, minmax_scaled

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")


def _dataset(n: int = 120) -> Dataset:
    rng = np.random.default_rng(4)
    X = rng.uniform(-3, 9, (n, 2))
    return Dataset(("a", "b"), "y", X, 7 + X[:, 0] * 2 - X[:, 1])


def test_scheme_names_its_papers_protocol() -> None:
    assert protocol_of(load("tsk")) is PROTOCOL
    assert PROTOCOL.seed == 42


def test_clients_come_first_and_folds_inside_them() -> None:
    folds = [client_folds(np.zeros(50), fold, 5, 5, 42) for fold in range(5)]
    whole = [np.sort(np.concatenate(pair)) for pair in folds[0]]
    assert sorted(np.concatenate(whole).tolist()) == list(range(50))
    for fold in folds[1:]:  # a client keeps its rows, whatever the fold
        assert all(np.array_equal(np.sort(np.concatenate(pair)), own) for pair, own in zip(fold, whole, strict=True))
    tests = [np.concatenate([test for _, test in fold]) for fold in folds]
    assert sorted(np.concatenate(tests).tolist()) == list(range(50))
    # Unshuffled: the first fold tests each client's first rows.
    assert all(np.array_equal(test, own[:2]) for (_, test), own in zip(folds[0], whole, strict=True))


def test_scaling_is_to_the_unit_range_and_survives_a_constant_column() -> None:
    data = _dataset()
    X = np.column_stack([data.X, np.full(data.rows, 5.0)])
    scaled, width = minmax_scaled(Dataset(("a", "b", "c"), "y", X, data.y))
    assert width == pytest.approx(np.ptp(data.y))
    assert scaled.X.min(axis=0).tolist() == [0.0, 0.0, 0.0]
    assert scaled.X.max(axis=0) == pytest.approx([1.0, 1.0, 0.0])
    assert scaled.y.min() == 0.0


def test_experiment_measures_as_the_protocol_does(tmp_path: Path) -> None:
    data, scheme = _dataset(), load("tsk")
    table = tmp_path / "table.csv"
    lines = [",".join(map(repr, row)) for row in np.column_stack([data.X, data.y]).tolist()]
    table.write_text("\n".join(["a,b,y", *lines]))
    arguments = ["--scheme", "tsk", "--csv", str(table), "--jobs", "1", "--clients", "3", "--folds", "2", "--json"]
    run = CliRunner().invoke(experiment, [*arguments, "--settings", "local,federated,central"])
    assert run.exit_code == 0, run.output
    summary = json.loads(run.stdout)

    assert summary["seed"] == 42
    assert summary["parameters"]["consequents"] == "averaged"
    # The mean is over clients and folds, of squared errors in the target's own unit, from the scaled rows.
    scaled, width = minmax_scaled(data)
    errors = []
    for fold in range(2):
        parts = [
            [Dataset(scaled.features, "y", scaled.X[rows], scaled.y[rows]) for rows in pair]
            for pair in client_folds(data.y, fold, 2, 3, 42)
        ]
        train = {f"client-{number}": pair[0] for number, pair in enumerate(parts)}
        model = federated(scheme, scheme.Parameters(**summary["parameters"]), PROTOCOL.domain(scaled), train).model
        errors += [np.mean((model.predict(test.X) - test.y) ** 2) * width**2 for _, test in parts]
    assert summary["settings"]["federated"]["test_mse"]["mean"] == pytest.approx(np.mean(errors))
    for result in summary["settings"].values():
        assert result["test_rmse"]["mean"] <= np.sqrt(result["test_mse"]["mean"]) * (1 + 1e-9)
        assert result["complexity"]["rule_length"] == 2
