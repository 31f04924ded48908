"""Renders docs/reference/settings.md: ``python -m deploy.site.limits_page > docs/reference/settings.md``."""

# ruff: noqa: E501 - lines of a Markdown table cannot be broken

from __future__ import annotations

import importlib
from typing import Any

import annotated_types
import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from console.main import cli
from console.settings import descriptions
from coordinator.config import CoordinatorConfig
from coordinator.spec.rollout import RolloutPlan
from coordinator.spec.run import RoundPolicy
from edge_agent.config import AgentConfig
from edge_agent.forecast.config import ForecastConfig

HEAD = """# Timeouts, retries and limits

Everything that is waited for, tried again or bounded, with its default. Generated from the code by `python -m deploy.site.limits_page`;
a test keeps it so. How settings are given: [configuration.md](configuration.md). What happens at each of them:
[failure-model.md](../explanation/failure-model.md).

*agent*, *coordinator* and *forecast*: a flag, an environment variable or a key of the TOML file. *run*: a key of `policy` when a run
is started, or a flag of `glassfleet run start`. *rollout*: a key of `plan` when a rollout is started. A name of a command: its option.
The rest cannot be set, and the second column names its place in the code; why not is told in
[ADR 8](../adr/0008-what-is-not-a-setting.md): *wire* is part of the contract between processes, and a change on one side would break
the other; *proof* holds up the exactness of the sums; *door* is what somebody whom nobody knows yet may cost.

| of | setting | default | range | what |
|---|---|---|---|---|
"""

MODELS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("agent", AgentConfig),
    ("coordinator", CoordinatorConfig),
    ("forecast", ForecastConfig),
    ("run", RoundPolicy),
    ("rollout", RolloutPlan),
)

COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ca serve", ("handshake", "lifetime", "connections", "max_body_bytes", "max_header_bytes")),
    ("agent enrol", ("timeout", "max_answer_bytes")),
    ("agent renew", ("timeout", "max_answer_bytes")),
    ("data collect", ("window_wait", "queue_samples", "max_sample_bytes")),
)
"""Options of commands that bound something, where a process has no configuration class of its own."""

NO_BOUNDS = frozenset({"slow", "api_port", "speed"})
"""Numbers among the settings that bound nothing."""

WIRE: dict[str, str] = {
    "schemas.trust.identity.MAX_REQUEST_BYTES": "Longest certificate request that is read.",
    "schemas.limits.MIN_MESSAGE_BYTES": "Smallest `max_message_bytes` that can be set: what every broker must carry, for an envelope must fit.",
    "schemas.limits.MAX_DECODED_BYTES": "Largest message after joining parts and decompression; all others reject more as `oversize`.",
    "schemas.limits.MAX_PARTS": "Most parts a message may have.",
    "schemas.limits.MAX_ITEMS": "Most values in one message.",
    "schemas.limits.MAX_DEPTH": "Deepest nesting of lists and maps in a message.",
    "schemas.limits.MAX_ARRAY_DIMS": "Most dimensions of an array in a message.",
    "schemas.limits.MAX_FEATURES": "Most input columns of a run.",
    "schemas.limits.MAX_CATEGORIES": "Most categories of a column of text.",
    "schemas.limits.MAX_SEAL_BYTES": "Longest signature field of an envelope.",
    "schemas.limits.MAX_LISTS": "Most revocation lists that are read in one bundle; a fleet has one for each CA that it trusts.",
    "broker.connection.HEADER_ROOM": "Bytes of an MQTT packet that are not payload: header, topic, properties.",
    "broker.servers.mosquitto.PACKET_ROOM": "The same, as the written configuration of Mosquitto allows them.",
    "edge_agent.sources.cells.LONGEST_NAME": "Characters of a column's name; longer ones fit no birth certificate.",
}
"""Part of the contract between processes: where -> what."""

PROOF: dict[str, str] = {
    "glassfleet.numerics.statistics.EXACT_BITS": "Bits within which sums of integers in floating point are exact (IEEE 754).",
    "glassfleet.numerics.statistics._CARRY_ROWS": "Rows that are summed in floating point before their sum becomes an integer.",
    "glassfleet.data.condense.GRID_BITS": "Bits of a condensed row's value: the sums of their products are exact integers.",
    "glassfleet.data.condense._EXACT_ROWS": "Rows of a group whose products are summed in floating point before their sum becomes an integer.",
}
"""What the proof of exactness rests on: where -> what."""

