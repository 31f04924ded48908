"""Renders docs/reference/settings.md: ``python -m deploy.site.limits_page > docs/reference/settings.md``."""

# ruff: noqa: E501 - lines of a Markdown table cannot be broken

from __future__ import annotations

from typing import cast

import annotated_types
import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from console.main import cli
from console.settings import descriptions
from coordinator.config import CoordinatorConfig
from coordinator.specification.rollout import RolloutPlan
from coordinator.specification.run import RoundPolicy
from edge_agent.config import AgentConfig
from edge_agent.forecast.config import ForecastConfig
from schemas.settings import Settings, settings_of
from schemas.text import attributes

HEAD = """# Settings

What an operator can change, with the reason why somebody would. Generated from the code by `python -m deploy.site.limits_page`; a test
keeps it so. How settings are given: [configuration.md](configuration.md). What happens at the limits:
[failure-model.md](../explanation/failure-model.md). Why other numbers are no settings: [ADR 8](../adr/0008-what-is-not-a-setting.md).

*agent*, *coordinator* and *forecast*: a flag, an environment variable or a key of the TOML file. A name of a command: its option. *run*:
a key of `policy` when a run is started, or a flag of `glassfleet run start`. *rollout*: a key of `plan` when a rollout is started.

| of | setting | default | range | what | why change it |
|---|---|---|---|---|---|
"""

PROCESSES: tuple[type[Settings], ...] = (AgentConfig, CoordinatorConfig, ForecastConfig)

POLICIES: tuple[tuple[str, type[BaseModel]], ...] = (("run", RoundPolicy), ("rollout", RolloutPlan))

_AUTHORITY = {"timeout": "a satellite link.", "max_answer_bytes": "a revocation list of many thousands."}

COMMANDS = {"agent enrol": _AUTHORITY, "agent renew": _AUTHORITY}
"""Options of commands that bound something, where a process has no configuration class of its own; and why."""

Row = tuple[str, str, str, str, str, str]


def rows() -> list[Row]:
    """Return the table: of, setting, default, range, what, why."""
    services: dict[tuple[str, ...], list[str]] = {}
    for process in PROCESSES:
        described = descriptions(process)
        for key, (_, _, field, _) in settings_of(process).items():
            row = (f"`{key}`", _default(field), _range(field), *described[key])
            services.setdefault(row, []).append(process.service)
    table: list[tuple[str, ...]] = [(", ".join(of), *row) for row, of in services.items()]
    table += [_option_row(command, name, why) for command, names in COMMANDS.items() for name, why in names.items()]
    for of, model in POLICIES:
        whats = attributes(model)
        table += [
            (of, f"`{name}`", _default(field), _range(field), whats[name], "")
            for name, field in model.model_fields.items()
        ]
    return cast("list[Row]", table)


def render() -> str:
    """Return the page."""
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows())


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = None if field.default_factory is not None else field.get_default()
    return "" if default in (None, "") else f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _option_row(command: str, name: str, why: str) -> Row:
    group: click.Command = cli
    for word in command.split():
        assert isinstance(group, click.Group)
        known = group.get_command(click.Context(group), word)
        assert known is not None, command
        group = known
    option = next(each for each in group.params if each.name == name)
    assert isinstance(option, click.Option)
    kind = option.type
    assert isinstance(kind, click.IntRange | click.FloatRange), f"{command}: {name} has no range"
    words = [
        f"{'>' if kind.min_open else '≥'} {kind.min}" if kind.min is not None else "",
        f"{'<' if kind.max_open else '≤'} {kind.max}" if kind.max is not None else "",
    ]
    return command, f"`{option.opts[0]}`", f"`{option.default}`", ", ".join(filter(None, words)), str(option.help), why


def _range(field: FieldInfo) -> str:
    bounds = [*field.metadata]
    for part in getattr(field.annotation, "__args__", ()):
        bounds += getattr(part, "__metadata__", ())
    for bound in list(bounds):
        bounds += getattr(bound, "metadata", ())
    words = []
    for bound in bounds:
        match bound:
            case annotated_types.Ge(ge=low):
                words.append(f"≥ {low}")
            case annotated_types.Gt(gt=low):
                words.append(f"> {low}")
            case annotated_types.Le(le=high):
                words.append(f"≤ {high}")
            case annotated_types.Lt(lt=high):
                words.append(f"< {high}")
    return ", ".join(dict.fromkeys(words))


if __name__ == "__main__":
    print(render(), end="")
