"""What no rows can have is refused by fmt with its reason: products, weights, and cuts that contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glassfleet import catalogue
from glassfleet.errors import ContributionError
from glassfleet.schemes.fmt.linear import triangle
from tests.fuzz.targets import steps

Ints = NDArray[np.int64]
FMT = catalogue.load("fmt")


def columns_of(width: int) -> int:
    """Return k of a triangle with ``k (k + 1) / 2`` entries."""
    return int((np.sqrt(8 * width + 1) - 1) / 2)


def not_semi_definite(gram: Ints) -> None:
    """Let x0 times the target be as large as both factors allow, which is more than Cauchy and Schwarz do."""
    k = columns_of(gram.shape[-1])
    first, second = triangle(k)
    (place,) = np.flatnonzero((first == 1) & (second == k - 1))
    gram[..., place] = np.minimum(gram[..., 1], gram[..., k - 1])


def too_heavy(gram: Ints) -> None:
    gram *= 3


def above_its_factor(gram: Ints) -> None:
    gram[..., -1] = gram[..., 0]


LIES: list[tuple[Callable[[Ints], None], str]] = [
    (not_semi_definite, "not positive semi-definite"),
    (too_heavy, "weight exceeds"),
    (above_its_factor, "exceeds the sum of one of its factors"),
]


def question(kind: str) -> tuple[Any, Any]:
    step, answers = next(pair for pair in steps("fmt") if pair[0].task.kind == kind)
    return step.task, max(answers, key=lambda answer: answer.rows)


@pytest.mark.parametrize(("kind", "name"), [("scan", "gram"), ("grow", "whole"), ("leaves", "gram")])
@pytest.mark.parametrize(("lie", "reason"), LIES)
def test_server_refuses_products_that_no_rows_can_have(
    kind: str, name: str, lie: Callable[[Ints], None], reason: str
) -> None:
    task, true = question(kind)
    FMT.server.check(task, true)
    sums = {key: array.copy() for key, array in true.sums.items()}
    lie(sums[name])
    with pytest.raises(ContributionError, match=reason):
        FMT.server.check(task, replace(true, sums=sums))


def test_server_refuses_a_lower_cut_that_holds_more_than_a_higher_one() -> None:
    task, true = question("grow")
    sums = {key: array.copy() for key, array in true.sums.items()}
    rising = np.flatnonzero(sums["lower"][1:, 0] > sums["lower"][:-1, 0])
    place = int(rising[0])
    sums["lower"][[place, place + 1]] = sums["lower"][[place + 1, place]]
    with pytest.raises(ContributionError, match="a lower cut exceeds a higher one"):
        FMT.server.check(task, replace(true, sums=sums))
