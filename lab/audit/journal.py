"""What the vehicles of a run told, from its journal: for `glassfleet lab audit`. A coordinator does without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coordinator.engine import Answer, Checkpoint, Engine, Event, OpenRound, RunState
from coordinator.engine.checkpoint import BOUND
from coordinator.engine.learning import MASKED, Privately
from coordinator.journal.port import Entry
from coordinator.runs.transaction import steps
from glassfleet.contract.messages import Contribution
from glassfleet.private.layout import Layout
from glassfleet.private.simulation import Heard
from lab.audit.private import Sums
from lab.audit.transcript import Opened
from schemas.errors import StorageError


@dataclass(frozen=True)
class Transcript:
    """What the vehicles of a run told: where it came to, and every answer that was accepted.

    Attributes
    ----------
    answers : tuple of Opened
        To all questions in the order in which they came, those about limits (scheme ``domain``) too. Of a private run
        the sums over each edition of a group; masked answers by themselves tell nothing.
    """

    state: RunState
    answers: tuple[Opened, ...]


def transcript_of(engine: Engine, entries: Sequence[Entry]) -> Transcript | None:
    """Return what the vehicles told in a run, from its entries; None: there are none.

    Raises as `transaction.fold`; and StorageError for a private run of another fleet than the engine's, and for an
    elastic run whose journal has let answers go.
    """
    state: RunState | None = None
    opened: dict[str, OpenRound] = {}
    layouts: dict[str, Layout] = {}
    answers: list[Opened] = []
    masked = Sums()
    for event, state, effects in steps(engine, entries):
        _check_whole(event, state)
        if isinstance(event, Answer):  # those that were not accepted are journalled as TurnedAway
            asked, sums = opened.get(event.task_digest), Contribution.from_value(event.contribution).sums
            if asked is None:
                raise StorageError(
                    f"{event.agent} answered what nobody asks in the fleet {engine.fleet!r}: the run is another fleet's"
                )
            for group in asked.groups:
                if event.agent in group.edition.members:
                    heard = Heard(event.agent, group.edition, asked.task, sums[MASKED].view(np.uint64))
                    masked.add(heard, layouts[asked.task_digest])
            if not asked.groups:
                answers.append(Opened(asked.task, frozenset({event.agent}), sums))
        for effect in effects:
            if isinstance(effect, OpenRound):
                opened[effect.task_digest] = effect
                collecting = engine.collecting(state)
                if isinstance(collecting, Privately):
                    layouts[effect.task_digest] = collecting.layout(effect.task)
    return None if state is None else Transcript(state, (*answers, *masked.opened))


def _check_whole(event: Event, state: RunState) -> None:
    """Raise StorageError when an event stands for others."""
    if isinstance(event, Checkpoint):
        raise StorageError(
            f"the journal keeps no answers to the first {len(state.rounds)} rounds: they were more than "
            f"{BOUND // 2**20} MB, and an elastic run needs them no more. Audit a run of fewer vehicles or rounds"
        )
