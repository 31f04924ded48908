"""The effects of runs: whether they can be performed, and performed once the journal has them. What is said is logged.

Observers (metrics) hear of every effect that was performed, and can change nothing: neither the engine nor
`core` knows Prometheus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from coordinator.engine import (
    Answer,
    ClearRequest,
    Effect,
    Ended,
    InfluenceUnknown,
    Malformed,
    OpenRound,
    Publish,
    Refused,
    Restarted,
    RoundClosed,
    RunState,
    SendReceipt,
    Unable,
    WaitsForFormer,
    standing,
)
from coordinator.engine.state import RoundSummary
from coordinator.messages import Publisher
from coordinator.models.lifecycle import Models
from coordinator.models.publication import ModelPublisher
from coordinator.models.registry import Registry
from coordinator.models.rollout.shell import Rollouts
from coordinator.runs.directory import Runs
from coordinator.runs.transaction import Ready
from glassfleet.discovery.guard import in_words
from schemas.envelope import Retained
from schemas.errors import GlassfleetError, StorageError
from schemas.messages import Outcome, Receipt

_log = structlog.get_logger("coordinator")


@dataclass(eq=False)
class EffectHandler:
    """Does what the engine asks for.

    Parameters
    ----------
    metrics : Counter
        Counts what is performed.
    now : callable
        The coordinator's own time, seconds.
    """

    runs: Runs
    publisher: Publisher
    models: Models
    published: ModelPublisher
    registry: Registry
    rollouts: Rollouts
    metrics: Counter[str]
    now: Callable[[], float]

    def preflight(
        self, state: RunState, effects: Iterable[Effect], ready: Ready, *, again: bool = False
    ) -> Unable | None:
        """Return what stands against performing the effects; None: nothing. Tells nobody: it is a part of deciding.

        Parameters
        ----------
        state : RunState
            The run after the step that caused them.
        ready : dict of str to Retained
            Takes the requests, by key, so that they need not be cut twice.
        again : bool
            Whether they were performed before: what is in the registry was publishable.

        Raises
        ------
        StorageError
            The registry cannot be read.
        """
        for effect in effects:
            try:
                if isinstance(effect, OpenRound):
                    ready[effect.key] = self.publisher.prepare(effect)
                elif isinstance(effect, Publish) and not (again and self.registry.has(effect)):
                    self.published.check_model(effect, state)
            except StorageError:
                raise
            except Exception as fault:  # noqa: BLE001  a model's own code runs here
                cause = "request-too-large" if isinstance(effect, OpenRound) else "model-unpublishable"
                detail = str(fault) if isinstance(fault, GlassfleetError) else f"{type(fault).__name__}: {fault}"
                # The round that cannot be opened is not yet the one where the run stands.
                about = {"phase": effect.phase, "round": effect.number} if isinstance(effect, OpenRound) else {}
                _log.error(cause, run=effect.run, detail=detail, **(place(state) | about))
                return Unable(self.now(), cause, detail[:400])
        return None

    def perform(self, effect: Effect, state: RunState | None, ready: Mapping[str, Retained]) -> None:
        """Do one thing.

        Parameters
        ----------
        state : RunState or None
            Its run, as it stands; None when it is not live.
        ready : mapping of str to Retained
            As the preflight left it.
        """
        if isinstance(effect, SendReceipt):
            self.receipt(effect, state)
            return
        log = _log.bind(run=effect.run, **({"round": 0} | place(state)))
        match effect:
            case OpenRound():
                self.publisher.request(effect.run, ready[effect.key])
                self._log_opened(effect, state, log)
            case ClearRequest():
                self.publisher.clear(effect.run)
            case RoundClosed():
                self.metrics["rounds.closed"] += 1
                log.info("round-closed", **canonical(effect.summary, state))
                self._log_outliers(effect, state, log)
            case Restarted():
                self.metrics["runs.restarts"] += 1
                log.warning("run-replayed", round=effect.number, lost=list(effect.lost))
            case WaitsForFormer(vehicles=vehicles):
                log.info("waits-for-former", vehicles=list(vehicles), note="without them others are left out")
            case InfluenceUnknown(reason=reason):
                log.error("influence-unknown", reason=reason, note="nobody is named, though one may have lied")
            case Publish():
                assert state is not None  # its `Ended` comes after it
                self._log_harm(state, log)
                self.runs.registered(effect.run, self.models.register(effect, state, log))
            case Ended():
                self.runs.close(effect.run, self.models.pinned, self.rollouts.remembered_from)
                self.metrics[f"runs.{effect.outcome}"] += 1
                log.info("run-ended", outcome=effect.outcome, reason=effect.reason)

    @staticmethod
    def _log_harm(state: RunState, log: Any) -> None:
        if state.harmful is not None:
            words = state.harmful.in_words("it")
            log.warning("vehicle-stands-out", what=f"{state.harmful.agent}: {words}")

    def receipt(self, effect: SendReceipt, state: RunState | None) -> None:
        """Tell an agent what became of its answer; `state` is the run as it stands, None when it is not live."""
        receipt = effect.receipt
        self.metrics[f"receipts.{receipt.outcome}"] += 1
        self.publisher.receipt(effect)
        if receipt.outcome != "accepted":
            # It may concern a round before the one that is open by now; 0: none was opened.
            where = {"run": receipt.run, "round": 0} | place(state, receipt.task_digest)
            where |= {"agent": effect.agent, "task": receipt.task_digest[:12]}
            _log.info("answered", outcome=receipt.outcome, reason=receipt.reason, **where)

    def adopt(self, state: RunState) -> None:
        """Take note of the parts of a standing request, which a former life may have published.

        The round may be another before the broker is there, and not every broker tells what is retained.
        """
        ready: Ready = {}
        self.preflight(state, standing(state), ready, again=True)
        for retained in ready.values():
            self.publisher.adopt(state.run, retained.blobs)

    def check_request(self, run: str, blobs: tuple[str, ...]) -> None:
        """Take note of a request of ours on the broker, and of the topics that it names; see `Publisher.seen`."""
        if run in self.runs.suspended:
            self.publisher.adopt(run, blobs)
        else:
            self.publisher.seen(run, blobs, is_live=run in self.runs.live)

    def reply_not_live(self, run: str, event: Answer | Refused | Malformed) -> None:
        """Tell an agent what becomes of its answer to a run that is not live."""
        if run in self.runs.suspended:
            # No receipt: the agent keeps its answer and sends it again, for the day when the run goes on.
            self.metrics["ignored.suspended"] += 1
            return
        outcome: Outcome = "late" if run in self.runs.past else "unknown-run"
        reason = "the run has ended" if run in self.runs.past else ""
        if isinstance(event, Malformed):
            outcome, reason = "rejected", event.reason
        receipt = Receipt(run=run, task_digest=event.task_digest, outcome=outcome, reason=reason)
        self.receipt(SendReceipt(run, event.agent, receipt), None)

    @staticmethod
    def _log_outliers(effect: RoundClosed, state: RunState | None, log: Any) -> None:
        """Name the vehicles that stand out, once: with the round that found the domain, or the limit of rows."""
        if state is None or state.domain is None or state.open is None:
            return
        if effect.summary.phase == "domain" or effect.summary.number == state.open.number == 1:
            for agent, words in in_words(state.guard, state.max_rows_each):
                log.warning("vehicle-stands-out", what=f"{agent}: {words}")

    def _log_opened(self, effect: OpenRound, state: RunState | None, log: Any) -> None:
        self.metrics["rounds.opened"] += 1
        log.info(
            "round-opened",
            round=effect.number,
            phase=effect.phase,
            attempt=effect.attempt,
            kind=effect.task.kind,
            asked=len(state.open.asked) if state is not None and state.open is not None else 0,
            remaining=round(max(0.0, effect.closes_at - self.now()), 3),
        )


class Observer:
    """Who is told, and ignores it. All calls come from the coordinator's thread; they must return at once."""

    def performed(self, effect: Effect, state: RunState | None, now: float) -> None:
        """Hear of an effect that was performed, perhaps not for the first time.

        Parameters
        ----------
        state : RunState or None
            The run after the step that caused the effect; None when the run is not live.
        now : float
            The coordinator's own time, seconds.
        """

    def appended(self, seconds: float, records: int) -> None:
        """Hear how long one journal transaction with so many records took."""

    def resumed(self, seconds: float, runs: int) -> None:
        """Hear how long reading the journal took at the start, and how many runs go on."""


