"""``glassfleet experiment``: what it prints, and what it refuses."""

from __future__ import annotations

import gzip
import json
import shlex
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner, Result

from console import main
from lab.experiments.command import experiment
from lab.experiments.folds import SETTINGS, Plan, run_folds
from schemas.errors import DataError, GlassfleetError, NotFoundError, RunFailedError, UsageError


def run(*arguments: str) -> Result:
    return CliRunner().invoke(experiment, list(arguments))


def fault(*arguments: str) -> BaseException:
    """Return the error that the command line's entry turns into one line and an exit code."""
    exception = run(*arguments).exception
    assert exception is not None
    return exception


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 10, (150, 3))
    y = X[:, 0] * 2 + np.where(X[:, 1] > 5, X[:, 2], 0)
    path = tmp_path / "table.csv"
    lines = [",".join(f"{value:.6f}" for value in row) for row in np.column_stack([X, y])]
    path.write_text("a,b,c,y\n" + "\n".join(lines) + "\n")
    return path


def summary_of(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exception is None, result.output
    summary: dict[str, Any] = json.loads(result.stdout)
    return summary


def test_experiment_prints_every_setting_as_json(table: Path) -> None:
    summary = summary_of("--csv", str(table), "--target", "y", "--clients", "3", "--folds", "3", "--jobs", "1")
    assert list(summary["settings"]) == list(SETTINGS)
    for result in summary["settings"].values():
        for kind in ("test_rmse", "train_rmse"):
            assert len(result[kind]["per_client"]) == 3
            assert result[kind]["mean"] == pytest.approx(np.mean(result[kind]["per_client"]))
        assert set(result["complexity"]) == {"nodes", "leaves", "depth", "parameters"}
    assert summary["settings"]["central"]["nullified"] == 0
    assert summary["parameters"]["min_rows"] == 1


def test_experiment_gives_the_same_in_processes_as_in_one(table: Path) -> None:
    options = ("--csv", str(table), "--clients", "3", "--folds", "3", "--settings", "federated")
    one, two = (summary_of(*options, "--jobs", jobs)["settings"]["federated"] for jobs in ("1", "2"))
    for result in (one, two):
        del result["seconds"]
    assert one == two


def test_experiment_finds_limits_federatedly_when_asked(table: Path) -> None:
    options = ("--csv", str(table), "--jobs", "1", "--folds", "2", "--clients", "2", "--settings", "federated,central")
    found = summary_of(*options, "--protocol", "federated")
    pooled = summary_of(*options)
    assert found["parameters"]["min_rows"] == 3
    assert found["settings"]["central"]["test_rmse"] != pooled["settings"]["central"]["test_rmse"]
    assert found["settings"]["central"]["test_rmse"]["mean"] < 3.0


def test_experiment_reads_gzip_takes_the_last_column_and_prints_a_table(table: Path) -> None:
    packed = table.with_suffix(".csv.gz")
    packed.write_bytes(gzip.compress(table.read_bytes()))
    result = run("--csv", str(packed), "--jobs", "1", "--folds", "2", "--clients", "2", "--param", "n_sets=3")
    assert result.exit_code == 0
    assert "target y" in result.stdout
    assert "federated (FL)" in result.stdout
    assert "fold 2:" in result.stderr
    assert "fold" not in result.stdout.splitlines()[-1]


def test_experiment_leaves_a_split_column_out(table: Path) -> None:
    lines = table.read_text().splitlines()
    marked = [f"split,{lines[0]}", *(f"{'test' if n % 5 == 0 else 'train'},{line}" for n, line in enumerate(lines[1:]))]
    table.write_text("\n".join(marked) + "\n")
    summary = summary_of("--csv", str(table), "--jobs", "1", "--folds", "2", "--clients", "2", "--settings", "central")
    assert summary["features"] == 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.replace("\n", "\n,", 1), "cells"),
        (lambda text: text + "1,2,,4\n", "empty"),
        (lambda text: text + "1,2,nan,4\n", "finite"),
        (lambda text: text + "1,2,red,4\n", "not a number"),
        (
            lambda text: "\n".join(text.splitlines()[:10]) + "\n",
            "9 rows are too few for 5 folds of 5 clients, at least 25 are needed. Lower --folds",
        ),
        (lambda text: text.splitlines()[0] + "\n", "no rows"),
        (lambda _: "y\n1\n2\n", "At least one input"),
    ],
)
def test_experiment_names_the_fault_of_a_file(table: Path, change: Any, reason: str) -> None:
    table.write_text(change(table.read_text()))
    error = fault("--csv", str(table), "--jobs", "1")
    assert isinstance(error, DataError)
    assert reason in str(error)
    _, points, check = str(error).rpartition("Everything that is wrong with it: ")
    if "--folds" in reason:  # the table is as it should be
        assert not points
    else:
        assert main.run(shlex.split(check)[1:]) == 3, "the command that it names finds the fault, too"


@pytest.mark.parametrize(
    ("options", "kind", "reason"),
    [
        (("--target", "z"), DataError, "no column 'z'"),
        (("--settings", "lokal"), UsageError, "unknown setting 'lokal'"),
        (("--settings", "central,central"), UsageError, "once"),
        (("--param", "n_sets"), UsageError, "NAME=VALUE"),
        (("--param", "n_sets=1"), UsageError, "n_sets"),
        (("--param", "depth=1"), UsageError, "depth"),
        (("--scheme", "oracle"), NotFoundError, "oracle"),
    ],
)
def test_experiment_names_the_fault_of_an_option(
    table: Path, options: tuple[str, ...], kind: type[GlassfleetError], reason: str
) -> None:
    error = fault("--csv", str(table), "--jobs", "1", *options)
    assert isinstance(error, kind)
    assert reason in str(error)


def test_experiment_ends_its_processes_when_it_is_left_early() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(4000, 6))
    names = [f"x{index}" for index in range(6)]
    plan = Plan("frt", {}, names, "y", "paper", 4, 6, 19, list(SETTINGS))
    mine = psutil.Process()
    before = {child.pid for child in mine.children()}
    folds = run_folds(plan, X, X[:, 0] * X[:, 1], jobs=2)
    next(folds)
    assert {child.pid for child in mine.children()} - before
    assert isinstance(folds, Generator)
    folds.close()
    assert not {child.pid for child in mine.children()} - before


def test_experiment_tells_what_went_wrong_in_a_fold_of_another_process() -> None:
    plan = Plan("no-such-scheme", {}, ["x"], "y", "paper", 2, 2, 19, list(SETTINGS))
    X = np.arange(8.0)[:, None]
    with pytest.raises(RunFailedError, match="no scheme 'no-such-scheme'"):
        list(run_folds(plan, X, X[:, 0], jobs=2))


def test_experiment_tells_that_a_file_is_not_there(tmp_path: Path) -> None:
    assert isinstance(fault("--csv", str(tmp_path / "nothing.csv")), DataError)
