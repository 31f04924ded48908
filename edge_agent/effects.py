"""What the session asks for, done: answers computed, kept until their receipt, sent, and sent again.

The session decides when; here is how. What becomes of an answer is told back to it as an event. An answer that may take
long is computed in another process, at most one at a time; meanwhile all else goes on, light answers to other runs too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from edge_agent.messages import Publisher
from edge_agent.session.accounts import Allowance, Disclosures, OverBudgetError, numbers_in
from edge_agent.session.answers import Answerer
from edge_agent.session.events import (
    Compute,
    Computed,
    ComputeFailed,
    Effect,
    EndRun,
    Event,
    Forget,
    Park,
    Refuse,
    RequestSeen,
    Send,
)
from edge_agent.session.outbox import Outbox
from edge_agent.session.private import PRIVATE, PrivateAnswers
from edge_agent.session.snapshots import Snapshot
from edge_agent.sources import Source
from edge_agent.worker import LOOK, WorkerError, WorkItem
from glassfleet.data.sampling import recent
from glassfleet.errors import PrivacyError, TaskError
from schemas.errors import BrokerError, DataError, StorageError, UsageError
from schemas.log import Log
from schemas.messages import ContributionBody, Receipt

WAITING: Final = 4
"""Most long answers that wait for the one that is computed; whoever came later would wait for many budgets of time."""


@dataclass(frozen=True)
class _Long:
    """An answer that is computed in another process."""

    asked: RequestSeen
    snapshot: Snapshot
    began: float
    work: WorkItem


class Effects:
    """Performs the effects of a session.

    Parameters
    ----------
    source : Source
        The vehicle's rows.
    answerer : Answerer
    outbox : Outbox
    publisher : Publisher
    private : PrivateAnswers
    allowance : Allowance
        Counts what is spent, and says when nothing more is given.
    disclosures : Disclosures
        Takes note of each answer, for the vehicle's owner.
    clock : callable
        Seconds that only go forward.
    tell : callable
        Takes an event for the session.
    counts : Counter
        Counts answers, sends and refusals.
    log : Log
    slow : float
        Seconds that an answer takes on its way; 0 for a real link.

    Attributes
    ----------
    jobs : dict
        The answers to be computed next, by run and digest of the task.
    """

    def __init__(
        self,
        source: Source,
        answerer: Answerer,
        outbox: Outbox,
        publisher: Publisher,
        *,
        private: PrivateAnswers,
        allowance: Allowance,
        disclosures: Disclosures,
        clock: Callable[[], float],
        tell: Callable[[Event], None],
        counts: Counter[str],
        log: Log,
        slow: float,
    ) -> None:
        self.jobs: dict[tuple[str, str], RequestSeen] = {}
        self._source = source
        self._answerer = answerer
        self._outbox = outbox
        self._publisher = publisher
        self._private = private
        self._allowance = allowance
        self._disclosures = disclosures
        self._clock = clock
        self._tell = tell
        self._counts = counts
        self._log = log
        self._slow = slow
        self._long: _Long | None = None
        self._waiting: dict[tuple[str, str], RequestSeen] = {}  # long ones whose turn comes
        self._on_the_way: dict[tuple[str, str], tuple[float, int]] = {}

    def perform(self, effect: Effect) -> None:
        """Do one thing; what takes long waits for `work`."""
        match effect:
            case Compute(asked):
                self.jobs[asked.run, asked.request.task_digest] = asked
            case Send(run=run, task_digest=digest, tries=tries) if self._slow:
                # A slow link: what is on it cannot be called back, though a newer request may have parked the answer.
                # One copy of it at most, and each leaves after the same time: nothing piles up.
                self._on_the_way.setdefault((run, digest), (self._clock() + self._slow, tries))
            case Send(run=run, task_digest=digest, tries=tries):
                self._send(run, digest, tries)
            case Refuse():
                self._refuse(effect)
            case Park(run=run, task_digest=digest):
                self._abandon(run, digest)
                self._outbox.park(run, digest)
            case Forget(receipt):
                self._abandon(receipt.run, receipt.task_digest)
                about = self._about(effect)
                self._outbox.end(receipt.run, receipt.task_digest, receipt.outcome)
                say = self._log.info if receipt.outcome in ("accepted", "duplicate") else self._log.warning
                say("receipt", outcome=receipt.outcome, reason=receipt.reason, **about)
            case EndRun(run=run):
                self._abandon(run)
                self._outbox.end_run(run)
                self._answerer.drop(run)

    def work(self, now: float) -> None:
        """Compute the answers that wait, and let go what is due on a slow link."""
        if self._long is not None and self._long.work.done():
            long, self._long = self._long, None
            self._conclude(long)
        if self._waiting and self._long is None and WorkItem.has_room("answer"):
            key = next(iter(self._waiting))
            self.jobs[key] = self._waiting.pop(key)
        for key, asked in list(self.jobs.items()):
            if key in self.jobs:
                del self.jobs[key]
                self._answer(asked)
        for key, (due, tries) in list(self._on_the_way.items()):
            if due <= now:
                del self._on_the_way[key]
                self._send(*key, tries)

    def dues(self, now: float) -> list[float]:
        """Return when there is something for `work`."""
        looks = [now + LOOK] if self._waiting or self._long is not None else []
        return looks + [now for _ in self.jobs] + [due for due, _ in self._on_the_way.values()]

    def stop(self) -> None:
        """End what is being computed: nothing of it is sent, and it is asked for again."""
        if self._long is not None:
            self._long.work.end()
            self._long = None

    def _abandon(self, run: str, digest: str | None = None) -> None:
        """Stop computing an answer (None: all of a run), or leave it uncomputed."""
        for jobs in (self.jobs, self._waiting):
            for key in [key for key in jobs if key[0] == run and digest in (None, key[1])]:
                del jobs[key]
        asked = None if self._long is None else self._long.asked
        if asked is not None and asked.run == run and digest in (None, asked.request.task_digest):
            self._log.info("answer-abandoned", run=run, round=asked.round)
            self.stop()

    def _refuse(self, effect: Refuse) -> None:
        self._counts["refusals"] += 1
        self._log.warning("refused", run=effect.run, round=effect.round, reason=effect.body.reason)
        self._publisher.refusal(effect)

    def _answer(self, asked: RequestSeen) -> None:
        run, digest = asked.run, asked.request.task_digest
        if self._outbox.get(run, digest) is not None:
            self._outbox.unpark(run, digest)
            self._tell(Computed(run, digest))
            return
        began = self._clock()

        def compute() -> ContributionBody | None:
            self._allowance.check(run)
            self._private.choose(asked)
            try:
                rows = self._private.rows(asked, self._source.current().train)
                window = asked.request.window
                if window is not None and not self._answerer.has_snapshot(run):
                    before, rows = rows.rows, recent(rows, window)
                    self._log.info("window", run=run, rows=rows.rows, of=before)
            except (DataError, StorageError) as fault:
                raise TaskError(str(fault)) from fault
            snapshot = self._answerer.snapshot(run, rows)
            self._private.check(asked, snapshot, rows)
            if self._answerer.is_light(asked.task, snapshot):
                return self._answerer.compute(asked, snapshot)
            if self._long is not None or not WorkItem.has_room("answer"):
                if len(self._waiting) >= WAITING:
                    raise TaskError(f"over-budget: {WAITING} long answers wait here already")
                self._waiting[run, digest] = asked
                return None
            self._long = _Long(asked, snapshot, began, self._answerer.start(asked, snapshot))
            self._log.info("answering-apart", run=run, round=asked.round, kind=asked.task.kind, task=digest[:8])
            return None

        self._finish(asked, began, compute)

    def _conclude(self, long: _Long) -> None:
        """Take the answer that another process left."""
        asked, snapshot = long.asked, long.snapshot
        try:
            self._finish(asked, long.began, lambda: self._answerer.body(asked, snapshot, long.work.result()))
        finally:
            long.work.end()

    def _finish(self, asked: RequestSeen, began: float, compute: Callable[[], ContributionBody | None]) -> None:
        """Store what `compute` returns, or refuse with its reason; None: it comes later."""
        run, digest, task = asked.run, asked.request.task_digest, asked.task
        is_private = asked.request.private is not None or task.scheme == PRIVATE
        try:
            body = compute()
            if body is None:
                return
            payload = self._publisher.pack(body, asked, self._outbox.max_bytes)
        except PrivacyError as fault:  # its details stay here
            self._log.warning("not-answered", run=run, round=asked.round, reason=str(fault))
            self._tell(ComputeFailed(run, digest, fault.reason))
            return
        except TaskError as fault:
            if is_private:
                self._log.warning("not-answered", run=run, round=asked.round, reason=str(fault))
                self._private.leave(run)
            is_secret = is_private and not isinstance(fault, OverBudgetError)
            self._tell(ComputeFailed(run, digest, "cannot-answer" if is_secret else str(fault)))
            return
        except StorageError:
            raise
        except Exception as fault:  # noqa: BLE001 - it is logged
            # A task comes from a peer, and a scheme may come from another package: neither may end the agent.
            why = "see the vehicle's log" if isinstance(fault, WorkerError) else type(fault).__name__
            self._log.exception("answer-failed", run=run, round=asked.round, scheme=task.scheme)
            if is_private:
                self._private.leave(run)
            self._tell(ComputeFailed(run, digest, "cannot-answer" if is_private else f"internal fault: {why}"))
            return
        self._allowance.spend(run, seconds=self._clock() - began, answers=1)
        self._counts["answers"] += 1
        if task.scheme == PRIVATE and not self._private.is_signed:
            note = (
                "nobody signs in this fleet: whoever controls the broker can swap keys, and read this vehicle's numbers"
            )
            self._log.warning("private-run-unsigned", run=run, note=note)
        self._log.info(
            "answered",
            run=run,
            round=asked.round,
            kind=task.kind,
            task=digest[:8],
            rows=body.rows,
            size=len(payload),
            seconds=round(self._clock() - began, 4),
        )
        numbers = numbers_in(body.contribution)
        self._disclosures.note(run, task.scheme, numbers, *self._private.protection(asked))
        for lost in self._outbox.put(run, digest, payload):
            about = {"run": run, "round": asked.round, "task": digest[:8]}
            self._log.warning("outbox-full", limit=self._outbox.max_bytes, lost=f"{lost[0]}/{lost[1][:8]}", **about)
            why = "gave way: the outbox is full"
            self._tell(Receipt(run=lost[0], task_digest=lost[1], outcome="rejected", reason=why))
        self._tell(Computed(run, digest))

    def _send(self, run: str, digest: str, tries: int) -> None:
        payload = self._outbox.get(run, digest)
        if payload is None:
            return
        envelope = self._publisher.stored(payload)
        self._allowance.spend(run, size=len(payload))
        self._counts["sends"] += 1
        if tries > 1:
            self._counts["resends"] += 1
            self._log.info("resent", run=run, round=envelope.round, task=digest[:8], tries=tries)
        try:
            self._publisher.answer(envelope)
        except (BrokerError, UsageError, ValueError) as fault:
            # It was small enough when it was computed; this broker takes less. A setting is wrong, not the program: the
            # reason says which, a traceback would hide it.
            self._log.error("answer-too-large", reason=str(fault), run=run, round=envelope.round, task=digest[:8])

    def _about(self, effect: Forget) -> dict[str, Any]:
        """Return what a log line about a task says: its run, and its round as far as somebody knows it."""
        run, digest = effect.receipt.run, effect.receipt.task_digest
        about: dict[str, Any] = {"run": run, "task": digest[:8]}
        if effect.round:
            return about | {"round": effect.round}
        # After a restart, until the coordinator asks again, only the stored answer knows.
        payload = self._outbox.get(run, digest)
        if payload is not None:
            about["round"] = self._publisher.stored(payload).round
        return about
