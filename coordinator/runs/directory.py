"""The runs of a coordinator as its journal has them: live, suspended and past. Says nothing to anybody.

A *live* run has a state: `resume` folds it from the journal, `replace_states` sets the next one once the events that
led to it are appended, and `close` lets the run be past when its end is performed. A *suspended* one is in the
journal, and this software cannot follow it. A *past* one is known by its document.

The coordinator's thread writes, the API's threads read: everything they see is one `Known`, which is never changed but
replaced, so that no look falls between two steps of a change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

import structlog
from immutables import Map

from coordinator.engine import Counted, Engine, Offer, RunState, Waiting, gives_up_at, waiting, wakes_at
from coordinator.journal.port import Entry, Journal, overview
from coordinator.runs.earlier import least_allowing, spent_in
from coordinator.runs.outages import Outages
from coordinator.runs.transaction import entry_of, fold, spec_of
from coordinator.runs.view import (
    damaged_document,
    run_document,
    run_head,
    size_warning,
    suspended_document,
    time_in_words,
)
from schemas.errors import DamagedError, GlassfleetError, NotFoundError, StorageError
from schemas.limits import MAX_DECODED_BYTES

_log = structlog.get_logger("coordinator")
T = TypeVar("T")


TIDY = 3600.0
"""Seconds between two looks for old events, when there were none."""

LOOKED_BACK = 200
"""Among so many ended runs earlier private ones are looked for: each one's document is read."""


@dataclass(frozen=True)
class Known:
    """All runs at one moment.

    Attributes
    ----------
    suspended : dict of str to dict
        With the documents that tell why.
    past : dict of str to None
        A set, in the order of their ends.
    started : dict of str to float
        When live runs were, seconds since the epoch.
    models : dict of str to dict
        Name, version and digest of a live run's model, once it is registered.
    """

    live: dict[str, RunState] = field(default_factory=dict)
    suspended: dict[str, dict[str, Any]] = field(default_factory=dict)
    past: dict[str, None] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(eq=False)
