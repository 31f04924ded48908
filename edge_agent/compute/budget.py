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
        Longest time for one answer, or the scores of one model; what takes longer is refused. Ten times a round's
        usual deadline. Why: rounds with a longer deadline.
    megabytes : int
        Most memory for one answer, or the scores of one model; what needs more is refused. All that the process holds
        of its own; the code of programs and libraries does not count. An answer, scores and the agent together stay
        below the limit of deploy/systemd. Why: the vehicle's memory.
    """

    seconds: Annotated[float, Gt(0), Le(7 * 24 * 3600)] = 300.0
    megabytes: Annotated[int, Ge(256), Le(1 << 20)] = 384

    def exceeded_time(self) -> str:
        """Return the reason of a refusal."""
        return f"over-budget: this vehicle computes for {self.seconds:g} seconds at most (its answer_seconds)"

    def exceeded_memory(self) -> str:
        """Return the reason of a refusal."""
        return f"over-budget: this vehicle computes with {self.megabytes} MB at most (its answer_megabytes)"
