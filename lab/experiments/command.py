"""``glassfleet lab experiment``: a paper's protocol on any CSV: local, federated and central learning."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from console.common import RowsFile, json_option, parse_parameters, print_json, rows_there, table_lines
from console.operator.specification import MEMORY_HELP, checked_parameters, memory_file
from console.progress import progress
from glassfleet.contract import catalogue
from glassfleet.contract.scheme import Scheme
from glassfleet.schemes import DEFAULT
from lab.experiments.averages import mean_of
from lab.experiments.folds import SETTINGS, Plan, run_folds
from lab.experiments.rows import read_rows
from lab.protocols.choice import protocol_of
from lab.protocols.frbc import Skew
from schemas.errors import DataError, RunFailedError, UsageError

MEASURES = {"rmse": "RMSE", "f1": "F1"}

TITLES = {"local": "local (LL)", "federated": "federated (FL)", "central": "central (CL)"}


@click.command()
@click.option("--scheme", default=DEFAULT, show_default=True, help="Name of the scheme.")
@click.option(
    "--csv",
    "path",
    required=True,
    type=RowsFile(),
    metavar="FILE",
    help="Table: a file that `glassfleet data --help` lists.",
)
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
@click.option("--settings", default=",".join(SETTINGS), show_default=True, help="Which settings to run, with commas.")
@click.option(
    "--protocol",
    default="paper",
    show_default=True,
    type=click.Choice(["paper", "federated"]),
    help="paper: limits from the pooled rows, as in the papers. federated: limits found by the clients, as in a run "
    "before it makes them readable.",
)
@click.option(
    "--participation",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.0, 1.0, min_open=True),
    metavar="SHARE",
    help="Share of the clients that answers a federated round, drawn anew in each.",
)
@click.option(
    "--skew",
    default="iid",
    show_default=True,
    type=click.Choice(["iid", "quantity", "quantity+label"]),
    help="iid: the paper's split. Else Dirichlet shares: of all rows, or of the rows of each label.",
)
@click.option(
    "--alpha",
    default=0.5,
    show_default=True,
    type=click.FloatRange(0.0, min_open=True),
    help="Concentration of --skew; small is uneven.",
)
@click.option(
    "--repeat",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Run all folds this often, with the seeds SEED, SEED + 1 and so on.",
)
@click.option("--param", "pairs", multiple=True, metavar="NAME=VALUE", help="Parameter of the scheme; repeatable.")
@click.option("--memory", "memory_path", type=click.Path(path_type=Path), metavar="FILE", help=MEMORY_HELP)
@click.option("--jobs", type=click.IntRange(1, 256), help="Processes that run folds.  [default: one per core]")
@json_option
def experiment(
    *,
    scheme: str,
    path: Path,
    target: str | None,
    labels: bool,
    clients: int | None,
    folds: int | None,
    seed: int | None,
    settings: str,
    protocol: str,
    participation: float,
    skew: Skew,
    alpha: float,
    repeat: int,
    pairs: tuple[str, ...],
    memory_path: Path | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Compare local, federated and central learning of a scheme on a CSV file.

    The rows are cut into folds and clients as the scheme's paper does: for regression nested KFold, folds first; for
    classification stratified, clients first. Scores are per client, averaged over the folds: RMSE in the target's own
    unit, or F1 of each class (its mean over the classes is the F1 of a line).

    \b
    Examples:
      glassfleet lab experiment --csv california.csv.gz --target MedianHouseValue
      glassfleet lab experiment --scheme frbc --csv magic.csv.gz --skew quantity+label --repeat 3
      glassfleet lab experiment --scheme tsk --csv mortgage.csv.gz --settings federated --participation 0.5
    """
    chosen = _settings(settings)
    loaded = catalogue.load(scheme)
    given = parse_parameters(pairs)
    _parameters(loaded, given, {})  # a misspelt option is told before a large file is read
    if participation < 1 and "elastic" not in loaded.participation:
        raise UsageError(
            f"--participation {participation:g}: {scheme} needs the same clients in every round; leave the option out"
        )
    memory = None if memory_path is None else memory_file(memory_path)
    table = read_rows(rows_there(path), target, loaded, labels=labels, memory=memory)
    y = table.y
    paper = protocol_of(loaded, labels=y.dtype.kind in "UO")
    parameters = _parameters(loaded, given, paper.parameters if protocol == "paper" else {})
    clients, folds = clients or paper.clients, folds or paper.folds
    seed = paper.seed if seed is None else seed
    if len(y) < folds * clients:
        raise DataError(
            f"{path}: {len(y)} rows are too few for {folds} folds of {clients} clients, at least {folds * clients} are "
            "needed. Lower --folds or --clients, or bring more rows"
        )
    plan = Plan(
        scheme,
        parameters,
        list(table.features),
        table.target,
        protocol,
        clients,
        folds,
        seed,
        chosen,
        participation=participation,
        skew=skew,
        alpha=alpha,
        repeat=repeat,
        categories=table.categories,
    )
    results: dict[int, Any] = {}
    try:
        with progress(f"{scheme}, {plan.units} folds", plan.units) as done:
            for unit, result in run_folds(plan, table.X, y, min(jobs or os.cpu_count() or 1, plan.units)):
                results[unit] = result
                scores = ", ".join(f"{name} {np.mean(result[name]['test']):.6g}" for name in chosen)
                measure = MEASURES[result[chosen[0]]["measure"]]
                number = f"fold {unit % folds + 1}" + (f" of seed {seed + unit // folds}" if repeat > 1 else "")
                done(f"{number}: test {measure} {scores}  ({len(results)} of {plan.units} done)")
    except ValueError as fault:
        raise RunFailedError(f"{scheme}: {fault}") from fault
    shown = ("scheme", "protocol", "target", "clients", "folds", "seed", "participation", "skew", "repeat")
    summary: dict[str, Any] = {
        **{name: getattr(plan, name) for name in shown},
        "parameters": plan.parameters,
        "file": path.name,
        "rows": len(y),
        "features": len(table.features),
        "alpha": None if skew == "iid" else alpha,
        **({} if memory is None else {"memory": memory.to_document()}),
        "settings": mean_of([results[unit] for unit in range(plan.units)]),
    }
    if as_json:
        print_json(summary)
    else:
        _print_table(summary)


