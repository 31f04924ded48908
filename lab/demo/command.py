"""``glassfleet demo``: the whole thing on one machine, with real processes."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.common import config_option, ended_by_sigterm, json_file, parse_parameters, print_json, workshop
from console.run.runspec import BOUNDS_HELP, memory_file
from lab.demo.display import for_terminal, watching
from lab.demo.view import counted
from lab.demo.words import OWN_MEMORY, plan_words, program, staying_command
from schemas.errors import UsageError, VerificationError
from schemas.limits import ID_PATTERN

if TYPE_CHECKING:
    from lab.demo.conduct import Result
    from lab.demo.display import Lines, Live
    from lab.demo.reference import Verdict
    from lab.demo.scene import Settings
    from lab.demo.troupe import Troupe
    from schemas.errors import RunFailedError

TOP_RULES, ALL_RULES = 5, 12
"""How many rules are printed; all of them where they are few enough for one screen."""

SHOWN: dict[str, dict[str, Any]] = {
    "fmt": {"max_rules": 12, "other_sets": [], "max_regressors": 16, "size_tolerance": 0.01}
}
"""Parameters that a scheme is shown with: a quick run, with memory inputs too, and more rules than the two or three
that the simulated drives need where fewer rules may cost 3 % of the squared error, as they may by default."""

LONGEST_PACE = 2.0
"""Seconds of ``--pace`` that leave time before the deadline that is used when none is given."""

LOOK = 0.5
"""Seconds between two looks at the processes that stay up."""

ENOUGH_ROUNDS = 9
"""A run of so many rounds has room for all that may happen to its vehicles."""


@click.command()
@click.option("--vehicles", type=click.IntRange(1, 200), metavar="N", help="Default: 15; with --data, all files.")
@click.option(
    "--drop", type=float, default=0.2, show_default=True, metavar="SHARE", help="Of the fleet: killed (SIGKILL)."
)
@click.option(
    "--slow", type=float, default=0.1, show_default=True, metavar="SHARE", help="Of the fleet: answer too late."
)
@click.option("--rejoin", type=float, default=0.5, show_default=True, metavar="SHARE", help="Of the killed: come back.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Simulator, kills, run.")
@click.option(
    "--participation",
    type=click.Choice(["cohort", "elastic"]),
    help="One set of vehicles for the whole model, or whoever answers each round. Default: cohort if the scheme can.",
)
@click.option(
    "--data", type=click.Path(path_type=Path), metavar="DIR", help="Real vehicles: a file each. Default: simulated."
)
@click.option("--target", metavar="COLUMN", help="Target column of --data. Default: the last one.")
@click.option(
    "--bounds", "bounds_file", type=click.Path(path_type=Path), metavar="FILE", help=f"For --data. {BOUNDS_HELP}"
)
@click.option(
    "--scheme", default="fmt", show_default=True, metavar="NAME",
    help="What to learn; a classifier forecasts Good or Poor. fmt is shown with max_rules=12, other_sets=[], "
    "max_regressors=16 and size_tolerance=0.01 unless --param says otherwise. `glassfleet doctor` lists the schemes.",
)  # fmt: skip
@click.option(
    "--good-above", type=float, metavar="NUMBER",
    help="For classifiers: a target above this is Good, else Poor. Default: 0.8, where the target is a number.",
)  # fmt: skip
@click.option(
    "--labels", is_flag=True, help="For classifiers: the target of --data is a class, though it looks a number."
)
@click.option(
    "--memory", is_flag=False, flag_value=OWN_MEMORY, metavar="[FILE]",
    help="Inputs' changes as further inputs: the simulated vehicles' own, or FILE's for --data (as in `run start`).",
)  # fmt: skip
@click.option(
    "--model", "model_name", metavar="NAME",
    help="Name to publish the model under. Default: qoe; with --data, the folder's name.",
)  # fmt: skip
@click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help="Parameter of the scheme; repeatable.")
@click.option(
    "--exact", is_flag=True, help="Vehicles use their rows as they are, not condensed: their messages give rows away."
)
@click.option(
    "--broker-kind",
    type=click.Choice(["auto", "embedded", "mosquitto"]),
    default="auto",
    show_default=True,
    help="auto: Mosquitto when it is found, else the embedded one.",
)
@click.option(
    "--deadline", type=click.FloatRange(0.2, 3600), metavar="SECONDS",
    help="Per round. Default: 2.5; more where this machine needs it for all vehicles' answers.",
)  # fmt: skip
@click.option(
    "--pace", type=click.FloatRange(0, 60), metavar="SECONDS",
    help="Time that each answer is on its way, so that there is something to watch. Default: 0.2; 0.05 in long runs.",
)  # fmt: skip
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="For the whole run.",
)
@click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Work in DIR and keep it."
)
@click.option(
    "--secure", is_flag=True, help="Everything over mutual TLS, with certificates made for it; needs Mosquitto."
)
@click.option(
    "--stay", is_flag=True,
    help="Keep everything up after the report, until Ctrl-C: to look at the dashboard, forecast, start more runs.",
)  # fmt: skip
@click.option("--plain", is_flag=True, help="Plain lines even on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Summary as JSON on stdout; everything else on stderr.")
@config_option
def demo(**options: Any) -> int:
    """Let a fleet learn one explainable model over MQTT while some vehicles vanish, lag and come back.

    Broker, coordinator and every vehicle are processes of their own. At the end the model is compared with the one that
    a central server would have learned from the rows of the vehicles that finished: the digests are equal, bit for bit.
    The first lines tell the address of the dashboard, which is there while the demo runs; with --stay until Ctrl-C.

    Exit codes: 0 the model exists (and, where the scheme promises it, with cohort participation, the digests are
    equal); 8 the digests differ; 6 the run failed.

    \b
    Examples:
      glassfleet demo --drop 0.3 --seed 7 --json
      glassfleet demo --stay
      glassfleet demo --secure
      glassfleet demo --scheme frbc --slow 0.2
      glassfleet demo --scheme frt --participation elastic
      glassfleet demo --data my-vehicles --target quality --model fleet-quality
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    from lab.demo.plan import make_plan  # noqa: PLC0415 - what the demo needs is loaded when it is called

    make_plan((), options["drop"], options["slow"], options["rejoin"], options["seed"])  # a wrong share is told first
    if options["pace"] and options["deadline"] is not None and options["pace"] > 0.8 * options["deadline"]:
        raise UsageError(f"--pace {options['pace']} leaves no time before --deadline {options['deadline']}")
    if options["deadline"] is None and (options["pace"] or 0.0) > LONGEST_PACE:
        raise UsageError(
            f"--pace {options['pace']} needs a longer --deadline too: without one a round may wait for 2.5 s only"
        )
    if options["secure"] and options["broker_kind"] == "embedded":
        raise UsageError("--secure needs Mosquitto: the embedded broker has no TLS")
    with (
        ended_by_sigterm(),
        workshop(options["keep"], "demo") as work,
        watching(plain=options["plain"]) as watcher,
    ):
        return _show(options, work, watcher)


