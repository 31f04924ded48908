"""Linear consequents in the variables' own units."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain, Variable
from glassfleet.rules import Consequent, Slope


def linear_consequent(domain: Domain, intercept: float, slopes: NDArray[np.float64]) -> Consequent:
    """Return a polynomial over scaled inputs, which gives the scaled target, over the inputs themselves.

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
    True for inputs within their limits.

    Examples
    --------
    >>> from glassfleet.data.domain import Variable
    >>> speed = Variable(name="speed", low=0, high=120, unit="km/h")
    >>> domain = Domain(features=(speed,), target=Variable(name="frames", low=0, high=100, unit="%"))
    >>> str(linear_consequent(domain, 0.9, np.array([-0.6])))
    'frames = (90 - 0.5 speed) %'
    """
    target = domain.target
    assert target is not None
    return _linear(domain, target, intercept, slopes)


def linear_score(domain: Domain, name: str, intercept: float, slopes: NDArray[np.float64]) -> Consequent:
    """Return the score `name`, a polynomial over scaled inputs, over the inputs themselves.

    Of an input of text the slope is what its highest level adds (:mod:`glassfleet.fuzzy.levels`).
    """
    return _linear(domain, Variable(name=name, low=0.0, high=1.0), intercept, slopes)


def _linear(domain: Domain, target: Variable, intercept: float, slopes: NDArray[np.float64]) -> Consequent:
    width = target.high - target.low
    constant, terms = target.low + width * float(intercept), []
    for variable, coefficient in zip(domain.features, slopes.tolist(), strict=True):
        span = 1.0 if variable.categories else variable.high - variable.low
        if coefficient == 0.0 or span == 0.0:
            continue
        slope = width * coefficient / span
        constant -= slope * variable.low
        terms.append(Slope(variable.name, slope, width * coefficient))
    return Consequent(target.name, constant, target.unit, tuple(terms))
