"""The effects of runs: rehearsed before the journal has them, performed after. What is said, is counted and logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from coordinator.engine import (
    ClearRequest,
    Effect,
    Ended,
    OpenRound,
    Publish,
    Restarted,
    RoundClosed,
    RunState,
    SendReceipt,
    Unable,
    standing,
)
from coordinator.models import Models
from coordinator.observer import canonical, place
from coordinator.publisher import Publisher
from coordinator.registry import Registry
from coordinator.runs import Runs
from coordinator.turn import Ready
from schemas.errors import GlassfleetError, StorageError
from schemas.parts import Retained

_log = structlog.get_logger("coordinator")


class Performer:
    """Does what the engine asks for.

    Parameters
    ----------
    runs : Runs
    publisher : Publisher
    registry : Registry
    models : Models
    metrics : Counter
        Counts what is performed.
    now : callable
        The coordinator's own time, seconds.
    """

    def __init__(
        self,
        runs: Runs,
        publisher: Publisher,
        registry: Registry,
        models: Models,
        *,
        metrics: Counter[str],
        now: Callable[[], float],
    ) -> None:
        self._runs = runs
        self._publisher = publisher
        self._registry = registry
        self._models = models
        self._metrics = metrics
        self._now = now

    def rehearse(
        self, state: RunState, effects: Iterable[Effect], ready: Ready, *, again: bool = False
    ) -> Unable | None:
        """Find out whether the effects can be performed; None: they can.

        Parameters
        ----------
        state : RunState
            The run after the step that caused them.
        effects : iterable of Effect
        ready : dict of str to Retained
            Takes the requests, so that they need not be cut twice.
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
                    ready[effect.key] = self._publisher.prepare(effect)
                elif isinstance(effect, Publish) and not (again and self._registry.has(effect)):
                    self._publisher.check_model(effect, state)
            except StorageError:
                raise
            except Exception as fault:  # noqa: BLE001  a model's own code runs here
                cause = "request-too-large" if isinstance(effect, OpenRound) else "model-unpublishable"
                detail = str(fault) if isinstance(fault, GlassfleetError) else f"{type(fault).__name__}: {fault}"
                # The round that cannot be opened is not yet the one where the run stands.
                about = {"phase": effect.phase, "round": effect.number} if isinstance(effect, OpenRound) else {}
                _log.error(cause, run=effect.run, detail=detail, **(place(state) | about))
                return Unable(self._now(), cause, detail[:400])
        return None

    def perform(self, effect: Effect, state: RunState | None, ready: Mapping[str, Retained]) -> None:
        """Do one thing.

        Parameters
        ----------
        effect : Effect
        state : RunState or None
            Its run, as it stands; None when it is not live.
        ready : mapping of str to Retained
            As `rehearse` left it.
        """
        # A receipt may concern a round before the one that is open by now; 0: none was opened.
        task = effect.task_digest if isinstance(effect, SendReceipt) else ""
        log = _log.bind(run=effect.run, **({"round": 0} | place(state, task)))
        match effect:
            case OpenRound():
                self._publisher.request(effect.run, ready[effect.key])
                self._tell_opened(effect, log)
            case ClearRequest():
                self._publisher.clear(effect.run)
            case SendReceipt():
                self.receipt(effect, log)
            case RoundClosed():
                self._metrics["rounds.closed"] += 1
                log.info("round-closed", **canonical(effect.summary, state))
            case Restarted():
                self._metrics["runs.restarts"] += 1
                log.warning("run-replayed", round=effect.number, lost=list(effect.lost))
            case Publish():
                self._runs.models[effect.run] = self._models.register(effect, self._runs.live[effect.run], log)
            case Ended():
                self._runs.close(effect.run, self._registry.aliases.pinned)
                self._metrics[f"runs.{effect.outcome}"] += 1
                log.info("run-ended", outcome=effect.outcome, reason=effect.reason)

    def receipt(self, effect: SendReceipt, log: Any) -> None:
        """Tell an agent what became of its answer."""
        self._metrics[f"receipts.{effect.outcome}"] += 1
        self._publisher.receipt(effect)
        tell = log.debug if effect.outcome == "accepted" else log.info
        tell("answered", agent=effect.agent, outcome=effect.outcome, reason=effect.reason, task=effect.task_digest[:12])

    def repeat(self, agents: Iterable[str]) -> None:
        """Publish what is open, and which models there are, for agents that the broker may not have told."""
        came = set(agents)
        for state in list(self._runs.live.values()):
            current = state.open
            if current is None or not came - set(state.accepted) or (current.limited and not came & set(current.asked)):
                continue
            ready: Ready = {}
            effects = standing(state)
            if self.rehearse(state, effects, ready, again=True) is None:
                self._metrics["requests.repeated"] += 1
                for effect in effects:
                    if isinstance(effect, OpenRound):
                        self._publisher.repeat(effect.run, ready[effect.key])
        self._publisher.pointers()

    def _tell_opened(self, effect: OpenRound, log: Any) -> None:
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
