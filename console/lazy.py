"""Commands that are imported when they are called, with ``--quiet`` for each; what a shell completes of them."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from schemas.errors import GlassfleetError, UsageError
from schemas.private_files import state_home

EXTRAS = {
    "amqtt": "broker",
    "apprise": "notify",
    "fastapi": "coordinator",
    "immutables": "coordinator",
    "sqlalchemy": "coordinator",
    "uvicorn": "coordinator",
    "httpx": "operator",
    "rich": "operator",
    "jinja2": "coordinator",
    "matplotlib": "experiments",
    "sklearn": "experiments",
    "pyarrow": "parquet",
    "can": "can",
    "cantools": "can",
    "kuksa_client": "kuksa",
}
"""Which optional part of the package brings a module."""


def missing_extra(fault: ModuleNotFoundError) -> str | None:
    """Return what to install when an optional package is missing; None when the module is not one of those."""
    module = (fault.name or "").partition(".")[0]
    if module == "lab":
        return "this is a command of the laboratory, the package lab, which is left out here: install all of glassfleet"
    extra = EXTRAS.get(module)
    if extra is None:
        return None
    return f"this needs the package {module}, which is not installed; install with: pip install 'glassfleet[{extra}]'"


def meant(fault: click.UsageError) -> str | None:
    """Return "No such command" with the nearest ones there are, at any level; None for other faults.

    Here for all groups alike: what click itself suggests depends on its version, and it does not see commands that are
    not imported yet.
    """
    group = None if fault.ctx is None else fault.ctx.command
    unknown = re.match(r"No such command '(.*)'", fault.message)
    if unknown is None or not isinstance(group, click.Group) or fault.ctx is None:
        return None
    from difflib import get_close_matches  # for those who mistype only

    near = get_close_matches(unknown[1].lower(), group.list_commands(fault.ctx))
    text = f"No such command {unknown[1]!r}."
    if not near:
        return text
    return f"{text} Did you mean {' or '.join(f'{fault.ctx.command_path} {name}' for name in near)}?"


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called; the list of commands imports none of them.

    Parameters
    ----------
    commands_table : mapping
        Heading -> name -> (``"module:attribute"``, one line of help).
    """

    def __init__(self, *args: Any, commands_table: Mapping[str, Mapping[str, tuple[str, str]]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._headings = commands_table

    @property
    def _table(self) -> dict[str, tuple[str, str]]:
        return {name: place for commands in self._headings.values() for name, place in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of the table, which is the order of use."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; a shell that asks what it may complete gets names, too."""
        table = self._table
        if cmd_name not in table:
            return None
        module, _, attribute = table[cmd_name][0].partition(":")
        try:
            command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError:
            if not ctx.resilient_parsing:
                raise
            return click.Command(cmd_name, help=table[cmd_name][1])  # completion needs no more
        assert isinstance(command, click.Command)
        _add_quiet(command)
        if ctx.resilient_parsing:
            from console.lazy import complete_names

            complete_names(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands from the table."""
        for heading, commands in self._headings.items():
            with formatter.section(heading):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])


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


# --- what a shell completes with the Tab key: commands, options, and names of schemes, parameters, models and runs ----


def script(root: click.Command, shell: str) -> str:
    """Return the script that lets a shell (bash, zsh or fish) complete commands, options and names with the Tab key.

    Names of models and runs are those of the coordinator that the command would ask. Raises UsageError.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"this click cannot complete for {shell}")
    return kind(root, {}, "glassfleet", "_GLASSFLEET_COMPLETE").source()


class Names(click.types.StringParamType):
    """Text that the shell completes to one of the names that there are.

    Parameters
    ----------
    known : callable
        Returns the names, from what the command was given so far.
    """

    def __init__(self, known: Callable[[click.Context], Iterable[str]]) -> None:
        self._known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Return the names that begin like `incomplete`; none where they cannot be found out."""
        try:
            return [CompletionItem(name) for name in self._known(ctx) if name.startswith(incomplete)]
        except (GlassfleetError, ImportError, OSError, LookupError, TypeError):
            return []


def complete_names(command: click.Command) -> None:
    """Let the shell complete the names that a command and those below it take; of ``ca``, names are identities.

    Here and not at each command, so that none is forgotten.
    """
    if command.name == "ca":
        return
    if isinstance(command, click.Group):
        for child in command.commands.values():
            complete_names(child)
    for parameter in command.params:
        is_name = isinstance(parameter, click.Argument) and parameter.name in ("name", "old", "new")
        if "--scheme" in parameter.opts:
            parameter.type = Names(_schemes)
        elif "--param" in parameter.opts:
            parameter.type = Names(_parameters)
        elif parameter.name == "run_id" and isinstance(parameter, click.Argument):
            parameter.type = Names(lambda given: _asked(given, "/api/runs", "run"))
        elif parameter.name == "schedule_name" and command.name != "add":
            parameter.type = Names(lambda given: _asked(given, "/api/schedules", "name"))
        elif is_name or "--model" in parameter.opts:
            parameter.type = Names(lambda given: _asked(given, "/api/models", "name"))


def _schemes(_given: click.Context) -> list[str]:
    from glassfleet.contract import catalogue

    return catalogue.names()


def _parameters(given: click.Context) -> list[str]:
    from glassfleet.contract import catalogue
    from glassfleet.schemes import DEFAULT

    return [f"{name}=" for name in catalogue.load(given.params.get("scheme") or DEFAULT).Parameters.model_fields]


def _asked(given: click.Context, path: str, key: str) -> list[str]:
    """Return the names that the coordinator knows, newest first."""
    from console.client import CoordinatorClient

    api = CoordinatorClient(given.params.get("coordinator"), None, given.params.get("state_dir") or state_home())
    answer = api.get(path)
    items = answer.get(path.rpartition("/")[2], []) if isinstance(answer, dict) else answer
    return list(dict.fromkeys(str(item[key]) for item in reversed(items)))
