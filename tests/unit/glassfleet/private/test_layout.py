"""One vector for each answer, whose length the task fixes; what the sum of a group may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassfleet import catalogue
from glassfleet.discovery import DISCOVERY, DiscoveryParameters
from glassfleet.errors import PrivacyError, TaskError
from glassfleet.private.layout import Layout, layout_of
from glassfleet.scheme import Contribution, private_parameters
from schemas.errors import UsageError

LAYOUT = Layout("leaves", (("a", (2, 2)), ("b", ())))


def test_a_vector_is_rows_vehicles_and_the_sums_by_name() -> None:
    sums = {"b": np.array(9, dtype=np.int64), "a": np.array([[1, -2], [3, 4]], dtype=np.int64)}
    vector = LAYOUT.flatten(Contribution("leaves", 7, sums))
    assert vector.tolist() == [7, 1, 1, -2, 3, 4, 9]
    assert LAYOUT.size == 7
    read = LAYOUT.read(3 * vector, 9)
    assert (read.kind, read.rows, read.vehicles) == ("leaves", 21, 3)
    assert read.sums["a"].tolist() == [[3, -6], [9, 12]]
    assert read.sums["b"].tolist() == 27


@pytest.mark.parametrize(
    "given",
    [
        Contribution("leaves", 7, {"a": np.zeros((2, 2), dtype=np.int64)}),
        Contribution("leaves", 7, {"a": np.zeros((4,), dtype=np.int64), "b": np.array(0)}),
        Contribution("other", 7, {"a": np.zeros((2, 2), dtype=np.int64), "b": np.array(0)}),
        Contribution("leaves", 7, {"a": np.zeros((2, 2), dtype=np.int64), "b": np.array(0)}, {"text": "own"}),
        Contribution("leaves", 7, {"a": np.zeros((2, 2), dtype=np.int64), "b": np.array(0)}, nullified=1),
    ],
    ids=["less", "shape", "kind", "values", "nullified"],
)
def test_nothing_but_the_sums_of_the_layout_is_masked(given: Contribution) -> None:
    with pytest.raises(PrivacyError, match="other-layout"):
        LAYOUT.flatten(given)


@pytest.mark.parametrize("head", [(-1, 0), (5, 10), (2, 3), (2**31, 3), (5, 0), (0, 1)])
def test_sums_that_cannot_be_are_noise(head: tuple[int, int]) -> None:
    with pytest.raises(PrivacyError, match="impossible-sum"):
        LAYOUT.read(np.array([*head, 0, 0, 0, 0, 0]), 9)
    with pytest.raises(PrivacyError, match="impossible-sum"):
        LAYOUT.read(np.zeros(3, dtype=np.int64), 9)


def test_layouts_of_other_names_or_shapes_have_other_digests() -> None:
    others = [LAYOUT, Layout("level", LAYOUT.shapes), Layout("leaves", (("a", (4,)), ("b", ())))]
    assert len({each.digest for each in others}) == 3


@pytest.mark.parametrize("name", ["bmt", "fedga", "fmt_classes"])
def test_schemes_without_private_runs_say_why(name: str) -> None:
    scheme: Any = catalogue.load(name)
    with pytest.raises(UsageError, match=f"{name} has no private runs: "):
        private_parameters(scheme, scheme.Parameters())


def test_each_scheme_with_private_runs_has_support_or_needs_none() -> None:
    """Those named rest on all rows of a vehicle, or have noise: whoever adds one says why."""
    without = {"dp_tree", "fedavg_mlp"}
    for name in catalogue.names():
        scheme: Any = catalogue.load(name)
        try:
            private_parameters(scheme, scheme.Parameters())
        except UsageError:
            continue
        assert ("support" in scheme.Parameters.model_fields) != (name in without), name


def test_what_is_no_sum_is_refused_with_a_reason() -> None:
    tsk: Any = catalogue.load("tsk")
    for own in ({"antecedents": "local"}, {"consequents": "averaged"}):
        with pytest.raises(UsageError, match="antecedents="):
            private_parameters(tsk, tsk.Parameters(**own))
    frbc: Any = catalogue.load("frbc")
    with pytest.raises(UsageError, match="weights="):
        private_parameters(frbc, frbc.Parameters(weights="owners"))
    dp_tree: Any = catalogue.load("dp_tree")
    with pytest.raises(UsageError, match='noise="aggregate"'):
        private_parameters(dp_tree, dp_tree.Parameters(noise="paper"))
    asked = {"features": ("a",), "target": "y"}
    with pytest.raises(UsageError, match="declare them"):
        DISCOVERY.private(DiscoveryParameters(**asked, labels=True))
    for texts in ({"labels": True}, {"either": True}, {"categories": True}):
        begin = DISCOVERY.server.start(DiscoveryParameters(**asked, **texts))
        with pytest.raises(TaskError, match="no sums"):
            layout_of(DISCOVERY, begin.task)
    for texts in ({"either": True}, {"categories": True}):  # columns are numbers; who has text there refuses
        numbers = DISCOVERY.private(DiscoveryParameters(**asked, **texts))
        assert layout_of(DISCOVERY, DISCOVERY.server.start(numbers).task).size > 2
    assert DISCOVERY.private(DiscoveryParameters(**asked, labels=True, classes=("u", "v"))).min_count == 0
