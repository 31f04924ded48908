"""One transaction of the coordinator: what a batch of events leads to, decided before any of it holds.

Pure but for the preflight, which is given: it finds what cannot be sent, so that a run that cannot go on ends by name
instead of waiting for answers to a request that nobody saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from coordinator.engine import (
    ClearRequest,
    Effect,
    Ended,
    Engine,
    Event,
    OpenRound,
    Publish,
    RoundClosed,
    RunState,
    SendReceipt,
    Unable,
)
from coordinator.engine.checkpoint import is_due
from coordinator.journal.port import Entry
from coordinator.runs.counters import Counters, is_counted_only
from coordinator.runs.records import begun_anew, entry_of, shortened
from schemas.parts import Retained

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
    counters : dict of str to Counters or None
        What is only counted, by run; None: what was counted goes into the journal now.
    entries : list of Entry
        For the journal, in one transaction.
    effects : list of Effect
        To be performed once the entries are appended.
    ready : dict of str to Retained
        The requests among them.
    only_counted : int
        So many answers were turned away and left no entry.
    """

    states: dict[str, RunState] = field(default_factory=dict)
    counters: dict[str, Counters | None] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    ready: Ready = field(default_factory=dict)
    only_counted: int = 0


def decide(
    engine: Engine,
    live: Mapping[str, RunState],
    counters: Mapping[str, Counters],
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
    counters : mapping of str to Counters
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
            counted = transaction.counters.get(run, counters.get(run))
            _write_down(transaction, event, effects, before, after, counted=counted, wall=wall)
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
        if closed and is_due(after, closed) and (anew := begun_anew(engine, after, wall)) is not None:
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
    counted: Counters | None,
    wall: float,
) -> None:
    """Count an event that changes nothing but counters; else it becomes an entry, after what was counted before it."""
    run = after.run
    receipt = next((effect for effect in effects if isinstance(effect, SendReceipt)), None)
    if receipt is not None and receipt.outcome != "accepted" and before is not None and is_counted_only(before, after):
        transaction.counters[run] = counted = counted.copy() if counted is not None else Counters()
        counted.add(before, receipt.task_digest, receipt.outcome, after.at)
        transaction.only_counted += 1
        return
    if counted is not None:
        transaction.entries.append(entry_of(run, counted.event(), wall))
    transaction.counters[run] = None
    transaction.entries.append(entry_of(run, shortened(event, effects), wall))


def _without(effects: Iterable[Effect], unable: Unable) -> Iterable[Effect]:
    """Return the effects that still hold when the shell is `unable` to do what they ask."""
    gone = OpenRound if unable.cause == "request-too-large" else Publish | ClearRequest | Ended
    return (effect for effect in effects if not isinstance(effect, gone))
