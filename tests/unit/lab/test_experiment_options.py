"""``glassfleet experiment`` with every scheme, and the options that make an experiment less tidy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from glassfleet import catalogue
from lab.experiments.command import experiment
from schemas.errors import DataError, UsageError

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(experiment, [*arguments, "--jobs", "1"])


def summary_of(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exception is None, result.output
    summary: dict[str, Any] = json.loads(result.stdout)
    return summary


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, str]:
    """A table with a number, one with a text label, one with 0 and 1, one with a column of text."""
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 10, (240, 3))
    y = X[:, 0] * 2 + np.where(X[:, 1] > 5, X[:, 2], 0)
    colour = np.where(X[:, 2] > 5, "red", "blue")
    rows = {
        "number": [f"{a:.4f},{b:.4f},{c:.4f},{t:.4f}" for (a, b, c), t in zip(X, y, strict=True)],
        "label": [f"{a:.4f},{b:.4f},{c:.4f},{'high' if t > 12 else 'low'}" for (a, b, c), t in zip(X, y, strict=True)],
        "binary": [f"{a:.4f},{b:.4f},{c:.4f},{int(t > 12)}" for (a, b, c), t in zip(X, y, strict=True)],
        "text": [f"{a:.4f},{b:.4f},{word},{t:.4f}" for (a, b, _), word, t in zip(X, colour.tolist(), y, strict=True)],
    }
    paths = {}
    for name, lines in rows.items():
        path = tmp_path / f"{name}.csv"
        path.write_text("a,b,c,y\n" + "\n".join(lines) + "\n")
        paths[name] = str(path)
    return paths


SMALL = {"fedga": ("generations=2",), "fedavg_mlp": ("rounds=2", "epochs=1"), "tsk": ("n_clusters=5",)}


@pytest.mark.parametrize("scheme", catalogue.names())
def test_experiment_runs_every_scheme_for_its_purposes(scheme: str, tables: dict[str, str]) -> None:
    pairs = [part for pair in SMALL.get(scheme, ()) for part in ("--param", pair)]
    for purpose in sorted(catalogue.load(scheme).purpose):
        file, measure = (tables["number"], "rmse") if purpose == "regression" else (tables["label"], "f1")
        summary = summary_of("--scheme", scheme, "--csv", file, "--folds", "2", "--clients", "3", *pairs)
        for result in summary["settings"].values():
            for kind in ("test", "train"):
                scores = result[f"{kind}_{measure}"]
                assert len(scores["per_client"]) == 3
                assert np.shape(scores["per_fold"]) == (2, 3)
                assert np.mean(scores["per_fold"], axis=0) == pytest.approx(scores["per_client"])
                assert scores["mean"] == pytest.approx(np.mean(scores["per_client"]))
            assert result["complexity"]
            assert {"bytes_up", "bytes_down", "nullified", "rounds", "seconds"} <= set(result)
        assert summary["settings"]["federated"]["bytes_up"] > 0


def test_experiment_averages_squares_as_well_as_roots(tables: dict[str, str]) -> None:
    result = summary_of("--csv", tables["number"], "--folds", "2", "--clients", "2", "--settings", "central")
    scores = result["settings"]["central"]
    squares = np.square(scores["test_rmse"]["per_fold"])
    assert scores["test_mse"]["per_fold"] == pytest.approx(squares)


def test_experiment_draws_part_of_the_clients_in_each_round(tables: dict[str, str]) -> None:
    options = ("--csv", tables["number"], "--folds", "2", "--clients", "6", "--settings", "federated,local")
    whole, part = (summary_of(*options, "--participation", share) for share in ("1.0", "0.5"))
    assert part["participation"] == 0.5
    assert part["settings"]["local"]["test_rmse"] == whole["settings"]["local"]["test_rmse"]
    per_round = [
        run["settings"]["federated"]["bytes_up"] / run["settings"]["federated"]["rounds"] for run in (whole, part)
    ]
    assert 0.3 < per_round[1] / per_round[0] < 0.7
    assert part == {**summary_of(*options, "--participation", "0.5"), "settings": part["settings"]}
    again = summary_of(*options, "--participation", "0.5")["settings"]["federated"]["test_rmse"]
    assert again == part["settings"]["federated"]["test_rmse"]


def test_experiment_splits_unevenly_when_asked(tables: dict[str, str]) -> None:
    options = ("--csv", tables["number"], "--folds", "2", "--clients", "3", "--settings", "local")
    scores = {
        skew: summary_of(*options, "--skew", skew)["settings"]["local"]["test_rmse"]["per_client"]
        for skew in ("iid", "quantity", "quantity+label")
    }
    assert scores["iid"] != scores["quantity"] != scores["quantity+label"]
    assert summary_of(*options, "--skew", "quantity")["alpha"] == 0.5
    assert summary_of(*options)["alpha"] is None


def test_experiment_repeats_with_the_next_seeds(tables: dict[str, str]) -> None:
    options = ("--csv", tables["number"], "--folds", "2", "--clients", "2", "--settings", "central")
    twice = summary_of(*options, "--seed", "4", "--repeat", "2")
    singles = [summary_of(*options, "--seed", seed) for seed in ("4", "5")]
    per_fold = [line for run in singles for line in run["settings"]["central"]["test_rmse"]["per_fold"]]
    assert twice["repeat"] == 2
    assert twice["settings"]["central"]["test_rmse"]["per_fold"] == per_fold


def test_experiment_takes_numbers_as_labels_when_told(tables: dict[str, str]) -> None:
    options = ("--scheme", "fedavg_mlp", "--csv", tables["binary"], "--folds", "2", "--clients", "2",
               "--settings", "central", "--param", "rounds=2")  # fmt: skip
    assert "test_rmse" in summary_of(*options)["settings"]["central"]
    labelled = summary_of(*options, "--labels")["settings"]["central"]
    assert set(labelled["test_f1"]["classes"]) == {"0", "1"}
    assert isinstance(run("--csv", tables["binary"], "--labels").exception, UsageError)


def test_experiment_reads_text_inputs_for_schemes_that_take_them_only(tables: dict[str, str]) -> None:
    options = ("--csv", tables["text"], "--folds", "2", "--clients", "2", "--param", "generations=1")
    summary = summary_of("--scheme", "fedga", *options)
    assert summary["features"] == 3
    fault = run("--csv", tables["text"]).exception
    assert isinstance(fault, DataError)
    assert "not a number" in str(fault)


def test_experiment_says_which_options_were_unusual(tables: dict[str, str]) -> None:
    result = run("--csv", tables["number"], "--folds", "2", "--clients", "4", "--settings", "federated",
                 "--skew", "quantity", "--participation", "0.5", "--repeat", "2")  # fmt: skip
    assert "skew quantity (alpha 0.5), 50% of the clients per round, 2 repetitions" in result.stdout
    assert "fold 1 of seed 20" in result.stderr


def test_experiment_names_the_scheme_to_use_when_the_target_does_not_fit(tables: dict[str, str]) -> None:
    text, many = run("--csv", tables["label"]).exception, run("--scheme", "frbc", "--csv", tables["number"]).exception
    assert isinstance(text, DataError)
    assert "use a scheme for classes such as frbc" in str(text)
    assert isinstance(many, DataError)
    assert "use a scheme for regression such as frt" in str(many)
