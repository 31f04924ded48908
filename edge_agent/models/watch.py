"""What a vehicle remembers of models that it was asked about: figures of its test rows by night, to tell a drift by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.evaluation.drift import Memory, figures
from glassfleet.model.intervals import WORST, TellsRule, lines_of, width_of
from glassfleet.model.protocol import Model


@dataclass
class Watch:
    """The memory, in the hands of one answer.

    Attributes
    ----------
    memory : Memory
    run : str
    is_masked : bool
        Whether the answer leaves masked.
    """

    memory: Memory
    run: str
    is_masked: bool

    def meet(self, digest: str, model: Model, X: NDArray[np.float64], y: NDArray[Any], forecast: NDArray[Any]) -> None:
        """Take over how a model does on rows `X`, shape (n, F), in the inputs' own units."""
        domain, lines = model.domain, lines_of(model)
        deciding = model.deciding(X) if lines > 1 and isinstance(model, TellsRule) else np.zeros(len(X), dtype=np.intp)
        labels = domain.target is None
        off = (y != forecast).astype(float) if labels else np.abs(y - forecast) / width_of(domain)
        off = np.nan_to_num(np.minimum(off, WORST), nan=WORST)
        low = np.array([each.low for each in domain.features])
        # A position among categories has no mean; a constant does not move within its limits.
        width = np.array([np.nan if each.categories else each.high - each.low or np.nan for each in domain.features])
        tonight = figures(off, deciding, lines, (X[:, : len(low)] - low) / width, labels=labels)
        self.memory.meet(digest, self.run, tonight, is_private=self.is_masked)

    def changes(self, digest: str) -> NDArray[np.int64] | None:
        """Return what is told of a model; None: nothing, as of one that a private run asked about, openly."""
        return self.memory.changes(digest, self.run) if self.is_masked or not self.memory.is_private(digest) else None
