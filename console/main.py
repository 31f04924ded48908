"""The command line's entry: subcommands loaded when used, faults told in one line with a documented exit code.

``glassfleet agent`` on a vehicle must not import what only the cloud needs, so this module and :mod:`console.lazy`
import nothing but click and the standard library; each command's module is imported when it is called.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from typing import Any, NoReturn

# Many processes share a machine in demonstrations and on small vehicles; one BLAS thread each is also what the measured
# speed rests on. It has to be said before numpy is imported for the first time.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
# Modules are a few hundred thousand objects that stay. Python would look for garbage among them after every 700 new
# ones, which takes a seventh of a coordinator's start (measured).
gc.set_threshold(10_000)
# Pydantic would look for plugins in everything that is installed; we have none. Set to nothing, it looks.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

# Before the first import that takes long: Ctrl-C may come while modules are loaded.
from console.interrupts import handle_interrupts  # noqa: E402

handle_interrupts()

import click  # noqa: E402 - see above

from console.lazy import LazyGroup, meant, missing_extra  # noqa: E402
from schemas.errors import GlassfleetError  # noqa: E402

COMMANDS = {
    "demo": ("lab.demo.command:demo", "A fleet learns one model over MQTT while vehicles vanish, lag and come back."),
    "broker": (
        "console.services.broker:broker",
        "Start a broker for one machine: Mosquitto when found, else the embedded one.",
    ),
    "coordinator": (
        "console.services.coordinator:coordinator",
        "Start the cloud service that opens and closes rounds.",
    ),
    "journal": ("console.services.journal:journal", "Verify a coordinator's journal, export what can be read of it."),
    "ca": ("console.services.authority:ca", "Decide who may speak: certificates, tokens for vehicles, revocation."),
    "data": (
        "console.vehicle.data:data",
        "Check a vehicle's rows, and keep a window over a live stream to learn from.",
    ),
    "agent": ("console.vehicle.agent:agent", "Start the process on a vehicle; its rows stay with it."),
    "ledger": ("console.vehicle.ledger:ledger", "List what a vehicle has told: each run, with whom, how protected."),
    "fleet": ("console.run.fleet:fleet", "List the vehicles that need somebody, and why."),
    "week": ("console.model.week:week", "Say what changed this week: is it better, what changed, who needs me."),
    "run": ("console.run.runs:run", "Start, list, show and cancel federated trainings."),
    "schedule": ("console.run.schedules:schedule", "Start a run every night, or whenever it is due, without hands."),
    "model": ("console.model.commands:model", "List, read and use published models: rules, forecasts, explanations."),
    "rollout": (
        "console.run.rollouts:rollout",
        "Try a model on a part of the fleet first; promoted by what it reports.",
    ),
    "forecast": (
        "console.vehicle.forecast:forecast",
        "Forecast live on a vehicle, explain and log each; verify the log.",
    ),
    "explain": ("console.vehicle.forecast:explain", "Say why a vehicle forecast what it did at a time, from its log."),
    "report": ("console.model.export:report", "Write the report of a run: one file, pictures inside."),
    "tap": ("console.services.tap:tap", "Print the fleet's messages, decoded, as they pass."),
    "audit": ("console.services.audit:audit", "Measure what learning gives away: attacks on what vehicles sent."),
    "experiment": (
        "lab.experiments.command:experiment",
        "Run a paper's protocol on a CSV file: local, federated, central.",
    ),
    "chaos": (
        "lab.chaos.command:chaos",
        "Break a fleet in every way, and check that nothing is lost or counted twice.",
    ),
    "conformance": (
        "lab.conformance.command:conformance",
        "Check an agent in whatever language against the protocol.",
    ),
    "papers": ("lab.papers.command:papers", "Make the papers' tables and figures, printed value beside ours."),
    "datasets": (
        "lab.datasets.command:datasets",
        "List, fetch and verify the papers' datasets; prepare the QoE set.",
    ),
    "doctor": ("console.checkup.doctor:doctor", "Check this machine: packages, broker, coordinator, data, folders."),
    "completion": ("console.completion:completion", "Print the script that lets your shell complete commands."),
}


class Commands(LazyGroup):
    """The commands; a shell that asks what it may complete gets names, too."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and ctx.resilient_parsing:
            from console.completion import complete_names

            complete_names(command)
        return command


@click.group(cls=Commands, commands_table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="glassfleet", prog_name="glassfleet")
def cli() -> None:
    """Glassfleet: a fleet of vehicles learns one explainable model over MQTT.

    Every command has examples in its --help. Data is printed on stdout, all else on stderr; colours and progress bars
    come on a terminal only, and no colours with NO_COLOR in the environment.

    \b
    Examples:
      glassfleet demo
      glassfleet data import vehicle-07.csv --out drive.parquet
      glassfleet run start --model qoe --wait
    """


def main() -> NoReturn:
    """Run the command line and leave with a documented exit code (docs/reference/exit-codes.md)."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; return its exit code. Faults of users and peers are one line on stderr, never a traceback."""
    try:
        return _invoke_and_report(arguments)
    except BrokenPipeError:
        # The reader (head, less) has enough; what is still buffered has nowhere to go.
        for stream in (sys.stdout, sys.stderr):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 141


def _invoke_and_report(arguments: list[str]) -> int:
    """Run one command and tell its fault, if there is one; raises BrokenPipeError when nobody reads that."""
    try:
        code = _invoke(arguments)
    except click.exceptions.NoArgsIsHelpError as fault:
        print(fault.format_message(), file=sys.stderr)  # noqa: T201
        return 2
    except click.UsageError as fault:
        where = f" (see: {fault.ctx.command_path} --help)" if fault.ctx is not None else ""
        # Click calls a bounded number an "integer range", which no user gave.
        result = (meant(fault) or fault.format_message()).replace("a valid integer range", "a whole number")
        return _tell(f"{result.replace('a valid float range', 'a number')}{where}", 2)
    except click.ClickException as fault:
        return _tell(fault.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        return _tell("interrupted", 130)
    except GlassfleetError as fault:
        return _tell(str(fault), fault.exit_code)
    except ModuleNotFoundError as fault:
        advice = missing_extra(fault)
        if advice is None:
            raise
        return _tell(advice, 2)
    except OSError as fault:
        if fault.errno not in (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT, errno.ENOENT, errno.ENOTDIR):
            raise
        name = f" ({fault.filename})" if fault.filename else ""
        return _tell(f"{fault.strerror}{name}: free or choose another place", 5)
    return code if isinstance(code, int) else 0


def _invoke(arguments: list[str]) -> Any:
    stdout, stderr = sys.stdout, sys.stderr
    # An empty NO_COLOR counts as none (no-color.org); None leaves it to whether the stream is a terminal.
    color = False if os.environ.get("NO_COLOR") else None
    try:
        return cli.main(args=arguments, prog_name="glassfleet", standalone_mode=False, color=color)
    except SystemExit:
        # Of a reader that went away click makes an exit code of its own, and puts something in front of stdout.
        if sys.stdout is stdout:
            raise
        sys.stdout = stdout
        raise BrokenPipeError from None
    finally:
        # --quiet is undone by its context, but for a command line that is refused while it is read.
        sys.stderr = stderr


def _tell(text: str, code: int) -> int:
    line = " ".join(str(text).split())
    print(f"glassfleet: error: {line}", file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    main()
