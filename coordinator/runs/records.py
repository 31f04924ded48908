"""From events to journal entries and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coordinator.engine import Answer, Effect, Engine, Event, OpenRound, Refused, RunState, SendReceipt, TurnedAway
from coordinator.engine.collecting import MASKED, Privately
from coordinator.engine.events import from_value, to_value
from coordinator.journal.port import Entry
from glassfleet.audit.private import Sums
from glassfleet.audit.transcript import Opened
from glassfleet.private.layout import Layout
from glassfleet.private.simulation import Heard
from glassfleet.scheme import Contribution
from schemas import codec
from schemas.errors import StorageError
from schemas.limits import MAX_DECODED_BYTES


def shortened(event: Event, effects: Sequence[Effect]) -> Event:
    """Return what the journal needs of an event: an answer that was not accepted leaves its payload behind."""
    if not isinstance(event, Answer | Refused):
        return event
    receipts = (effect for effect in effects if isinstance(effect, SendReceipt))
    receipt = next(effect for effect in receipts if effect.agent == event.agent)
    if receipt.outcome == "accepted":
        return event
    return TurnedAway(event.at, event.agent, event.task_digest, receipt.outcome, receipt.reason)


def entry_of(run: str, event: Event, wall: float) -> Entry:
    """Return the entry to append; `wall` is the wall clock, for displays."""
    return Entry(run, event.kind, event.at, wall, codec.encode(to_value(event)))


def fold(engine: Engine, entries: Sequence[Entry]) -> RunState | None:
    """Return the state that the entries of a run lead to.

    Raises
    ------
    StorageError
        An entry was written by another version.
    Exception
        Whatever a scheme raises that is gone or has changed since.
    """
    state: RunState | None = None
    for _, state, _ in steps(engine, entries):  # noqa: B007 - the last one
        pass
    return state


@dataclass(frozen=True)
class Told:
    """What the vehicles of a run told: where it came to, and every answer that was accepted.

    Attributes
    ----------
    state : RunState
    answers : tuple of Opened
        To all questions in the order in which they came, those about limits (scheme ``domain``) too. Of a private run
        the sums over each edition of a group; masked answers by themselves tell nothing.
    """

    state: RunState
    answers: tuple[Opened, ...]


def told(engine: Engine, entries: Sequence[Entry]) -> Told | None:
    """Return what the vehicles told in a run, from its entries; None: there are none.

    Raises as `fold`; and StorageError for a private run of another fleet than the engine's.
    """
    state: RunState | None = None
    opened: dict[str, OpenRound] = {}
    layouts: dict[str, Layout] = {}
    answers: list[Opened] = []
    masked = Sums()
    for event, state, effects in steps(engine, entries):
        if isinstance(event, Answer):  # those that were not accepted are journalled as TurnedAway
            asked, sums = opened.get(event.task_digest), Contribution.from_value(event.contribution).sums
            if asked is None:
                raise StorageError(
                    f"{event.agent} answered what nobody asks in the fleet {engine.fleet!r}: the run is another fleet's"
                )
            for group in asked.groups:
                if event.agent in group.edition.members:
                    heard = Heard(event.agent, group.edition, asked.task, sums[MASKED].view(np.uint64))
                    masked.take(heard, layouts[asked.task_digest])
            if not asked.groups:
                answers.append(Opened(asked.task, frozenset({event.agent}), sums))
        for effect in effects:
            if isinstance(effect, OpenRound):
                opened[effect.task_digest] = effect
                collecting = engine.collecting(state)
                if isinstance(collecting, Privately):
                    layouts[effect.task_digest] = collecting.layout(effect.task)
    return None if state is None else Told(state, (*answers, *masked.opened))


def steps(engine: Engine, entries: Sequence[Entry]) -> Iterator[tuple[Event, RunState, Sequence[Effect]]]:
    """Yield each event of a run with the state and the effects that it led to. Raises as `fold`."""
    state: RunState | None = None
    for entry in entries:
        event = _event(entry)
        state, effects = engine.step(state, event)
        yield event, state, effects


def spec_of(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the document of the run's spec, as far as it can be read; empty otherwise."""
    try:
        value: Any = codec.decode(entries[0].body, max_bytes=2 * MAX_DECODED_BYTES)
        return dict(value["spec"])
    except (ValueError, LookupError, TypeError):
        return {}


def _event(entry: Entry) -> Event:
    try:
        return from_value(codec.decode(entry.body, max_bytes=2 * MAX_DECODED_BYTES))
    except (ValueError, KeyError, TypeError) as fault:
        raise StorageError(
            f"a record of kind {entry.kind!r} cannot be read ({fault}): it was written by another version"
        ) from fault
