"""Noise for counts: two-sided geometric, the Laplace distribution of whole numbers.

For counts that one row changes by at most 1, adding noise with ``P(z) ~ exp(-epsilon |z|)`` is epsilon-private: exactly
so, because nothing is rounded. The difference of two geometric numbers has that distribution. It can also be split: the
sum of n differences of two negative binomial numbers of size 1 / n has it as well, so n agents can each add a share
of the noise of one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lab.schemes.dp_tree.params import Noise

SLACK = 100.0
"""Noise beyond this many of its scales is a lie (its chance is below e^-99)."""


def draw(
    rng: np.random.Generator, shape: tuple[int, ...], epsilon: float, mode: Noise, agents: int
) -> NDArray[np.int64]:
    """Return one agent's noise for counts.

    Parameters
    ----------
    rng : Generator
        The agent's own, secret and used once.
    epsilon : float
        Budget of the question.
    mode : Noise
        See :class:`~lab.schemes.dp_tree.params.DpTreeParameters`.
    agents : int
        t, those who answer with rows, >= 1. Shares are sized so that those of any t - 1 of them suffice: one may be
        missing, or be the one who looks.
    """
    others = max(1, agents - 1)
    if mode == "none":
        return np.zeros(shape, dtype=np.int64)
    if mode == "aggregate" and others > 1:
        chance = -math.expm1(-epsilon)
        first, second = (rng.negative_binomial(1.0 / others, chance, shape) for _ in range(2))
    else:
        chance = -math.expm1(-epsilon * (others if mode == "paper" else 1))
        first, second = (rng.geometric(chance, shape) for _ in range(2))
    return (first - second).astype(np.int64)


def deviation(epsilon: float, mode: Noise, agents: int, shares: int | None = None) -> float:
    """Return the standard deviation of the noise in the sum of all agents' counts.

    Parameters
    ----------
    epsilon, mode
        As in :func:`draw`.
    agents : int
        Whose counts are added, >= 1.
    shares : int or None
        How many shares of ``aggregate`` are the whole noise; None: those of all agents but one.
    """
    others = max(1, agents - 1) if shares is None else shares
    if mode == "none":
        return 0.0
    scale = epsilon * (others if mode == "paper" else 1)
    half = math.exp(-scale)
    alone = math.sqrt(2.0 * half) / -math.expm1(-scale)
    return alone * math.sqrt(agents / others) if mode == "aggregate" else alone * math.sqrt(agents)


def true_epsilon(mode: Noise, epsilon: float, agents: int) -> float | None:
    """Return the epsilon that the *sum* of the answers keeps against somebody who sees it alone; None: no guarantee.

    ``paper``: any agent's noise is that of epsilon (t - 1). Adding t of them hides more than one, but not as much as
    one with epsilon, and what it hides is not a multiple of the printed budget; no value is claimed.
    """
    if mode in ("none", "paper") and (mode == "none" or agents > 2):
        return None
    return epsilon
