"""Commands that are imported when they are called, and ``--quiet`` for each of them. Imports click alone."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import click

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
            from console.completion import complete_names

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
