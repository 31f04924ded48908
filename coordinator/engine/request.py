"""The request of an open round, as it travels. Its size depends on the task, not on how many vehicles there are."""

from __future__ import annotations

from coordinator.engine.effects import OpenRound
from schemas.envelope import Envelope
from schemas.messages import PrivateGroup, Request, Sample
from schemas.trial import place_in_sample

MOST_NAMED = 64
"""Most vehicles that a request asks by name, where some are asked. Those of former software understand nothing else."""


def envelope_of(effect: OpenRound, fleet: str, remaining: float) -> Envelope:
    """Return the message that opens a round.

    Parameters
    ----------
    effect : OpenRound
    fleet : str
    remaining : float
        Seconds until the deadline.
    """
    asked, sample, without = effect.asked, None, None
    if effect.is_fixed and not effect.without:
        asked = None
    elif asked is not None and len(asked) > MOST_NAMED and (effect.salt or effect.without):
        if effect.salt:
            sample = Sample(salt=effect.salt, last=max(place_in_sample(effect.salt, agent) for agent in asked))
        without, asked = list(effect.without) or None, None
    request = Request(
        task=effect.task.to_value(),
        task_digest=effect.task_digest,
        remaining=remaining,
        asked=None if asked is None else list(asked),
        private=[
            PrivateGroup(
                group=group.edition.group,
                number=group.edition.number,
                members=list(group.members),
                question=group.question,
                founders=list(group.founders),
            )
            for group in effect.groups
        ]
        or None,
        sample=sample,
        without=without,
    )
    return Envelope(
        fleet=fleet,
        body=request,
        run=effect.run,
        scheme=effect.task.scheme,
        round=effect.number,
        attempt=effect.attempt,
        # Agents order the requests of a run by this: the time line of the journal never goes back, and the ordinal
        # tells apart what was opened at the same instant.
        time=effect.closes_at - effect.deadline + 1e-6 * effect.ordinal,
    )
