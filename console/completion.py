"""``glassfleet completion``: the script that makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from schemas.errors import UsageError

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
def completion(shell: str) -> None:
    """Print the script that lets SHELL (bash, zsh or fish) complete commands and options with the Tab key.

    \b
    bash:  eval "$(glassfleet completion bash)"   in ~/.bashrc
    zsh:   eval "$(glassfleet completion zsh)"    in ~/.zshrc, after compinit
    fish:  glassfleet completion fish > ~/.config/fish/completions/glassfleet.fish

    \b
    Examples:
      glassfleet completion bash
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"this click cannot complete for {shell}")
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "glassfleet", "_GLASSFLEET_COMPLETE").source())
