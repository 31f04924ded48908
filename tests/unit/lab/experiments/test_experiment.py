"""``glassfleet lab experiment``: protocols, what it measures with every scheme, what it prints, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from glassfleet.contract import catalogue
from glassfleet.contract.catalogue import load
from glassfleet.data.dataset import Dataset
from glassfleet.simulation import federated
from lab.experiments.command import experiment
from lab.experiments.folds import SETTINGS, protocol_of
from lab.protocols import frbc, tsk
from lab.protocols.frbc import skewed_split
from lab.protocols.paper import NESTED_KFOLD, minmax_domain, pooled_domain
from lab.protocols.references import ANCHORS, REFERENCES, fit_reference
from schemas.errors import DataError

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")

SMALL = {
    "tree": ("max_rules=3",),
    "fedga": ("generations=2",),
    "fedavg_mlp": ("rounds=2", "epochs=1"),
    "tsk": ("n_clusters=5",),
}
TINY = ("--folds", "2", "--clients", "2", "--settings")


def run(*arguments: str, jobs: int = 1) -> Result:
    return CliRunner().invoke(experiment, [*arguments, "--jobs", str(jobs)])


def fault(*arguments: str) -> BaseException:
    """Return the error that the command line's entry turns into one line and an exit code."""
    exception = run(*arguments).exception
    assert exception is not None
    return exception


def summary_of(*arguments: str, jobs: int = 1) -> dict[str, Any]:
    result = run(*arguments, "--json", jobs=jobs)
    assert result.exception is None, result.output
    summary: dict[str, Any] = json.loads(result.stdout)
    return summary


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, str]:
    """A table with a number, and one with a label."""
    X = np.random.default_rng(5).uniform(0, 10, (240, 3))
    y = X[:, 0] * 2 + np.where(X[:, 1] > 5, X[:, 2], 0)
    *inputs, number = ([f"{value:.6f}" for value in column] for column in (*X.T, y))
    paths = {}
    for name, target in (("number", number), ("label", np.where(y > 12, "high", "low").tolist())):
        path = tmp_path / f"{name}.csv"
        path.write_text("a,b,c,y\n" + "".join(",".join(row) + "\n" for row in zip(*inputs, target, strict=True)))
        paths[name] = str(path)
    return paths


@pytest.fixture
def table(tables: dict[str, str]) -> Path:
    return Path(tables["number"])


@pytest.mark.parametrize("scheme", catalogue.names())
def test_experiment_runs_every_scheme_for_its_purposes(scheme: str, tables: dict[str, str]) -> None:
    pairs = [part for pair in SMALL.get(scheme, ()) for part in ("--param", pair)]
    for purpose in sorted(catalogue.load(scheme).purpose):
        file, measure = (tables["number"], "rmse") if purpose == "regression" else (tables["label"], "f1")
        summary = summary_of("--scheme", scheme, "--csv", file, "--folds", "2", "--clients", "3", *pairs)
        assert list(summary["settings"]) == list(SETTINGS)
        for result in summary["settings"].values():
            for kind in ("test", "train"):
                scores = result[f"{kind}_{measure}"]
                assert len(scores["per_client"]) == 3
                assert np.shape(scores["per_fold"]) == (2, 3)
                assert np.mean(scores["per_fold"], axis=0) == pytest.approx(scores["per_client"])
                assert scores["mean"] == pytest.approx(np.mean(scores["per_client"]))
                if measure == "f1":
                    means = [line["mean"] for line in scores["classes"].values()]
                    assert scores["mean"] == pytest.approx(np.mean(means))
                    assert set(scores["classes"]) == {"high", "low"}
            assert result["complexity"]
            assert {"bytes_up", "bytes_down", "nullified", "rounds", "seconds"} <= set(result)
        assert summary["settings"]["federated"]["bytes_up"] > 0
        assert summary["settings"]["central"]["nullified"] == 0
        if scheme == "frbc":
            assert (summary["parameters"]["weights"], summary["parameters"]["min_rows"]) == ("owners", 1)


@pytest.mark.slow
def test_experiment_gives_the_same_in_processes_as_in_one(table: Path) -> None:
    options = ("--csv", str(table), *TINY, "federated", "--param", "max_rules=4")
    one, two = (summary_of(*options, jobs=jobs)["settings"]["federated"] for jobs in (1, 2))
    for result in (one, two):
        del result["seconds"]
    assert one == two


def test_experiment_finds_limits_federatedly_when_asked(table: Path) -> None:
    options = ("--csv", str(table), *TINY, "federated,central", "--param", "max_rules=4")
    result, pooled = summary_of(*options, "--protocol", "federated"), summary_of(*options)
    assert (result["parameters"]["min_rows"], pooled["parameters"]["min_rows"]) == (3, 1)
    assert result["settings"]["central"]["test_rmse"] != pooled["settings"]["central"]["test_rmse"]
    assert result["settings"]["central"]["test_rmse"]["mean"] < 3.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text + "1,2,red,4\n", "is no number"),
        (lambda text: "\n".join(text.splitlines()[:10]) + "\n",
         "9 rows are too few for 5 folds of 5 clients, at least 25 are needed. Lower --folds"),
        (lambda _: "y\n1\n2\n", "Inputs and a target are needed"),
    ],
)  # fmt: skip
def test_experiment_names_the_fault_of_a_file(table: Path, change: Any, reason: str) -> None:
    table.write_text(change(table.read_text()))
    error = fault("--csv", str(table), "--scheme", "frt")
    assert isinstance(error, DataError)
    assert reason in str(error)


