"""Reads the ``glassfleet ...`` lines of a text as click would, without running them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from console.main import cli
from tests.support.processes import every_command

_START = re.compile(r"(?:^|(?<=[\s(;&|`]))glassfleet(?= [a-z-])")
_BEFORE = re.compile(r"(?:.*(?:[(;&|`$]|\b(?:do|then|else|until|while|if|exec|sudo|coordinator)|--|\b\w+=\S*))?")
"""What may stand before a command in a line."""
_PLACEHOLDER = re.compile(r"\.\.\.|[A-Z][A-Z0-9_|]*|FILE|NAME\|FILE")


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each ``glassfleet`` command in a text, without what the shell takes away."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        for each in _START.finditer(line):
            if _BEFORE.fullmatch(line[: each.start()].rstrip()):
                yield _arguments(line[each.end() :])


def _arguments(rest: str) -> list[str]:
    lexer = shlex.shlex(rest, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    try:
        for word in lexer:
            if re.fullmatch(r"[();<>|&]+", word):
                if words and words[-1] in {"1", "2"} and word.startswith(">"):
                    words.pop()
                break
            words.append(word)
    except ValueError:  # the quotation began before the command: "$(glassfleet ...)"
        return re.split("[\"']", rest, maxsplit=1)[0].split()
    return words


def fault(arguments: list[str], *, whole: bool) -> str | None:
    """Return what click would say against a command, or None.

    Parameters
    ----------
    whole : bool
        A command that a reader can type, not one that is named in passing: it must have all that is required.
    """
    whole = whole and not any(word == "..." for word in arguments)
    rest = [word for word in arguments if word != "..."]
    if not whole and rest and rest[-1].startswith("--"):
        # An option that is named in passing may stand without its value.
        return _fault([*rest, "VALUE"], whole=False) and _fault(rest, whole=False)
    return _fault(rest, whole=whole)


def _fault(rest: list[str], *, whole: bool) -> str | None:
    command: click.Command = cli
    context = click.Context(cli, info_name="glassfleet")
    while True:
        try:
            values, rest, _ = command.make_parser(context).parse_args(list(rest))
        except click.UsageError as error:
            return error.format_message()
        wrong = _wrong_value(command, context, values)
        if wrong is not None:
            return wrong
        if not isinstance(command, click.Group) or not rest:
            break
        below = command.get_command(context, rest[0])
        if below is None:
            return None if _PLACEHOLDER.fullmatch(rest[0]) else f"no such command: {rest[0]}"
        command, rest = below, rest[1:]
        context = click.Context(command, info_name=command.name, parent=context)
    if not isinstance(command, click.Group) and rest:
        return f"too many arguments: {rest}"
    return _missing(command, context, values) if whole else None


def _missing(command: click.Command, context: click.Context, values: dict[str, object]) -> str | None:
    for param in command.params:
        if param.required and param.value_is_missing(values.get(str(param.name))):
            return f"{param.get_error_hint(context)} is missing"
    if isinstance(command, click.Group) and not command.invoke_without_command:
        return "a command is missing"
    return None


def _wrong_value(command: click.Command, context: click.Context, values: dict[str, object]) -> str | None:
    for param in command.params:
        given = values.get(str(param.name))
        if not isinstance(param.type, click.Choice | click.types.IntParamType | click.types.FloatParamType):
            continue
        for value in given if isinstance(given, list | tuple) else [given]:
            if not isinstance(value, str) or _PLACEHOLDER.fullmatch(value):
                continue
            try:
                param.type(value, param, context)
            except click.UsageError as error:
                return error.format_message()
    return None


def all_options() -> set[str]:
    """Return every long option of every command."""
    commands = [cli, *(command for _, command in every_command())]
    options = [each for command in commands for each in command.params if not getattr(each, "hidden", False)]
    return {"--help"} | {name for each in options for name in [*each.opts, *each.secondary_opts] if name[:2] == "--"}