class Runs:
    """What is known of each run.

    Parameters
    ----------
    wall : callable
        Wall clock, seconds since the epoch; for displays only.
    metrics : Counter
        Counts what was resumed and suspended.
    now : callable
        The coordinator's own time, seconds.
    outages : Outages
        When it had no broker.
    records_days, kept_runs
        See `coordinator.config.CoordinatorConfig`.
    kept_versions : int
        So many versions of each model stay when their runs are forgotten.
    room : callable
        Bytes of the largest answer that can come.

    Attributes
    ----------
    counters : dict of str to Counted
        What was counted since the last record of a live run.
    lacks : dict of str to tuple
        For live runs: the state that was last looked at, and what it lacks.
    """

    engine: Engine
    journal: Journal
    wall: Callable[[], float]
    metrics: Counter[str]
    now: Callable[[], float]
    outages: Outages
    records_days: float
    kept_runs: int
    kept_versions: int
    room: Callable[[], int] = lambda: MAX_DECODED_BYTES
    counters: dict[str, Counted] = field(default_factory=dict, init=False)
    lacks: dict[str, tuple[RunState, Waiting | None]] = field(default_factory=dict, init=False)
    _known: Known = field(init=False)
    # When to look for events that are older than `records_days`.
    _tidy_at: float = field(default=float("-inf"), init=False)
    # Of the API's threads: replaced, never changed. What has ended stays as it is.
    _overviews: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    # Of the API's threads: single entries are read and set, nobody goes through them.
    _moments: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    # Of private runs: a vehicle, and in which earlier runs it answered. Each of these has a document to be read.
    _spent: dict[str, tuple[str, list[dict[str, str]]]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._known = Known(past=dict.fromkeys(self.journal.ended()))

    @property
    def live(self) -> dict[str, RunState]:
        """The runs that go on, as they stand; from any thread, like the next two."""
        return self._known.live

    @property
    def suspended(self) -> dict[str, dict[str, Any]]:
        """The runs that wait for other software."""
        return self._known.suspended

    @property
    def past(self) -> dict[str, None]:
        """The runs that have ended."""
        return self._known.past

    def resume(self) -> None:
        """Go on with what the journal holds; a run whose records are damaged, or cannot be followed, is suspended."""
        offers: dict[Offer, Offer] = {}  # equal ones are kept once, as in the fleet: each record has its own
        for run in self.journal.unfinished():
            first: list[Entry] = []
            try:
                state = fold(self.engine, self._read(run, first))
                if state is not None:
                    agents = {agent: offers.setdefault(offer, offer) for agent, offer in state.agents.items()}
                    state = replace(state, agents=Map(agents))
            except Exception as fault:  # noqa: BLE001  damaged, or a scheme that is gone or has changed
                self._suspend(run, first, fault)
                continue
            if state is not None:
                self.replace_states({run: state}, {})
                self.metrics["runs.resumed"] += 1
                _log.info("run-resumed", run=run, phase=state.phase, round=state.open.number if state.open else 0)

    def _read(self, run: str, first: list[Entry]) -> Iterator[Entry]:
        """Yield the records of a run, of which a large fleet's do not fit into memory; put the first into `first`."""
        for entry in self.journal.records(run):
            if not first:
                first.append(entry)
                self._note_start(run, entry.wall)
            yield entry

    def begin(self, run: str) -> None:
        """Note when a run was started; its state follows with its first event."""
        self._note_start(run, self.wall())

    def _note_start(self, run: str, wall: float) -> None:
        self._known = replace(self._known, started={**self._known.started, run: wall})

    def registered(self, run: str, model: dict[str, Any]) -> None:
        """Note name, version and digest of a live run's model."""
        self._known = replace(self._known, models={**self._known.models, run: model})

    def replace_states(self, states: Mapping[str, RunState], counters: Mapping[str, Counted | None]) -> None:
        """Let new states hold, and new counters; None: everything that was counted is in the journal."""
        if states:
            self._known = replace(self._known, live={**self._known.live, **states})
        self.counters = {run: kept for run, kept in {**self.counters, **counters}.items() if kept is not None}

    def write_counts(self) -> None:
        """Append what was only counted: the last thing that is done."""
        wall = self.wall()
        entries = [entry_of(run, counted, wall) for run, counted in self.counters.items() if run in self.live]
        try:
            self.journal.append(entries)
        except StorageError as fault:
            _log.warning("counts-not-written", reason=str(fault))
        self.counters.clear()

    def close(
        self,
        run: str,
        pinned: Callable[[], Collection[tuple[str, int]]],
        rollouts_from: Callable[[], Mapping[str, float]],
    ) -> None:
        """Let an ended run be past, and forget the oldest ones beyond `kept_runs`.

        Parameters
        ----------
        run : str
            A live one.
        pinned : callable
            Gives the names and versions of models that stay, however old their runs are.
        rollouts_from : callable
            Gives when the oldest rollout of a name began that is remembered; what is older goes.
        """
        known, state = self._known, self.live[run]
        document = self._document(known, state, ended=self.wall())
        self.journal.close_run(run, document, state.at)
        self._tidy_at = float("-inf")
        past = {**known.past, run: None}
        if len(past) > self.kept_runs:
            for forgotten in self.journal.compact(self.kept_runs, self.kept_versions, pinned(), rollouts_from()):
                past.pop(forgotten, None)
        started, models = _without(known.started, run), _without(known.models, run)
        self._known = replace(known, live=_without(known.live, run), past=past, started=started, models=models)
        for memory in (self.counters, self._moments, self.lacks, self._spent):
            memory.pop(run, None)

    def tidy(self) -> None:
        """Let the events of one run go that ended more than `records_days` ago; the next call goes on."""
        now = self.now()
        if now >= self._tidy_at and not self.journal.forget_records(now - 86400.0 * self.records_days):
            self._tidy_at = now + TIDY

    def cancel_suspended(self, run: str, reason: str, at: float) -> None:
        """Let a suspended run be past."""
        ended = suspended_document(self.suspended[run], cancelled=reason, ended=self.wall())
        self.journal.close_run(run, ended, at)
        self._tidy_at = float("-inf")
        known = self._known
        self._known = replace(known, suspended=_without(known.suspended, run), past={**known.past, run: None})

    def __contains__(self, run: str) -> bool:
        """Whether a run of this id was ever started, and is remembered."""
        known = self._known
        return run in known.live or run in known.past or run in known.suspended

    def ids(self) -> list[str]:
        """Ids of all runs, oldest first; from any thread."""
        known = self._known
        return [*known.past, *known.suspended, *known.live]

    def newest(self, most: int | None = None) -> list[str]:
        """Ids of so many runs, or all, the newest first; from any thread."""
        return self.ids()[::-1][:most]

    def documents(self, runs: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yield runs as JSON values, without those that are forgotten meanwhile; from any thread."""
        for run in runs:
            with suppress(NotFoundError):
                yield self.document(run)

    def phases(self) -> dict[str, int]:
        """Return how many runs are in which phase, or suspended; from any thread."""
        known = self._known
        live: Counter[str] = Counter(state.phase for state in known.live.values() if not state.is_ended)
        return {**live, "suspended": len(known.suspended)}

    def deadline(self, run: str) -> float | None:
        """Return when time moves a run, on the coordinator's time line; None: it does not. From any thread."""
        state = self.live.get(run)
        return None if state is None else wakes_at(state)

    def awaited(self) -> int:
        """Return how many answers the open rounds wait for."""
        return sum(state.awaited for state in self.live.values())

    def nullified(self) -> int:
        """Return how many statistics were nulled at the vehicles in the live runs; from any thread."""
        return sum(state.nullified for state in self.live.values())

    def document(self, run: str) -> dict[str, Any]:
        """Return a run as JSON values, from any thread; raises NotFoundError when there is no such run."""
        known = self._known
        state = known.live.get(run)
        if state is not None:
            return self._document(known, state, ended=None, lacks=self._lack_in_words(state))
        document = known.suspended.get(run) or self._past(run)
        if not document:
            raise NotFoundError(f"no run {run!r}")
        return document

    def _past(self, run: str) -> dict[str, Any]:
        """Return the document of a run that has ended; empty: there is none."""
        try:
            return self.journal.document(run) or {}
        except DamagedError as fault:
            return damaged_document(run, str(fault))

    def overviews(self, runs: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return what a list tells of runs, see `coordinator.journal.port.overview`; from any thread.

        Parameters
        ----------
        runs : sequence of str or None
            Those that are forgotten are left out; None: all, oldest first. Of each that has ended the document is
            looked into once.
        """
        known, kept = self._known, self._overviews
        runs = [*known.past, *known.suspended, *known.live] if runs is None else runs
        asked = [run for run in runs if run in known.past and run not in kept]
        damaged = {each.run for each in self.journal.damaged if each.table == "runs"}
        read = self.journal.overviews([run for run in asked if run not in damaged])
        read |= {run: overview(document) for run in asked if run not in read and (document := self._past(run))}
        self._overviews = kept = {run: each for run, each in {**self._overviews, **read}.items() if run in known.past}
        return [each for run in runs if (each := kept.get(run) or self._overview(known, run)) is not None]

    def _overview(self, known: Known, run: str) -> dict[str, Any] | None:
        state = known.live.get(run)
        if state is not None:
            # Without what is about each vehicle: lists are asked for again and again.
            head = run_head(state, **self._shell(known, state), ended=None, lacks=self._lack_in_words(state))
            return overview({**head, "rounds": state.rounds, "cohort": state.cohort})
        return overview(known.suspended[run]) if run in known.suspended else None

    def private_past(self) -> list[dict[str, Any]]:
        """Return the documents of private runs among the last `LOOKED_BACK` that have ended, the newest first."""
        documents = self.documents(islice(reversed(self.past), LOOKED_BACK))
        return [document for document in documents if document["spec"].get("private") is not None]

    def _document(self, known: Known, state: RunState, *, ended: float | None, lacks: str = "") -> dict[str, Any]:
        document = run_document(self.engine, state, **self._shell(known, state), ended=ended, lacks=lacks)
        if ended is None and (warning := size_warning(self.engine, state, self.room())):
            document["warning"] = warning
        if state.spec.private is None or not (agent := least_allowing(document)):
            return document
        if (found := self._spent.get(state.run)) is None or found[0] != agent:
            found = self._spent[state.run] = (agent, spent_in(agent, document, self.private_past()))
        return {**document, "spent_in": found[1]}

    def _shell(self, known: Known, state: RunState) -> dict[str, Any]:
        """Return what is known of a run beside its state."""
        return {"started": known.started.get(state.run, self.wall()), "model": known.models.get(state.run)}

    def _lack_in_words(self, state: RunState) -> str:
        """Say what a run waits for that may not come; empty when nothing is amiss. From any thread."""
        until, since = gives_up_at(state), self.outages.since
        if until is None:
            return ""
        lines = []
        if since is not None:
            lines.append(f"the coordinator has had no broker since {self._moment('', since)}")
        if (lack := self._waiting(state)) is not None:
            at = (lack.otherwise and wakes_at(state)) or until
            lines.append(lack.words(self._moment(state.run, at)))
        return "; ".join(lines)

    def _waiting(self, state: RunState) -> Waiting | None:
        """Return what a run lacks, found once for each state: it takes a look at every vehicle."""
        known = self.lacks.get(state.run)
        if known is None or known[0] is not state:
            known = self.lacks[state.run] = (state, waiting(state))
            if state.run not in self.live:  # closed meanwhile, by another thread
                self.lacks.pop(state.run, None)
        return known[1]

    def _moment(self, what: str, at: float) -> str:
        """Return a time of the coordinator's own in words: the same for the same time, whatever the wall clock does."""
        known = self._moments.get(what)
        wall = self.wall()
        if known is None or known[0] != at:
            known = self._moments[what] = (at, wall + at - self.now())
        return time_in_words(known[1], wall)

    def _suspend(self, run: str, entries: Sequence[Entry], fault: Exception) -> None:
        """Leave a run in the journal that this software cannot go on with; the other runs must not wait for it."""
        detail = str(fault) if isinstance(fault, GlassfleetError) else f"{type(fault).__name__}: {fault}"
        way_out = (
            "Cancel it" if isinstance(fault, DamagedError) else "Install what it needs and start again, or cancel it"
        )
        about = {
            "run": run,
            "spec": spec_of(entries),
            "started": entries[0].wall if entries else 0.0,
            "reason": f"suspended: {detail[:300]}. {way_out}",
        }
        self._known = replace(self._known, suspended={**self._known.suspended, run: suspended_document(about)})
        self.metrics["runs.suspended"] += 1
        _log.error("run-suspended", run=run, reason=detail)


def _without(table: dict[str, T], key: str) -> dict[str, T]:
    return {name: value for name, value in table.items() if name != key}
