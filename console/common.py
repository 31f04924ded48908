"""What all commands share: lazy loading, options, files of settings, and writing JSON. Imports click alone."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from schemas.errors import BrokerError, StorageError, UsageError
from schemas.topics import DEFAULT_FLEET

EXTRAS = {
    "amqtt": "broker",
    "alembic": "coordinator",
    "fastapi": "coordinator",
    "sqlalchemy": "coordinator",
    "uvicorn": "coordinator",
    "httpx": "operator",
    "rich": "operator",
    "defusedxml": "operator",
    "jinja2": "coordinator",
    "matplotlib": "experiments",
    "mlflow": "mlflow",
    "sklearn": "experiments",
    "pyarrow": "parquet",
}
"""Which optional part of the package brings a module."""

ANONYMOUS_BROKER = "mqtt://127.0.0.1:1883"
"""Where a broker without a password is looked for when none is named."""

COMMANDLINE = ParameterSource.COMMANDLINE

F = TypeVar("F", bound=Callable[..., Any])


def missing_extra(fault: ModuleNotFoundError) -> str | None:
    """Return what to install when an optional package is missing; None when the module is not one of those."""
    module = (fault.name or "").partition(".")[0]
    extra = EXTRAS.get(module)
    if extra is None:
        return None
    return f"this needs the package {module}, which is not installed; install with: pip install 'glassfleet[{extra}]'"


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called; the list of commands imports none of them.

    Parameters
    ----------
    commands_table : mapping
        Name -> (``"module:attribute"``, one line of help).
    """

    def __init__(self, *args: Any, commands_table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = commands_table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of the table, which is the order of use."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a command."""
        if cmd_name not in self._table:
            return None
        module, _, attribute = self._table[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        _add_quiet(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])


def _add_quiet(command: click.Command) -> None:
    """Give ``--quiet`` to a command and those below it; services, which have a log level instead, are left as they are.

    Here and not at each command, so that none is forgotten.
    """
    if isinstance(command, click.Group):
        for child in command.commands.values():
            _add_quiet(child)
    elif not {"quiet", "log_level"} & {parameter.name for parameter in command.params}:
        text = "Say nothing on stderr but errors."
        command.params.append(
            click.Option(["--quiet", "-q"], is_flag=True, expose_value=False, callback=_hush, help=text)
        )


def _hush(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta["glassfleet.quiet"] = True
        nothing = ctx.with_resource(Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - the context closes it
        ctx.with_resource(redirect_stderr(nothing))


def is_quiet() -> bool:
    """Whether the running command was told to be quiet."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get("glassfleet.quiet"))


def rows_place(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse a database's password on the command line; a click callback for what names a vehicle's rows."""
    if value is not None and "://" in value and ctx.get_parameter_source(str(parameter.name)) is COMMANDLINE:
        from edge_agent.sources.location import refuse_password  # noqa: PLC0415 - numpy comes with it

        refuse_password(value, parameter.get_error_hint(ctx).strip("'"))
    return value


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """Show how far long work is, on stderr: a bar on a terminal, plain lines elsewhere.

    Parameters
    ----------
    what : str
        What is done, in a few words.
    total : int
        How many steps it has.

    Yields
    ------
    callable
        To be called after each step with a line that stays, or with an empty text.
    """
    lively = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if not lively or importlib.util.find_spec("rich") is None:
        yield lambda line: click.echo(line, err=True) if line else None
        return
    from rich.console import Console  # noqa: PLC0415 - only on a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bar:
        task = bar.add_task(what, total=total)

        def advance(line: str) -> None:
            if line:
                console.print(line, markup=False, soft_wrap=True)
            bar.advance(task)

        yield advance


def state_home() -> Path:
    """Return the folder for state when none is named: in ``$XDG_STATE_HOME``, else in ``~/.local/state``."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "glassfleet"


def _load_settings(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    """Make a TOML file's settings the defaults of the command: flags and environment stay stronger."""
    if value is None:
        return
    settings = read_toml(Path(value))
    known = {parameter.name for parameter in ctx.command.params if parameter.name not in ("config", "help", "quiet")}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise UsageError(
            f"{value}: unknown setting {unknown[0]!r}; {ctx.command_path} knows {', '.join(sorted(map(str, known)))}"
        )
    ctx.default_map = {**(ctx.default_map or {}), **settings}


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of settings; raises UsageError that says what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise UsageError(f"cannot read {path}: {fault.strerror}") from fault
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise UsageError(f"{path} is not valid TOML: {fault}") from fault


def config_option(function: F) -> F:
    """Add ``--config FILE``."""
    return click.option(
        "--config",
        envvar="GLASSFLEET_CONFIG",
        is_eager=True,
        expose_value=False,
        callback=_load_settings,
        metavar="FILE",
        help="TOML file; its keys are this command's long options with _ for -. Flags and environment are stronger.",
    )(function)


def state_dir_option(function: F) -> F:
    """Add ``--state-dir DIR``."""
    return click.option(
        "--state-dir",
        envvar="GLASSFLEET_STATE_DIR",
        type=click.Path(file_okay=False, path_type=Path),
        default=state_home,
        metavar="DIR",
        help="Where state is kept, and where broker-url, api-url and api-token are found.",
    )(function)


def broker_options(function: F) -> F:
    """Add ``--broker URL``, ``--fleet NAME`` and ``--state-dir DIR``."""
    function = state_dir_option(function)
    function = click.option(
        "--fleet",
        envvar="GLASSFLEET_FLEET",
        default=DEFAULT_FLEET,
        show_default=True,
        help="Fleet id: prefix of all topics.",
    )(function)
    return click.option(
        "--broker",
        envvar="GLASSFLEET_BROKER",
        metavar="URL",
        help="mqtt://[user[:password]@]host[:port]. Default: what `glassfleet broker` wrote to STATE_DIR/broker-url.",
    )(function)


def security_options(function: F) -> F:
    """Add ``--identity DIR`` and ``--insecure-plaintext``, for `broker_security`."""
    function = click.option(
        "--identity", envvar="GLASSFLEET_IDENTITY", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
        expose_value=False, callback=_remember, help="Identity folder for a broker at mqtts://.",
    )(function)  # fmt: skip
    return click.option(
        "--insecure-plaintext", envvar="GLASSFLEET_INSECURE_PLAINTEXT", is_flag=True, expose_value=False,
        callback=_remember, help="Allow mqtt:// to another machine, though others can read and change it.",
    )(function)  # fmt: skip


def _remember(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    ctx.meta[f"glassfleet.{parameter.name}"] = value


def broker_security() -> dict[str, Any]:
    """Return what the running command was told about TLS, as keyword arguments of `broker.port.Link`."""
    from broker.tls import tls_of  # noqa: PLC0415 - loaded when used

    context = click.get_current_context(silent=True)
    told = {} if context is None else context.meta
    return {
        "tls": tls_of(told.get("glassfleet.identity")),
        "insecure_plaintext": bool(told.get("glassfleet.insecure_plaintext")),
    }


def json_option(function: F) -> F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(function)


def broker_url(given: str | None, state_dir: Path) -> str:
    """Return the broker's URL; raises UsageError when none is given and none is found."""
    found = given or read_note(state_dir / "broker-url")
    if not found:
        raise UsageError(_no_broker(state_dir))
    return found


def _no_broker(state_dir: Path) -> str:
    return (
        f"no broker: give --broker URL (or GLASSFLEET_BROKER), or start one with `glassfleet broker` - "
        f"{state_dir / 'broker-url'} does not exist"
    )


def awaited_broker(state_dir: Path, wait: float, anonymous: str = ANONYMOUS_BROKER) -> str:
    """Return the URL of a broker that is about to start: a service may have been started together with it.

    Parameters
    ----------
    state_dir : Path
        Where ``glassfleet broker`` notes its URL.
    wait : float
        Seconds, at least 0; 0: for ever.
    anonymous : str
        A broker there is taken too, if it lets us in without a password.

    Raises
    ------
    BrokerError
        There was none within `wait` seconds.
    """
    from broker.paho_transport import connect_once  # noqa: PLC0415 - loaded when used
    from broker.port import Link  # noqa: PLC0415

    deadline = time.monotonic() + (wait or math.inf)
    told = False
    while True:
        found = read_note(state_dir / "broker-url")
        if found:
            return found
        try:
            connect_once(Link(anonymous, "probe"), timeout=2.0)
        except BrokerError:
            pass
        else:
            # One that is just starting may have written its note after we looked for it.
            return read_note(state_dir / "broker-url") or anonymous
        if time.monotonic() >= deadline:
            raise BrokerError(_no_broker(state_dir))
        if not told:
            told = True
            click.echo(f"no broker yet: waiting for {state_dir / 'broker-url'} of `glassfleet broker`", err=True)
        time.sleep(0.25)


def read_note(path: Path) -> str:
    """Return a one-line file's text; empty when there is no such file."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except OSError as fault:
        raise UsageError(f"cannot read {path}: {fault.strerror}") from fault


def parse_parameters(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Turn ``("n_sets=5", "inference=weighted_average")`` into a dict; values are JSON where they can be, else text."""
    parameters: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--param {pair!r}: write NAME=VALUE, e.g. --param n_sets=5")
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"--param {pair!r}: the value is not finite")
        parameters[name] = value
    return parameters


def count_or_share(text: str, what: str) -> int | float:
    """Read ``"3"`` as a number of agents and ``"0.5"`` as a share of them."""
    try:
        return float(text) if any(sign in text for sign in ".eE") else int(text)
    except ValueError:
        raise UsageError(f"{what} {text!r}: write a number of agents (3) or a share of them (0.5)") from None


def tell(text: str, *, as_json: bool, **facts: Any) -> None:
    """Say what was done: in words, or as JSON."""
    if as_json:
        print_json(facts)
    else:
        click.echo(text)


def print_json(value: Any) -> None:
    """Write JSON to stdout, with units of text unescaped."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def table_lines(rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,)) -> list[str]:
    """Return rows of text as lines of a table; the first is the header, bold on a terminal.

    Parameters
    ----------
    rows : sequence of sequence of str
        All of the same length.
    left : sequence of int
        Columns that begin at the left; the others, numbers, end at the right.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return [click.style(lines[0], bold=True), *lines[1:]]


@contextmanager
def workshop(keep: Path | None, name: str) -> Iterator[Path]:
    """Give a folder to work in.

    Parameters
    ----------
    keep : Path or None
        The folder that ``--keep`` names: made, and left there. None: one that is removed afterwards.
    name : str
        Whose folder it is, for the name of one that is removed.

    Raises
    ------
    UsageError
        The folder to keep is not empty.
    StorageError
        It cannot be made.
    """
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
            if any(keep.iterdir()):
                raise UsageError(f"--keep {keep} is not empty: name a new folder")
        except OSError as fault:
            raise StorageError(f"cannot make {keep}: {fault.strerror}; choose another folder for --keep") from fault
        yield keep.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix=f"glassfleet-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that every `finally` runs and no child is left."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
