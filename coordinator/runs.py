"""The runs of a coordinator as its journal has them: live, suspended and past. Says nothing to anybody.

A *live* run has a state: `resume` folds it from the journal, `take_over` puts the next in its place once the events
that led to it are appended, and `close` lets the run be past when its end is performed. A *suspended* one is in the
journal, and this software cannot follow it. A *past* one is known by its document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import structlog

from coordinator.engine import Engine, RunState, Waiting, gives_up_at, waiting
from coordinator.engine.books import Books
from coordinator.journal.port import Entry, Journal
from coordinator.observer import place
from coordinator.outages import Outages
from coordinator.records import entry_of, fold, spec_of
from coordinator.view import damaged_document, run_document, suspended_document, time_in_words
from schemas.errors import DamagedError, GlassfleetError, NotFoundError, StorageError

_log = structlog.get_logger("coordinator")


class Runs:
    """What is known of each run.

    Parameters
    ----------
    engine : Engine
    journal : Journal
    wall : callable
        Wall clock, seconds since the epoch; for displays only.
    metrics : Counter
        Counts what was resumed and suspended.
    now : callable
        The coordinator's own time, seconds.
    outages : Outages
        When it had no broker.
    keep_records : bool
        Whether the events of ended runs stay in the journal.
    kept_runs : int
        So many ended runs are remembered.
    kept_versions : int
        So many versions of each model stay when their runs are forgotten.

    Attributes
    ----------
    live : dict of str to RunState
    suspended : dict of str to dict
        With the documents that tell why.
    past : dict of str to None
        A set, in the order of their ends.
    books : dict of str to Books
        What was counted since the last record of a live run.
    models : dict of str to dict
        Name, version and digest of a live run's model, once it is registered.
    """

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        wall: Callable[[], float],
        metrics: Counter[str],
        *,
        now: Callable[[], float],
        outages: Outages,
        keep_records: bool,
        kept_runs: int,
        kept_versions: int,
    ) -> None:
        self.live: dict[str, RunState] = {}
        self.suspended: dict[str, dict[str, Any]] = {}
        self.past: dict[str, None] = dict.fromkeys(journal.ended())
        self.books: dict[str, Books] = {}
        self.models: dict[str, dict[str, Any]] = {}
        self._started: dict[str, float] = {}
        self._engine = engine
        self._journal = journal
        self._wall = wall
        self._metrics = metrics
        self._now = now
        self._outages = outages
        self._moments: dict[str, tuple[float, float]] = {}
        self._found: dict[str, tuple[RunState, Waiting | None]] = {}
        self._keep_records = keep_records
        self._kept_runs = kept_runs
        self._kept_versions = kept_versions

    def resume(self) -> None:
        """Go on with what the journal holds; a run whose records are damaged, or cannot be followed, is suspended."""
        for run in self._journal.unfinished():
            entries: list[Entry] = []
            try:
                # All of them first: nothing may hold the database open while it is written to.
                entries.extend(self._journal.records(run))
            except DamagedError as fault:
                self._suspend(run, entries, fault)
                continue
            try:
                self._started[run] = entries[0].wall
                state = fold(self._engine, entries)
            except Exception as fault:  # noqa: BLE001  a scheme that is gone or has changed may raise anything
                self._suspend(run, entries, fault)
                continue
            if state is not None:
                self.live[run] = state
                self._metrics["runs.resumed"] += 1
                _log.info("run-resumed", run=run, **({"phase": state.phase, "round": 0} | place(state)))

    def begin(self, run: str) -> None:
        """Note when a run was started; its state follows with its first event."""
        self._started[run] = self._wall()

    def take_over(self, states: Mapping[str, RunState], books: Mapping[str, Books | None]) -> None:
        """Let new states hold, and new books; None: everything that was counted is in the journal."""
        self.live.update(states)
        for run, kept in books.items():
            self.books.pop(run, None)
            if kept is not None:
                self.books[run] = kept

    def write_counts(self) -> None:
        """Append what was only counted: the last thing that is done."""
        wall = self._wall()
        entries = [entry_of(run, books.event(), wall) for run, books in self.books.items() if run in self.live]
        try:
            self._journal.append(entries)
        except StorageError as fault:
            _log.warning("counts-not-written", reason=str(fault))
        self.books.clear()

    def close(self, run: str, pinned: Callable[[], Collection[tuple[str, int]]]) -> None:
        """Let an ended run be past, and forget the oldest ones beyond `kept_runs`.

        Parameters
        ----------
        run : str
            A live one.
        pinned : callable
            Gives the names and versions of models that stay, however old their runs are.
        """
        state = self.live[run]
        document = self._document(state, started=self._started.get(run, self._wall()), ended=self._wall())
        self._journal.close_run(run, document, state.at, keep_records=self._keep_records)
        self.past[run] = None
        if len(self.past) > self._kept_runs:
            for forgotten in self._journal.compact(self._kept_runs, self._kept_versions, pinned()):
                self.past.pop(forgotten, None)
        del self.live[run]
        for memory in (self._started, self.models, self.books, self._moments, self._found):
            memory.pop(run, None)

    def cancel_suspended(self, run: str, reason: str, at: float) -> None:
        """Let a suspended run be past."""
        ended = suspended_document(self.suspended[run], cancelled=reason, ended=self._wall())
        self._journal.close_run(run, ended, at, keep_records=self._keep_records)
        self.past[run] = None
        del self.suspended[run]

    def __contains__(self, run: str) -> bool:
        """Whether a run of this id was ever started, and is remembered."""
        return run in self.live or run in self.past or run in self.suspended

    def ids(self) -> list[str]:
        """Ids of all runs, oldest first."""
        return [*self.past, *self.suspended, *self.live]

    def phases(self) -> dict[str, int]:
        """Return how many runs are in which phase, or suspended; from any thread."""
        live: Counter[str] = Counter(state.phase for state in list(self.live.values()) if not state.is_ended)
        return {**live, "suspended": len(self.suspended)}

    def nullified(self) -> int:
        """Return how many statistics were nulled at the vehicles in the live runs; from any thread."""
        return sum(state.nullified for state in list(self.live.values()))

    def document(self, run: str) -> dict[str, Any]:
        """Return a run as JSON values; raises NotFoundError when there is no such run."""
        state = self.live.get(run)
        if state is not None:
            return self._document(state, started=self._started.get(run, 0.0), ended=None, lacks=self._lacks(state))
        try:
            document = self.suspended.get(run) or self._journal.document(run)
        except DamagedError as fault:
            return damaged_document(run, str(fault))
        if document is None:
            raise NotFoundError(f"no run {run!r}")
        return document

    def _document(self, state: RunState, *, started: float, ended: float | None, lacks: str = "") -> dict[str, Any]:
        model = self.models.get(state.run)
        return run_document(self._engine, state, started=started, ended=ended, model=model, lacks=lacks)

    def _lacks(self, state: RunState) -> str:
        """Say what a run waits for that may not come; empty when nothing is amiss. From any thread."""
        until, since = gives_up_at(state), self._outages.since
        if until is None:
            return ""
        told = []
        if since is not None:
            told.append(f"the coordinator has had no broker since {self._moment('', since)}")
        if (found := self._waiting(state)) is not None:
            told.append(found.words(self._moment(state.run, until)))
        return "; ".join(told)

    def _waiting(self, state: RunState) -> Waiting | None:
        """Return what a run lacks, found once for each state: it takes a look at every vehicle."""
        known = self._found.get(state.run)
        if known is None or known[0] is not state:
            known = self._found[state.run] = (state, waiting(state))
            if state.run not in self.live:  # closed meanwhile, by another thread
                self._found.pop(state.run, None)
        return known[1]

    def _moment(self, what: str, at: float) -> str:
        """Return a time of the coordinator's own in words: the same for the same time, whatever the wall clock does."""
        known = self._moments.get(what)
        wall = self._wall()
        if known is None or known[0] != at:
            known = self._moments[what] = (at, wall + at - self._now())
        return time_in_words(known[1], wall)

    def _suspend(self, run: str, entries: Sequence[Entry], fault: Exception) -> None:
        """Leave a run in the journal that this software cannot go on with; the other runs must not wait for it."""
        detail = str(fault) if isinstance(fault, GlassfleetError) else f"{type(fault).__name__}: {fault}"
        way_out = (
            "Cancel it" if isinstance(fault, DamagedError) else "Install what it needs and start again, or cancel it"
        )
        self.suspended[run] = suspended_document(
            {
                "run": run,
                "spec": spec_of(entries),
                "started": entries[0].wall if entries else 0.0,
                "reason": f"suspended: {detail[:300]}. {way_out}",
            }
        )
        self._metrics["runs.suspended"] += 1
        _log.error("run-suspended", run=run, reason=detail)
