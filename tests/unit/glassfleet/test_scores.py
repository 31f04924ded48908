"""Summed scores: what one vehicle answers, what is refused, and what sums of answers say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edge_agent.models.evaluation import mean_f1
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError, TaskError
from glassfleet.private.layout import layout_of
from glassfleet.scheme import Contribution, Task
from glassfleet.scores import SCORES, Asked, scored

FEATURES = (Variable(name="a", low=0.0, high=1.0),)
NUMBERS = Domain(features=FEATURES, target=Variable(name="y", low=-5.0, high=5.0))
CLASSES = Domain(features=FEATURES, label="y", classes=("no", "yes"))


def task_of(domain: Domain) -> Task:
    asked = Asked({"domain": domain.to_document()}, None, {"champion": 0.05, "constant": -0.01})
    return SCORES.server.start(asked, domain, 0).task


def reduced(task: Task, answers: list[Contribution]) -> Any:
    return SCORES.server.reduce({"task": task.body}, [replace(each, vehicles=1) for each in answers]).summary


def test_sums_of_classes_give_the_f1_of_all_rows_together() -> None:
    rng, task = np.random.default_rng(1), task_of(CLASSES)
    labels = np.array(["no", "yes", "unheard of"])
    truths, forecasts = (
        [labels[rng.integers(0, 3, 20)] for _ in range(4)],
        [labels[rng.integers(0, 2, 20)] for _ in range(4)],
    )
    answers = [scored(task, y, {"candidate": said}) for y, said in zip(truths, forecasts, strict=True)]
    for answer in answers:
        SCORES.server.check(task, answer)
    assert reduced(task, answers)["candidate"] == pytest.approx(
        mean_f1(np.concatenate(truths), np.concatenate(forecasts))
    )
    told, y, said = reduced(task, answers)["confusion"], np.concatenate(truths), np.concatenate(forecasts)
    assert told == [[int(((y == a) & (said == b)).sum()) for b in labels] for a in labels]


def test_errors_beyond_twice_the_range_count_as_that_and_numbers_that_are_none_as_well() -> None:
    task = task_of(NUMBERS)
    y = np.zeros(4)
    answer = scored(task, y, {"candidate": np.array([np.nan, np.inf, -1e300, 20.0])})
    assert reduced(task, [answer])["candidate"] == pytest.approx(20.0)


def test_all_answers_have_one_length_also_without_test_rows() -> None:
    task = task_of(NUMBERS)
    layout = layout_of(SCORES, task)
    full = layout.flatten(scored(task, np.ones(3), {"candidate": np.ones(3), "constant": np.zeros(3)}))
    none = layout.flatten(scored(task, np.empty(0), {}))
    assert full.shape == none.shape == (layout.size,)
    assert not none.any()


@pytest.mark.parametrize(
    ("name", "value"),
    [("rows/candidate", 9), ("errors/candidate", -1), ("errors/candidate", 2**40), ("worse/constant", 2)],
)
def test_sums_that_no_rows_can_have_are_refused(name: str, value: int) -> None:
    task = task_of(NUMBERS)
    answer = scored(task, np.ones(3), {"candidate": np.ones(3), "constant": np.zeros(3)})
    SCORES.server.check(task, answer)
    answer.sums[name][-1] = value
    with pytest.raises(ContributionError):
        SCORES.server.check(task, answer)


@pytest.mark.parametrize("body", [{}, {"model": 1}, {"model": {"domain": {}}}])
def test_a_malformed_task_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(TaskError):
        SCORES.layout(Task("scores", "scores", body))


def errors_task(lines: int = 2) -> Task:
    return SCORES.server.start(Asked({"domain": NUMBERS.to_document()}, lines=lines), NUMBERS, 0).task


def errors_answer(off: float, rows: int) -> Contribution:
    zeros = np.zeros(rows)
    return scored(errors_task(), zeros + off, {"candidate": zeros}, np.zeros(rows, dtype=np.intp))


def test_plain_runs_ask_for_counts_of_errors_alone() -> None:
    answer = errors_answer(0.5, 30)
    SCORES.server.check(errors_task(), answer)

    assert set(answer.sums) == {"rows/candidate", "counts"}
    assert answer.sums["counts"].sum(axis=1).tolist() == [30, 0]


def test_rules_that_decide_one_or_two_of_a_vehicles_rows_are_not_told_of() -> None:
    zeros = np.zeros(5)
    answer = scored(errors_task(), zeros, {"candidate": zeros}, np.array([0, 0, 0, 1, 1]))
    SCORES.server.check(errors_task(), answer)

    assert answer.sums["counts"].sum(axis=1).tolist() == [3, 0]


@pytest.mark.parametrize("wrong", [-1, 31, 2**62])
def test_counts_that_no_rows_can_have_are_refused(wrong: int) -> None:
    answer = errors_answer(0.5, 30)
    answer.sums["counts"][1, :4] = wrong
    with pytest.raises(ContributionError, match="counts of errors"):
        SCORES.server.check(errors_task(), answer)


def test_one_vehicle_weighs_no_more_than_five_usual_ones() -> None:
    usual = [errors_answer(1.0, 100) for _ in range(14)]
    state = {"task": errors_task().body}
    summary = SCORES.server.reduce(state, [*usual, errors_answer(0.0, 1_000_000)]).summary

    # 1,400 honest rows and about 500 of the other, which is right about none.
    assert 1_400 < sum(summary["errors"]["counts"]) < 2_000
    assert summary["errors"]["lines"][0]["high"] == pytest.approx(1.0, rel=0.13)
