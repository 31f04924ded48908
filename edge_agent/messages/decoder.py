"""Messages as an agent reads them: opened and checked, every fault a `WireError`. Pure."""

from __future__ import annotations

from typing import TypeVar

from edge_agent.session.events import RequestSeen
from schemas import codec
from schemas.envelope import Envelope
from schemas.errors import WireError
from schemas.messages import Body, Request

B = TypeVar("B", bound=Body)


def open_envelope(payload: bytes, fleet: str, wanted: type[B]) -> tuple[Envelope, B]:
    """Decode a message and return its envelope and body; raises WireError when the body is another than `wanted`."""
    envelope = Envelope.from_bytes(payload, fleet=fleet)
    if not isinstance(envelope.body, wanted):
        raise WireError("malformed", f"a {envelope.body.kind} where a {wanted.kind} belongs")
    return envelope, envelope.body


def open_run(payload: bytes, fleet: str, run: str) -> Envelope:
    """Decode what stands on the topic of `run`; raises WireError when it is of another run."""
    envelope = Envelope.from_bytes(payload, fleet=fleet)
    if envelope.run != run:
        raise WireError("malformed", "the request names another run than its topic")
    return envelope


def request_seen(envelope: Envelope) -> RequestSeen:
    """Return a request as the session's event; raises WireError when its task is not whole or not the one it names."""
    request = envelope.body
    if not isinstance(request, Request):
        raise WireError("malformed", f"a {request.kind} where a request belongs")
    task = request.task
    if set(task) - {"nonce"} != {"scheme", "kind", "body"} or not isinstance(task["body"], dict):
        raise WireError("malformed", "a task has a scheme, a kind, a body, and perhaps a nonce")
    if not isinstance(task["scheme"], str) or not isinstance(task["kind"], str):
        raise WireError("malformed", "a task's scheme and kind are texts")
    if not isinstance(task.get("nonce", ""), str):
        raise WireError("malformed", "a task's nonce is a text")
    if codec.digest_of(task) != request.task_digest:
        raise WireError("digest-mismatch", "the task is not the one that its digest names")
    return RequestSeen(envelope.run, request, task["scheme"], envelope.time, envelope.round, envelope.attempt)
