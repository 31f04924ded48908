"""Linear consequents as text, in the variables' own units."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain


def consequent_words(domain: Domain, intercept: float, slopes: NDArray[np.float64]) -> str:
    """Write a polynomial over scaled inputs, which gives the scaled target, over the inputs themselves.

    Parameters
    ----------
    domain : Domain
        With a numeric target.
    intercept : float
        The scaled target where all scaled inputs are zero.
    slopes : ndarray of float64, shape (F,)
        One for each input; zeros and constant inputs are left out.

    Notes
    -----
    True for inputs within their limits. A sum stands in brackets before its unit, which would otherwise seem to be the
    last term's.

    Examples
    --------
    >>> from glassfleet.data.domain import Variable
    >>> speed = Variable(name="speed", low=0, high=120, unit="km/h")
    >>> domain = Domain(features=(speed,), target=Variable(name="frames", low=0, high=100, unit="%"))
    >>> consequent_words(domain, 0.9, np.array([-0.6]))
    'frames = (90 - 0.5 speed) %'
    >>> consequent_words(domain, 0.9, np.array([0.0]))
    'frames = 90 %'
    """
    target = domain.target
    assert target is not None
    width = target.high - target.low
    constant, words = target.low + width * float(intercept), ""
    for variable, coefficient in zip(domain.features, slopes, strict=True):
        span = variable.high - variable.low
        if coefficient == 0.0 or span == 0.0:
            continue
        slope = width * float(coefficient) / span
        constant -= slope * variable.low
        words += f" {'-' if slope < 0 else '+'} {abs(slope):.4g} {variable.name}"
    total = f"{constant:.4g}{words}"
    if not target.unit:
        return f"{target.name} = {total}"
    return f"{target.name} = ({total}) {target.unit}" if words else f"{target.name} = {total} {target.unit}"


def bare_sum(right: str, unit: str) -> str:
    """Return what `consequent_words` wrote behind "=", without the brackets and the unit of a sum; else what was given.

    >>> bare_sum("(90 - 0.5 speed) %", "%"), bare_sum("90 %", "%"), bare_sum("90 - 0.5 speed", "")
    ('90 - 0.5 speed', '90 %', '90 - 0.5 speed')
    >>> bare_sum("(90 - 0.5 speed) %", "min")
    '(90 - 0.5 speed) %'
    """
    end = f") {unit}"
    return right[1 : -len(end)] if right.startswith("(") and right.endswith(end) else right
