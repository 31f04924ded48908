"""The tests of significance that the papers use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from lab.papers.page import Table

LEVEL = 0.05


@dataclass(frozen=True)
class Signed:
    """A Wilcoxon signed-rank test over pairs.

    Attributes
    ----------
    pairs : int
    plus, minus : float
        Sums of the ranks of positive and negative differences.
    p : float
        Two-sided; 1 when no pair differs.
    """

    pairs: int
    plus: float
    minus: float
    p: float


def wilcoxon(first: Sequence[float], second: Sequence[float]) -> Signed:
    """Test whether `first` and `second`, in pairs, come from the same distribution; equal pairs are left out."""
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    difference = difference[difference != 0]
    if not len(difference):
        return Signed(len(first), 0.0, 0.0, 1.0)
    ranks = stats.rankdata(np.abs(difference))
    test: Any = stats.wilcoxon(difference)
    return Signed(
        len(first), float(ranks[difference > 0].sum()), float(ranks[difference < 0].sum()), float(test.pvalue)
    )


def wilcoxon_table(caption: str, pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]], better: str) -> Table:
    """Return a table of tests: name -> (first, second).

    Parameters
    ----------
    better : {"smaller", "larger"}
        Which of two scores is the better one.
    """
    rows = []
    for name, (first, second) in pairs.items():
        test = wilcoxon(first, second)
        favoured = test.minus > test.plus if better == "smaller" else test.plus > test.minus
        words = "no difference shown"
        if test.p < LEVEL:
            words = f"{'first' if favoured else 'second'} better"
        rows.append([name, str(test.pairs), f"{test.plus:.0f}", f"{test.minus:.0f}", _p(test.p), words])
    return Table(caption, ["first against second", "pairs", "R+", "R-", "p", f"at {LEVEL:g}"], rows)


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.1e}"
