"""``glassfleet model``: published models, read from the broker's retained topics or from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from console.broker_discovery import broker_url
from console.common import broker_options, json_option, options_as, print_json, security_options
from console.operator.chosen import (
    ModelOptions,
    load,
    load_with_moved,
    model_options,
    rows_option,
    spoken,
    typical,
    words_option,
)
from console.operator.export import export_model, report, week
from console.operator.rollouts import rollout
from console.operator.versions import diff, history, promote, rollback, sign
from schemas.errors import UsageError, VerificationError
from schemas.text import counted

if TYPE_CHECKING:
    from glassfleet.explain import ModelView
    from glassfleet.model.protocol import Model
    from schemas.record import ModelRecord

_HELD_BACK = {"drives": "the newest drives", "rows": "the newest rows", "split": "the column split"}


@dataclass(frozen=True, kw_only=True)
class ShowOptions(ModelOptions):
    """Of ``glassfleet model show``."""

    as_json: bool


@dataclass(frozen=True, kw_only=True)
class RulesOptions(ShowOptions):
    """Of ``glassfleet model rules``."""

    top: int | None
    full: bool
    words: Path | None


@dataclass(frozen=True, kw_only=True)
class PredictOptions(ShowOptions):
    """Of ``glassfleet model predict``."""

    data: str


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(ShowOptions):
    """Of ``glassfleet model explain``."""

    data: str
    row: int
    against: int | None
    goal: str | None
    fixed: tuple[str, ...]
    only: tuple[str, ...]
    max_inputs: int | None
    words: Path | None


@click.group()
def model() -> None:
    """List, read and use published models.

    \b
    Examples:
      glassfleet model rules qoe --top 5
    """


for _command in (history, diff, promote, rollback, sign, export_model, rollout, report, week):
    model.add_command(_command)


@model.command("list")
@broker_options
@security_options
@json_option
def list_models(broker: str | None, fleet: str, state_dir: Path, *, as_json: bool) -> None:
    """List the published models and their versions, a line each; * is the current one.

    \b
    Examples:
      glassfleet model list --json
    """
    from console.operator.published import read_registry  # numpy and the MQTT library come with it

    registry = read_registry(broker_url(broker, state_dir), fleet)
    rows = [
        {
            "name": name,
            "version": version,
            "current": name in registry.current and registry.current[name].version == version,
            "standing": registry.standing(name, version),
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
    elif not rows:
        click.echo("No models are published yet. Learn one: glassfleet run start --wait")
    for row in () if as_json else rows:
        mark = "*" if row["current"] else " "
        stands = "" if row["current"] else f"  {row['standing']}".rstrip()
        click.echo(
            f"{mark} {row['name']} v{row['version']}  {str(row['digest'])[:12]}  {row['scheme']}  "
            f"{row['cohort']} vehicles  {row['created']}{stands}"
        )
    for (name, version), reason in sorted(registry.faults.items()):
        click.echo(f"! {name} v{version} cannot be read: {reason}", err=True)
    if registry.signatures.verifier is not None:
        click.echo(f"signatures verified: {len(rows)}", err=True)
    for (name, version), reason in sorted(registry.refused.items()):
        what = f"{name} v{version}" if version else f"what is current of {name}"
        click.echo(f"! {what} is not believed: {reason}", err=True)
    if registry.refused:
        raise VerificationError(
            f"{len(registry.refused)} of what is published is not believed. {registry.signatures.advice}"
        )


@model.command()
@model_options
@json_option
@options_as(ShowOptions)
def show(options: ShowOptions) -> None:
    """Show where a model comes from and how large it is; with --json, the whole record (save it as a file).

    \b
    Examples:
      glassfleet model show qoe --json > qoe.json
    """
    from console.operator.words import input_words, wrapped
    from glassfleet.explain import ModelView
    from schemas.codec import document_digest

    record, learned, standing, moved = load_with_moved(options)
    if options.as_json:
        if record is None:
            raise UsageError(f"{options.file} is a model alone, without a record: --json shows records")
        print_json(record.model_dump(mode="json"))
        return
    if record is None:
        click.echo(f"{options.file}  {document_digest(learned.to_document())}")
        click.echo(f"  scheme {learned.to_document()['scheme']}, a model alone: where it comes from is not in it")
    else:
        click.echo(f"{record.name} v{record.version}  {record.digest}")
        if standing not in {"", "current"}:
            click.echo(f"  {standing}")
        click.echo(f"  scheme {record.scheme}, run {record.run}, {record.created}, {record.software}")
    size = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in learned.complexity().items())
    click.echo(f"  size: {size}")
    view = ModelView(learned, {} if record is None else record.parameters)
    for note in view.summary.notes:
        click.echo("\n".join(wrapped(note, "  ")))
    if record is not None:
        _show_training(record, learned)
    for each in moved:
        click.echo("\n".join(wrapped(f"moved: {each}", "  ")))
    _show_inputs(view)
    target = learned.domain.target
    if target is not None:
        click.echo(f"  target {target.name}: {input_words(target)}")
    else:
        click.echo(f"  classes of {learned.domain.label}: {', '.join(learned.domain.classes)}")


def _show_inputs(view: ModelView) -> None:
    """Say of each input what it is, how far it moves the answer over the fleet's rows, and over its range."""
    from console.operator.words import input_words, wrapped
    from glassfleet.explain.partitions import levels_of

    domain = view.model.domain
    unit = " %" if domain.target is None else f" {domain.target.unit}" if domain.target.unit else ""
    for variable, levels in zip(domain.features, levels_of(view.model), strict=False):
        words = f"input {variable.name}{', each text by its level' if levels else ''}: {input_words(variable, levels)}"
        if variable.name in view.importance:
            words += f"; moves the answer by {view.importance[variable.name]:.3g}{unit}"
        if variable.name in view.reach:
            words += f", over its range by {view.reach[variable.name]:.3g}{unit}"
        click.echo("\n".join(wrapped(words, "  ")))


