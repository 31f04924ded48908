"""Which inputs may be columns of products: decided from the values that each group, and who left it, has."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError
from glassfleet.private.columns import check_values, count_values, decide_columns
from glassfleet.scheme import COLUMNS, Contribution, Task

CELLS = 16
DOMAIN = Domain(
    features=tuple(Variable(name=name, low=0.0, high=1.0) for name in ("even", "uneven", "one")),
    target=Variable(name="y", low=0.0, high=1.0),
)
TASK = Task("fmt", COLUMNS, {})


def counted(inputs: NDArray[np.float64], target: NDArray[np.float64] | None = None) -> NDArray[np.int64]:
    y = np.linspace(0.1, 0.9, inputs.shape[1]) if target is None else target
    return count_values(inputs, y, CELLS)


def group(counts: NDArray[np.int64], *left: NDArray[np.int64]) -> Contribution:
    former = tuple((TASK, Contribution(COLUMNS, 0, {"rows": before})) for before in left)
    return Contribution(COLUMNS, 0, {"rows": counts}, former=former)


def columns(*groups: Contribution) -> list[bool]:
    return [bool(one) for one in decide_columns(groups, lambda _: DOMAIN, TASK, 3)]


def rows(n: int = 64, *, elsewhere: int = 0) -> NDArray[np.float64]:
    """Return rows whose first input varies, whose second has one value but in some, and whose third is a constant."""
    return np.stack([np.linspace(0.0, 1.0, n), (np.arange(n) < elsewhere) * 0.9, np.full(n, 0.5)])


def test_inputs_that_vary_are_columns_and_those_alike_in_many_rows_are_not() -> None:
    assert columns(group(counted(rows()))) == [True, False, False]


@pytest.mark.parametrize(("elsewhere", "allowed"), [(0, True), (2, False), (3, True)])
def test_no_group_has_few_rows_of_another_value(elsewhere: int, allowed: bool) -> None:
    other = rows(256)
    other[1] = np.linspace(0.0, 1.0, 256)  # varies in the fleet
    groups = group(counted(other)), group(counted(rows(elsewhere=elsewhere)))
    assert columns(*groups) == [True, allowed, False]


def test_vehicles_that_leave_count_by_themselves() -> None:
    stay, leave = rows(256), rows(elsewhere=1)
    stay[1] = np.linspace(0.0, 1.0, 256)
    before = counted(np.concatenate([stay, leave], axis=1))
    assert columns(group(before)) == [True, True, False]
    assert columns(group(counted(stay), before)) == [True, False, False]


def test_a_group_has_as_many_rows_as_columns_with_1_and_the_target() -> None:
    few = np.tile([0.1, 0.3, 0.6, 0.9], (3, 1))
    many = np.stack([np.linspace(0.0, 1.0, 400), np.linspace(0.0, 1.0, 400) ** 1.5, np.linspace(0.0, 1.0, 400)])
    assert columns(group(counted(many))) == [True, True, True]
    assert columns(group(counted(many)), group(counted(few))) == [True, False, True]  # the second is the most alike


@pytest.mark.parametrize("limit", [0.0, 1.0])
@pytest.mark.parametrize(("elsewhere", "allowed"), [(0, True), (1, False), (3, True)])
def test_targets_of_few_rows_off_a_limit_leave_no_columns(limit: float, elsewhere: int, allowed: bool) -> None:
    target = np.full(64, limit)
    target[:elsewhere] = 0.5
    assert columns(group(counted(rows(), target))) == [allowed, False, False]


def test_values_are_those_of_each_row_once() -> None:
    counts = counted(rows())
    check_values(counts, 64)
    for wrong, most in ((counts, 63), (counts + np.eye(4, CELLS, dtype=np.int64), 64)):
        with pytest.raises(ContributionError):
            check_values(wrong, most)
    counts[0, 0] += 1
    with pytest.raises(ContributionError, match="not counted once"):
        check_values(counts, 65)
