"""What one answer may take of a vehicle."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """Limits of an answer that is computed in a process of its own.

    Attributes
    ----------
    seconds : float
        From the start of the process, > 0. Ten times the usual deadline of a round: who is slower helps nobody.
    megabytes : int
        All that the process holds of its own; programs and libraries do not count.
    """

    seconds: float = 300.0
    megabytes: int = 1024

    def exceeded_time(self) -> str:
        """Return the reason of a refusal."""
        return f"over-budget: this vehicle allows {self.seconds:g} seconds for an answer (its answer_seconds)"

    def exceeded_memory(self) -> str:
        """Return the reason of a refusal."""
        return f"over-budget: this vehicle allows {self.megabytes} MB for an answer (its answer_megabytes)"
