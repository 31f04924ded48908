"""``glassfleet demo``: the whole thing on one machine, with real processes."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from console.common import config_option, parse_parameters, print_json
from schemas.errors import StorageError, UsageError, VerificationError

if TYPE_CHECKING:
    from qoe.demo.conduct import Result

TOP_RULES = 5


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
    default="cohort",
    show_default=True,
    help="One set of vehicles for the whole model, or whoever answers each round.",
)
@click.option(
    "--data", type=click.Path(path_type=Path), metavar="DIR", help="Real vehicles: a file each. Default: simulated."
)
@click.option("--target", metavar="COLUMN", help="Target column of --data. Default: the last one.")
@click.option("--scheme", default="frt", show_default=True, help="What to learn.")
@click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help="Parameter of the scheme; repeatable.")
@click.option(
    "--nullify", is_flag=True, help="Vehicles nullify statistics that would give rows away, in the run itself."
)
@click.option(
    "--broker-kind",
    type=click.Choice(["auto", "embedded", "mosquitto"]),
    default="auto",
    show_default=True,
    help="auto: Mosquitto when it is found, else the embedded one.",
)
@click.option(
    "--deadline", type=click.FloatRange(0.2, 3600), default=2.5, show_default=True, metavar="SECONDS", help="Per round."
)
@click.option(
    "--pace", type=click.FloatRange(0, 60), default=0.2, show_default=True, metavar="SECONDS",
    help="Time that each vehicle takes to answer, so that there is something to watch.",
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
@click.option("--plain", is_flag=True, help="Plain lines even on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Summary as JSON on stdout; everything else on stderr.")
@config_option
def demo(**options: Any) -> int:
    """Let a fleet learn one explainable model over MQTT while some vehicles vanish, lag and come back.

    Broker, coordinator and every vehicle are processes of their own. At the end the model is compared with the one that
    a central server would have learned from the rows of the vehicles that finished: the digests are equal, bit for bit.

    Exit codes: 0 the model exists (and, with --participation cohort and without --nullify, the digests are equal);
    8 the digests differ; 6 the run failed.

    Example: glassfleet demo --drop 0.3 --seed 7 --json
    """
    from console.client import Coordinator  # noqa: PLC0415 - what the demo needs is loaded when it is called
    from console.display import watching  # noqa: PLC0415
    from console.report import report_lines, summary  # noqa: PLC0415
    from qoe.demo.conduct import conduct  # noqa: PLC0415

    with _ended_by_sigterm(), _workshop(options["keep"]) as work:
        with watching(plain=options["plain"]) as watcher:
            settings = _settings(options, work)
            plan = settings.plan
            nullification = "on" if options["nullify"] else "off (so that equality shows)"
            watcher.say(
                f"{len(settings.files)} vehicles: {len(plan.kills)} will be killed, {len(plan.returns)} of them come "
                f"back, {len(plan.slow)} are too slow; nullification {nullification}"
            )
            result: Result = conduct(settings, lambda folder: Coordinator(None, None, folder), watcher)
        if options["keep"] is not None:
            (work / "model.json").write_bytes(result.record.to_bytes())
    click.echo("\n".join(report_lines(result, nullify=options["nullify"], top=TOP_RULES)), err=options["as_json"])
    if options["as_json"]:
        print_json(summary(result, options))
    promised = options["participation"] == "cohort" and not options["nullify"]
    if promised and _promises_equality(result) and not result.verdict.equal:
        verdict = result.verdict
        raise VerificationError(
            f"the fleet's model {verdict.federated} is not the central one of its cohort, {verdict.central}"
        )
    return 0


def _promises_equality(result: Result) -> bool:
    from glassfleet import catalogue  # noqa: PLC0415

    return catalogue.load(result.record.scheme).equals_central


def _settings(options: dict[str, Any], work: Path) -> Any:
    from pydantic import ValidationError  # noqa: PLC0415

    from glassfleet import catalogue  # noqa: PLC0415
    from qoe.demo.conduct import Settings  # noqa: PLC0415
    from qoe.demo.plan import make_plan  # noqa: PLC0415
    from qoe.demo.vehicles import real_files, simulated_files  # noqa: PLC0415
    from qoe.windows import BOUNDS  # noqa: PLC0415

    if options["pace"] > 0.8 * options["deadline"]:
        raise UsageError(
            f"--pace {options['pace']} leaves no time before --deadline {options['deadline']}: make it smaller"
        )
    scheme = catalogue.load(options["scheme"])
    if options["participation"] not in scheme.participation:
        raise UsageError(f"scheme {scheme.name} takes part only in: {', '.join(sorted(scheme.participation))}")
    try:
        parameters = scheme.Parameters.model_validate(parse_parameters(options["parameters"]))
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False)[0]
        raise UsageError(f"--param {'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from fault
    if not options["nullify"]:
        parameters = scheme.exact(parameters)
    if options["data"] is not None:
        files = real_files(options["data"], options["vehicles"])
    else:
        if options["target"] is not None:
            raise UsageError("--target goes with --data; the simulated vehicles have their own target")
        files = simulated_files(work / "data", options["vehicles"] or 15, options["seed"])
    return Settings(
        files=files,
        plan=make_plan(list(files), options["drop"], options["slow"], options["rejoin"], options["seed"]),
        work=work,
        scheme=scheme.name,
        parameters=parameters.model_dump(mode="json"),
        participation=options["participation"],
        deadline=options["deadline"],
        pace=options["pace"],
        broker_kind=options["broker_kind"],
        bounds=None if options["data"] is not None else BOUNDS,
        target=options["target"],
        seed=options["seed"],
        timeout=options["timeout"],
    )


@contextmanager
def _workshop(keep: Path | None) -> Iterator[Path]:
    """Give a folder to work in: the one to keep, or one that is removed afterwards."""
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
            if any(keep.iterdir()):
                raise UsageError(f"--keep {keep} is not empty: name a new folder")
        except OSError as fault:
            raise StorageError(f"cannot make {keep}: {fault.strerror}; choose another folder for --keep") from fault
        yield keep.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="glassfleet-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that every `finally` runs and no child is left."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
