"""``glassfleet demo``: the whole thing on one machine, with real processes."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from console.common import (
    RowsFile,
    broker_kind_option,
    ended_by_sigterm,
    options_as,
    print_json,
    workshop,
)
from console.operator.specification import BOUNDS_HELP
from glassfleet.schemes import DEFAULT
from lab.demo.display import for_terminal, watching
from lab.demo.options import DemoOptions, model_name, settings_of
from lab.demo.words import OWN_MEMORY, plan_words, program, staying_command
from schemas.errors import UsageError, VerificationError
from schemas.text import counted

if TYPE_CHECKING:
    from lab.demo.conduct import Result
    from lab.demo.display import Watcher
    from lab.demo.fleet import Fleet
    from lab.demo.reference import Verdict
    from schemas.errors import RunFailedError

TOP_RULES, ALL_RULES = 5, 12
"""How many rules are printed; all of them where they are few enough for one screen."""

LONGEST_PACE = 2.0
"""Seconds of ``--pace`` that leave time before the deadline that is used when none is given."""

LOOK = 0.5
"""Seconds between two looks at the processes that stay up."""


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
@click.option("--data", type=RowsFile(), metavar="DIR", help="Real vehicles: a file each. Default: simulated.")
@click.option("--target", metavar="COLUMN", help="Target column of --data. Default: the last one.")
@click.option(
    "--bounds", "bounds_file", type=click.Path(path_type=Path), metavar="FILE", help=f"For --data. {BOUNDS_HELP}"
)
@click.option(
    "--scheme", default=DEFAULT, show_default=True, metavar="NAME",
    help="What to learn; a classifier forecasts Good or Poor. tree is shown with max_rules=12 and max_regressors=16 "
    "unless --param says otherwise. `glassfleet doctor` lists the schemes.",
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
    help="Inputs' changes as further inputs: the simulated ones' own, for --data the FILE's (policy key `memory`).",
)  # fmt: skip
@click.option(
    "--model", "model_name", metavar="NAME",
    help="Name to publish the model under. Default: qoe; with --data, the folder's name.",
)  # fmt: skip
@click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help="Parameter of the scheme; repeatable.")
@click.option(
    "--exact", is_flag=True, help="Vehicles use their rows as they are, not condensed: their messages give rows away."
)
@broker_kind_option("--broker-kind")
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
    "--private", is_flag=True,
    help="A private run: nobody sees a single vehicle's numbers, only sums over 8 vehicles or more. Kills at two "
    "moments at most, and no more than leave enough.",
)  # fmt: skip
@click.option(
    "--support", type=click.IntRange(min=0), metavar="K",
    help="With --private: nothing is asked that rests on fewer rows; 0: no such bound. Default: 3.",
)  # fmt: skip
@click.option(
    "--stay", is_flag=True,
    help="Keep everything up after the report, until Ctrl-C: to look at the dashboard, forecast, start more runs.",
)  # fmt: skip
@click.option("--plain", is_flag=True, help="Plain lines even on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Summary as JSON on stdout; everything else on stderr.")
@options_as(DemoOptions)
def demo(options: DemoOptions) -> int:
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
      glassfleet demo --private --drop 0.33 --slow 0
      glassfleet demo --scheme frbc --slow 0.2
      glassfleet demo --scheme frt --participation elastic
      glassfleet demo --data my-vehicles --target quality --model fleet-quality
    """
    from lab.demo.plan import make_plan  # what the demo needs is loaded when it is called

    make_plan((), options.drop, options.slow, options.rejoin, options.seed)  # a wrong share is told first
    if options.pace and options.deadline is not None and options.pace > 0.8 * options.deadline:
        raise UsageError(f"--pace {options.pace} leaves no time before --deadline {options.deadline}")
    if options.deadline is None and (options.pace or 0.0) > LONGEST_PACE:
        raise UsageError(
            f"--pace {options.pace} needs a longer --deadline too: without one a round may wait for 2.5 s only"
        )
    if options.secure and options.broker_kind == "embedded":
        raise UsageError("--secure needs Mosquitto: the embedded broker has no TLS")
    with ended_by_sigterm(), workshop(options.keep, "demo") as work, watching(plain=options.plain) as watcher:
        return _show(options, work, watcher)


def _show(options: DemoOptions, work: Path, watcher: Watcher) -> int:
    from lab.demo.conduct import Result, conduct

    settings = settings_of(options, work, watcher)
    watcher.say(f"{settings.scheme}, {counted(len(settings.files), 'vehicles')}: {plan_words(settings.plan)}")
    if options.private:
        least = settings.parameters.get("support", 0)
        rests = f", and nothing that rests on fewer than {least} rows" if least else ""
        watcher.say(f"private: each answer is masked; coordinator and broker see sums over 8 vehicles or more{rests}")
    rows = "their own rows, as they are" if options.exact or options.private else "condensed rows"
    watcher.say(f"vehicles answer from {rows}; a round waits {settings.deadline:g} s for those who do not answer")

    def stay(outcome: Result | RunFailedError, fleet: Fleet) -> None:
        watcher.stop()
        if isinstance(outcome, Result):
            _report(outcome, options, work)
        else:
            watcher.say(f"{outcome}")
        _stay(options, work, watcher, fleet)

    result = conduct(settings, watcher, stay if options.stay else None)
    if not options.stay:
        watcher.stop()
        _report(result, options, work)
        watcher.say("")
        watcher.say(f"to look at all this in the dashboard, with everything up until Ctrl-C: {staying_command()}")
    keep_promise(result.verdict, participation=result.status["participation"])
    return 0


def _report(result: Result, options: DemoOptions, work: Path) -> None:
    """Print what came of it."""
    from lab.demo.report import report_lines, summary

    if options.keep is not None:
        (work / "model.json").write_bytes(result.record.to_bytes())
    few = len(result.verdict.model.rules()) <= ALL_RULES
    report = report_lines(result, exact=options.exact or options.private, top=ALL_RULES if few else TOP_RULES)
    click.echo("\n".join(for_terminal(report, err=options.as_json)), err=options.as_json)
    if options.as_json:
        print_json(summary(result, options))


def _stay(options: DemoOptions, work: Path, watcher: Watcher, fleet: Fleet) -> None:
    """Return on Ctrl-C (or SIGTERM); raises GlassfleetError when broker or coordinator end before."""
    folder = work / "coordinator"
    watcher.say("")
    watcher.say(f"everything stays up until Ctrl-C; dashboard: {fleet.address}")
    watcher.say(f"  to start and cancel runs there, sign in with the token in {folder / 'api-token'}")
    watcher.say("  in another terminal:")
    watcher.say(f"    source {shlex.quote(str(fleet.write_environment()))}")
    watcher.say(f"    {shlex.quote(program())} model rules {model_name(options.model_name, options.data)}")
    try:
        while True:
            fleet.check_services()
            for line in fleet.newly_ended():
                watcher.say(line)
            time.sleep(LOOK)
    except KeyboardInterrupt:
        click.echo(err=True)
        watcher.say("stopping vehicles, coordinator and broker")


def keep_promise(verdict: Verdict, *, participation: str) -> None:
    """Raise VerificationError where fleet and central model differ in a setting that promises that they are equal."""
    if participation == "cohort" and verdict.promised and not verdict.equal:
        setting = f" (with {', '.join(verdict.setting)})" if verdict.setting else ""
        raise VerificationError(
            f"the fleet's model {verdict.federated} is not the central one of its cohort, {verdict.central}, which "
            f"{verdict.title} promises in this setting{setting}"
        )
