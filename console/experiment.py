"""``glassfleet experiment``: the papers' protocol on any CSV, local, federated and central learning side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from console.common import json_option, parse_parameters, print_json
from console.folds import SETTINGS, Plan, mean_of, run_folds
from edge_agent.sources import SPLIT, read_table
from glassfleet import catalogue
from glassfleet.paper import protocol_of
from glassfleet.scheme import Scheme
from schemas.errors import DataError, RunFailedError, UsageError

MAX_CLASSES = 100
"""Most classes of a target: one with more is rather a number."""

MEASURES = {"rmse": "RMSE", "f1": "F1"}

TITLES = {"local": "local (LL)", "federated": "federated (FL)", "central": "central (CL)"}


@click.command()
@click.option("--scheme", default="frt", show_default=True, help="Name of the scheme.")
@click.option(
    "--csv",
    "path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Table: csv, csv.gz or parquet.",
)
@click.option("--target", metavar="COLUMN", help="Column to predict.  [default: the last]")
@click.option(
    "--clients", type=click.IntRange(2, 1000), help="Clients that share the rows.  [default: the paper's, 5 for frt]"
)
@click.option(
    "--folds", type=click.IntRange(2, 1000), help="Folds of the cross-validation.  [default: the paper's, 5 for frt]"
)
@click.option(
    "--seed", default=19, show_default=True, type=click.IntRange(0, 2**32 - 1), help="Seed of all the splits."
)
@click.option("--settings", default=",".join(SETTINGS), show_default=True, help="Which settings to run, with commas.")
@click.option(
    "--protocol",
    default="paper",
    show_default=True,
    type=click.Choice(["paper", "federated"]),
    help="paper: limits from the pooled rows, as in the papers. federated: limits found by the clients, as in a run.",
)
@click.option("--param", "pairs", multiple=True, metavar="NAME=VALUE", help="Parameter of the scheme; repeatable.")
@click.option("--jobs", type=click.IntRange(1, 256), help="Processes that run folds.  [default: one per core]")
@json_option
def experiment(
    *,
    scheme: str,
    path: Path,
    target: str | None,
    clients: int | None,
    folds: int | None,
    seed: int,
    settings: str,
    protocol: str,
    pairs: tuple[str, ...],
    jobs: int | None,
    as_json: bool,
) -> None:
    """Compare local, federated and central learning of a scheme on a CSV file.

    The rows are cut into folds and clients as the scheme's paper does: for regression nested KFold, folds first; for
    classification stratified, clients first. Scores are per client, averaged over the folds: RMSE in the target's own
    unit, or F1 of each class.

    \b
    Example:
      glassfleet experiment --csv california.csv.gz --target MedianHouseValue
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    chosen = _settings(settings)
    loaded = catalogue.load(scheme)
    parameters = _parameters(loaded, parse_parameters(pairs), protocol)
    clients = clients or protocol_of(loaded).clients
    folds = folds or protocol_of(loaded).folds
    names, target, X, y = _read(path, target, loaded)
    if len(y) < folds * clients:
        raise DataError(
            f"{path}: {len(y)} rows are too few for {folds} folds of {clients} clients, at least {folds * clients} are "
            "needed. Lower --folds or --clients, or bring more rows"
        )
    plan = Plan(scheme, parameters, names, target, protocol, clients, folds, seed, chosen)
    results: dict[int, Any] = {}
    try:
        for fold, result in run_folds(plan, X, y, min(jobs or os.cpu_count() or 1, folds)):
            results[fold] = result
            scores = ", ".join(f"{name} {np.mean(result[name]['test']):.6g}" for name in chosen)
            measure = MEASURES[result[chosen[0]]["measure"]]
            click.echo(f"fold {fold + 1}: test {measure} {scores}  ({len(results)} of {folds} done)", err=True)
    except ValueError as fault:
        raise RunFailedError(f"{scheme}: {fault}") from fault
    summary: dict[str, Any] = {
        "scheme": scheme,
        "protocol": protocol,
        "file": path.name,
        "target": target,
        "rows": len(y),
        "features": len(names),
        "clients": clients,
        "folds": folds,
        "seed": seed,
        "parameters": parameters,
        "settings": mean_of([results[fold] for fold in range(folds)]),
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


def _parameters(scheme: Scheme, given: Mapping[str, Any], protocol: str) -> dict[str, Any]:
    """Check the parameters of the scheme and return them all as JSON values."""
    known = scheme.Parameters.model_fields
    wanted = protocol_of(scheme).parameters if protocol == "paper" else {}
    defaults = {name: value for name, value in wanted.items() if name in known}
    try:
        return scheme.Parameters.model_validate({**defaults, **given}).model_dump(mode="json")
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"--param {name}: {first['msg']}; parameters of {scheme.name}: {', '.join(known)}") from fault


def _read(path: Path, target: str | None, scheme: Scheme) -> tuple[list[str], str, NDArray[np.float64], NDArray[Any]]:
    table = read_table(path)
    names = list(table.names)
    if SPLIT in names and target != SPLIT:
        names.remove(SPLIT)
        click.echo(f"{path}: the column {SPLIT!r} is left out; the protocol makes its own folds", err=True)
    chosen = target if target is not None else names[-1]
    table.column(chosen)  # says which columns there are when this is none of them
    features = [name for name in names if name != chosen]
    if not features:
        raise DataError(f"{path}: there is no column beside the target {chosen!r}. At least one input is needed")
    if "classification" in scheme.purpose and ("regression" not in scheme.purpose or chosen in table.text):
        return features, chosen, table.matrix(features), _labels(path, chosen, table.column(chosen))
    matrix = table.matrix([*features, chosen])
    return features, chosen, np.ascontiguousarray(matrix[:, :-1]), matrix[:, -1].copy()


def _labels(path: Path, target: str, column: NDArray[Any]) -> NDArray[np.str_]:
    """Return a column as class labels; whole numbers lose their point."""
    texts = [f"{cell:.0f}" if isinstance(cell, float) and cell.is_integer() else str(cell) for cell in column.tolist()]
    labels = np.array(texts, dtype=np.str_)
    different = len(set(texts))
    if different > MAX_CLASSES:
        raise DataError(
            f"{path}: the target {target!r} has {different} different values, more than {MAX_CLASSES} classes. Name a "
            "column of classes with --target, or use a scheme for regression such as frt"
        )
    return labels


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
        f"{summary['folds']} folds, {summary['clients']} clients, protocol {summary['protocol']}"
    )
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        click.echo("  ".join(cells).rstrip())
    for setting, result in results.items():
        classes = result[f"test_{measure}"].get("classes", {})
        for label, line in classes.items():
            click.echo(f"{TITLES[setting]}: test {title} of class {label}: {line['mean']:.3f} ± {line['std']:.3f}")
    click.echo(f"test {title} per client:")
    for setting, result in results.items():
        scores = " ".join(f"{value:.6g}" for value in result[f"test_{measure}"]["per_client"])
        click.echo(f"  {TITLES[setting]}: {scores}")
