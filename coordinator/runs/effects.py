"""The effects of runs, performed once the journal has them. What is said is counted and logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from coordinator.engine import (
    Answer,
    ClearRequest,
    Effect,
    Ended,
    Malformed,
    OpenRound,
    Publish,
    Refused,
    Restarted,
    RoundClosed,
    RunState,
    SendReceipt,
    standing,
)
from coordinator.messages.publisher import Publisher
from coordinator.models.lifecycle import Models
from coordinator.runs.directory import Runs
from coordinator.runs.observer import canonical, place
from coordinator.runs.preflight import Preflight
from coordinator.runs.transaction import Ready
from glassfleet.discovery.guard import in_words
from schemas.messages import Outcome
from schemas.parts import Retained

_log = structlog.get_logger("coordinator")


class EffectHandler:
    """Does what the engine asks for.

    Parameters
    ----------
    runs : Runs
    publisher : Publisher
    models : Models
    preflight : Preflight
        For what is said again.
    metrics : Counter
        Counts what is performed.
    now : callable
        The coordinator's own time, seconds.
    """

    def __init__(
        self,
        runs: Runs,
        publisher: Publisher,
        models: Models,
        preflight: Preflight,
        *,
        metrics: Counter[str],
        now: Callable[[], float],
    ) -> None:
        self._runs = runs
        self._publisher = publisher
        self._models = models
        self._preflight = preflight
        self._metrics = metrics
        self._now = now

    def perform(self, effect: Effect, state: RunState | None, ready: Mapping[str, Retained]) -> None:
        """Do one thing.

        Parameters
        ----------
        effect : Effect
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
                self._publisher.request(effect.run, ready[effect.key])
                self._log_opened(effect, log)
            case ClearRequest():
                self._publisher.clear(effect.run)
            case SendReceipt():
                self.receipt(effect, log)
            case RoundClosed():
                self._metrics["rounds.closed"] += 1
                log.info("round-closed", **canonical(effect.summary, state))
                self._log_outliers(effect, state, log)
            case Restarted():
                self._metrics["runs.restarts"] += 1
                log.warning("run-replayed", round=effect.number, lost=list(effect.lost))
            case Publish():
                assert state is not None  # its `Ended` comes after it
                self._runs.registered(effect.run, self._models.register(effect, state, log))
            case Ended():
                self._runs.close(effect.run, self._models.pinned, self._models.rollouts.remembered_from)
                self._metrics[f"runs.{effect.outcome}"] += 1
                log.info("run-ended", outcome=effect.outcome, reason=effect.reason)

    def receipt(self, effect: SendReceipt, log: Any) -> None:
        """Tell an agent what became of its answer."""
        self._metrics[f"receipts.{effect.outcome}"] += 1
        self._publisher.receipt(effect)
        tell = log.debug if effect.outcome == "accepted" else log.info
        tell("answered", agent=effect.agent, outcome=effect.outcome, reason=effect.reason, task=effect.task_digest[:12])

    def clear(self, run: str) -> None:
        """Say that nothing is open in a run."""
        self._publisher.clear(run)

    def check_request(self, run: str, blobs: tuple[str, ...]) -> None:
        """Take note of a request of ours on the broker, and of the topics that it names; see `Publisher.seen`."""
        if run in self._runs.suspended:
            self._publisher.adopt(run, blobs)
        else:
            self._publisher.seen(run, blobs, is_live=run in self._runs.live)

    def reply_not_live(self, run: str, event: Answer | Refused | Malformed) -> None:
        """Tell an agent what becomes of its answer to a run that is not live."""
        if run in self._runs.suspended:
            # No receipt: the agent keeps its answer and sends it again, for the day when the run goes on.
            self._metrics["ignored.suspended"] += 1
            return
        outcome: Outcome = "late" if run in self._runs.past else "unknown-run"
        reason = "the run has ended" if run in self._runs.past else ""
        if isinstance(event, Malformed):
            outcome, reason = "rejected", event.reason
        self.receipt(SendReceipt(run, event.agent, event.task_digest, outcome, reason), _log.bind(run=run))

    def repeat(self, agents: Iterable[str]) -> None:
        """Publish what is open, and which models there are, for agents that the broker may not have told."""
        came = set(agents)
        for state in list(self._runs.live.values()):
            current = state.open
            if current is None or not came - set(state.accepted) or (current.limited and not came & set(current.asked)):
                continue
            ready: Ready = {}
            effects = standing(state)
            if self._preflight(state, effects, ready, again=True) is None:
                self._metrics["requests.repeated"] += 1
                for effect in effects:
                    if isinstance(effect, OpenRound):
                        self._publisher.repeat(effect.run, ready[effect.key])
        self._models.repeat_pointers()

    @staticmethod
    def _log_outliers(effect: RoundClosed, state: RunState | None, log: Any) -> None:
        """Name the vehicles that stand out, once: with the round that found the domain, or the limit of rows."""
        if state is None or state.domain is None or state.open is None:
            return
        if effect.summary.phase == "domain" or effect.summary.number == state.open.number == 1:
            for line in in_words(state.guard, state.max_rows_each):
                log.warning("vehicle-stands-out", what=line)

    def _log_opened(self, effect: OpenRound, log: Any) -> None:
        self._metrics["rounds.opened"] += 1
        log.info(
            "round-opened",
            round=effect.number,
            phase=effect.phase,
            attempt=effect.attempt,
            kind=effect.task.kind,
            asked="all" if effect.asked is None else len(effect.asked),
            remaining=round(max(0.0, effect.closes_at - self._now()), 3),
        )
