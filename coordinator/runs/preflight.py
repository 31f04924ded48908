"""Finding out whether effects can be performed, before the journal has the step that asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from coordinator.engine import Effect, OpenRound, Publish, RunState, Unable
from coordinator.messages.publisher import Publisher
from coordinator.models.publication import ModelPublisher
from coordinator.models.registry import Registry
from coordinator.runs.observer import place
from coordinator.runs.transaction import Ready
from schemas.errors import GlassfleetError, StorageError

_log = structlog.get_logger("coordinator")


@dataclass(eq=False)
class Preflight:
    """Cuts requests and writes models down, without saying anything to anybody: a part of deciding.

    Parameters
    ----------
    now : callable
        The coordinator's own time, seconds.
    """

    publisher: Publisher
    models: ModelPublisher
    registry: Registry
    now: Callable[[], float]

    def __call__(
        self, state: RunState, effects: Iterable[Effect], ready: Ready, *, again: bool = False
    ) -> Unable | None:
        """Return what stands against performing the effects; None: nothing.

        Parameters
        ----------
        state : RunState
            The run after the step that caused them.
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
                    ready[effect.key] = self.publisher.prepare(effect)
                elif isinstance(effect, Publish) and not (again and self.registry.has(effect)):
                    self.models.check_model(effect, state)
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
