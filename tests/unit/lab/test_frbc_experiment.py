"""The classifier paper's protocol: nodes, folds, F1, the trade-off of reduction, and ``glassfleet experiment``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from glassfleet.catalogue import load
from glassfleet.data.dataset import Dataset
from glassfleet.local import central
from lab.experiments.command import experiment
from lab.protocols.choice import protocol_of
from lab.protocols.frbc import (
    MIN_NODE_ROWS,
    PROTOCOL,
    f1_scores,
    node_parts,
    node_split,
    reduction_curve,
)
from lab.protocols.paper import NESTED_KFOLD, minmax_domain
from schemas.errors import DataError

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")


def _labels(n: int = 600) -> Any:
    return np.random.default_rng(1).choice(["g", "h", "k"], n, p=[0.6, 0.3, 0.1])


def _table(n: int = 600) -> Dataset:
    rng = np.random.default_rng(2)
    X = rng.normal(0, 1, (n, 3))
    y = np.where(X[:, 0] + X[:, 1] > 0.5, "Good", np.where(rng.random(n) < 0.9, "Poor", "Good"))
    return Dataset(("a", "b", "c"), "QoE", X, y)


def _write(path: Path, dataset: Dataset, labels: Any = None) -> Path:
    lines = [",".join([*map(str, x), str(y)]) for x, y in zip(dataset.X, labels or dataset.y.tolist(), strict=True)]
    path.write_text("\n".join([",".join([*dataset.features, dataset.target]), *lines]) + "\n")
    return path


def _run(*arguments: str) -> Any:
    return CliRunner().invoke(experiment, ["--jobs", "1", "--folds", "2", "--clients", "3", *arguments])


@pytest.mark.parametrize("skew", ["iid", "quantity", "quantity+label"])
def test_nodes_share_all_rows_each_once(skew: Any) -> None:
    y = _labels()

    parts = node_parts(y, 6, skew=skew)

    assert np.sort(np.concatenate(parts)).tolist() == list(range(len(y)))
    assert min(part.size for part in parts) >= MIN_NODE_ROWS
    again = node_parts(y, 6, skew=skew)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_skewed_nodes_differ_in_what_the_skew_names() -> None:
    y = _labels(3000)

    def shares(skew: Any) -> tuple[float, float]:
        parts = node_parts(y, 6, skew=skew)
        sizes = np.array([part.size for part in parts]) / len(y)
        of_g = np.array([(y[part] == "g").mean() for part in parts])
        return float(sizes.std()), float(of_g.std())

    (iid_size, iid_label), (q_size, q_label), (ql_size, ql_label) = (
        shares(skew) for skew in ("iid", "quantity", "quantity+label")
    )
    assert iid_size < 0.01 < min(q_size, ql_size)
    assert max(iid_label, q_label) < 0.05 < ql_label


def test_nodes_that_would_stay_empty_are_refused() -> None:
    with pytest.raises(ValueError, match="use fewer nodes or a larger alpha"):
        node_parts(_labels(60), 10, skew="quantity")


def test_folds_of_a_node_share_its_rows() -> None:
    y = _labels()
    splits = [node_split(y, fold, 5, 4, 19) for fold in range(5)]

    for node in range(4):
        tests = np.concatenate([split[node][1] for split in splits])
        assert len(np.unique(tests)) == len(tests)
        for split in splits:
            train, test = split[node]
            assert np.array_equal(np.sort(np.concatenate([train, test])), np.sort(tests))


def test_f1_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import f1_score

    true, said = _labels(200), np.random.default_rng(3).choice(["g", "h"], 200)

    scores = f1_scores(said, true, ("g", "h", "k", "z"))

    expected = f1_score(true, said, labels=["g", "h", "k", "z"], average=None, zero_division=0)
    assert list(scores.values()) == pytest.approx(expected.tolist())


def test_reduction_curve_starts_at_one_rule_and_ends_at_the_model() -> None:
    dataset, scheme = _table(), load("frbc")
    model = central(scheme, scheme.Parameters(), minmax_domain(dataset), dataset).model
    every = model.complexity()["rules"]

    curve = reduction_curve(model, dataset.X, dataset.y, (1, 5, every))

    assert [size for size, _ in curve] == [1, 5, every]
    assert curve[-1][1] == f1_scores(model.predict(dataset.X), dataset.y, model.domain.classes)
    assert min(curve[0][1].values()) == 0.0


def test_schemes_are_measured_by_the_protocol_of_their_paper() -> None:
    assert protocol_of(load("frbc")) is PROTOCOL
    assert protocol_of(load("frt")) is NESTED_KFOLD


def test_model_tree_has_the_folds_of_the_regression_papers_and_limits_of_its_own() -> None:
    ours = protocol_of(load("fmt"))
    assert replace(ours, domain=NESTED_KFOLD.domain) == NESTED_KFOLD
    x = np.arange(1001.0)
    data = Dataset(("x",), "y", x[:, None], x)
    (published,), (limits,) = (protocol.domain(data).features for protocol in (NESTED_KFOLD, ours))
    assert (published.low, published.high) == pytest.approx((25.0, 975.0))
    assert (limits.low, limits.high) == pytest.approx((1.0, 999.0))


def test_experiment_measures_a_classifier_by_f1(tmp_path: Path) -> None:
    path = _write(tmp_path / "qoe.csv", _table())

    result = _run("--scheme", "frbc", "--csv", str(path), "--json")

    assert result.exception is None, result.output
    summary = json.loads(result.stdout)
    assert summary["parameters"]["weights"] == "owners"
    assert summary["parameters"]["min_rows"] == 1
    for setting in summary["settings"].values():
        assert set(setting["test_f1"]["classes"]) == {"Good", "Poor"}
        means = [line["mean"] for line in setting["test_f1"]["classes"].values()]
        assert setting["test_f1"]["mean"] == pytest.approx(np.mean(means))
        assert len(setting["test_f1"]["per_client"]) == 3
        assert setting["test_f1"]["mean"] > 0.6


def test_experiment_finds_classes_federatedly_and_condenses_by_default(tmp_path: Path) -> None:
    path = _write(tmp_path / "qoe.csv", _table(), labels=[int(y == "Good") for y in _table().y])

    result = _run("--scheme", "frbc", "--csv", str(path), "--protocol", "federated")

    assert result.exception is None, result.output
    assert "federated (FL): test F1 of class 1:" in result.stdout
    summary = json.loads(_run("--scheme", "frbc", "--csv", str(path), "--protocol", "federated", "--json").stdout)
    assert summary["settings"]["federated"]["rounds"] == 2


def test_experiment_refuses_numbers_for_a_classifier_and_text_for_a_regression(tmp_path: Path) -> None:
    table = _table()
    numbers = _write(tmp_path / "numbers.csv", table, labels=table.X[:, 0].tolist())
    words = _write(tmp_path / "words.csv", table)

    for scheme, path, reason in (("frbc", numbers, "different values, more than 100"), ("frt", words, "not a number")):
        exception = _run("--scheme", scheme, "--csv", str(path)).exception
        assert isinstance(exception, DataError)
        assert reason in str(exception)
