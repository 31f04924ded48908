"""Whatever a peer sends, the client raises TaskError and the server's check ContributionError, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.errors import ContributionError, TaskError
from glassfleet.scheme import Contribution, Done, Next, Task
from glassfleet.schemes.tsk import SCHEME, Parameters
from schemas.errors import DocumentError
from tests.support.mutations import REGRESSION, numbers, spoiled, talk, travelled

VARIANTS: list[dict[str, Any]] = [{"consequents": "averaged"}, {"antecedents": "local"}, {"max_rounds": 3}]
TALKS = [talk(SCHEME, Parameters(n_clusters=6, **variant), REGRESSION, numbers(120)) for variant in VARIANTS]
ROUNDS = [each for rounds, _ in TALKS for each in rounds]

ARRAYS = (
    np.zeros(0),
    np.zeros((2, 2)),
    np.zeros((1, 6, 4)),
    np.array(3),
    np.array([[0, 1, 2], [0, 1, 2]], dtype=np.int8),
    np.zeros((0, 3), dtype=np.int8),
    np.array([2**62, -(2**62)], dtype=np.int64),
    np.array([True, False]),
)
"""Of the kinds that tasks and answers of this scheme hold."""


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_client_raises_only_task_error_for_any_task(data: Any) -> None:
    step, _ = data.draw(st.sampled_from(ROUNDS))
    body = data.draw(spoiled(travelled(dict(step.task.body)), ARRAYS))
    if isinstance(body.get("parameters"), dict):
        body["parameters"].update(n_clusters=6)  # a thousand clusters are legal, and slow
    kind = data.draw(st.sampled_from([step.task.kind, step.task.kind, "rules", "clusters", "sums", "weights", "other"]))
    reason = "answered"
    try:
        SCHEME.client.contribute(Task("tsk", kind, body), numbers(120), np.random.default_rng(0))
    except TaskError as fault:
        reason = str(fault)
    assert reason


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_check_raises_only_contribution_error_and_what_it_accepts_can_be_reduced(data: Any) -> None:
    step, answer = data.draw(st.sampled_from(ROUNDS))
    value = data.draw(spoiled(travelled(answer.to_value()), ARRAYS))
    accepted, reason = None, "accepted"
    try:
        accepted = Contribution.from_value(value)
        SCHEME.server.check(step.task, accepted)
    except ContributionError as fault:
        accepted, reason = None, str(fault)
    assert reason
    if accepted is not None:
        memory = {"sums_digest": "", "iterations": 1, "still": 0, "change": 0.0}
        after = SCHEME.server.reduce({"kind": step.task.kind, "body": step.task.body, **memory}, [answer, accepted])
        assert isinstance(after, Next | Done)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_document_reader_raises_only_document_error_for_any_document(data: Any) -> None:
    model = data.draw(st.sampled_from([model for _, model in TALKS]))
    document = data.draw(spoiled(model.to_document(), ARRAYS))
    reason = "read"
    try:
        predicted = SCHEME.from_document(document).predict(np.full((2, 3), 0.4))
    except DocumentError as fault:
        reason = str(fault)
    else:
        assert np.isfinite(predicted).all()
    assert reason
