"""``glassfleet model``: published models, read from the broker's retained topics or from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from console.common import broker_options, broker_url, config_option, json_option, print_json
from schemas.errors import DataError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glassfleet.scheme import Model
    from schemas.record import ModelRecord

F = TypeVar("F", bound=Callable[..., Any])


def model_options(function: F) -> F:
    """Add what names one model: NAME, ``--version`` or ``--file``, and where to find it."""
    function = broker_options(function)
    function = click.option(
        "--file", "file", type=click.Path(path_type=Path), metavar="RECORD", help="Read a record's file, no broker."
    )(function)
    function = click.option("--version", type=int, metavar="N", help="Default: the current version.")(function)
    return click.argument("name", required=False)(function)


@click.group()
def model() -> None:
    """List, read and use published models.

    Example: glassfleet model rules qoe --top 5
    """


@model.command("list")
@broker_options
@json_option
@config_option
def list_models(broker: str | None, fleet: str, state_dir: Path, *, as_json: bool) -> None:
    """List the published models and their versions.

    Example: glassfleet model list --json
    """
    from console.registry import read_registry  # noqa: PLC0415 - numpy and the MQTT library come with it

    registry = read_registry(broker_url(broker, state_dir), fleet)
    rows = [
        {
            "name": name,
            "version": version,
            "current": name in registry.current and registry.current[name].version == version,
            "digest": record.digest,
            "scheme": record.scheme,
            "run": record.run,
            "cohort": len(record.cohort),
            "created": record.created,
        }
        for (name, version), record in sorted(registry.records.items())
    ]
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo("No models are published yet. Learn one: glassfleet run start --scheme frt --wait")
    for row in rows:
        mark = "*" if row["current"] else " "
        click.echo(
            f"{mark} {row['name']} v{row['version']}  {str(row['digest'])[:12]}  {row['scheme']}  "
            f"{row['cohort']} vehicles  {row['created']}"
        )
    for (name, version), reason in sorted(registry.faults.items()):
        click.echo(f"! {name} v{version} cannot be read: {reason}", err=True)


@model.command()
@model_options
@json_option
@config_option
def show(**options: Any) -> None:
    """Show where a model comes from and how large it is; with --json, the whole record (save it as a file).

    Example: glassfleet model show qoe --json > qoe.json
    """
    record, learned = _load(options)
    if options["as_json"]:
        print_json(record.model_dump(mode="json"))
        return
    size = ", ".join(f"{name} {value:g}" for name, value in learned.complexity().items())
    training = record.training
    click.echo(f"{record.name} v{record.version}  {record.digest}")
    click.echo(f"  scheme {record.scheme}, run {record.run}, {record.created}, {record.software}")
    click.echo(f"  size: {size}")
    click.echo(f"  cohort ({len(record.cohort)}): {', '.join(record.cohort)}")
    click.echo(f"  rounds {training.rounds}, rows {training.rows}, cells nullified {training.nullified_cells}")
    for agent, reason in sorted(training.dropped.items()):
        click.echo(f"  dropped {agent}: {reason}")
    for variable in learned.domain.features:
        unit = f" {variable.unit}" if variable.unit else ""
        click.echo(f"  input {variable.name}: {variable.low:.6g} to {variable.high:.6g}{unit}")
    target = learned.domain.target
    if target is not None:
        click.echo(
            f"  target {target.name}: {target.low:.6g} to {target.high:.6g}{f' {target.unit}' if target.unit else ''}"
        )
    else:
        click.echo(f"  classes of {learned.domain.label}: {', '.join(learned.domain.classes)}")


@model.command()
@model_options
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the N most used rules.")
@json_option
@config_option
def rules(**options: Any) -> None:
    """Print a model's rules in words, the most used first.

    Example: glassfleet model rules qoe --top 5
    """
    from console.words import by_support, rule_json, rule_lines  # noqa: PLC0415

    _, learned = _load(options)
    chosen = by_support(learned.rules(), options["top"])
    if options["as_json"]:
        print_json([rule_json(rule) for rule in chosen])
        return
    for rule in chosen:
        click.echo("\n".join(rule_lines(rule)))


@model.command()
@model_options
@click.option("--data", type=click.Path(path_type=Path), required=True, metavar="FILE", help="csv, csv.gz or parquet.")
@json_option
@config_option
def predict(**options: Any) -> None:
    """Forecast every row of a file: one line per row, in the target's own unit.

    The file has the model's inputs as columns; others are ignored.

    Example: glassfleet model predict qoe --data drive.csv
    """
    _, learned = _load(options)
    X = _inputs(options["data"], learned)
    predictions = learned.predict(X).tolist()
    name = learned.domain.target_name
    if options["as_json"]:
        print_json({"target": name, "predictions": predictions})
        return
    click.echo(name)
    for value in predictions:
        click.echo(value if isinstance(value, str) else f"{value:.6g}")


@model.command()
@model_options
@click.option("--data", type=click.Path(path_type=Path), required=True, metavar="FILE", help="csv, csv.gz or parquet.")
@click.option("--row", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Which row, from 1.")
@json_option
@config_option
def explain(**options: Any) -> None:
    """Say why the model forecasts what it does for one row.

    Prints the rule in words, the degree to which each condition holds, each input's share, and the runner-up rules.

    Example: glassfleet model explain qoe --data drive.csv --row 17
    """
    from console.words import explanation_json, explanation_lines  # noqa: PLC0415

    _, learned = _load(options)
    X = _inputs(options["data"], learned)
    row = options["row"]
    if row > X.shape[0]:
        raise UsageError(f"--row {row}: {options['data']} has {X.shape[0]} rows")
    explanation = learned.explain(X[row - 1])
    if options["as_json"]:
        print_json(explanation_json(explanation))
        return
    click.echo("\n".join(explanation_lines(explanation, learned.domain)))


def _load(options: dict[str, Any]) -> tuple[ModelRecord, Model]:
    """Return the record and the model that the options name."""
    from console.registry import read_record, read_registry  # noqa: PLC0415
    from glassfleet import catalogue  # noqa: PLC0415

    if options["file"] is not None:
        if options["name"] is not None or options["version"] is not None:
            raise UsageError("give either NAME (and --version) or --file RECORD, not both")
        record = read_record(options["file"])
    elif options["name"] is None:
        raise UsageError("which model? Give its NAME (see: glassfleet model list), or --file RECORD")
    else:
        url = broker_url(options["broker"], options["state_dir"])
        registry = read_registry(url, options["fleet"])
        record = registry.record(options["name"], options["version"])
    return record, catalogue.load(record.scheme).from_document(record.document)


def _inputs(path: Path, learned: Model) -> NDArray[np.float64]:
    """Return the model's inputs from a file, shape (n, F)."""
    from edge_agent.sources import read_table  # noqa: PLC0415

    table = read_table(path)
    missing = [name for name in learned.domain.names if name not in table.names]
    if missing:
        raise DataError(
            f"{path}: the model's input {missing[0]!r} is no column ({len(missing)} missing). "
            f"It needs: {', '.join(learned.domain.names)}"
        )
    return table.matrix(learned.domain.names)
