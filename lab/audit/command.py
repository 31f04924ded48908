"""``glassfleet lab audit``: attacks on what vehicles sent, and which of their rows these read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.common import (
    RowsFile,
    json_option,
    options_as,
    param_option,
    print_json,
    rows_there,
    state_dir_option,
    table_lines,
)
from console.progress import progress
from lab.audit.options import LeakageOptions
from schemas.errors import StorageError, UsageError, os_faults_as
from schemas.leakage import SavedModel, SavedReport, place_of
from schemas.topics import DEFAULT_FLEET

if TYPE_CHECKING:
    from lab.audit.model import Shadowed
    from lab.audit.report import AttackLine


@click.group()
def audit() -> None:
    """Measure what learning gives away, by attacks on what vehicles really send.

    \b
    Examples:
      glassfleet lab audit leakage last --data rows/
    """


@audit.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option(
    "--data", required=True, type=RowsFile(), metavar="DIR",
    help="The rows: a folder with the file of each vehicle, named by its id; or one file with --vehicles.",
)  # fmt: skip
@click.option("--scheme", metavar="NAME", help="Simulate a fleet that learns with it, in place of RUN.")
@param_option("With --scheme: a parameter; repeatable.")
@click.option("--target", metavar="COLUMN", help="With --scheme: column to forecast.  [default: the last]")
@click.option(
    "--vehicles", type=click.IntRange(2, 1000), metavar="N",
    help="With --scheme: shuffle the rows of the one file and deal four fifths of them to so many vehicles.",
)  # fmt: skip
@click.option(
    "--journal", envvar="GLASSFLEET_COORDINATOR_JOURNAL", metavar="URL",
    help="Journal that holds RUN. Default: STATE_DIR/journal.sqlite.",
)  # fmt: skip
@click.option("--fleet", envvar="GLASSFLEET_FLEET", default=DEFAULT_FLEET, show_default=True, help="Fleet id of RUN.")
@state_dir_option
@click.option(
    "--shadows", type=click.IntRange(min=5), metavar="N",
    help="With --scheme: learn N models from random halves of all rows, and tell with them whom a model was learned "
    "from.  [16 are enough]",
)  # fmt: skip
@click.option("--save", is_flag=True, help="Keep the counts in STATE_DIR/leakage; the dashboard shows them.")
@json_option
@options_as(LeakageOptions)
def leakage(options: LeakageOptions) -> None:
    """Run attacks on a run's transcript, and count the rows that they read.

    The transcript is what the coordinator's journal holds of RUN (`last`: the newest): every sum that a vehicle sent,
    as broker and coordinator saw it. With --scheme a fleet is simulated instead, once with the parameters as given and
    once with rows as they are. Not tried: attacks on histograms, and on fedga, fedavg_mlp and dp_tree.

    A row counts as read when every input and the target are within a thousandth of their ranges. `parts` are rows of
    which some columns were read to the last digits; `false` candidates that are nobody's row; `by chance` rows that the
    same candidates would read if each column were shuffled. `values near` are those within 0.319 standard deviations
    of where `trees` puts rows, and of the mean.

    \b
    Examples:
      glassfleet lab audit leakage last --data rows/
      glassfleet lab audit leakage --scheme tree --data weather.csv.gz --vehicles 15 --json
    """
    if (options.run_id is None) == (options.scheme is None):
        raise UsageError("name a run, or a scheme to simulate one with: RUN or --scheme")
    if options.scheme is None and (options.vehicles or options.pairs or options.target or options.shadows):
        raise UsageError("--param, --target, --vehicles and --shadows go with --scheme; a run has its own")
    if options.save and options.scheme is not None:
        raise UsageError("--save goes with RUN: a simulated fleet has no page")
    rows_there(options.data)
    from lab.audit import measured  # numpy comes with it

    with progress("attacking what was sent"):
        document, lines, models = measured.simulated(options) if options.scheme else measured.of_run(options)
        shadows = measured.shadows(options) if options.shadows else {}
    whole = {
        **document,
        "lines": [line.model_dump() for line in lines],
        "models": [each.model_dump() for each in models],
    }
    if shadows:
        whole["shadows"] = {protection: asdict(each) for protection, each in shadows.items()}
    if options.save:
        _save(options.state_dir, whole)
    if options.as_json:
        print_json(whole)
        return
    _show(document, lines, models, shadows)


def _show(
    document: Mapping[str, Any],
    lines: list[AttackLine],
    models: list[SavedModel],
    shadows: Mapping[str, Shadowed],
) -> None:
    click.echo(f"{document['run'] or 'simulated'}: {document['scheme']}, {document['vehicles']} vehicles, "
               f"{document['rows']:,} rows")  # fmt: skip
    for text in table_lines(line_table(lines), left=(0, 1, 2, 5)):
        click.echo(text)
    if not lines:
        click.echo(f"no attack here is about sums of {document['scheme']}: what they tell was not measured")
    for protection, why in document["left_out"].items():
        click.echo(f"{protection}: not measured: {why}")
    for each in models:
        click.echo(f"the model alone ({each.protection}): {_model_words(each)}")
    for protection, found in shadows.items():
        click.echo(f"the model and {found.models - 1} shadows of it ({protection}): membership AUC {found.auc:.3f}, "
                   f"{found.hits:.1%} of its rows named with 1 % mistakes")  # fmt: skip


def _save(state_dir: Path, whole: dict[str, Any]) -> None:
    path = state_dir / place_of(whole["run"])
    with os_faults_as(StorageError, f"cannot write {path}"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(SavedReport.model_validate(whole).model_dump_json(), encoding="utf-8")


def line_table(lines: list[AttackLine]) -> list[list[str]]:
    """Return the lines as a table of text, with its head."""
    head = ["protection", "attacker sees", "attack", "rows read", "share", "whose", "parts", "false", "by chance"]
    table = [[*head, "values near", "by guessing"]]
    for line in lines:
        share = f"{line.read / max(1, line.rows):.1%}"
        near = ["", ""] if line.near is None or line.guessed is None else [f"{line.near:.0%}", f"{line.guessed:.0%}"]
        counts = (f"{count:,}" for count in (line.parts, line.false, line.chance))
        table.append([
            line.protection, line.seen, line.attack, f"{line.read:,}", share, _whose(line), *counts, *near,
        ])  # fmt: skip
    return table


def _whose(line: AttackLine) -> str:
    if not line.read:
        return "-"
    if not line.owners:
        return "no name"
    hit = [agent for agent, (read, _) in line.owners.items() if read]
    most = max(hit, key=lambda agent: line.owners[agent][0] / line.owners[agent][1])
    read, rows = line.owners[most]
    return f"{len(hit)} of {len(line.owners)} vehicles, most {most}: {read} of {rows}"


def _model_words(leak: SavedModel) -> str:
    met = f"gives back {leak.met:.2%} of the targets it was learned from, to a millionth of their range"
    if leak.auc is None:
        return f"{met}; there are no other rows to measure membership with"
    return f"{met} ({leak.met_others:.2%} of {leak.others:,} other rows); membership AUC {leak.auc:.3f}, 0.5 is nothing"
