"""``glassfleet broker tap``: the fleet's messages, decoded, one line each."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from console.broker_discovery import broker_url
from console.common import broker_options, security_options
from schemas.errors import UsageError
from schemas.text import escaped, show_hidden


@click.command()
@broker_options
@security_options
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only these kinds, e.g. receipt; repeatable.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many messages.")
@click.option(
    "--for", "seconds", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="End after that."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line instead of text.")
@click.option(
    "--full", is_flag=True,
    help="With --json: each message whole, its bytes too (`payload`, Base64), arrays as type, shape and data.",
)  # fmt: skip
def tap(  # noqa: PLR0917 - click passes options by name
    broker: str | None,
    fleet: str,
    state_dir: Path,
    kinds: tuple[str, ...],
    count: int | None,
    seconds: float | None,
    *,
    as_json: bool,
    full: bool,
) -> None:
    """Print the fleet's messages as they pass, decoded; arrays as their type and shape.

    Retained messages come first, marked with an R. Each says who sealed it; with --identity the seal is verified, and
    what the fleet would refuse is marked REFUSED. Ctrl-C ends it.

    \b
    Examples:
      glassfleet broker tap --kind receipt --kind contribution
      glassfleet broker tap --full --json > vectors.jsonl
    """
    from console.operator.published import (
        Listener,  # numpy and the MQTT library come with it
        Signatures,
    )
    from schemas.topics import Topics

    if full and not as_json:
        raise UsageError("--full is for programs: add --json")
    _check_kinds(kinds)
    topics = Topics(fleet)
    verifier = Signatures.at_hand().verifier
    end = None if seconds is None else time.monotonic() + seconds
    seen = 0
    with Listener(broker_url(broker, state_dir), f"{topics.prefix}#") as listener:
        while (count is None or seen < count) and (end is None or time.monotonic() < end):
            message = listener.next(0.5 if end is None else min(0.5, end - time.monotonic()))
            if message is None:
                continue
            line = decode(message.topic, message.payload, topics, whole if full else summary)
            if full:
                line["payload"] = base64.b64encode(message.payload).decode()
            if kinds and line["kind"] not in kinds:
                continue
            seen += 1
            line["retained"] = message.retained
            if message.payload:
                line["seal"] = seal(message.topic, message.payload, topics, verifier)
            click.echo(show_hidden(json.dumps(line, ensure_ascii=False)) if as_json else _text(line))


def _check_kinds(kinds: Iterable[str]) -> None:
    from schemas.messages import BODIES
    from schemas.topics import KINDS

    known = sorted({*BODIES, *KINDS, "model-record", "?"})
    cleared = [f"{kind} cleared" for kind in KINDS]
    for kind in kinds:
        if kind not in known and kind not in cleared:
            raise UsageError(f"--kind {kind}: no message is of it. Kinds: {', '.join(known)}; and {', '.join(cleared)}")


def decode(topic: str, payload: bytes, topics: Any, shown: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """Return one message as JSON values; what cannot be decoded says why under ``fault``.

    Parameters
    ----------
    topics : schemas.topics.Topics
    shown : callable or None
        Makes JSON values of a body: `summary`, which None stands for, or `whole`.
    """
    from schemas.envelope import Envelope
    from schemas.errors import WireError

    line: dict[str, Any] = {"topic": topic.removeprefix(topics.prefix), "bytes": len(payload)}
    try:
        address = topics.parse(topic)
        line["kind"] = address.kind
        if not payload:
            return line | {"kind": f"{address.kind} cleared"}
        if address.kind in ("blob", "revoked"):
            return line
        if address.kind == "model-version" and payload[:1] == b"{":
            return line | {"kind": "model-record"} | _record_summary(payload)
        envelope = Envelope.from_bytes(payload, fleet=topics.fleet)
    except WireError as fault:
        return line | {"kind": line.get("kind", "?"), "fault": str(fault)}
    line["kind"] = envelope.body.kind
    for name in ("run", "agent", "round", "attempt", "scheme"):
        if value := getattr(envelope, name):
            line[name] = value
    line["body"] = (shown or summary)(envelope.body.model_dump())
    return line


def seal(topic: str, payload: bytes, topics: Any, verifier: Any) -> str:
    """Say who sealed a message, in words; what the fleet would not take begins with ``REFUSED``.

    Parameters
    ----------
    topics : schemas.topics.Topics
    verifier : schemas.trust.signing.Verifier or None
        None: nothing is verified, and the words say so.
    """
    from broker.signed import writers  # loaded when used, as all below
    from schemas.errors import WireError
    from schemas.record import ModelRecord
    from schemas.trust.signing import split

    try:
        address = topics.parse(topic)
        if address.kind == "blob":
            return "by its digest"
        if address.kind == "revoked" and not payload.startswith(b"-----BEGIN"):
            return "in parts, by the CA"
        if address.kind == "revoked":
            return "by the CA" if verifier is None else f"by the CA: {verifier.update_crl(payload)} revoked"
        is_record = address.kind == "model-version" and payload[:1] == b"{"
        if verifier is None:
            is_sealed = bool(ModelRecord.from_bytes(payload).signatures if is_record else split(payload)[1])
            return "sealed, not verified" if is_sealed else "unsigned"
        if is_record:
            return str(ModelRecord.from_bytes(payload).verified_by(verifier))
        return str(verifier.open(topic, payload, writers(address)))
    except WireError as fault:
        return f"REFUSED {fault}"


def summary(value: Any, depth: int = 0) -> Any:
    """Return `value` with arrays as type and shape, digests and bytes shortened, long lists counted."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return f"<{value.dtype} {'x'.join(map(str, value.shape)) or 'scalar'}>"
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, str):
        return value if len(value) <= 60 else f"{value[:12]}..."
    if isinstance(value, dict):
        return (
            {key: summary(item, depth + 1) for key, item in value.items()} if depth < 4 else f"<{len(value)} entries>"
        )
    if isinstance(value, list | tuple):
        return (
            [summary(item, depth + 1) for item in value] if len(value) <= 4 and depth < 4 else f"<{len(value)} items>"
        )
    return value


def whole(value: Any) -> Any:
    """Return `value` as JSON, all of it: bytes and arrays as test vectors have them."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return {"array": value.dtype.str, "shape": list(value.shape), "data": value.tobytes().hex()}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list | tuple) else value


def _record_summary(payload: bytes) -> dict[str, Any]:
    from schemas.record import ModelRecord

    record = ModelRecord.from_bytes(payload)
    body = {"name": record.name, "version": record.version, "digest": record.digest, "cohort": len(record.cohort)}
    return {"run": record.run, "scheme": record.scheme, "body": body}


def _text(line: dict[str, Any]) -> str:
    shown = " ".join(
        f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in (line.get("body") or {}).items()
    )
    about = " ".join(f"{name}={line[name]}" for name in ("run", "agent", "round", "attempt") if name in line)
    fault = f" FAULT {line['fault']}" if "fault" in line else ""
    mark = "R" if line["retained"] else " "
    sealed = f"  [{line['seal']}]" if "seal" in line else ""
    text = f"{mark} {line['kind']:<18} {line['topic']}  {line['bytes']} B  {about}  {shown}{fault}{sealed}"
    # A topic or a text of a hostile vehicle must not move the cursor of whoever looks.
    return escaped(text)
