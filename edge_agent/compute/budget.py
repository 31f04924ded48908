"""What one long computation may take of a vehicle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le


@dataclass(frozen=True)
class Budget:
    """Limits of what is computed in a process of its own: an answer, or the scores of a model.

    Attributes
    ----------
    seconds : float
        Longest that one answer, or the scores of one model, may take, from the start of the process; what would take
        longer is refused. Ten times the usual deadline of a round: who is slower helps nobody. Why: rounds with a
        longer deadline.
    megabytes : int
        Most memory for one answer, or the scores of one model: all that the process holds of its own; the code of
        programs and libraries does not count. An answer and scores
        at once, and the agent, stay below the limit of deploy/systemd. What needs more is refused. Why: the memory of
        the vehicle.
    """

    seconds: Annotated[float, Gt(0), Le(7 * 24 * 3600)] = 300.0
    megabytes: Annotated[int, Ge(256), Le(1 << 20)] = 384

    def exceeded_time(self) -> str:
        """Return the reason of a refusal."""
        return f"over-budget: this vehicle computes for {self.seconds:g} seconds at most (its answer_seconds)"

    def exceeded_memory(self) -> str:
        """Return the reason of a refusal."""
        return f"over-budget: this vehicle computes with {self.megabytes} MB at most (its answer_megabytes)"