def _show_training(record: ModelRecord, learned: Model) -> None:
    from console.operator.words import wrapped

    training = record.training
    click.echo(f"  cohort ({len(record.cohort)}): {', '.join(record.cohort)}")
    click.echo(f"  rounds {training.rounds}, rows {training.rows}, cells nullified {training.nullified_cells}")
    held = record.parameters.get("held_back", {})
    if held:
        ways = (
            f"{_HELD_BACK[how]} at {counted(count, 'vehicles')}" for how, count in held.items() if how in _HELD_BACK
        )
        click.echo(f"  held back to score models: {', '.join(ways)}")
    for line in _private(record, learned):
        click.echo("\n".join(wrapped(line, "  ")))
    for agent, reason in sorted(training.dropped.items()):
        click.echo(f"  dropped {agent}: {reason}")


def _private(record: ModelRecord, learned: Model) -> list[str]:
    """Return what protected the run's answers, and the fleet's scores; empty for a model of another run."""
    from glassfleet.private.words import WHY_NO_VEHICLES, figures, protection

    if not record.is_private:
        return []
    scores, target = record.parameters.get("scores", {}), learned.domain.target
    scored = figures(scores, target.unit if target is not None else "")
    why = WHY_NO_VEHICLES if "metric" in scores else ""
    return [line for line in (protection(record.parameters["private"]), scored, why) if line]


@model.command()
@model_options
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the N most used rules.")
@click.option("--full", is_flag=True, help="Every term of each rule, not only those that can move it most.")
@words_option
@json_option
@options_as(RulesOptions)
def rules(options: RulesOptions) -> None:
    """Print a model's rules in words, the most used first; of a fedga population its structures, the fittest first.

    \b
    Examples:
      glassfleet model rules qoe --top 5
    """
    from console.operator.words import input_words, rule_lines, wrapped
    from glassfleet.explain import RuleView, summary
    from glassfleet.explain.partitions import levels_of
    from glassfleet.model.protocol import readable_rules
    from glassfleet.model.rules import measures_note, most_used
    from schemas.text import printable

    learned = spoken(load(options)[1], options.words)
    chosen = sorted(readable_rules(learned), key=most_used)[: options.top]
    for note in summary(learned, top=0).notes:
        click.echo(printable(note), err=True)
    if options.as_json:
        print_json([RuleView.of(rule).to_dict() for rule in chosen])
        return
    lines = [line for rule in chosen for line in rule_lines(rule, full=options.full)]
    click.echo("\n".join(lines))
    if any("weaker terms" in line for line in lines):
        click.echo("Weaker terms are left out; --full tells all.")
    for variable, line in zip(learned.domain.features, levels_of(learned), strict=False):
        if line:
            click.echo("\n".join(wrapped(f"{variable.name} counts by its level: {input_words(variable, line)}", "")))
    if note := measures_note(chosen):
        click.echo("\n".join(wrapped(note, "")))


