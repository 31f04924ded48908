"""All commands of the command line."""

from __future__ import annotations

from collections.abc import Iterator

import click

from console.main import cli


def every_command(group: click.Group = cli, path: str = "glassfleet") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from every_command(command, f"{path} {name}")
