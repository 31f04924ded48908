"""What all commands share: options, files of settings, and writing results. Imports click alone."""

from __future__ import annotations

import json
import math
import shutil
import signal
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from console.interrupts import raise_interrupt
from schemas.errors import DataError, StorageError, UsageError, os_faults_as
from schemas.private_files import make_folders, state_home
from schemas.text import number_of, show_hidden, without_password
from schemas.topics import DEFAULT_FLEET

COMMANDLINE = ParameterSource.COMMANDLINE

STOP_POLL = 0.2
"""Seconds between two looks at a `StopFlag`: a signal's handler wakes nobody who sleeps."""

F = TypeVar("F", bound=Callable[..., Any])
Options = TypeVar("Options")
Result = TypeVar("Result")


def options_as(kind: type[Options]) -> Callable[[Callable[[Options], Result]], Callable[..., Result]]:
    """Hand a command its options as one value of the dataclass `kind`; the decorator nearest to the function.

    Each option and argument of the command is a field of `kind`, by the name that click passes it under.
    """

    def decorate(command: Callable[[Options], Result]) -> Callable[..., Result]:
        @wraps(command)
        def call(**given: Any) -> Result:
            return command(kind(**given))

        return call

    return decorate


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """What `broker_options` adds."""

    broker: str | None
    fleet: str
    state_dir: Path


