"""Renders docs/reference/settings.md: ``python -m deploy.site.settings_page > docs/reference/settings.md``."""

# ruff: noqa: E501 - lines of a Markdown table cannot be broken

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from console.settings import descriptions
from coordinator.config import CoordinatorConfig
from coordinator.specification.rollout import RolloutPlan
from coordinator.specification.run import RoundPolicy
from deploy.site.reference import first_sentence
from edge_agent.config import AgentConfig
from edge_agent.forecast.config import ForecastConfig
from schemas.settings import Settings, settings_of
from schemas.text import attributes

HEAD = """# Settings

What an operator can change, and why somebody would. Generated from the code by `python -m deploy.site.settings_page`. A value out of
range is an error that names the range. How settings are given: [configuration.md](configuration.md). Why other numbers are no settings:
[ADR 8](../adr/0008-what-is-not-a-setting.md).
"""

SERVICES: tuple[type[Settings], ...] = (AgentConfig, CoordinatorConfig, ForecastConfig)

POLICIES: dict[str, type[BaseModel]] = {
    "Policy of a run: `policy`, or options of `glassfleet run start`": RoundPolicy,
    "Plan of a rollout: `plan`": RolloutPlan,
}


def render() -> str:
    """Return the page; what several services take in the same words stands once, in the first table."""
    tables = {config.service: list(_settings(config)) for config in SERVICES}
    rows = [row for table in tables.values() for row in table]
    shared = list(dict.fromkeys(row for row in rows if rows.count(row) > 1))
    parts = [HEAD, _table("Several services", shared, "why change it")]
    for service, table in tables.items():
        parts.append(_table(service.capitalize(), [row for row in table if row not in shared], "why change it"))
    for title, model in POLICIES.items():
        whats = attributes(model)
        policy = [
            (f"`{name}`", _default(field), first_sentence(whats[name])) for name, field in model.model_fields.items()
        ]
        parts.append(_table(title, policy))
    return "\n".join(parts)


def _settings(config: type[Settings]) -> Iterator[tuple[str, ...]]:
    """Yield setting, default, what it is and why somebody would change it."""
    described = descriptions(config)
    for key, (_, _, field, _) in settings_of(config).items():
        what, why = described[key]
        yield f"`{key}`", _default(field), first_sentence(what), why


def _table(title: str, rows: Sequence[tuple[str, ...]], *more: str) -> str:
    head = ["setting", "default", "what", *more]
    lines: list[Sequence[str]] = [head, ["---"] * len(head), *rows]
    return f"## {title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = None if field.default_factory is not None else field.get_default()
    return "" if default in (None, "", ()) else f"`{str(default).lower() if isinstance(default, bool) else default}`"


if __name__ == "__main__":
    print(render(), end="")
