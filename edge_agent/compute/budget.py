"""What one long computation may take of a vehicle."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """Limits of what is computed in a process of its own: an answer, or the scores of a model.

    Attributes
    ----------
    seconds : float
        From the start of the process, > 0. Ten times the usual deadline of a round: who is slower helps nobody.
    megabytes : int
        All that the process holds of its own; the code of programs and libraries does not count. An answer and scores
        at once, and the agent, stay below the limit of deploy/systemd.
    """

    seconds: float = 300.0
    megabytes: int = 384

    def exceeded_time(self) -> str:
        """Return the reason of a refusal."""
        return f"over-budget: this vehicle computes for {self.seconds:g} seconds at most (its answer_seconds)"

    def exceeded_memory(self) -> str:
        """Return the reason of a refusal."""
        return f"over-budget: this vehicle computes with {self.megabytes} MB at most (its answer_megabytes)"