def _settings(text: str) -> list[str]:
    chosen = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [part for part in chosen if part not in SETTINGS]
    if unknown or not chosen or len(set(chosen)) != len(chosen):
        fault = f"unknown setting {unknown[0]!r}" if unknown else "each setting once, and at least one"
        raise UsageError(f"--settings {text!r}: {fault}; known: {','.join(SETTINGS)}")
    return chosen


def _parameters(scheme: Scheme, given: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Check the parameters of the scheme and return them all as JSON values."""
    defaults = {name: value for name, value in wanted.items() if name in scheme.Parameters.model_fields}
    chosen: dict[str, Any] = checked_parameters(scheme, {**defaults, **given}).model_dump(mode="json")
    return chosen


def _unusual(summary: Mapping[str, Any]) -> str:
    """Name the options that are not as in the papers' plain experiment."""
    words = []
    if summary["skew"] != "iid":
        words.append(f"skew {summary['skew']} (alpha {summary['alpha']:g})")
    if summary["participation"] < 1:
        words.append(f"{summary['participation']:.0%} of the clients per round")
    if summary["repeat"] > 1:
        words.append(f"{summary['repeat']} repetitions")
    return "".join(f", {word}" for word in words)


def _print_table(summary: Mapping[str, Any]) -> None:
    results = summary["settings"]
    first = next(iter(results.values()))
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
        f"{summary['folds']} folds, {summary['clients']} clients, protocol {summary['protocol']}{_unusual(summary)}"
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
