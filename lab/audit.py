"""``glassfleet lab audit``: attacks on what vehicles sent, and which of their rows these read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.common import (
    RowsFile,
    json_option,
    options_as,
    param_option,
    parse_parameters,
    print_json,
    rows_there,
    state_dir_option,
    table_lines,
)
from console.progress import progress
from schemas.errors import DataError, NotFoundError, StorageError, UsageError, os_faults_as
from schemas.topics import DEFAULT_FLEET

if TYPE_CHECKING:
    from coordinator.runs.transcript import Transcript
    from edge_agent.sources import Source
    from glassfleet.audit.model import ModelLeak
    from glassfleet.audit.report import AttackLine
    from glassfleet.audit.shadows import Shadowed
    from glassfleet.contract.scheme import Scheme
    from glassfleet.data.dataset import Dataset
    from glassfleet.model.protocol import Model

LAST = "last"

HELD_OUT = 0.2
"""Share of a file's rows that no vehicle is dealt: the others that membership is measured with."""


@dataclass(frozen=True, kw_only=True)
class LeakageOptions:
    """Of ``glassfleet lab audit leakage``."""

    run_id: str | None
    data: Path
    scheme: str | None
    pairs: tuple[str, ...]
    target: str | None
    vehicles: int | None
    journal: str | None
    fleet: str
    state_dir: Path
    shadows: int | None
    save: bool
    as_json: bool


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
    with progress("attacking what was sent"):
        document, lines, models = _simulated(options) if options.scheme else _of_run(options)
        shadows = _shadows(options) if options.shadows else {}
    whole = {
        **document,
        "lines": [line.to_document() for line in lines],
        "models": [{"protection": protection, **asdict(each)} for protection, each in models],
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
    models: list[tuple[str, ModelLeak]],
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
    for protection, each in models:
        click.echo(f"the model alone ({protection}): {_model_words(each)}")
    for protection, found in shadows.items():
        click.echo(f"the model and {found.models - 1} shadows of it ({protection}): membership AUC {found.auc:.3f}, "
                   f"{found.hits:.1%} of its rows named with 1 % mistakes")  # fmt: skip


def _save(state_dir: Path, whole: dict[str, Any]) -> None:
    from glassfleet.audit.saved import SavedReport, place_of

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


def _model_words(leak: ModelLeak) -> str:
    met = f"gives back {leak.met:.2%} of the targets it was learned from, to a millionth of their range"
    if leak.auc is None:
        return f"{met}; there are no other rows to measure membership with"
    return f"{met} ({leak.met_others:.2%} of {leak.others:,} other rows); membership AUC {leak.auc:.3f}, 0.5 is nothing"


# --- a run of the journal ---------------------------------------------------------------------------------------------


def _of_run(options: LeakageOptions) -> tuple[dict[str, Any], list[AttackLine], list[tuple[str, ModelLeak]]]:
    from edge_agent.sources.readers import vehicle_files
    from glassfleet.audit.model import model_alone
    from glassfleet.audit.report import audit as attack
    from glassfleet.audit.report import protection_of, truth
    from glassfleet.contract import catalogue  # numpy comes with it
    from glassfleet.data.dataset import pool
    from glassfleet.simulation import counted_rows

    run, transcript = _read_transcript(options)
    state, domain = transcript.state, transcript.state.domain
    opened = [each for each in transcript.answers if each.task.scheme == state.spec.scheme]
    if domain is None or not opened:
        raise NotFoundError(f"run {run!r}: no vehicle answered a question about its rows, so nothing was told")
    scheme = catalogue.load(state.spec.scheme)
    protection = protection_of(scheme, state.parameters, state.nullified, private=state.spec.private is not None)
    agents = sorted(frozenset().union(*(each.members for each in opened)))
    files = dict(vehicle_files(options.data))
    if missing := [agent for agent in agents if agent not in files]:
        raise DataError(f"--data {options.data} has no file of {', '.join(missing[:5])}: {missing[0]}.csv, .csv.gz ...")
    target = domain.target_name
    fleet = {
        agent: _read(files[agent], target, scheme, labels=domain.target is None, hold_back=True) for agent in agents
    }
    _check_same(transcript, protection, {agent: each.train for agent, each in fleet.items()})
    rows = {agent: counted_rows(each.train, domain, state.max_rows_each) for agent, each in fleet.items()}
    lines = attack(protection, opened, {agent: truth(domain, data) for agent, data in rows.items()})
    models = []
    if state.model is not None:
        others = pool([counted_rows(each.test, domain, 0) for each in fleet.values()])
        models.append((protection, model_alone(state.model, pool([rows[agent] for agent in state.cohort]), others)))
    count = sum(data.rows for data in rows.values())
    document = {"run": run, "scheme": scheme.name, "vehicles": len(agents), "rows": count, "left_out": {}}
    return document, lines, models


def _read_transcript(options: LeakageOptions) -> tuple[str, Transcript]:
    from coordinator.engine import Engine
    from coordinator.journal.inspect import entries, runs  # extra coordinator
    from coordinator.runs.transcript import transcript_of

    url = options.journal or f"sqlite:///{options.state_dir / 'journal.sqlite'}"
    known = runs(url)
    run = known[-1] if options.run_id == LAST and known and LAST not in known else str(options.run_id)
    transcript = transcript_of(Engine(fleet=options.fleet), entries(url, run))
    if transcript is None:
        named = f"it has events of {', '.join(known[:-6:-1])}" if known else "it has events of no run"
        raise NotFoundError(f"the journal has no events of run {run!r}; {named}. They go records_days after its end")
    return run, transcript


def _check_same(transcript: Transcript, protection: str, rows: Mapping[str, Dataset]) -> None:
    """Raise DataError unless these are the rows that the vehicles answered from, as far as that can be told.

    Their numbers can; and answers that need no secret, about limits or from rows as they are, are computed again.
    """
    import numpy as np

    from edge_agent.session.answers import DOMAIN, answer
    from glassfleet.errors import TaskError

    way_out = "give the rows as they were when the run began"
    private = transcript.state.spec.private is not None
    for agent, (count, _) in sorted(transcript.state.frozen.items()):
        most = transcript.state.max_rows_each or count
        if not private and agent in rows and min(count, most) != min(rows[agent].rows, most):
            raise DataError(f"{agent} answered from {count} rows, --data has {rows[agent].rows} of it: {way_out}")
    unknown = set(rows)
    for each in transcript.answers:
        is_asked = each.task.scheme == DOMAIN or (
            (private or protection == "exact") and each.task.scheme == transcript.state.spec.scheme
        )
        if not is_asked or not each.members <= rows.keys() or unknown.isdisjoint(each.members):
            continue
        unknown -= each.members
        who = ", ".join(sorted(each.members)[:5])
        try:
            parts = [answer(each.task, rows[agent], b"")["contribution"]["sums"] for agent in each.members]
        except TaskError as fault:
            raise DataError(f"the rows of {who} in --data cannot answer what was answered ({fault})") from fault
        for name, array in each.sums.items():
            if not np.array_equal(sum(part[name] for part in parts), array):
                raise DataError(f"the rows of {who} in --data have other values than those of the answers: {way_out}")


# --- a simulated fleet ------------------------------------------------------------------------------------------------


def _simulated(options: LeakageOptions) -> tuple[dict[str, Any], list[AttackLine], list[tuple[str, ModelLeak]]]:
    from console.operator.specification import checked_parameters
    from coordinator.engine.learning import discovery_of
    from glassfleet.audit.model import model_alone
    from glassfleet.audit.private import conduct, may_lose
    from glassfleet.audit.report import audit as attack
    from glassfleet.audit.report import protection_of, truth
    from glassfleet.audit.transcript import Opened
    from glassfleet.contract import catalogue
    from glassfleet.data.dataset import pool
    from glassfleet.discovery import discover
    from glassfleet.simulation import federated

    scheme = catalogue.load(str(options.scheme))
    parameters = checked_parameters(scheme, parse_parameters(options.pairs))
    fleet = _fleet(options, scheme)
    rows = {agent: each.train for agent, each in fleet.items()}
    one = next(iter(rows.values()))
    domain = discover(discovery_of(one.features, one.target, {}, scheme), list(rows.values()))
    true = {agent: truth(domain, data) for agent, data in rows.items()}
    others = pool([vehicle.test for vehicle in fleet.values()])
    lines: list[AttackLine] = []
    models = []
    rounds = 0
    for each in dict.fromkeys((parameters, scheme.exact(parameters))):
        opened: list[Opened] = []

        def listen(task: Any, answer: Any, opened: list[Opened] = opened) -> None:
            opened.append(Opened(task, frozenset({answer.agent}), answer.sums))

        outcome = federated(scheme, each, domain, rows, listen=listen)
        rounds = outcome.rounds
        protection = protection_of(scheme, each, outcome.nullified)
        lines += attack(protection, opened, true)
        models.append((protection, model_alone(outcome.model, pool(list(rows.values())), others)))
    ways, left_out = _private_ways(scheme, parameters, len(rows))
    for each in ways:
        # One vehicle is lost as late as the course with exact sums is sure to last: what the two editions that answer
        # differ by is attacked, too.
        lose_after = rounds - 1 if may_lose(len(rows)) else None
        protection = protection_of(scheme, each, 0, private=True)
        try:
            opened, private = conduct(scheme, each, domain, rows, lose_after)
        except UsageError as fault:  # not of such columns
            left_out[protection] = str(fault)
            continue
        lines += attack(protection, opened, true)
        cohort = pool([rows[agent] for agent in private.cohort])
        models.append((protection, model_alone(private.model, cohort, others)))
    count = sum(data.rows for data in rows.values())
    document = {"run": "", "scheme": scheme.name, "vehicles": len(rows), "rows": count, "left_out": left_out}
    return document, lines, models


def _shadows(options: LeakageOptions) -> dict[str, Shadowed]:
    """Attack models of halves of all rows, by protection."""
    import numpy as np

    from console.operator.specification import checked_parameters
    from coordinator.engine.learning import discovery_of
    from glassfleet.audit.report import protection_of
    from glassfleet.audit.shadows import shadowed
    from glassfleet.contract import catalogue
    from glassfleet.data.dataset import pool
    from glassfleet.discovery import discover
    from glassfleet.simulation import federated

    scheme = catalogue.load(str(options.scheme))
    parameters = checked_parameters(scheme, parse_parameters(options.pairs))
    fleet = {agent: pool([each.train, each.test]) for agent, each in _fleet(options, scheme).items()}
    every, one = pool(list(fleet.values())), next(iter(fleet.values()))
    domain = discover(discovery_of(one.features, one.target, {}, scheme), list(fleet.values()))
    ends = np.cumsum([each.rows for each in fleet.values()])[:-1]
    found = {}
    for each in dict.fromkeys(
        (parameters, scheme.exact(parameters), *_private_ways(scheme, parameters, len(fleet))[0])
    ):

        def learn(mask: Any, each: Any = each) -> Model:
            parts = zip(fleet.items(), np.split(mask, ends), strict=True)
            halves = {agent: _rows(data, np.flatnonzero(own)) for (agent, data), own in parts}
            model: Model = federated(scheme, each, domain, halves).model
            return model

        private = bool(getattr(each, "support", 0))
        found[protection_of(scheme, each, 0, private=private)] = shadowed(learn, every, int(options.shadows or 0))
    return found


def _rows(data: Dataset, places: Any) -> Dataset:
    """Return some rows of a vehicle."""
    return replace(data, X=data.X[places], y=data.y[places], memo={})


def _private_ways(scheme: Scheme, parameters: Any, vehicles: int) -> tuple[list[Any], dict[str, str]]:
    """Return the parameters of private runs, without and with support, and why there is none of some protection."""
    from pydantic import ValidationError

    from glassfleet.contract.scheme import private_parameters
    from glassfleet.data.parameters import parameter_fault
    from glassfleet.private.groups import LEAST_FLOOR, SUPPORT_ROWS

    if vehicles < LEAST_FLOOR:
        return [], {"private": f"{LEAST_FLOOR} vehicles are needed, these are {vehicles}"}
    try:
        given = private_parameters(scheme, parameters)
    except UsageError as fault:
        return [], {"private": str(fault)}
    if "support" not in scheme.Parameters.model_fields:
        return [given], {
            f"private, support {SUPPORT_ROWS}": f"not supported: {scheme.name} has no parameter of this name"
        }
    ways, left_out = [], {}
    for least in (0, given.support or SUPPORT_ROWS):
        try:
            ways.append(scheme.Parameters.model_validate({**given.model_dump(), "support": least}))
        except ValidationError as fault:
            left_out[f"private, support {least}"] = parameter_fault(scheme.name, scheme.Parameters, fault, "")
    return ways, left_out


def _fleet(options: LeakageOptions, scheme: Scheme) -> dict[str, Source]:
    if options.vehicles is None:
        from edge_agent.sources.readers import vehicle_files

        files = list(vehicle_files(options.data))
        labels = _are_labels(files[0][1], options.target, scheme)
        return {agent: _read(path, options.target, scheme, labels=labels, hold_back=True) for agent, path in files}
    import numpy as np

    from edge_agent.sources import Source

    labels = _are_labels(options.data, options.target, scheme)
    both = _read(options.data, options.target, scheme, labels=labels, hold_back=False)
    data = both.train
    order = np.random.default_rng(0).permutation(data.rows)
    cut = int(data.rows * (1 - HELD_OUT))
    if cut < options.vehicles:
        raise DataError(f"{options.data}: {data.rows} rows are too few for {options.vehicles} vehicles")

    parts = [_rows(data, places) for places in np.array_split(order[:cut], options.vehicles)]
    held = [_rows(data, order[cut:]), *(_rows(data, order[:0]) for _ in parts[1:])]
    return {f"v{number:03d}": Source(*each) for number, each in enumerate(zip(parts, held, strict=True))}


# --- files ------------------------------------------------------------------------------------------------------------


def _are_labels(path: Path, target: str | None, scheme: Scheme) -> bool:
    """Return whether the target of a file is classes: of a scheme that learns both, where it is text."""
    from edge_agent.sources import read_table

    if len(scheme.purpose) == 1:
        return "classification" in scheme.purpose
    table = read_table(path, missing=None)
    return (target or table.names[-1]) in table.text


def _read(path: Path, target: str | None, scheme: Scheme, *, labels: bool, hold_back: bool) -> Source:
    from edge_agent.sources import read_source

    takes = {"categories": scheme.abilities.categories, "missing": scheme.abilities.missing_cells}
    return read_source(path, target=target, labels=labels, hold_back=hold_back, **takes)
