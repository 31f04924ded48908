"""One transaction of the coordinator: what a batch of events leads to, decided before any of it holds.

Pure but for the preflight, which is given: it finds what cannot be sent, so that a run that cannot go on ends by name
instead of waiting for answers to a request that nobody saw.

Below it what a run is in the journal: events as entries, and the state that entries lead to. A peer may repeat itself,
or send nonsense, as fast as the network carries it. Each such message gets its receipt and is counted at its round, and
changes nothing else; the journal takes the sum of them, as one `Counted`, with the next record that matters. A crash
before that costs the counts since then, and nothing but these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import structlog

from coordinator.engine import (
    Answer,
    ClearRequest,
    Counted,
    Effect,
    Ended,
    Engine,
    Event,
    OpenRound,
    Publish,
    Refused,
    RoundClosed,
    RunState,
    SendReceipt,
    TurnedAway,
    Unable,
)
from coordinator.engine.checkpoint import checkpoint_of, is_due
from coordinator.engine.events import from_value, to_bytes
from coordinator.engine.state import Round, RoundSummary
from coordinator.journal.port import Entry
from schemas import codec
from schemas.envelope import Retained
from schemas.errors import StorageError
from schemas.limits import MAX_DECODED_BYTES

_log = structlog.get_logger("coordinator")

Ready: TypeAlias = dict[str, Retained]
"""Requests that were cut already, by the key of their effect."""


Preflight: TypeAlias = Callable[[RunState, Iterable[Effect], Ready], Unable | None]
"""Finds out whether effects can be performed; None: they can. What it cuts for that is put into the third."""


@dataclass
class Transaction:
    """What a batch of events leads to.

    Attributes
    ----------
    states : dict of str to RunState
        The runs that changed.
    counters : dict of str to Counted or None
        What is only counted, by run; None: what was counted goes into the journal now.
    entries : list of Entry
        For the journal, in one transaction.
    effects : list of Effect
        To be performed once the entries are appended.
    ready : dict of str to Retained
        The requests among them.
    """

    states: dict[str, RunState] = field(default_factory=dict)
    counters: dict[str, Counted | None] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    ready: Ready = field(default_factory=dict)


def decide(
    engine: Engine,
    live: Mapping[str, RunState],
    counters: Mapping[str, Counted],
    events: Iterable[tuple[str, Event]],
    *,
    preflight: Preflight,
    wall: float,
) -> Transaction:
    """Return what the events lead to; changes neither `live` nor `counters`.

    Parameters
    ----------
    live : mapping of str to RunState
        By run.
    counters : mapping of str to Counted
        What was counted since the last record, by run.
    events : iterable of (str, Event)
        With the run that each concerns, in order.
    wall : float
        Wall clock, seconds since the epoch; for displays.
    """
    transaction = Transaction()
    for run, event in events:
        before = transaction.states.get(run) or live.get(run)
        after, effects = engine.step(before, event)
        if after is not before:
            transaction.states[run] = after
            former = transaction.counters.get(run, counters.get(run))
            _write_down(transaction, event, effects, before, after, former=former, wall=wall)
        unable = preflight(after, effects, transaction.ready)
        while unable is not None:
            after, instead = engine.step(after, unable)
            transaction.states[run] = after
            transaction.entries.append(entry_of(run, unable, wall))
            effects = (*_without(effects, unable), *instead)
            # A private run whose scores cannot be asked for ends with its model.
            unable = preflight(after, instead, transaction.ready)
        transaction.effects += effects
        closed = sum(effect.summary.bytes for effect in effects if isinstance(effect, RoundClosed))
        is_large = closed and after.spec.participation == "elastic" and is_due(after, closed)
        if is_large and (anew := begun_anew(engine, after, wall)) is not None:
            # The run goes on from what the journal says, as it will after a restart.
            transaction.states[run], entry = anew
            transaction.entries.append(entry)
    return transaction


def _write_down(
    transaction: Transaction,
    event: Event,
    effects: tuple[Effect, ...],
    before: RunState | None,
    after: RunState,
    *,
    former: Counted | None,
    wall: float,
) -> None:
    """Count an event that changes nothing but counters; else it becomes an entry, after what was counted before it."""
    run = after.run
    receipt = next((effect.receipt for effect in effects if isinstance(effect, SendReceipt)), None)
    is_accepted = receipt is None or receipt.outcome == "accepted"
    if receipt is not None and not is_accepted and before is not None and is_counted_only(before, after):
        transaction.counters[run] = counted(former, before, receipt.task_digest, receipt.outcome, after.at)
        return
    if former is not None:
        transaction.entries.append(entry_of(run, former, wall))
    transaction.counters[run] = None
    transaction.entries.append(entry_of(run, event if is_accepted else shortened(event, effects), wall))


def _without(effects: Iterable[Effect], unable: Unable) -> Iterable[Effect]:
    """Return the effects that still hold when the shell is `unable` to do what they ask."""
    gone = OpenRound if unable.cause == "request-too-large" else Publish | ClearRequest | Ended
    return (effect for effect in effects if not isinstance(effect, gone))


_COUNTERS = ("late", "duplicate", "rejected")


_FIELDS = tuple(name for name in RunState.__dataclass_fields__ if name not in ("at", "open", "rounds"))


def is_counted_only(before: RunState, after: RunState) -> bool:
    """Whether two states of a run differ in nothing but counters and the time."""
    is_same = all(getattr(before, name) is getattr(after, name) for name in _FIELDS)
    if not is_same or len(before.rounds) != len(after.rounds):
        return False
    # Equal rounds are the same objects but for the one that was counted in.
    pairs = zip((before.open, *before.rounds), (after.open, *after.rounds), strict=True)
    return all(one is two or _alike(one, two) for one, two in pairs)


def _alike(one: Round | RoundSummary | None, two: Round | RoundSummary | None) -> bool:
    if one is None or two is None:
        return False
    return replace(one, **{name: getattr(two, name) for name in _COUNTERS}) == two


def counted(former: Counted | None, state: RunState, digest: str, outcome: str, at: float) -> Counted:
    """Return what was counted since the last record of a run, with one answer more; `state` is the run before it."""
    known = (state.open is not None and state.open.digest == digest) or any(
        summary.task_digest == digest for summary in state.rounds
    )
    # Digests that nobody asked for are of one kind: made-up ones must not fill the record.
    digest, counts = digest if known else "", {} if former is None else former.counts
    of_round = counts.get(digest, {})
    more = {**of_round, outcome: of_round.get(outcome, 0) + 1}
    return Counted(at if former is None else max(former.at, at), {**counts, digest: more})


def shortened(event: Event, effects: Sequence[Effect]) -> Event:
    """Return what the journal needs of an event: an answer that was not accepted leaves its payload behind."""
    if not isinstance(event, Answer | Refused):
        return event
    sent = (effect for effect in effects if isinstance(effect, SendReceipt))
    receipt = next(effect.receipt for effect in sent if effect.agent == event.agent)
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
    last = deque(steps(engine, entries), maxlen=1)
    return last[0][1] if last else None


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