def _show(options: dict[str, Any], work: Path, watcher: Lines | Live) -> int:
    from console.client import Coordinator  # noqa: PLC0415
    from lab.demo.conduct import Result, conduct  # noqa: PLC0415

    settings = _settings(options, work, watcher)
    watcher.say(f"{settings.scheme}, {counted(len(settings.files), 'vehicles')}: {plan_words(settings.plan)}")
    rows = "their own rows, as they are" if options["exact"] else "condensed rows"
    watcher.say(f"vehicles answer from {rows}; a round waits {settings.deadline:g} s for those who do not answer")

    def stay(outcome: Result | RunFailedError, troupe: Troupe) -> None:
        watcher.stop()
        if isinstance(outcome, Result):
            _report(outcome, options, work)
        else:
            watcher.say(f"{outcome}")
        _stay(options, work, watcher, troupe)

    result = conduct(
        settings, lambda folder: Coordinator(None, None, folder), watcher, stay if options["stay"] else None
    )
    if not options["stay"]:
        watcher.stop()
        _report(result, options, work)
        watcher.say("")
        watcher.say(f"to look at all this in the dashboard, with everything up until Ctrl-C: {staying_command()}")
    keep_promise(result.verdict, participation=result.status["participation"])
    return 0


def _report(result: Result, options: dict[str, Any], work: Path) -> None:
    """Print what came of it."""
    from lab.demo.report import report_lines, summary  # noqa: PLC0415

    if options["keep"] is not None:
        (work / "model.json").write_bytes(result.record.to_bytes())
    few = len(result.verdict.model.rules()) <= ALL_RULES
    report = report_lines(result, exact=options["exact"], top=ALL_RULES if few else TOP_RULES)
    click.echo("\n".join(for_terminal(report, err=options["as_json"])), err=options["as_json"])
    if options["as_json"]:
        print_json(summary(result, options))


