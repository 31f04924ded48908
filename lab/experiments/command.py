"""``glassfleet lab experiment``: a paper's protocol on any CSV: local, federated and central learning."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from console.common import (
    RowsFile,
    json_option,
    options_as,
    param_option,
    parse_parameters,
    print_json,
    rows_there,
    table_lines,
)
from console.operator.specification import checked_parameters
from console.progress import progress
from glassfleet.contract import catalogue
from glassfleet.schemes import DEFAULT
from lab.experiments.folds import SETTINGS, mean_of, plan_of, run_folds
from lab.experiments.rows import read_rows
from lab.experiments.workers import jobs_option
from lab.protocols.frbc import Skew
from schemas.errors import DataError, UsageError

MEASURES = {"rmse": "RMSE", "f1": "F1"}

TITLES = {"local": "local (LL)", "federated": "federated (FL)", "central": "central (CL)"}


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """Of ``glassfleet lab experiment``."""

    scheme: str
    path: Path
    target: str | None
    labels: bool
    clients: int | None
    folds: int | None
    seed: int | None
    settings: list[str]
    protocol: str
    participation: float
    skew: Skew
    pairs: tuple[str, ...]
    jobs: int | None
    as_json: bool


def _settings(_context: click.Context, _parameter: click.Parameter, text: str) -> list[str]:
    chosen = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [part for part in chosen if part not in SETTINGS]
    if unknown or not chosen or len(set(chosen)) != len(chosen):
        fault = f"unknown setting {unknown[0]!r}" if unknown else "each setting once, and at least one"
        raise UsageError(f"--settings {text!r}: {fault}; known: {','.join(SETTINGS)}")
    return chosen


@click.command()
@click.option("--scheme", default=DEFAULT, show_default=True, help="Name of the scheme.")
@click.option(
    "--csv", "path", required=True, type=RowsFile(), metavar="FILE",
    help="Table: a file that `glassfleet data --help` lists.",
)  # fmt: skip
@click.option("--target", metavar="COLUMN", help="Column to predict.  [default: the last]")
@click.option(
    "--labels", is_flag=True, help="The target is a class label even if it looks like a number, e.g. 0 and 1."
)
@click.option(
    "--clients", type=click.IntRange(2, 1000), help="Clients that share the rows.  [default: the paper's, 5 for tree]"
)
@click.option(
    "--folds", type=click.IntRange(2, 1000), help="Folds of the cross-validation.  [default: the paper's, 5 for tree]"
)
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), help="Seed of all the splits.  [default: the paper's, 19 for tree]"
)
@click.option(
    "--settings", default=",".join(SETTINGS), show_default=True, callback=_settings,
    help="Which settings to run, with commas.",
)  # fmt: skip
@click.option(
    "--protocol", default="paper", show_default=True, type=click.Choice(["paper", "federated"]),
    help="paper: limits from the pooled rows, as in the papers. federated: limits found by the clients, as in a run "
    "before it makes them readable.",
)  # fmt: skip
@click.option(
    "--participation", default=1.0, show_default=True, type=click.FloatRange(0.0, 1.0, min_open=True), metavar="SHARE",
    help="Share of the clients that answers a federated round, drawn anew in each.",
)  # fmt: skip
@click.option(
    "--skew", default="iid", show_default=True, type=click.Choice(["iid", "quantity", "quantity+label"]),
    help="iid: the paper's split. Else Dirichlet shares (alpha 0.5): of all rows, or of the rows of each label.",
)  # fmt: skip
@param_option("Parameter of the scheme; repeatable.")
@jobs_option
@json_option
@options_as(ExperimentOptions)
def experiment(options: ExperimentOptions) -> None:
    """Compare local, federated and central learning of a scheme on a CSV file.

    The rows are cut into folds and clients as the scheme's paper does: for regression nested KFold, folds first; for
    classification stratified, clients first. Scores are per client, averaged over the folds: RMSE in the target's own
    unit, or F1 of each class (its mean over the classes is the F1 of a line).

    \b
    Examples:
      glassfleet lab experiment --csv california.csv.gz --target MedianHouseValue
      glassfleet lab experiment --scheme frbc --csv magic.csv.gz --skew quantity+label
      glassfleet lab experiment --scheme tsk --csv mortgage.csv.gz --settings federated --participation 0.5
    """
    loaded = catalogue.load(options.scheme)
    given = parse_parameters(options.pairs)
    checked_parameters(loaded, given)  # a misspelt option is told before a large file is read
    if options.participation < 1 and "elastic" not in loaded.participation:
        raise UsageError(
            f"--participation {options.participation:g}: {options.scheme} needs the same clients in every round; leave "
            "the option out"
        )
    table = read_rows(rows_there(options.path), options.target, loaded, labels=options.labels)
    changes = {name: getattr(options, name) for name in ("clients", "folds", "seed", "participation", "skew")}
    plan = replace(
        plan_of(loaded, table, given, options.settings, options.protocol),
        **{name: value for name, value in changes.items() if value is not None},
    )
    if table.rows < plan.folds * plan.clients:
        raise DataError(
            f"{options.path}: {table.rows} rows are too few for {plan.folds} folds of {plan.clients} clients, at least "
            f"{plan.folds * plan.clients} are needed. Lower --folds or --clients, or bring more rows"
        )
    results: dict[int, Any] = {}
    with progress(f"{plan.scheme}, {plan.folds} folds", plan.folds) as done:
        for fold, result in run_folds(plan, table, min(options.jobs or os.cpu_count() or 1, plan.folds)):
            results[fold] = result
            scores = ", ".join(f"{name} {np.mean(result[name]['test']):.6g}" for name in plan.settings)
            measure = MEASURES[result[plan.settings[0]]["measure"]]
            done(f"fold {fold + 1}: test {measure} {scores}  ({len(results)} of {plan.folds} done)")
    shown = ("scheme", "protocol", "clients", "folds", "seed", "participation", "skew", "parameters")
    summary: dict[str, Any] = {
        **{name: getattr(plan, name) for name in shown},
        "target": table.target,
        "file": options.path.name,
        "rows": table.rows,
        "features": len(table.features),
        "settings": mean_of([results[fold] for fold in range(plan.folds)]),
    }
    if options.as_json:
        print_json(summary)
    else:
        _print_table(summary)


def _print_table(summary: Mapping[str, Any]) -> None:
    results = summary["settings"]
    first = next(iter(results.values()))
    unusual = f", skew {summary['skew']}" if summary["skew"] != "iid" else ""
    if summary["participation"] < 1:
        unusual += f", {summary['participation']:.0%} of the clients per round"
    sizes = list(first["complexity"])
    measure = "rmse" if "test_rmse" in first else "f1"
    title = MEASURES[measure]
    header = ["setting", f"test {title}", f"train {title}", *sizes, "rounds", "kB up", "nullified", "seconds"]
    lines = [header]
    for setting, result in results.items():
        lines.append(
            [
                TITLES[setting],
                f"{result[f'test_{measure}']['mean']:.6g}",
                f"{result[f'train_{measure}']['mean']:.6g}",
                *(f"{result['complexity'][name]:.1f}" for name in sizes),
                f"{result['rounds']:.1f}",
                f"{result['bytes_up'] / 1000:.1f}" if setting == "federated" else "-",
                f"{result['nullified']:.0f}" if setting == "federated" else "-",
                f"{result['seconds']:.3f}",
            ]
        )
    click.echo(
        f"{summary['file']}: {summary['rows']} rows, {summary['features']} inputs, target {summary['target']}; "
        f"{summary['folds']} folds, {summary['clients']} clients, protocol {summary['protocol']}{unusual}"
    )
    click.echo("\n".join(table_lines(lines)))
    for setting, result in results.items():
        classes = result[f"test_{measure}"].get("classes", {})
        for label, line in classes.items():
            click.echo(f"{TITLES[setting]}: test {title} of class {label}: {line['mean']:.3f} ± {line['std']:.3f}")
    click.echo(f"test {title} per client:")
    for setting, result in results.items():
        scores = " ".join(f"{value:.6g}" for value in result[f"test_{measure}"]["per_client"])
        click.echo(f"  {TITLES[setting]}: {scores}")
