"""``glassfleet lab chaos``: show on this machine that nothing is lost and nothing is counted twice."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click

from console.common import (
    broker_kind_option,
    check_kind,
    ended_by_sigterm,
    file_option,
    json_option,
    keep_option,
    options_as,
    print_json,
    workshop,
)
from console.progress import progress
from glassfleet.private.groups import LEAST_COMPANY, LEAST_FLOOR
from schemas.errors import StorageError, UsageError, VerificationError, os_faults_as


@dataclass(frozen=True, kw_only=True)
class ChaosOptions:
    """Of ``glassfleet lab chaos``."""

    faults: int
    seed: int
    vehicles: int | None
    kind: str
    secure: bool
    private: bool
    standby: bool
    workers: bool
    deadline: float
    report: Path | None
    keep: Path | None
    as_json: bool


@click.command()
@click.option("--faults", type=click.IntRange(0, 100_000), default=200, show_default=True, help="How many.")
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True,
    help="Of the schedule: which faults, on whom, in which state of the run, for how long.",
)  # fmt: skip
@click.option("--vehicles", type=click.IntRange(2, 50), metavar="N", help="Agents. Default: 5; with --private, 15.")
@broker_kind_option
@click.option(
    "--secure", is_flag=True,
    help="Everybody with a certificate, over mutual TLS, all messages signed; certificates are renewed and revoked on "
    "the way. Needs Mosquitto.",
)  # fmt: skip
@click.option(
    "--private", is_flag=True,
    help="All runs are private: nobody sees a single vehicle's numbers. A run of which too few are left may end by "
    "that name.",
)  # fmt: skip
@click.option(
    "--standby", is_flag=True,
    help="Two coordinators on one journal: one stands by, and takes the place of the other whenever that is killed.",
)  # fmt: skip
@click.option(
    "--workers", is_flag=True,
    help="The coordinator has two intake workers, which are killed and frozen as well.",
)  # fmt: skip
@click.option(
    "--deadline", type=click.FloatRange(0.5, 60), default=2.0, show_default=True, metavar="SECONDS", help="Per round."
)
@file_option("--report", help="Save the report (JSON, with the schedule) here; FILE.txt gets the page.")
@keep_option
@json_option
@options_as(ChaosOptions)
def chaos(options: ChaosOptions) -> int:
    """Break a fleet in every way, run after run, and check that nothing was lost and nothing counted twice.

    Broker, coordinator and agents are real processes on loopback. They are killed (SIGKILL) in every state of the
    engine and at single publishes, frozen and thawed; the broker is killed and restarted; connections are cut, blocked
    and delayed by a proxy; messages are lost, doubled and reordered; clocks jump. Runs follow each other until the
    faults are spent. Then journal, outboxes, logs, retained messages and models are compared: every accepted
    contribution is counted once, and each model is the central model of its cohort, bit for bit.

    With --secure the same happens to a fleet with identities, and more: certificates are renewed under running
    processes, former ones are revoked, and vehicles are revoked as stolen and enrol again. Nothing of a revoked vehicle
    may be taken, its stolen identity must not connect, and nobody else may be refused.

    The schedule is a function of the seed; the report holds it, and the command that replays it.

    Exit codes: 0 all held; 8 something did not.

    \b
    Examples:
      glassfleet lab chaos --faults 50 --seed 3 --json
      glassfleet lab chaos --faults 100 --secure --report chaos.json
      glassfleet lab chaos --faults 100 --private
      glassfleet lab chaos --faults 100 --standby
      glassfleet lab chaos --faults 100 --workers
    """
    from lab.chaos import report as reports  # what chaos needs is loaded when it is called
    from lab.chaos.audit import examine, gather
    from lab.chaos.conduct import Settings, play
    from lab.chaos.fleet import Fleet, write_data
    from lab.chaos.schedule import COORDINATOR, MODES, make_schedule

    modes = frozenset(mode for mode in MODES if getattr(options, mode))
    private = "private" in modes
    vehicles = options.vehicles or (15 if private else 5)
    check_kind(options.kind, secure=options.secure)
    if modes >= {"secure", "standby"}:
        raise UsageError(
            "--secure and --standby cannot go together: the audit of the former reads one coordinator's log"
        )
    if private and vehicles < LEAST_FLOOR + LEAST_COMPANY:
        raise UsageError(f"--private needs {LEAST_FLOOR + LEAST_COMPANY} vehicles, so that {LEAST_COMPANY} may be lost")
    with ended_by_sigterm(), workshop(options.keep, "chaos") as work:
        files = write_data(work / "data", vehicles, options.seed)
        schedule = make_schedule(options.seed, options.faults, list(files), modes)
        settings = Settings(schedule, files, options.seed, options.deadline, modes)
        # The coordinator and every other agent may send 4 KiB at once only, so that parts travel in every run.
        limits = {COORDINATOR: 4096} | {name: 4096 if index % 2 else 128 * 1024 for index, name in enumerate(files)}
        fleet = Fleet(work, files, options.kind, limits, modes)
        try:
            with progress("faults", options.faults) as bar:
                played = play(settings, fleet, bar)
            with progress("waiting for the outboxes to empty") as bar:
                bar.say("waiting for the outboxes to empty")
                evidence = gather(played, fleet)
        finally:
            fleet.close()
        with progress("comparing") as bar:
            bar.say("reading journal and logs, learning the central models")
            findings = examine(evidence, files)
        report = reports.document(settings, played, findings, evidence.stolen_identities)
    page = "\n".join(reports.lines(report))
    if options.report is not None:
        with os_faults_as(StorageError, f"cannot write the report {options.report}", "; choose another --report"):
            options.report.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
            options.report.with_name(options.report.name + ".txt").write_text(page + "\n", encoding="utf-8")
    click.echo(page, err=options.as_json)
    if options.as_json:
        print_json(report)
    if not report["ok"]:
        raise VerificationError(f"something did not hold; replay it with: {report['replay']} --keep DIR")
    return 0
