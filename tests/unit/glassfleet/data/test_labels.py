"""Classes found federatedly: the union of the vehicles' labels, as a part of domain discovery."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassfleet.data.dataset import Dataset
from glassfleet.data.labels import MAX_LABELS
from glassfleet.discovery import DISCOVERY, DiscoveryParameters, discover
from glassfleet.errors import ContributionError, TaskError
from glassfleet.scheme import Contribution
from schemas.codec import decode, encode
from schemas.errors import RunFailedError

RNG = np.random.default_rng(0)


def _vehicle(labels: Any, seed: int = 0) -> Dataset:
    y = np.array(list(labels), dtype=np.str_)
    X = np.random.default_rng(seed).normal(1013.0, 0.5, (y.size, 2))  # needs a third round
    return Dataset(("pressure", "load"), "kind", X, y)


def _parameters(**changed: Any) -> DiscoveryParameters:
    return DiscoveryParameters(**{"features": ("pressure", "load"), "target": "kind", "labels": True, **changed})


FLEET = [_vehicle("g" * 20 + "h" * 5 + "z" * 2, 1), _vehicle("k" * 9 + "h" * 8, 2), _vehicle("", 3)]


def test_fleet_finds_the_union_of_its_labels_without_small_counts() -> None:
    domain = discover(_parameters(), FLEET)

    assert domain.classes == ("g", "h", "k")
    assert domain.label == "kind"
    assert domain.target is None


def test_labels_are_asked_once_and_reported_with_their_rows() -> None:
    step: Any = DISCOVERY.server.start(_parameters())
    asked = []
    while hasattr(step, "task"):
        asked.append("labels" in step.task.body)
        answers = []
        for data in FLEET:
            answer = DISCOVERY.client.contribute(step.task, data, RNG)
            answer = Contribution.from_value(decode(encode(answer.to_value())))
            DISCOVERY.server.check(step.task, answer)
            answers.append(answer)
        step = DISCOVERY.server.reduce(decode(encode(dict(step.state))), answers)

    assert asked == [True] + [False] * (len(asked) - 1)
    assert len(asked) >= 2
    assert step.summary["class_rows"] == {"g": 20, "h": 13, "k": 9}


def test_declared_classes_are_not_asked_for() -> None:
    assert "labels" not in DISCOVERY.server.start(_parameters(classes=("g", "h"))).task.body


def test_fleet_without_a_frequent_label_ends_by_name() -> None:
    with pytest.raises(RunFailedError, match="no-classes: no vehicle has a label of 'kind' in 3 rows"):
        discover(_parameters(), [_vehicle("ghk")])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (Dataset(("pressure", "load"), "kind", np.zeros((3, 2)), np.zeros(3)), "numeric here"),
        (Dataset(("pressure", "load"), "other", np.zeros((3, 2)), np.array(["a"] * 3)), "'other', not 'kind'"),
        (_vehicle(str(i) for i in range(MAX_LABELS + 1)), "4097 different labels"),
        (_vehicle(["x" * 201] * 3), "1 to 200"),
    ],
)
def test_vehicle_refuses_a_target_that_is_no_class(data: Any, reason: Any) -> None:
    with pytest.raises(TaskError, match=reason):
        DISCOVERY.client.contribute(DISCOVERY.server.start(_parameters()).task, data, RNG)


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "no counts": ({"label_rows": None}, "int64 array"),
    "a count too few": ({"label_rows": np.array([20])}, "one count per label"),
    "more than the rows": ({"label_rows": np.array([20, 9])}, "27 rows at most"),
    "a small count": ({"label_rows": np.array([20, 2])}, "at least 3"),
    "not in order": ({"labels": ["h", "g"]}, "lexicographic order"),
    "twice": ({"labels": ["g", "g"]}, "each once"),
    "no text": ({"labels": ["g", 1]}, "must be a text"),
    "no list": ({"labels": "gh"}, "must be a list"),
    "more": ({"extra": 1}, "expected the labels"),
}


@pytest.mark.parametrize("lie", LIES)
def test_server_refuses_labels_that_cannot_be_true(lie: Any) -> None:
    changed, reason = LIES[lie]
    task = DISCOVERY.server.start(_parameters()).task
    answer = DISCOVERY.client.contribute(task, FLEET[0], RNG)
    DISCOVERY.server.check(task, answer)

    wrong = Contribution(answer.kind, answer.rows, answer.sums, {**answer.values, **changed}, answer.nullified)
    with pytest.raises(ContributionError, match=reason):
        DISCOVERY.server.check(task, wrong)


def test_server_refuses_labels_that_it_did_not_ask_for() -> None:
    task = DISCOVERY.server.start(_parameters(classes=("g", "h"))).task
    answer = DISCOVERY.client.contribute(task, FLEET[0], RNG)

    with pytest.raises(ContributionError, match="nothing else"):
        DISCOVERY.server.check(task, Contribution(answer.kind, answer.rows, answer.sums, {"labels": []}))