def _stay(options: dict[str, Any], work: Path, watcher: Lines | Live, troupe: Troupe) -> None:
    """Return on Ctrl-C (or SIGTERM); raises GlassfleetError when broker or coordinator end before."""
    folder = work / "coordinator"
    watcher.say("")
    watcher.say(f"everything stays up until Ctrl-C; dashboard: {troupe.address}")
    watcher.say(f"  to start and cancel runs there, sign in with the token in {folder / 'api-token'}")
    watcher.say("  in another terminal:")
    watcher.say(f"    source {shlex.quote(str(troupe.write_environment()))}")
    watcher.say(f"    {shlex.quote(program())} model rules {model_name(options)}")
    try:
        while True:
            troupe.check_services()
            for line in troupe.newly_ended():
                watcher.say(line)
            time.sleep(LOOK)
    except KeyboardInterrupt:
        click.echo(err=True)
        watcher.say("stopping vehicles, coordinator and broker")


def model_name(options: dict[str, Any]) -> str:
    """Return the name to publish the model under: the given one, else the data's.

    Raises
    ------
    UsageError
        The given one cannot be a model's name.
    """
    given: str | None = options["model_name"]
    if given is not None:
        if not re.fullmatch(ID_PATTERN, given):
            raise UsageError(f"--model {given!r}: use up to 64 letters, digits, dots, dashes and underscores")
        return given
    if options["data"] is None:
        return "qoe"
    return re.sub(r"[^A-Za-z0-9._-]", "-", options["data"].resolve().name).lstrip("._-")[:64] or "model"


def keep_promise(verdict: Verdict, *, participation: str) -> None:
    """Raise VerificationError where fleet and central model differ in a setting that promises that they are equal."""
    if participation == "cohort" and verdict.promised and not verdict.equal:
        setting = f" (with {', '.join(verdict.setting)})" if verdict.setting else ""
        raise VerificationError(
            f"the fleet's model {verdict.federated} is not the central one of its cohort, {verdict.central}, which "
            f"{verdict.title} promises in this setting{setting}"
        )


def _settings(options: dict[str, Any], work: Path, watcher: Lines | Live) -> Settings:
    from lab.demo.plan import make_plan  # noqa: PLC0415
    from lab.demo.preflight import MANY_ROUNDS, rehearse, tempo  # noqa: PLC0415
    from lab.demo.scene import Settings  # noqa: PLC0415
    from lab.demo.vehicles import check_columns, read_rows  # noqa: PLC0415

    name = model_name(options)
    scheme, parameters, participation, labels = _scheme(options)
    memory = _memory(options)
    real = _real_files(options)
    # What a user can have mistyped is known by now: only after it is something said.
    watcher.step("making the rows of simulated vehicles" if real is None else "reading the vehicles' files")
    if real is not None:
        check_columns(real, options["target"])
    files = _files(options, work, real, labels=labels)
    # Two vehicles' rows tell how many rounds there will be, and what a file of bounds may name.
    few = list(read_rows(dict(list(files.items())[:2]), options["target"], labels=labels, memory=memory).values())
    known = {*few[0].train.features, few[0].train.target}
    bounds = _bounds(options, known)
    watcher.step("rehearsing with two vehicles: number of rounds, time for an answer")
    at_most = MANY_ROUNDS if participation == "elastic" else ENOUGH_ROUNDS
    rehearsal = rehearse(scheme, parameters, few, options["seed"], at_most=at_most)
    pace, deadline = tempo(rehearsal, len(files), participation)
    pace = pace if options["pace"] is None else options["pace"]
    deadline = deadline if options["deadline"] is None else options["deadline"]
    if pace > 0.8 * deadline:
        raise UsageError(f"--pace {pace} leaves no time before --deadline {deadline}: make it smaller")
    return Settings(
        files=files,
        plan=make_plan(
            list(files),
            options["drop"],
            options["slow"],
            options["rejoin"],
            options["seed"],
            None if rehearsal.rounds >= ENOUGH_ROUNDS else rehearsal.rounds,
        ),
        work=work,
        scheme=scheme.name,
        parameters=parameters.model_dump(mode="json"),
        participation=participation,
        model=name,
        deadline=deadline,
        pace=pace,
        broker_kind=options["broker_kind"],
        bounds=bounds,
        target=options["target"],
        labels=labels,
        memory=memory,
        seed=options["seed"],
        timeout=options["timeout"],
        secure=options["secure"],
    )


