"""Forecasts far outside the target's limits: where rows are few, a line fitted to them may say anything elsewhere."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from glassfleet.data.domain import Domain
from glassfleet.intervals import width_of

FAR: Final = 0.5
"""Farther than this beyond the limits, over the target's range, is far: a line that goes a little beyond is not odd."""


def far_outside(domain: Domain, forecasts: ArrayLike) -> str:
    """Say how many forecasts are far outside the target's limits, and which the farthest is; empty: none is.

    Parameters
    ----------
    domain : Domain
    forecasts : array-like of float, shape (n,)
        In the target's own unit. Classes, where the domain has such, are never outside.

    Examples
    --------
    >>> from glassfleet.data.domain import Variable
    >>> domain = Domain(features=(Variable(name="x", low=0, high=1),), target=Variable(name="y", low=25, high=346))
    >>> far_outside(domain, [100.0, 400.0])
    ''
    >>> print(far_outside(domain, [100.0, 12210.0]))
    1 of 2 forecasts far outside the target's limits, 25 to 346, the farthest 12210; fmt and bmt never leave them
    """
    target = domain.target
    if target is None:
        return ""
    values = np.asarray(forecasts, dtype=np.float64)
    beyond = np.maximum(target.low - values, values - target.high)
    many = int(np.count_nonzero(beyond > FAR * width_of(domain)))
    if not many:
        return ""
    limits = f"the target's limits, {target.low:.6g} to {target.text(target.high)}"
    if len(values) == 1:
        return f"the forecast is far outside {limits}; fmt and bmt never leave them"
    farthest = f"the farthest {values[beyond.argmax()]:.6g}"
    return f"{many} of {len(values)} forecasts far outside {limits}, {farthest}; fmt and bmt never leave them"
