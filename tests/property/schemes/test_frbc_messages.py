"""Whatever a message holds, FRBC raises TaskError, ContributionError or DocumentError, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError, TaskError
from glassfleet.scheme import Contribution, Task
from glassfleet.schemes.frbc import SCHEME, Parameters
from schemas.errors import DocumentError
from tests.support.mutations import damaged, talk, travelled

relaxed = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])

DOMAIN = Domain(
    features=tuple(Variable(name=name, low=0.0, high=1.0) for name in ("a", "b", "c")),
    label="kind",
    classes=("g", "h"),
)


def _data() -> Any:
    rng = np.random.default_rng(4)
    return Dataset(DOMAIN.names, "kind", rng.random((60, 3)), rng.choice(["g", "h"], 60))


(OWNERS,), _ = talk(SCHEME, Parameters(n_sets=3, weights="owners"), DOMAIN, _data())
(FIRST, SECOND), MODEL = talk(SCHEME, Parameters(n_sets=3, weights="pooled"), DOMAIN, _data())
DOCUMENT = MODEL.to_document()


@relaxed
@given(st.data())
def test_client_raises_task_error_alone_whatever_the_task_holds(data: Any) -> None:
    step, _ = data.draw(st.sampled_from([OWNERS, FIRST, SECOND]))
    wrong = data.draw(damaged(travelled(step.task.to_value())))
    try:
        task = Task.from_value(wrong)
    except (KeyError, TypeError):
        return
    try:
        answer = SCHEME.client.contribute(task, _data(), np.random.default_rng(0))
    except TaskError:
        return
    SCHEME.server.check(task, answer)


@relaxed
@given(st.data())
def test_server_raises_contribution_error_alone_whatever_the_answer_holds(data: Any) -> None:
    step, answer = data.draw(st.sampled_from([OWNERS, FIRST, SECOND]))
    wrong = data.draw(damaged(travelled(answer.to_value())))
    try:
        contribution = Contribution.from_value(wrong)
        SCHEME.server.check(step.task, contribution)
    except ContributionError:
        return
    # What was accepted can be reduced, beside a true answer.
    SCHEME.server.reduce(step.state, [contribution, answer])


@relaxed
@given(st.data())
def test_reader_raises_document_error_alone_whatever_the_document_holds(data: Any) -> None:
    wrong = data.draw(damaged(DOCUMENT))
    try:
        model = SCHEME.from_document(wrong)
    except DocumentError:
        return
    assert set(model.predict(_data().X)) <= set(model.domain.classes)