def _scheme(options: dict[str, Any]) -> tuple[Any, Any, str, bool]:
    """Return the scheme, its parameters, the participation, and whether the target is a class."""
    from pydantic import ValidationError  # noqa: PLC0415

    from glassfleet import catalogue  # noqa: PLC0415
    from glassfleet.data.parameters import parameter_fault  # noqa: PLC0415

    scheme = catalogue.load(options["scheme"])
    participation = options["participation"] or ("cohort" if "cohort" in scheme.participation else "elastic")
    if participation not in scheme.participation:
        modes = ", ".join(sorted(scheme.participation))
        raise UsageError(f"scheme {scheme.name} takes part only in: {modes}; --scheme frt knows both ways")
    wants_labels = options["labels"] or options["good_above"] is not None
    if wants_labels and "classification" not in scheme.purpose:
        raise UsageError(f"--labels and --good-above go with a classifier; scheme {scheme.name} forecasts numbers")
    try:
        given = parse_parameters(options["parameters"])
        parameters = scheme.Parameters.model_validate({**SHOWN.get(scheme.name, {}), **given})
    except ValidationError as fault:
        raise UsageError(parameter_fault(scheme.name, scheme.Parameters, fault, "--param ")) from fault
    if options["exact"]:
        parameters = scheme.exact(parameters)
    return scheme, parameters, participation, wants_labels or "regression" not in scheme.purpose


def _memory(options: dict[str, Any]) -> Any:
    """Return the memory inputs of the run; raises UsageError where vehicles and declaration do not go together."""
    given = options["memory"]
    if given is None:
        return None
    if given != OWN_MEMORY:
        if options["data"] is None:
            raise UsageError("--memory FILE goes with --data; the simulated vehicles have their own: --memory alone")
        return memory_file(Path(given))
    if options["data"] is not None:
        raise UsageError("--memory needs a FILE with --data: it says which columns to remember")
    from lab.qoe.windows import MEMORY  # noqa: PLC0415

    return MEMORY


def _real_files(options: dict[str, Any]) -> dict[str, Path] | None:
    """Return the files of ``--data``; None: the vehicles are simulated. Raises UsageError or DataError."""
    from lab.demo.vehicles import real_files  # noqa: PLC0415

    if options["data"] is not None:
        return real_files(options["data"], options["vehicles"])
    for name in ("target", "bounds_file", "labels"):
        if options[name]:
            raise UsageError(f"--{name.removesuffix('_file')} goes with --data; the simulated vehicles have their own")
    return None


def _files(options: dict[str, Any], work: Path, real: dict[str, Path] | None, *, labels: bool) -> dict[str, Path]:
    from lab.demo.vehicles import labelled_files, simulated_files  # noqa: PLC0415
    from lab.qoe.windows import GOOD_ABOVE  # noqa: PLC0415

    good_above = GOOD_ABOVE if options["good_above"] is None else options["good_above"]
    if real is None:
        return simulated_files(
            work / "data",
            options["vehicles"] or 15,
            options["seed"],
            good_above=good_above if labels else None,
            drives=options["memory"] is not None,
        )
    if not labels:
        return real
    return labelled_files(real, work / "data", options["target"], good_above, labels=options["labels"])


def _bounds(options: dict[str, Any], known: set[str]) -> dict[str, Any] | None:
    """Return the run's bounds: the simulator's own, or those of the file; raises UsageError for an unknown column."""
    from lab.qoe.windows import BOUNDS, UNITS  # noqa: PLC0415

    if options["data"] is None:
        return {
            name: {"low": low, "high": high, "unit": UNITS[name]}
            for name, (low, high) in BOUNDS.items()
            if name in known
        }
    if options["bounds_file"] is None:
        return None
    bounds = json_file(options["bounds_file"], "bounds")
    if not isinstance(bounds, dict):
        raise UsageError(f'--bounds: {options["bounds_file"]} must hold an object: {{"column": [low, high]}}')
    unknown = sorted(set(bounds) - known)
    if unknown:
        raise UsageError(
            f"--bounds: no vehicle has a column {unknown[0]!r}; the columns are: {', '.join(sorted(known))}"
        )
    return bounds
