"""Renders docs/reference/settings.md: ``python -m console.limits_page > docs/reference/settings.md``."""

# ruff: noqa: E501 - lines of a Markdown table cannot be broken

from __future__ import annotations

import importlib
from typing import Any

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from console.settings import descriptions
from coordinator.config import CoordinatorConfig
from coordinator.spec import RoundPolicy
from edge_agent.config import AgentConfig

HEAD = """# Timeouts, retries and limits

Everything that is waited for, tried again or bounded, with its default. Generated from the code by `python -m console.limits_page`;
a test keeps it so. How settings are given: [configuration.md](configuration.md). What happens at each of them:
[failure-model.md](../explanation/failure-model.md).

*agent* and *coordinator*: a flag, an environment variable or a key of the TOML file. *run*: a key of `policy` when a run is
started, or a flag of `glassfleet run start`. *fixed*: part of the protocol or of a measured trade-off; a change is a change of the
code, and the place is named.

| of | setting | default | range | what |
|---|---|---|---|---|
"""

MODELS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("agent", AgentConfig),
    ("coordinator", CoordinatorConfig),
    ("run", RoundPolicy),
)

NO_BOUNDS = frozenset({"slow", "api_port"})
"""Numbers among the settings that bound nothing."""

FIXED: dict[str, str] = {
    "schemas.limits.MIN_MESSAGE_BYTES": "Smallest `max_message_bytes` that can be set; an envelope must fit.",
    "schemas.limits.MAX_DECODED_BYTES": "Largest message after joining parts and decompression; more is rejected as `oversize`.",
    "schemas.limits.MAX_PARTS": "Most parts a message may have.",
    "schemas.limits.MAX_ITEMS": "Most values in one message.",
    "schemas.limits.MAX_DEPTH": "Deepest nesting of lists and maps in a message.",
    "schemas.limits.MAX_ARRAY_DIMS": "Most dimensions of an array in a message.",
    "schemas.limits.MAX_FEATURES": "Most input columns of a run.",
    "schemas.limits.MAX_CATEGORIES": "Most categories of a column of text.",
    "broker.connection.MAX_INFLIGHT": "Published messages that may wait for the broker's acknowledgement at once; less when the broker says so.",
    "broker.connection.HEADER_ROOM": "Bytes of a packet that are kept for topic and properties when the broker tells its largest packet.",
    "broker.mosquitto.PACKET_ROOM": "Bytes that a packet may have beyond its payload, in the configuration that is written for Mosquitto.",
    "edge_agent.agent._BIRTH_PAUSE": "Seconds between two birth certificates of one agent, at least.",
    "edge_agent.evaluation._KEPT": "Models whose scores an agent remembers, so that it does not score them again.",
    "edge_agent.fetch.PATIENCE": "Seconds until parts that did not come are asked for again; each time twice as long, at most a minute.",
    "edge_agent.fetch.EXACT": "Up to so many parts are subscribed to one by one instead of by a wildcard.",
    "edge_agent.freeze.MAX_RUNS": "Snapshots of frozen rows that are kept when runs end while the agent is away.",
    "edge_agent.identity.SIGHTINGS": "So often another process must be seen under an agent's id before one of the two stops.",
    "edge_agent.identity.APART": "... each so many seconds after the one before, at least; what comes closer together is one,",
    "edge_agent.identity.QUIET": "... and none so many seconds after the one before,",
    "edge_agent.identity.SPAN": "... over at least so many seconds.",
    "edge_agent.identity._PATIENCE": "... and so many times as long before the one that was first stops, should the other not,",
    "edge_agent.identity._STUBBORN": "... and so many times as often.",
    "edge_agent.identity._REMEMBERED": "Other processes under its id that an agent counts.",
    "edge_agent.models.MAX_NAMES": "Model names that an agent follows at once.",
    "edge_agent.outbox.MAX_ENDED": "Marks of ended answers that an outbox keeps, so that a restarted agent does not answer again.",
    "edge_agent.runner._BATCH": "Messages that an agent handles before it looks at the clock again.",
    "edge_agent.session.MAX_RUNS": "Runs that an agent's session remembers.",
    "edge_agent.session.MAX_TASKS": "Tasks that it remembers of each.",
    "edge_agent.sources._LONGEST_NAME": "Characters of a column's name.",
    "coordinator.engine.answers.MAX_TURNED_AWAY": "Answers of one round that are counted and journalled as late, duplicate or rejected, each; more still get their receipt.",
    "coordinator.fleet.MAX_AGENTS": "Agents that a coordinator remembers; unknown ones beyond it are not taken in.",
}
"""Fixed timeouts, retries and limits: where they are -> what they are. The values are read from the code."""

NOT_LIMITS: dict[str, str] = {
    "schemas.parts.PLAIN": "a marker of the format",
    "schemas.parts.ZLIB": "a marker of the format",
    "schemas.joining._PART_OVERHEAD": "an estimate of memory",
    "schemas.parts._HEADER_ROOM": "a size of the format",
    "schemas.topics.PROTOCOL": "the protocol's version",
    "broker.faults.*": "the chaos harness",
    "broker.memory.*": "the simulator",
    "broker.mended.*": "constants of MQTT, and a repair of the embedded broker",
    "broker.passwords._ITERATIONS": "a parameter of the hash",
    "broker.process._PR_SET_PDEATHSIG": "a constant of Linux",
    "coordinator.journal.sql._AT_ONCE": "runs named in one statement",
    "edge_agent.evaluation._BLOCK": "rows computed at once",
    "edge_agent.freeze._BLOCK": "rows hashed at once",
    "edge_agent.sources._BLOCK": "rows read at once",
    "edge_agent.outbox.DEFAULT_MAX_BYTES": "the default of `outbox_max_bytes`",
    "edge_agent.storage.SECRET_BYTES": "the size of a key",
    "schemas.limits.MAX_MESSAGE_BYTES": "the default of `max_message_bytes`",
}
"""Numbers of the code that bound nothing that a peer or a disk does, and why."""


def rows() -> list[tuple[str, str, str, str, str]]:
    """Return the table: of, setting, default, range, what."""
    table = []
    for of, model in MODELS:
        described = descriptions(model)
        for name, field in model.model_fields.items():
            if _is_number(field) and name not in NO_BOUNDS:
                text = " ".join(described[name].split())
                table.append((of, f"`{name}`", f"`{field.get_default()}`", _range(field), text))
    for place, text in FIXED.items():
        table.append(("fixed", f"`{place}`", f"`{value_of(place)}`", "", text))
    return table


def value_of(place: str) -> int | float:
    """Return the value of a constant by its dotted name."""
    module, _, name = place.rpartition(".")
    value = getattr(importlib.import_module(module), name)
    assert isinstance(value, int | float)
    return value


def render() -> str:
    """Return the page."""
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows())


def _is_number(field: FieldInfo) -> bool:
    default: Any = field.get_default() if not field.is_required() and field.default_factory is None else None
    names = str(field.annotation)
    return (isinstance(default, int | float) and not isinstance(default, bool)) or (
        default is None and ("int" in names or "float" in names)
    )


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
    print(render(), end="")  # noqa: T201 - the page is the output