def end_of(summary: RoundSummary, state: RunState | None) -> str:
    """Return how a round ended: ``complete``, ``partial`` (somebody was dropped) or ``missed`` (too few answers)."""
    if state is not None and state.reason.startswith("quorum-not-met") and state.rounds[-1:] == (summary,):
        return "missed"
    return "partial" if summary.dropped_agents else "complete"


def place(state: RunState | None, task_digest: str = "") -> dict[str, Any]:
    """Return where a run stands, for log lines about it.

    Parameters
    ----------
    state : RunState or None
        None: the run is over, or not known.
    task_digest : str
        The task that the line is about, when it is about one; it may belong to an earlier round.

    Returns
    -------
    dict
        ``phase`` and ``round`` of the task, else of the open round, else of the last one that closed; empty when there
        is none.
    """
    if state is None:
        return {}
    current = state.open
    if task_digest and (current is None or current.digest != task_digest):
        for summary in reversed(state.rounds):
            if summary.task_digest == task_digest:
                return {"phase": summary.phase, "round": summary.number}
    if current is not None:
        return {"phase": current.kind, "round": current.number}
    if state.rounds:
        return {"phase": state.rounds[-1].phase, "round": state.rounds[-1].number}
    return {}


def canonical(summary: RoundSummary, state: RunState | None) -> dict[str, Any]:
    """Return the fields of the one log line that says everything about a round."""
    return {
        "scheme": "" if state is None else state.spec.scheme,
        "phase": summary.phase,
        "round": summary.number,
        "attempt": summary.attempt,
        "kind": summary.kind,
        "end": end_of(summary, state),
        "asked": len(summary.asked_agents),
        "accepted": len(summary.accepted_agents),
        "late": summary.late,
        "duplicate": summary.duplicate,
        "rejected": summary.rejected,
        "dropped": dict(summary.dropped_agents),
        "seconds": round(summary.seconds, 3),
        "bytes": summary.bytes,
    }
