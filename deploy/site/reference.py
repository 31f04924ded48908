"""Renders docs/reference/cli.md from the commands: ``python -m deploy.site.reference > docs/reference/cli.md``."""

# ruff: noqa: E501 - lines of a Markdown table cannot be broken

from __future__ import annotations

import os

# Where state is kept depends on who asks; the page shows the rule, not one machine's folder.
os.environ["XDG_STATE_HOME"] = "~/.local/state"

import click

from console.main import cli

HEAD = """# The command line

Generated from the commands by `python -m deploy.site.reference`; a test keeps it so. Exit codes: [exit-codes.md](exit-codes.md).
Settings by file and environment: [configuration.md](configuration.md).

Data is printed on stdout, everything else on stderr. Errors are one line, `glassfleet: error: ...`, and say what to do.
"""

DEMO = """
### The summary of `glassfleet demo --json`

| key | what |
|---|---|
| `rounds` | list: `number`, `phase`, `kind`, `attempt`, the counts `asked`, `accepted`, `late`, `duplicate`, `rejected`, `dropped`, `seconds`, `bytes`, `dropped_agents` (id: reason), `late_agents` (ids: their answers came after the round had closed) |
| `cohort` | ids of the vehicles that the model rests on |
| `model` | `name`, `version`, `digest`, `complexity` |
| `verify` | `equal`, `promised` (whether the scheme promises it in this setting), `federated`, `central` (digests; central: one machine, the cohort's pooled rows, the run's domain; rows condensed vehicle by vehicle unless `exact`), `reason` when they differ |
| `rmse`, or `f1` for a classifier | on test rows, in the target's own unit (F1: mean over the classes): `local`, `federated`, `central` (means; central here: the rows of *all* vehicles), `per_vehicle` (id: `local`, `federated`, `central`, `in_cohort`) |
| `exact`, `joined_bins` | whether the vehicles used their rows as they are; small counts joined to a neighbour while the domain was found |
| `dropped`, `slow`, `rejoined` | ids: killed with SIGKILL, answering over a link slower than every deadline, started again |
| `scheme`, `participation`, `restarts`, `seconds`, `broker`, `seed` | how it ran |
"""


def render() -> str:
    """Return the page."""
    parts = [HEAD]
    _command(
        cli, click.Context(cli, info_name="glassfleet", terminal_width=100, help_option_names=["-h", "--help"]), parts
    )
    return "\n".join(parts).rstrip() + "\n"


def _command(command: click.Command, context: click.Context, parts: list[str]) -> None:
    parts.append(f"## {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n")
    if context.command_path == "glassfleet demo":
        parts.append(DEMO)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            # The settings of help output are those of the top: the same width and the same -h everywhere.
            _command(child, click.Context(child, parent=context, info_name=name, terminal_width=100), parts)


if __name__ == "__main__":
    print(render(), end="")
