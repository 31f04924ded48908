"""The effects of runs, performed once the journal has them. What is said is counted and logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
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
    WaitsForFormer,
    standing,
)
from coordinator.messages.publisher import Publisher
from coordinator.models.lifecycle import Models
from coordinator.models.rollout.shell import Rollouts
from coordinator.runs.directory import Runs
from coordinator.runs.observer import canonical, place
from coordinator.runs.preflight import Preflight
from coordinator.runs.transaction import Ready
from glassfleet.discovery.guard import in_words
from schemas.messages import Outcome
from schemas.parts import Retained

_log = structlog.get_logger("coordinator")


@dataclass(eq=False)
class EffectHandler:
    """Does what the engine asks for.

    Parameters
    ----------
    preflight : Preflight
        For what is said again.
    metrics : Counter
        Counts what is performed.
    now : callable
        The coordinator's own time, seconds.
    """

    runs: Runs
    publisher: Publisher
    models: Models
    rollouts: Rollouts
    preflight: Preflight
    metrics: Counter[str]
    now: Callable[[], float]

    def perform(self, effect: Effect, state: RunState | None, ready: Mapping[str, Retained]) -> None:
        """Do one thing.

        Parameters
        ----------
        state : RunState or None
            Its run, as it stands; None when it is not live.
        ready : mapping of str to Retained
            As the preflight left it.
        """
        # A receipt may concern a round before the one that is open by now; 0: none was opened.
        task = effect.task_digest if isinstance(effect, SendReceipt) else ""
        log = _log.bind(run=effect.run, **({"round": 0} | place(state, task)))
        match effect:
            case OpenRound():
                self.publisher.request(effect.run, ready[effect.key])
                self._log_opened(effect, log)
            case ClearRequest():
                self.publisher.clear(effect.run)
            case SendReceipt():
                self.receipt(effect, log)
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

    def receipt(self, effect: SendReceipt, log: Any) -> None:
        """Tell an agent what became of its answer."""
        self.metrics[f"receipts.{effect.outcome}"] += 1
        self.publisher.receipt(effect)
        tell = log.debug if effect.outcome == "accepted" else log.info
        tell("answered", agent=effect.agent, outcome=effect.outcome, reason=effect.reason, task=effect.task_digest[:12])

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
        self.receipt(SendReceipt(run, event.agent, event.task_digest, outcome, reason), _log.bind(run=run))

    @staticmethod
    def _log_outliers(effect: RoundClosed, state: RunState | None, log: Any) -> None:
        """Name the vehicles that stand out, once: with the round that found the domain, or the limit of rows."""
        if state is None or state.domain is None or state.open is None:
            return
        if effect.summary.phase == "domain" or effect.summary.number == state.open.number == 1:
            for agent, words in in_words(state.guard, state.max_rows_each):
                log.warning("vehicle-stands-out", what=f"{agent}: {words}")

    def _log_opened(self, effect: OpenRound, log: Any) -> None:
        self.metrics["rounds.opened"] += 1
        log.info(
            "round-opened",
            round=effect.number,
            phase=effect.phase,
            attempt=effect.attempt,
            kind=effect.task.kind,
            asked="all" if effect.asked is None else len(effect.asked),
            remaining=round(max(0.0, effect.closes_at - self.now()), 3),
        )