def rows_place(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse a database's password on the command line; a click callback for what names rows: a file or a URL.

    The value stays a text: a path has no ``//``, so that it could be neither read nor shown without its password.
    """
    if value is not None and "://" in value and ctx.get_parameter_source(str(parameter.name)) is COMMANDLINE:
        from edge_agent.sources.location import refuse_password  # numpy comes with it

        refuse_password(value, parameter.get_error_hint(ctx).strip("'"))
    return value


class RowsFile(click.Path):
    """Files or folders of rows, where no URL is read: one is refused, without its password."""

    def __init__(self, *, dir_okay: bool = True) -> None:
        super().__init__(dir_okay=dir_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; raises UsageError for a URL."""
        if param is not None and "://" in str(value):
            hint = param.get_error_hint(ctx).strip("'")
            raise UsageError(f"{hint} {without_password(value)}: only files are read here, no URLs")
        return super().convert(value, param, ctx)


def rows_there(path: Path) -> Path:
    """Return where rows are; raises DataError, with sets for everybody, when nothing is there."""
    if not path.exists():
        way = "Check its name. Rows that need no download: glassfleet lab datasets fetch diabetes --data-dir ."
        raise DataError("there is no such file or folder", way, str(path))
    return path


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of settings; raises UsageError that says what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise UsageError(f"cannot read {path}: {fault.strerror}") from fault
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise UsageError(f"{path} is not valid TOML: {fault}") from fault


def file_option(*names: str, **more: Any) -> Callable[[F], F]:
    """Add an option that names a file; `more` is as of ``click.option``."""
    return click.option(*names, type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", **more)


def folder_option(*names: str, **more: Any) -> Callable[[F], F]:
    """Add an option that names a folder; `more` is as of ``click.option``."""
    return click.option(*names, type=click.Path(file_okay=False, path_type=Path), metavar="DIR", **more)


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


def authority_dir() -> Path:
    """Return the authority's folder when none is named."""
    return state_home() / "ca"


def ca_dir_option(function: F) -> F:
    """Add ``--ca-dir DIR``."""
    return click.option(
        "--ca-dir", envvar="GLASSFLEET_CA_DIR", type=click.Path(file_okay=False, path_type=Path), default=authority_dir,
        metavar="DIR", help="The authority's folder. Default: STATE_DIR/ca.",
    )(function)  # fmt: skip


def fleet_option(function: F, words: str = "Fleet id.") -> F:
    """Add ``--fleet NAME``."""
    return click.option("--fleet", envvar="GLASSFLEET_FLEET", default=DEFAULT_FLEET, show_default=True, help=words)(
        function
    )


def broker_options(function: F) -> F:
    """Add ``--broker URL``, ``--fleet NAME`` and ``--state-dir DIR``."""
    function = fleet_option(state_dir_option(function), "Fleet id: prefix of all topics.")
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
    from broker.tls import tls_of

    context = click.get_current_context(silent=True)
    result = {} if context is None else context.meta
    return {
        "tls": tls_of(result.get("glassfleet.identity")),
        "insecure_plaintext": bool(result.get("glassfleet.insecure_plaintext")),
    }


def token_file_option(function: F) -> F:
    """Add ``--token-file FILE``."""
    return click.option(
        "--token-file", envvar="GLASSFLEET_DATA_TOKEN_FILE", type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE", help="File with the token for a databroker.",
    )(function)  # fmt: skip


def ca_file_option(variable: str) -> Callable[[F], F]:
    """Add ``--ca-file FILE``, which an environment variable can give too."""
    return click.option(
        "--ca-file", envvar=variable, type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
        help="Certificate authority for mqtts or kuksas, in place of the identity's or the system's.",
    )  # fmt: skip


def json_option(function: F) -> F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(function)


def param_option(words: str) -> Callable[[F], F]:
    """Add ``--param NAME=VALUE``, as ``pairs`` for `parse_parameters`."""
    return click.option("--param", "pairs", multiple=True, metavar="NAME=VALUE", help=words)


def parse_parameters(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Turn ``("n_sets=5", "inference=weighted_average")`` into a dict; values are JSON where they can be, else text."""
    parameters: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--param {pair!r}: write NAME=VALUE, e.g. --param max_rules=5")
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"--param {pair!r}: the value is not finite")
        parameters[name] = value
    return parameters


def count_or_share(text: str, what: str) -> int | float:
    """Read ``"3"`` as a number of agents, and ``"0.5"`` or ``"50%"`` as a share of them."""
    try:
        return number_of(text)
    except ValueError:
        raise UsageError(f"{what} {text!r}: write a number of agents (3) or a share of them (0.5)") from None


def tell(text: str, /, *, as_json: bool, **facts: object) -> None:
    """Say what was done: in words, or as JSON."""
    if as_json:
        print_json(facts)
    else:
        click.echo(text)


def print_json(value: Any) -> None:
    """Write JSON to stdout: letters and units as they are, hidden characters escaped."""
    click.echo(show_hidden(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)))


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
        with os_faults_as(StorageError, f"cannot make {keep}", "; choose another folder for --keep"):
            make_folders(keep)
            if any(keep.iterdir()):
                raise UsageError(f"--keep {keep} is not empty: name a new folder")
        yield keep.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix=f"glassfleet-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class StopFlag:
    """Whether SIGTERM or Ctrl-C has come, from the moment that this is made; for the main thread.

    No `threading.Event`: its lock would wait for itself where a second signal interrupts the handler of the first.
    """

    def __init__(self) -> None:
        self._is_set = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._set)

    def _set(self, _number: int, _frame: FrameType | None) -> None:
        self._is_set = True

    def wait(self, seconds: float) -> bool:
        """Return whether one has come, after at most `seconds`."""
        end = time.monotonic() + seconds
        while not self._is_set and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, STOP_POLL))
        return self._is_set


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that every `finally` runs and no child is left."""
    before = signal.signal(signal.SIGTERM, raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def json_file(path: Path, what: str) -> Any:
    """Read the JSON file of option --`what`; raises UsageError."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise UsageError(f"--{what}: cannot read {path}: {fault.strerror}") from fault
    except (ValueError, RecursionError) as fault:
        raise UsageError(f"--{what}: {path} is not valid JSON: {fault}") from fault


def broker_kind_option(function: F) -> F:
    """Add ``--kind``: which broker is started."""
    return click.option(
        "--kind",
        type=click.Choice(["auto", "embedded", "mosquitto"]),
        default="auto",
        show_default=True,
        help="auto: Mosquitto when it is found, else the embedded one.",
    )(function)


def check_kind(kind: str, *, secure: bool) -> None:
    """Raise UsageError for ``--secure`` with a broker that has no TLS."""
    if secure and kind == "embedded":
        raise UsageError("--secure needs Mosquitto: the embedded broker has no TLS")


def policy_option(words: str) -> Callable[[F], F]:
    """Add ``--policy FILE``, as ``policy_file``."""
    return click.option("--policy", "policy_file", type=click.Path(path_type=Path), metavar="FILE", help=words)


def keep_option(function: F) -> F:
    """Add ``--keep DIR``, for `workshop`."""
    return click.option(
        "--keep", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Work in DIR and keep it."
    )(function)


def reason_option(words: str = "Why.", *, required: bool = False) -> Callable[[F], F]:
    """Add ``--reason TEXT``."""
    if required:
        return click.option("--reason", required=True, metavar="TEXT", help=words)
    return click.option("--reason", default="", metavar="TEXT", help=words)


def version_argument(function: F) -> F:
    """Add the argument NAME@VERSION, as ``chosen``: name and version."""

    def parsed(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, int]:
        name, version = versioned(text)
        if version is None:
            raise UsageError(f"which version of {name}? Write {name}@VERSION (see: glassfleet model list)")
        return name, version

    return click.argument("chosen", metavar="NAME@VERSION", callback=parsed)(function)


def versioned(text: str) -> tuple[str, int | None]:
    """Return name and version of NAME or NAME@VERSION; None is the current one. Raises UsageError."""
    name, mark, number = text.partition("@")
    if not mark:
        return text, None
    if not (number.isdecimal() and number.isascii()):
        raise UsageError(f"{text!r}: write NAME@VERSION, e.g. {name or 'qoe'}@3")
    return name, int(number)
