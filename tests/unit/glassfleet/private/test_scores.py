"""Scores of the fleet from sums: as if all test rows were in one place, and no vehicle's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError, TaskError
from glassfleet.private.layout import layout_of
from glassfleet.private.scores import MODELS, SCORES, ScoresQuestion
from glassfleet.scheme import Contribution, Task

NUMBERS = Domain(features=(Variable(name="x", low=0, high=1),), target=Variable(name="y", low=-10.0, high=30.0))
CLASSES = Domain(features=(Variable(name="x", low=0, high=1),), label="y", classes=("a", "b", "c"))
RNG = np.random.default_rng(4)


def asked(domain: Domain, champion: str = "c" * 64) -> Task:
    return ScoresQuestion.of(domain, "m" * 64, champion, 0.1).to_task("nonce")


def vehicles(domain: Domain, counts: tuple[int, ...]) -> list[tuple[Any, dict[str, Any]]]:
    found = []
    for rows in counts:
        if domain.target is None:
            y: Any = RNG.choice(["a", "b", "elsewhere"], rows)
            told = {name: np.where(RNG.random(rows) < 0.6, y, "c") for name in MODELS}
        else:
            y = RNG.normal(10, 5, rows)
            told = {name: y + RNG.normal(0, spread, rows) for name, spread in zip(MODELS, (1, 2, 3, 4), strict=True)}
        found.append((y, told))
    return found


def opened(task: Task, answers: list[Contribution], cut: int) -> list[Contribution]:
    layout = layout_of(SCORES, task)
    groups = []
    for part in (answers[:cut], answers[cut:]):
        for answer in part:
            SCORES.check(task, answer)
        total = layout.read(np.sum([layout.flatten(answer) for answer in part], axis=0), len(part))
        SCORES.check(task, total)
        groups.append(total)
    return groups


def test_errors_are_those_of_all_test_rows_together() -> None:
    task, fleet = asked(NUMBERS), vehicles(NUMBERS, (40, 0, 7, 300, 1))
    answers = [SCORES.answer(task, y, told) for y, told in fleet]
    scores = SCORES.read(task, opened(task, answers, 3))
    assert scores is not None
    assert (scores.metric, scores.rows, scores.vehicles, scores.cannot) == ("rmse", 348, 4, 0)
    y = np.concatenate([each for each, _ in fleet])
    for name in MODELS:
        told = np.concatenate([each[name] for _, each in fleet])
        assert scores.scores[name] == pytest.approx(np.sqrt(np.mean((y - told) ** 2)), rel=1e-4)

    def error(y: Any, told: Any) -> float:
        return float(np.sqrt(np.mean((y - told) ** 2)))

    for name in MODELS[1:]:
        expected = sum(error(y, told["candidate"]) > 1.1 * error(y, told[name]) for y, told in fleet if len(y))
        assert scores.worse[name] == expected


def test_f1_is_that_of_all_test_rows_together() -> None:
    task, fleet = asked(CLASSES, champion=""), vehicles(CLASSES, (40, 25, 60, 9))
    for _, told in fleet:
        del told["champion"]
    answers = [SCORES.answer(task, y, told) for y, told in fleet]
    scores = SCORES.read(task, opened(task, answers, 2))
    assert scores is not None
    y = np.concatenate([each for each, _ in fleet])
    said = np.concatenate([each["candidate"] for _, each in fleet])
    f1 = [2 * ((y == c) & (said == c)).sum() / ((y == c).sum() + (said == c).sum()) for c in "ab"]
    assert scores.metric == "f1"
    assert scores.scores["candidate"] == pytest.approx(np.mean(f1))
    assert "champion" not in scores.scores
    assert "champion" not in scores.worse


def test_who_cannot_score_and_who_has_no_rows_are_part_of_the_sum() -> None:
    task = asked(NUMBERS)
    answers = [SCORES.answer(task, np.zeros(0), None), SCORES.answer(task, np.zeros(0), {})] * 4
    assert SCORES.read(task, opened(task, answers, 4)) is None
    y, told = vehicles(NUMBERS, (5,))[0]
    scores = SCORES.read(task, opened(task, [*answers, SCORES.answer(task, y, told)], 4))
    assert scores is not None
    assert (scores.cannot, scores.vehicles, scores.rows) == (4, 1, 5)


@pytest.mark.parametrize("domain", [NUMBERS, CLASSES], ids=["numbers", "classes"])
def test_scores_that_cannot_be_true_are_refused(domain: Domain) -> None:
    task = asked(domain)
    y, told = vehicles(domain, (20,))[0]
    answer = SCORES.answer(task, y, told)
    for name in answer.sums:
        if name == "cannot":
            continue
        for value in (-1, 2**50):
            sums = {key: array.copy() for key, array in answer.sums.items()}
            sums[name].flat[0] = value
            with pytest.raises(ContributionError):
                SCORES.check(task, Contribution(answer.kind, answer.rows, sums))
    with pytest.raises(ContributionError):
        SCORES.check(task, Contribution("other", answer.rows, answer.sums))


@pytest.mark.parametrize(
    "change",
    [{"classes": 3}, {"classes": [1]}, {"low": "x"}, {"high": float("nan")}, {"vehicle_worse": -1.0}, {"model": None}],
)
def test_malformed_questions_are_refused(change: dict[str, Any]) -> None:
    task = asked(NUMBERS)
    with pytest.raises(TaskError):
        SCORES.layout(Task(task.scheme, task.kind, {**task.body, **change}))
    with pytest.raises(TaskError):
        SCORES.layout(Task("frt", task.kind, task.body))
    with pytest.raises(TaskError):
        SCORES.layout(Task(task.scheme, task.kind, {}))
