"""What a shell completes with the Tab key: commands, options, and names of schemes, parameters, models and runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

from schemas.errors import GlassfleetError, UsageError
from schemas.private_files import state_home


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
