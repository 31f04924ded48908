"""What somebody who reads every message of a fleet makes of each, under other names or with other content."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from schemas import codec
from schemas.envelope import Envelope
from schemas.messages import AgentState, ContributionBody, ModelPointer, Part, Receipt, Request
from schemas.topics import Topics


def forgeries(envelope: Envelope, topic: str, topics: Topics, names: Collection[str]) -> Iterator[tuple[str, Envelope]]:
    """Give topics and messages, sealed by nobody, that the vehicles of these `names` or their coordinator might say."""
    if envelope.agent and envelope.agent not in names:
        return
    forged = replace(envelope, signature=b"")
    match envelope.body:
        case Request(task_digest=digest) as body:
            # The round is over, says a receipt; an impostor answers first, under everybody's name.
            for agent in names:
                receipt = Receipt(run=envelope.run, task_digest=digest, outcome="accepted")
                yield topics.receipt(agent), replace(forged, body=receipt, agent=agent)
                answer = ContributionBody(
                    task_digest=digest, rows=1, data_digest="0" * 64, contribution={"body": {}, "notes": {}}
                )
                yield topics.contribution(agent), replace(forged, body=answer, agent=agent)
            task = {**body.task, "body": {**body.task["body"], "x": 1}}
            asks = body.model_copy(update={"task": task, "task_digest": codec.digest_of(task), "asked": None})
            yield topic, replace(forged, body=asks, time=envelope.time + 1e-5)
        case ContributionBody() as body:
            yield topic, replace(forged, body=body.model_copy(update={"rows": body.rows + 1}))
        case Part() as body:
            yield topic, replace(forged, body=body.model_copy(update={"data": body.data[::-1]}))
        case AgentState(status="up") as state:
            yield topic, replace(forged, body=state.model_copy(update={"status": "down"}))
        case ModelPointer() as pointer:
            yield topic, replace(forged, body=pointer.model_copy(update={"version": pointer.version + 7}))