@model.command()
@model_options
@rows_option("The rows", required=True)
@json_option
@options_as(PredictOptions)
def predict(options: PredictOptions) -> None:
    """Forecast every row of a file: one line per row, in the target's own unit.

    The file has the model's inputs as columns; others are ignored.

    \b
    Examples:
      glassfleet model predict qoe --data drive.csv
    """
    from console.operator.chosen import inputs_of

    _, learned, _ = load(options)
    X = inputs_of(options.data, learned)
    predictions = learned.predict(X).tolist()
    name = learned.domain.target_name
    if options.as_json:
        print_json({"target": name, "predictions": predictions})
        return
    click.echo(name)
    for value in predictions:
        click.echo(value if isinstance(value, str) else f"{value:.6g}")


@model.command()
@model_options
@rows_option("The rows", required=True)
@click.option("--row", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Which row, from 1.")
@click.option(
    "--against", type=click.IntRange(min=1), metavar="N",
    help="Which row to compare with; shares say how the row differs from it. Default: the record's typical row.",
)  # fmt: skip
@click.option(
    "--goal", metavar="TEXT",
    help="The other outcome to look for: >3.5, <3.5, +0.5, -10% (of the range), +-0.5 (either way), or a class. "
    "Default: +-10% within its range, or any other class, whichever takes the smallest change.",
)  # fmt: skip
@click.option("--fixed", multiple=True, metavar="INPUT", help="An input that cannot be changed; repeatable.")
@click.option("--only", multiple=True, metavar="INPUT", help="An input that can be changed, and no other; repeatable.")
@click.option("--max-inputs", type=click.IntRange(min=1), metavar="N", help="Change at most N inputs.")
@words_option
@json_option
@options_as(ExplainOptions)
def explain(options: ExplainOptions) -> None:
    """Say why the model forecasts what it does for one row, and what would have to be otherwise.

    Prints the rule in words, the degree to which each condition holds, each input's share and what the shares add up
    to, the runner-up rules, and the smallest change of the inputs found that gives another outcome.

    \b
    Examples:
      glassfleet model explain qoe --data drive.csv --row 17 --goal '>4' --fixed speed
    """
    from console.operator.chosen import row_of
    from console.operator.words import counterfactual_lines, explanation_lines, wrapped
    from glassfleet.explain import Goal, counterfactual, explain_row, explained
    from glassfleet.model.baseline import ReferenceRow

    record, learned, _ = load(options)
    reference = typical(options, record, learned)
    learned = spoken(learned, options.words)
    both = [name for name in options.fixed if name in options.only]
    if both:
        raise UsageError(
            f"{both[0]} is given with --fixed, which keeps it, and with --only, which lets it change: leave out one of "
            "the two"
        )
    row = row_of(options.data, options.row, learned)
    if options.against is not None:
        reference = ReferenceRow(row_of(options.data, options.against, learned), f"row {options.against}")
    goal = None if options.goal is None else Goal.parse(options.goal, learned.domain)
    result = explain_row(learned, row, reference)
    only, most = options.only or None, options.max_inputs
    other = counterfactual(learned, row, goal, keep=options.fixed, only=only, max_inputs=most)
    if options.as_json:
        print_json({**result.to_dict(), "counterfactual": other.to_dict()})
        return
    explanation = explained(learned, row, reference)
    lines = explanation_lines(explanation, learned.domain, row.tolist())
    more = [line for note in result.notes if note not in explanation.notes for line in wrapped(f"note: {note}", "")]
    # What kind of thing answers comes before what it says of its inputs.
    lines[1:1] = more if result.nature == "network" else []
    click.echo("\n".join(lines if result.nature == "network" else [*lines, *more]))
    if result.nature == "structures":
        # Whatever the row, the answer is the same: there is no way to another outcome.
        click.echo("\n".join(wrapped(other.text, "")) if goal is not None else "", nl=goal is not None)
        return
    click.echo("\n".join(counterfactual_lines(other, learned.domain, is_asked=goal is not None)))