DOOR: dict[str, str] = {
    "coordinator.http.access.ROW_BYTES": "Longest body of an HTTP request without the token: a row of 4096 columns, their names of a hundred letters.",
    "coordinator.http.access.READS_AT_ONCE": "Pages and lists that are made at a time.",
    "coordinator.http.server.REFUSED_BYTES": "Bytes of a refused body that are thrown away, for its sender to read why.",
    "coordinator.http.server.TOLD_EVERY": "Seconds between two log lines that no connection can be taken.",
    "coordinator.telemetry.logs.LINES_EACH": "Log lines of one kind that peers can cause, in ...",
    "coordinator.telemetry.logs.LINES_SECONDS": "... so many seconds; the others are counted.",
}
"""What somebody whom nobody knows yet may cost: where -> what."""

FIXED: dict[str, dict[str, str]] = {"wire": WIRE, "proof": PROOF, "door": DOOR}
"""What cannot be set, by the reason why not. The values are read from the code."""

NOT_LIMITS: dict[str, str] = {
    "schemas.parts.PLAIN": "a marker of the format",
    "schemas.parts.ZLIB": "a marker of the format",
    "coordinator.fleet.directory._AGENT_BYTES": "an estimate of memory",
    "coordinator.fleet.directory._OFFER_BYTES": "an estimate of memory",
    "coordinator.fleet.directory._SCORES_BYTES": "an estimate of memory",
    "coordinator.messages.queue._MESSAGE_BYTES": "an estimate of memory",
    "coordinator.fleet.arrivals._HELD_BYTES": "an estimate of memory",
    "schemas.trust.joining._MESSAGE_OVERHEAD": "an estimate of memory",
    "schemas.trust.joining._PART_OVERHEAD": "an estimate of memory",
    "schemas.parts._HEADER_ROOM": "a size of the format",
    "schemas.topics.PROTOCOL": "the protocol's version",
    "schemas.trial.ALL": "the size of a hash",
    "coordinator.http.api.LAST_PORT": "a constant of TCP",
    "coordinator.http.guard.LONGEST_LENGTH": "digits of a number that is read",
    "coordinator.http.errors.SHOWN": "layout: characters of a wrong value that an error repeats",
    "coordinator.runs.outages._TOLD_FROM": "a precision: to a tenth of a second an end says how long there was no broker",
    "coordinator.models.rollout.machine.BEATS": "a bar for models: what a first version must be better than the constant by",
    "coordinator.models.rollout.shell.KEPT": "what is shown of the past",
    "coordinator.service._LOOK": "how often a waiting call looks around; what it waits for has settings",
    "lab.chaos.faulty_transport.*": "the chaos harness",
    "broker.signed._RENEWED": "bytes by which two certificates of one owner may differ in length",
    "broker.memory.*": "the simulator",
    "broker.servers.amqtt_patches.*": "constants of MQTT, and a repair of the embedded broker",
    "broker.servers.passwords._ITERATIONS": "a parameter of the hash",
    "broker.servers.process._PR_SET_PDEATHSIG": "a constant of Linux",
    "coordinator.engine.asking._NAMED": "layout: so many reasons and agents are named in the line that ends a run",
    "coordinator.engine.asking._REASON_CHARS": "layout of the same line",
    "coordinator.journal.rows._AT_ONCE": "rows read at once",
    "coordinator.journal.rows._LAST_WALL": "a date: what is later is no time that was written",
    "coordinator.journal.sql._AT_ONCE": "runs named in one statement",
    "edge_agent.models.evaluation.*": "rows computed at once, estimates of time, and the most that a few numbers take",
    "edge_agent.session.snapshots._BLOCK": "rows hashed at once",
    "edge_agent.sources.database.BLOCK": "rows fetched at once",
    "edge_agent.sources.database.CONNECT_SECONDS": "the default of a URL's `connect_timeout`",
    "edge_agent.sources.files.BLOCK": "rows read at once",
    "edge_agent.sources.fit.*": "what is worth a warning",
    "edge_agent.sources.followed.KNOWN": "a size of the format of a place in a followed file",
    "edge_agent.sources.judge.*": "what is worth a warning, and layout",
    "edge_agent.sources.location._LONGEST_QUERY": "layout: characters of a query that a message shows",
    "edge_agent.sources.window.MAX_ROWS": "the default of an option",
    "edge_agent.session.outbox.DEFAULT_MAX_BYTES": "the default of `outbox_max_bytes`",
    "edge_agent.storage.SECRET_BYTES": "the size of a key",
    "edge_agent.effects.WAITING": "long answers that wait; more are refused by name",
    "edge_agent.compute.worker.LOOK": "how often an agent looks whether another process has ended",
    "edge_agent.worker_process.NICE": "a priority",
    "schemas.limits.MAX_MESSAGE_BYTES": "the default of `max_message_bytes`",
    "schemas.private_files.SECRET_CHARACTERS": "fewest characters of a secret that cannot be guessed",
    "schemas.private_files._OTHERS": "bits of a file's mode",
    "schemas.trust.signing.SEALED": "a marker of the format",
    "schemas.trust.signing.SIGNATURE_BYTES": "a size of the format",
    "schemas.trust.signing._TAIL": "a size of the format",
    "edge_agent.forecast.log.DEFAULT_MAX_BYTES": "the default of an option",
    "edge_agent.forecast.serve.SLACK": "a share of a period, against jitter",
    "coordinator.journal.postgres.KEY": "a name of a lock",
    "edge_agent.forecast.log.SEGMENTS": "how finely a full log gives way",
    "coordinator.authority.store.CA_DAYS": "the default of an option",
    "coordinator.authority.store.DAYS": "the default of an option",
    "coordinator.authority.store.CRL_DAYS": "the default of an option",
    "coordinator.authority.store.TOKEN_HOURS": "the default of an option",
    "coordinator.http.dashboard.compare.MAX_SHOWN": "layout",
    "coordinator.http.dashboard.briefs.STRONGEST": "layout",
    "coordinator.http.dashboard.draw.*": "layout",
    "coordinator.http.dashboard.charts.*": "layout",
    "coordinator.http.dashboard.sets.*": "layout",
    "coordinator.http.dashboard.growth.*": "layout",
    "coordinator.http.dashboard.model_actions.LONGEST_REASON": "layout; a form is bounded by `dashboard_form_bytes`",
    "coordinator.http.dashboard.model_pages.*": "layout",
    "coordinator.http.dashboard.standing.*": "layout",
    "coordinator.http.dashboard.trees.*": "layout",
    "coordinator.models.lifecycle.SLICE": "how long other work waits at most; the next tick goes on",
    "coordinator.models.registry.LONGEST": "the highest version of the wire format",
    "coordinator.http.dashboard.pages.ROUNDS_PER_PAGE": "layout",
    "coordinator.http.dashboard.show.*": "layout",
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
    for command, names in COMMANDS:
        table += [_option_row(command, name) for name in names]
    for why, places in FIXED.items():
        table += [(why, f"`{place}`", f"`{value_of(place)}`", "", text) for place, text in places.items()]
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


def _option_row(command: str, name: str) -> tuple[str, str, str, str, str]:
    found: click.Command = cli
    for word in command.split():
        assert isinstance(found, click.Group)
        known = found.get_command(click.Context(found), word)
        assert known is not None, command
        found = known
    option = next(each for each in found.params if each.name == name)
    assert isinstance(option, click.Option)
    kind = option.type
    assert isinstance(kind, click.IntRange | click.FloatRange), f"{command}: {name} has no range"
    words = [
        f"{'>' if kind.min_open else '≥'} {kind.min}" if kind.min is not None else "",
        f"{'<' if kind.max_open else '≤'} {kind.max}" if kind.max is not None else "",
    ]
    default = f"`{option.default}`"
    return command, f"`{option.opts[0]}`", default, ", ".join(filter(None, words)), str(option.help)


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
    print(render(), end="")
