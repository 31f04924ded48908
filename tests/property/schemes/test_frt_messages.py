"""Whatever a peer sends, the client raises TaskError and the server's check ContributionError, and nothing else."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.errors import ContributionError, TaskError
from glassfleet.scheme import Contribution, Task
from glassfleet.schemes.frt import SCHEME, Parameters
from schemas.errors import DocumentError
from tests.support.mutations import REGRESSION, numbers, spoiled, talk, travelled

ROUNDS, MODEL = talk(SCHEME, Parameters(min_samples_fraction=0.02), REGRESSION, numbers(300))


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_client_raises_only_task_error_for_any_task(data: Any) -> None:
    step, _ = data.draw(st.sampled_from(ROUNDS))
    body = data.draw(spoiled(travelled(dict(step.task.body))))
    kind = data.draw(st.sampled_from([step.task.kind, step.task.kind, "level", "leaves", "weights", "other"]))
    with contextlib.suppress(TaskError):  # any other exception fails the test
        SCHEME.client.contribute(Task("frt", kind, body), numbers(300), np.random.default_rng(0))


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_check_raises_only_contribution_error_for_any_answer(data: Any) -> None:
    step, answer = data.draw(st.sampled_from(ROUNDS))
    value = data.draw(spoiled(travelled(answer.to_value())))
    with contextlib.suppress(ContributionError):  # any other exception fails the test
        SCHEME.server.check(step.task, Contribution.from_value(value))


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_document_reader_raises_only_document_error_for_any_document(data: Any) -> None:
    document = data.draw(spoiled(MODEL.to_document()))
    with contextlib.suppress(DocumentError):  # any other exception fails the test
        model = SCHEME.from_document(document)
        assert np.isfinite(model.predict(np.full((2, 3), 0.4))).all()
