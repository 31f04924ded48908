"""Parts that add up to a number to the last bit."""

from __future__ import annotations

import math
from collections.abc import Sequence


def exact_sum(base: float, shares: Sequence[float], total: float | None) -> tuple[float, list[float], float, float]:
    """Return base, shares, a remainder and a total such that ``fsum((base, remainder, *shares)) == total`` exactly.

    Parameters
    ----------
    base : float
    shares : sequence of float
    total : float or None
        What they add up to but for rounding; None: their sum, rounded once.

    Returns
    -------
    base, shares, remainder, total
        Base and shares as given wherever one double can hold what they lack of the total. Where it cannot (the total
        is 0, or nearly so), they are first rounded to multiples of 2^-52 of the largest, of which the base takes what
        is left over; that moves none of them by more than a few such multiples.

    Notes
    -----
    On that grid all sums are sums of integers, hence exact; the base is chosen so that they give the multiple nearest
    to the total, and what the total has beyond it is some of its own bits, which one double holds.

    Examples
    --------
    >>> exact_sum(0.3, [-0.1, -0.2], 0.0)
    (0.3, [-0.1, -0.2], 2.7755575615628914e-17, 0.0)
    """
    parts = [float(share) for share in shares]
    whole = math.fsum((base, *parts)) if total is None else total
    remainder = math.fsum((whole, -base, *(-part for part in parts)))
    if math.fsum((base, remainder, *parts)) == whole:
        return base, parts, remainder, whole
    largest = max(map(abs, (base, whole, *parts)))
    # One bit is kept free, so that the base has room for what the shares' rounding leaves over.
    step = max(math.ldexp(1.0, math.frexp(largest)[1] - 52), math.ulp(0.0))
    numbers = [round(part / step) for part in parts]
    base = (round(whole / step) - sum(numbers)) * step
    parts = [number * step for number in numbers]
    return base, parts, math.fsum((whole, -base, *(-part for part in parts))), whole
