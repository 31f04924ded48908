"""From events to journal entries and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import structlog

from coordinator.engine import Answer, Effect, Engine, Event, Refused, RunState, SendReceipt, TurnedAway
from coordinator.engine.checkpoint import checkpoint_of
from coordinator.engine.events import from_value, to_bytes
from coordinator.journal.port import Entry
from schemas import codec
from schemas.errors import StorageError
from schemas.limits import MAX_DECODED_BYTES

_log = structlog.get_logger("coordinator")


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
    return Entry(run, event.kind, event.at, wall, to_bytes(event))


def begun_anew(engine: Engine, state: RunState, wall: float) -> tuple[RunState, Entry] | None:
    """Return the record that the journal of a run may begin with, and the state as it is read back from it.

    None when it could not be read back: it is too large, or holds what cannot be written down.
    """
    try:
        entry = entry_of(state.run, checkpoint_of(state), wall)
        (((_, read, _)),) = steps(engine, [entry])
    except (StorageError, ValueError, TypeError) as fault:
        # The records stay as they are, and grow.
        _log.warning("checkpoint-skipped", run=state.run, reason=str(fault)[:400])
        return None
    return read, entry


def fold(engine: Engine, entries: Iterable[Entry]) -> RunState | None:
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


def steps(engine: Engine, entries: Iterable[Entry]) -> Iterator[tuple[Event, RunState, Sequence[Effect]]]:
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
