"""Signals of a VISS v2 server, over MQTT: a value at a time, each with its own."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

from broker.paho_transport import PahoTransport
from edge_agent.live.adapters.mqtt import link_of, listen
from edge_agent.live.port import MAX_BYTES, TOO_LONG, Adapter, LiveSample, SampleRequest, SeenValues, seconds_of
from schemas.errors import UsageError

_CHANGE = {"type": "change", "parameter": {"logic-op": "ne", "diff": "0"}}


def read(asked: SampleRequest) -> Iterator[LiveSample | str]:
    """Ask a VISS v2 server for the plan's signals, anew at each connection."""
    if not asked.signals:
        raise UsageError("a VISS server is asked for each signal: give --plan with a table [time] that names them")
    example = "viss+mqtt://127.0.0.1:1883/VIN, with the vehicle's id as the server knows it"
    link, vehicle = link_of(asked.source.removeprefix("viss+"), asked.access, example)
    answers = f"{vehicle}/glassfleet-{secrets.token_hex(8)}"

    def ask(transport: PahoTransport) -> None:
        for number, path in enumerate(asked.signals):
            for action in ({"action": "get"}, {"action": "subscribe", "filter": _CHANGE}):
                request = {**action, "path": path, "requestId": f"{action['action']}-{number}"}
                message = {"topic": answers, "request": request}
                transport.publish(f"{vehicle}/Vehicle", json.dumps(message).encode())

    seen = SeenValues()
    return listen(asked, link, answers, ask, lambda message: samples_of(message.payload, seen))


def samples_of(payload: bytes, seen: SeenValues) -> list[LiveSample | str]:
    """Return the new values in a message of a VISS server, oldest first; a text for a fault that it tells."""
    if len(payload) > MAX_BYTES:
        return [TOO_LONG]
    try:
        message = json.loads(payload)
        if "error" in message:
            return [f"the VISS server says: {str(message['error'])[:160]}"]
        found = [
            (seconds_of(point["ts"]), str(part["path"]), _value(point["value"]))
            for part in _several(message.get("data"))
            for point in _several(part["dp"])
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as fault:
        return [f"no message of VISS v2: {type(fault).__name__} {fault}"[:200]]
    is_stored = message.get("action") == "get"
    return [
        LiveSample({path: value}, at, is_whole=False, is_stored=is_stored)
        for at, path, value in sorted(found, key=lambda each: each[0])
        if seen.is_new(path, at)
    ]


def _several(part: Any) -> list[Any]:
    return part if isinstance(part, list) else [] if part is None else [part]


def _value(value: Any) -> Any:
    """Return a value: VISS writes all as texts, and what it does not know as ``visserr:...``."""
    if not isinstance(value, str):
        return value
    if value in ("true", "false"):
        return value == "true"
    if value.lower().startswith("visserr"):
        return None
    try:
        return float(value)
    except ValueError:
        return value


ADAPTER = Adapter(
    "signals of a VISS v2 server: viss+mqtt[s]://[user@]host[:port]/VEHICLE",
    read,
    schemes=("viss+mqtt", "viss+mqtts"),
)