def test_experiment_takes_columns_of_text(table: Path) -> None:
    first, *lines = table.read_text().splitlines()
    marked = [f"city,{first}", *(f"{('Recife', 'Santos')[n % 2]},{line}" for n, line in enumerate(lines))]
    table.write_text("\n".join(marked) + "\n")
    assert summary_of("--csv", str(table), *TINY, "central", "--param", "max_rules=2")["features"] == 4


def test_experiment_measures_tsk_as_its_papers_protocol_does(table: Path) -> None:
    arguments = ["--scheme", "tsk", "--csv", str(table), "--clients", "3", "--folds", "2"]
    summary = summary_of(*arguments, "--settings", "federated")
    assert summary["seed"] == 42
    assert summary["parameters"]["consequents"] == "averaged"
    # The mean is over clients and folds, of squared errors in the target's own unit, from the scaled rows.
    rows = np.loadtxt(table, delimiter=",", skiprows=1)
    scaled, width = tsk.minmax_scaled(Dataset(("a", "b", "c"), "y", rows[:, :3], rows[:, 3]))
    scheme, errors = catalogue.load("tsk"), []
    for fold in range(2):
        parts = [
            [Dataset(scaled.features, "y", scaled.X[part], scaled.y[part]) for part in pair]
            for pair in tsk.client_folds(scaled.y, fold, 2, 3, 42)
        ]
        train = {f"client-{number}": pair[0] for number, pair in enumerate(parts)}
        model = federated(scheme, scheme.Parameters(**summary["parameters"]), tsk.PROTOCOL.domain(scaled), train).model
        errors += [np.mean((model.predict(test.X) - test.y) ** 2) * width**2 for _, test in parts]
    assert summary["settings"]["federated"]["test_mse"]["mean"] == pytest.approx(np.mean(errors))


GAMMA = np.random.default_rng(3).gamma(2.0, size=1500)
WORDS = np.where(GAMMA > 2.0, "many", "few")
RNG = np.random.default_rng(8)
X = RNG.uniform(0, 100, (600, 4))
Y = 3 * X[:, 0] - X[:, 1] + 500 + RNG.normal(0, 5, 600)
NUMBERS = Dataset(("a", "b", "c", "d"), "y", X, Y)
LABELS = Dataset(("a", "b", "c", "d"), "y", X, np.where(Y > 600, "above", "below"))


def test_model_tree_has_the_folds_of_the_regression_papers_and_limits_of_its_own() -> None:
    ours = protocol_of(load("tree"))
    assert replace(ours, domain=NESTED_KFOLD.domain) == NESTED_KFOLD
    x = np.arange(1001.0)
    data = Dataset(("x",), "y", x[:, None], x)
    (published,), (limits,) = (protocol.domain(data).features for protocol in (NESTED_KFOLD, ours))
    assert (published.low, published.high) == pytest.approx((25.0, 975.0))
    assert (limits.low, limits.high) == pytest.approx((1.0, 999.0))


@pytest.mark.parametrize("y", [GAMMA, WORDS], ids=["numbers", "labels"])
@pytest.mark.parametrize("skew", ["iid", "quantity", "quantity+label"])
def test_split_gives_every_row_to_one_client_which_keeps_it_and_tests_it_in_one_fold(y: Any, skew: Any) -> None:
    tested, kept = [], set()
    for fold in range(5):
        pairs = skewed_split(y, fold, 5, 8, 7, skew=skew)
        whole = [tuple(sorted(np.concatenate(pair).tolist())) for pair in pairs]
        assert len(whole) == 8
        assert min(map(len, whole)) >= frbc.MIN_NODE_ROWS
        assert sorted(row for part in whole for row in part) == list(range(len(y)))
        kept |= set(whole)
        tested += np.concatenate([test for _, test in pairs]).tolist()
    assert len(kept) == 8
    assert sorted(tested) == list(range(len(y)))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "boosting" else []) for name in REFERENCES]
)
def test_reference_learns_numbers_in_their_own_unit_and_labels(name: str) -> None:
    domain = pooled_domain(NUMBERS.features, "y", X, Y)
    model = fit_reference(name, domain, NUMBERS)
    assert np.sqrt(np.mean((model.predict(X) - Y) ** 2)) < 0.5 * np.std(Y)
    assert np.array_equal(model.predict(X), fit_reference(name, domain, NUMBERS).predict(X))
    assert np.mean(fit_reference(name, minmax_domain(LABELS), LABELS).predict(X) == LABELS.y) > 0.9


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "ebm" else []) for name in ANCHORS]
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_anchor_learns_numbers_and_says_how_large_it_is(name: str) -> None:
    anchor = ANCHORS[name]
    pytest.importorskip(anchor.package, reason="pip install glassfleet[anchors]")
    fitted = anchor.make().fit(X, Y)
    assert np.sqrt(np.mean((fitted.predict(X) - Y) ** 2)) < 0.5 * np.std(Y)
    size = anchor.size(fitted)
    assert size["rules"] >= 1
    assert size["parameters"] > size["rules"] - 1
