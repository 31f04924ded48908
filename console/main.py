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
    "First": {
        "demo": ("lab.demo.command:demo", "A fleet learns one model over MQTT while vehicles vanish and return.")
    },
    "On a vehicle": {
        "agent": ("console.vehicle.agent:agent", "Start the process on a vehicle; its rows stay with it."),
        "data": ("console.vehicle.data:data", "Make a table of a vehicle's files, or collect a live stream."),
        "forecast": (
            "console.vehicle.forecast:forecast",
            "Forecast live; explain and verify what was forecast.",
        ),
    },
    "Services": {
        "broker": ("console.services.broker:broker", "Start an MQTT broker for one machine, or watch its messages."),
        "coordinator": (
            "console.services.coordinator:coordinator",
            "Start the service that conducts runs; check its journal.",
        ),
        "ca": ("console.services.authority:ca", "Certificates: who may speak in the fleet."),
        "doctor": (
            "console.checkup.doctor:doctor",
            "Check this machine: packages, broker, coordinator, data.",
        ),
    },
    "For operators": {
        "fleet": ("console.operator.fleet:fleet", "List the vehicles that need attention, and why."),
        "run": ("console.operator.runs:run", "Start, schedule, follow and cancel trainings."),
        "model": ("console.operator.models:model", "Read, compare, export, try out and promote models."),
    },
    "For research": {
        "lab": ("console.lab:lab", "The papers' tables, experiments, data sets, and tests to destruction.")
    },
}
"""Heading -> name -> (where it is, one line of help)."""


def _complete(context: click.Context, _option: click.Parameter, shell: str | None) -> None:
    """Print the script of a shell, and end."""
    if shell is not None and not context.resilient_parsing:
        from console.completion import script

        click.echo(script(context.command, shell))
        context.exit()


@click.group(cls=LazyGroup, commands_table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--completion", type=click.Choice(["bash", "zsh", "fish"]), is_eager=True, expose_value=False, callback=_complete,
    help='Print what lets your shell complete commands and names, e.g. eval "$(glassfleet --completion bash)".',
)  # fmt: skip
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
