"""Parameters of the differentially private tree, what its budget is spent on, and its noise.

Noise is two-sided geometric, the Laplace distribution of whole numbers. For counts that one row changes by at most 1,
adding noise with ``P(z) ~ exp(-epsilon |z|)`` is epsilon-private: exactly so, because nothing is rounded. The
difference of two geometric numbers has that distribution. It can also be split: the sum of n differences of two
negative binomial numbers of size 1 / n has it as well, so n agents can each add a share of the noise of one.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.data.documents import RunParameters

Noise = Literal["local", "aggregate", "paper", "none"]

SLACK = 100.0
"""Noise beyond this many of its scales is a lie (its chance is below e^-99)."""


class DpTreeParameters(RunParameters):
    """Parameters of a run of dp_tree.

    Attributes
    ----------
    epsilon : float
        Budget of the whole run for adding or removing one row. Replacing a row costs twice as much, and that is what
        counts where numbers of rows are known, as they are here.
    noise : {"local", "aggregate", "paper", "none"}
        Whose noise gives the guarantee. ``local``: every answer is private by itself. ``aggregate``: only the sum of
        all answers is; for private runs, in which nobody sees anything else. ``paper``: noise divided by t - 1, as
        printed; **not private** to any useful degree. ``none``: no noise, for comparisons.
    max_depth : int
        Deepest level of a leaf.
    n_bins : int
        Bins per input, with about equal shares of the rows; splits are at their edges.
    edge_share : float
        Share of the budget that finds the edges; the tree has the rest.
    losses : int or None
        So many questions of a private run can be asked again after vehicles were lost; the budget is divided among
        these as well. None: 3 in a private run; others ask nothing again.
    """

    later = ("losses",)

    epsilon: float = Field(default=1.0, ge=1e-3, le=1e3)
    noise: Noise = "local"
    max_depth: int = Field(default=6, ge=1, le=12)
    n_bins: int = Field(default=5, ge=2, le=32)
    edge_share: float = Field(default=0.1, gt=0.0, lt=1.0)
    losses: int | None = Field(default=None, ge=0, le=100)

    @property
    def once(self) -> float:
        """Budget of asking every question once; the rest is for the dearest one, `losses` times more."""
        dearest = max(self.edge_share, (1.0 - self.edge_share) / (self.max_depth + 1))
        return self.epsilon / (1.0 + (self.losses or 0) * dearest)

    @property
    def level_epsilon(self) -> float:
        """Budget of one of the two questions of a level: e1 = epsilon_tree / (2 (d + 1))."""
        return self.once * (1.0 - self.edge_share) / (2 * (self.max_depth + 1))


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
        See :class:`DpTreeParameters`.
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
    alone = math.sqrt(2.0 * math.exp(-scale)) / -math.expm1(-scale)
    return alone * math.sqrt(agents / others) if mode == "aggregate" else alone * math.sqrt(agents)


def true_epsilon(mode: Noise, epsilon: float, agents: int) -> float | None:
    """Return the epsilon that the *sum* of the answers keeps against somebody who sees it alone; None: no guarantee.

    ``paper``: any agent's noise is that of epsilon (t - 1). Adding t of them hides more than one, but not as much as
    one with epsilon, and what it hides is not a multiple of the printed budget; no value is claimed.
    """
    return None if mode == "none" or (mode == "paper" and agents > 2) else epsilon
