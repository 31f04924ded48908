"""Which inputs may be columns of products, and which values are common: decided by each group, and by who left it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glassfleet.contract.messages import COLUMNS, SUPPORT, Contribution, Task
from glassfleet.errors import ContributionError
from glassfleet.private.columns import check_values, columns_of, common_of, count_values, decide_columns, layers_of
from glassfleet.private.support import ALL, Place, atoms

CELLS = 16
TASK = Task("tree", COLUMNS, {})


def counted(inputs: NDArray[np.float64], target: NDArray[np.float64] | None = None) -> NDArray[np.int64]:
    y = np.linspace(0.1, 0.9, inputs.shape[1]) if target is None else target
    return count_values(inputs, y, CELLS)


def group(counts: NDArray[np.int64], *left: NDArray[np.int64]) -> Contribution:
    former = [(TASK, Contribution(COLUMNS, 0, {"rows": before})) for before in left]
    other = Task("tree", SUPPORT, {}), Contribution(SUPPORT, 0, {"rows": np.zeros((7, 3), dtype=np.int64)})
    return Contribution(COLUMNS, 0, {"rows": counts}, former=(*former, other))


def decided(*groups: Contribution, support: int = 3) -> NDArray[np.bool_]:
    return decide_columns(groups, TASK, support)


def columns(*groups: Contribution, support: int = 3) -> list[bool]:
    return [one in columns_of(decided(*groups, support=support)) for one in range(3)]


def rows(n: int = 64, *, elsewhere: int = 0) -> NDArray[np.float64]:
    """Return rows whose first input varies, whose second has one value but in some, and whose third is a constant."""
    return np.stack([np.linspace(0.0, 1.0, n), (np.arange(n) < elsewhere) * 0.9, np.full(n, 0.5)])


def varied(n: int = 256) -> NDArray[np.float64]:
    """Return rows whose first two inputs vary."""
    data = rows(n)
    data[1] = np.linspace(0.0, 1.0, n)
    return data


def test_inputs_that_vary_are_columns_and_those_alike_in_many_rows_are_not() -> None:
    assert columns(group(counted(rows()))) == [True, False, False]


@pytest.mark.parametrize(
    ("elsewhere", "support", "allowed"),
    [(0, 3, False), (2, 3, False), (3, 3, True), (1, 1, False), (2, 1, False), (3, 1, True)],
)
def test_no_group_has_few_rows_of_another_value(elsewhere: int, support: int, allowed: bool) -> None:
    groups = group(counted(varied())), group(counted(rows(elsewhere=elsewhere)))
    assert columns(*groups, support=support) == [True, allowed, False]


def test_vehicles_that_leave_count_by_themselves() -> None:
    stay, leave = varied(), rows(elsewhere=1)
    before = counted(np.concatenate([stay, leave], axis=1))
    assert columns(group(before)) == [True, True, False]
    assert columns(group(counted(stay), before)) == [True, False, False]


def test_an_edition_in_which_nobody_left_changes_nothing() -> None:
    same = counted(varied())
    assert columns(group(same, same)) == columns(group(same)) == [True, True, False]


def test_a_group_has_as_many_rows_as_columns_with_1_and_the_target() -> None:
    few = np.tile([0.1, 0.3, 0.6, 0.9], (3, 1))
    many = np.stack([np.linspace(0.0, 1.0, 400), np.linspace(0.0, 1.0, 400) ** 1.5, np.linspace(0.0, 1.0, 400)])
    assert columns(group(counted(many))) == [True, True, True]
    # the second is the most alike
    assert columns(group(counted(many)), group(counted(few, np.array([0.1, 0.3, 0.6, 0.9])))) == [True, False, True]


@pytest.mark.parametrize("value", [0.0, 0.4, 1.0])
@pytest.mark.parametrize(("elsewhere", "allowed"), [(0, False), (2, False), (3, True)])
def test_targets_alike_in_nearly_all_rows_of_a_group_leave_no_columns(
    value: float, elsewhere: int, allowed: bool
) -> None:
    target = np.full(64, value)
    target[:elsewhere] = 0.7
    assert columns(group(counted(varied())), group(counted(varied(64), target)))[0] == allowed


def test_values_are_common_that_many_rows_of_a_group_or_of_those_who_left_have() -> None:
    few, many = rows(elsewhere=9), varied()
    first = 0, CELLS - 1  # limits of the target
    of_both = common_of(decided(group(counted(many)), group(counted(few))), (1,))
    assert {(1, 0), (1, 14), *((3, one) for one in first)} <= set(of_both)
    before = counted(np.concatenate([many, few], axis=1))
    assert (1, 0) in common_of(decided(group(counted(many), before)), (1,))


@pytest.mark.parametrize(("n", "alike", "is_common"), [(100, 5, False), (100, 6, True), (40, 3, False), (40, 4, True)])
def test_a_value_of_few_rows_is_not_common(n: int, alike: int, is_common: bool) -> None:
    # More than 5 %, and more than there are inputs.
    assert ((1, 14) in common_of(decided(group(counted(rows(n, elsewhere=alike)))), (1,))) == is_common


def test_values_are_those_of_each_row_once() -> None:
    counts = counted(rows())
    check_values(counts, 64)
    for wrong, most in ((counts, 63), (counts + np.eye(4, CELLS, dtype=np.int64), 64)):
        with pytest.raises(ContributionError):
            check_values(wrong, most)
    counts[0, 0] += 1
    with pytest.raises(ContributionError, match="not counted once"):
        check_values(counts, 65)


def test_layers_are_all_rows_and_those_outside_of_each_common_cell() -> None:
    inputs, target = np.array([[0.0, 0.2, 1.0], [0.5, 0.5, 0.5]]), np.array([0.0, 1.0, 0.3])
    layers = layers_of(inputs, target, ((0, 0), (0, 15), (1, 8), (2, 0)), CELLS)
    assert layers.astype(int).tolist() == [[1, 1, 1], [0, 1, 1], [1, 1, 0], [0, 0, 0], [0, 1, 1]]


# --- differences of editions ----------------------------------------------------------------------------------------


def atoms_of(places: list[Any], rows: list[list[int]], *former: tuple[list[Any], list[list[int]]]) -> list[list[Any]]:
    """Return the atoms of one group, whose tasks name the places that their lines are about."""

    def task(about: list[Any]) -> Task:
        return Task("tree", SUPPORT, {"places": about})

    def given(numbers: list[list[int]]) -> Contribution:
        return Contribution(SUPPORT, 9, {"rows": np.array(numbers, dtype=np.int64)})

    before = tuple((task(about), given(numbers)) for about, numbers in former)
    other = Task("tree", COLUMNS, {}), Contribution(COLUMNS, 9, {"rows": np.zeros((2, 5), dtype=np.int64)})
    contribution = replace(given(rows), former=(*before, other))
    return [part.tolist() for part in atoms(contribution, lambda asked: asked.body["places"], task(places))]


def test_difference_of_editions_is_counted_line_by_line_where_both_were_asked() -> None:
    present, left = atoms_of(["a", "b"], [[5, 4], [3, 0]], (["c", "a"], [[9, 9, 9], [6, 4, 0]]))
    assert present == [[5, 4], [3, 0]]
    assert left == [[1, 0], [0, 0]]


def test_rows_that_were_summed_when_a_value_was_not_common_yet_are_not_enough() -> None:
    here = [Place("leaf", ALL), Place("leaf", (1, 255)), Place("new leaf", ALL), Place("new leaf", (1, 255))]
    _, left = atoms_of(here, [[4], [4], [4], [4]], ([Place("leaf", ALL)], [[7]]))
    assert left == [[3], [-1], [0], [0]]
