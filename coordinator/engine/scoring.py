"""The last round of a run: what is asked once the model is learned; and what a private run's record says of it."""

from __future__ import annotations

import json
from typing import Any

from coordinator.engine.collecting import Collecting
from coordinator.engine.state import RunState
from coordinator.specification.rollout import BEATS, GATE
from glassfleet.intervals import lines_of
from glassfleet.scores import Asked, same_target
from schemas.documents import canonical_json


def asked(state: RunState) -> Asked:
    """Return what the vehicles score: the model; in a private run also the one that the name stood for at its begin.

    A model of another target is no champion. The limits are those of the gate that each new version passes.
    """
    model = json.loads(canonical_json(state.model.to_document()))
    lines = lines_of(state.model) if state.model.domain.target is not None else 0
    if state.spec.private is None:
        return Asked(model, lines=lines)
    champion = state.champion if state.champion is not None and same_target(model, state.champion) else None
    return Asked(model, champion, {"champion": GATE.max_worse, "constant": min(GATE.max_worse, -BEATS)}, lines)


def protection(state: RunState, collecting: Collecting) -> dict[str, Any]:
    """Return what protected the answers that the model rests on.

    ``floor`` and ``company`` as in the terms; the ``support`` of the scheme's sums, 0 where it has none; how many
    ``groups``, in how many ``editions`` in all (one for each group, and one more for each time that it shrank), of how
    many ``vehicles`` in the end, and their ``rows``: those of the last sums.
    """
    private, last = state.spec.private, state.levels[-1]
    assert private is not None
    sums = collecting.collect(last.task, last.members, state.store[last.digest])
    return {
        "floor": private.floor,
        "company": private.company,
        "support": getattr(state.parameters, "support", 0),
        "groups": len(state.editions),
        "editions": sum(1 + edition.number for edition in state.editions),
        "vehicles": len(state.waited_for),
        "rows": sum(each.rows for each in sums),
    }
