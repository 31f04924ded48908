"""Whole runs of the blended model tree with support."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassfleet.contract.messages import SUPPORT, Task
from glassfleet.data.dataset import Dataset
from glassfleet.schemes.tree import SCHEME, TreeParameters
from glassfleet.schemes.tree.messages import TreeQuestion
from glassfleet.simulation import central, federated
from schemas.errors import RunFailedError, UsageError
from tests.support.sample_models import step_and_slopes as rows
from tests.support.sample_models import unit_domain

NAMES = ("a", "b", "c")
DOMAIN = unit_domain(NAMES)
SUPPORTED = TreeParameters(min_rows=1, support=3)


def test_new_leaves_are_counted_by_the_bands_of_the_leaf_above() -> None:
    heard: list[TreeQuestion] = []
    fleet = {"v1": rows(3000)}
    federated(SCHEME, SUPPORTED, DOMAIN, fleet, listen=lambda task, _: heard.append(TreeQuestion.from_task(task)))
    above: dict[str, np.ndarray[Any, Any]] = {}  # by path, as other leaves have other numbers once a split is not made
    compared = 0

    def path(asked: TreeQuestion, leaf: int) -> str:
        return str([(split.ramp, upper) for split, upper in asked.tree.path(leaf)])

    for asked in heard:
        if asked.kind == "bands":
            above |= {path(asked, leaf): asked.kept[line] for line, leaf in enumerate(asked.leaves)}
        elif asked.kind == SUPPORT and asked.leaves == (0,):
            assert asked.counted.all()
        elif asked.kind == SUPPORT:
            for line, leaf in enumerate(asked.leaves):
                assert (asked.counted[line] == above[path(asked, asked.tree.parent(leaf))]).all()
                compared += 1
    assert compared > 5


def test_record_of_another_run_is_refused() -> None:
    withheld = central(SCHEME, SUPPORTED, DOMAIN, rows()).summary["withheld"]
    with pytest.raises(UsageError, match="has 2 decisions: it is of another run"):
        central(SCHEME, SUPPORTED, DOMAIN, rows(), withheld=withheld[:2])
    with pytest.raises(UsageError, match="does not fit what this one asks"):
        central(SCHEME, SUPPORTED, DOMAIN, rows(), withheld=withheld[1:])


def test_input_with_one_value_in_most_rows_is_no_column_of_products() -> None:
    data = rows()
    X = data.X.copy()
    X[:330, 2] = 0.0
    heard: list[Task] = []
    fleet = {"v1": Dataset(NAMES, "y", X, data.y)}
    outcome = federated(SCHEME, SUPPORTED, DOMAIN, fleet, listen=lambda task, _: heard.append(task))
    assert {tuple(task.body["regressors"]) for task in heard if "regressors" in task.body} == {(0, 1)}
    assert outcome.summary["without_slopes"] == ["c"]


@pytest.mark.parametrize(("count", "regressors"), [(19, 1), (20, 2), (29, 2), (30, 3)])
def test_rows_are_twice_as_many_as_products_of_columns(count: int, regressors: int) -> None:
    heard: list[Task] = []
    fleet = {"v1": rows(count)}
    federated(SCHEME, SUPPORTED, DOMAIN, fleet, listen=lambda task, _: heard.append(task))
    assert {len(task.body["regressors"]) for task in heard if "regressors" in task.body} == {regressors}


def test_splits_have_different_ramps() -> None:
    model = central(SCHEME, SUPPORTED, DOMAIN, rows(6000)).model
    ramps = [split.ramp for split in model.tree.splits]
    assert len(set(ramps)) == len(ramps) > 5


def test_fleet_of_fewer_rows_than_support_ends_with_a_reason() -> None:
    with pytest.raises(RunFailedError, match=r"fewer than 700 rows in .*ask for less support"):
        central(SCHEME, TreeParameters(min_rows=1, support=700), DOMAIN, rows())


def test_few_rows_and_constant_targets_make_one_rule() -> None:
    for data in (rows(9), Dataset(NAMES, "y", rows().X, np.full(600, 0.5))):
        assert len(central(SCHEME, SUPPORTED, DOMAIN, data).model.rules()) == 1
