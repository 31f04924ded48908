"""Whatever a message holds, FedGA raises TaskError, ContributionError or DocumentError, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError, TaskError
from glassfleet.scheme import Contribution, Task
from glassfleet.schemes.dp_tree import SCHEME as DP_TREE
from glassfleet.schemes.dp_tree import Parameters as DpTreeParameters
from glassfleet.schemes.fedga import SCHEME as FEDGA
from glassfleet.schemes.fedga import Parameters as FedgaParameters
from schemas.errors import DocumentError
from tests.support.mutations import damaged, talk, travelled

relaxed = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])

FEATURES = (
    Variable(name="a", low=0.0, high=1.0),
    Variable(name="b", low=0.0, high=1.0),
    Variable(name="c", low=0.0, high=2.0, categories=("x", "y", "z")),
)
CLASSES = Domain(features=FEATURES, label="kind", classes=("g", "h"))
NUMBER = Domain(features=FEATURES, target=Variable(name="kind", low=0.0, high=1.0))


def _data(domain: Domain) -> Dataset:
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.random((60, 2)), rng.integers(0, 3, 60)])
    y: Any = rng.choice(["g", "h"], 60) if domain.classes else rng.random(60)
    return Dataset(domain.names, "kind", X, y, categories={"c": ("x", "y", "z")})


SMALL = FedgaParameters(generations=1, population=3, depth=3)
NO_NOISE = DpTreeParameters(noise="none", max_depth=2)
SETTINGS: list[tuple[Any, Any, Domain]] = [
    (FEDGA, SMALL, CLASSES),
    (FEDGA, SMALL, NUMBER),
    (DP_TREE, NO_NOISE, CLASSES),
    (DP_TREE, DpTreeParameters(max_depth=2), CLASSES),
]
TALKS = [talk(*setting, _data(setting[2])) for setting in SETTINGS]
ROUNDS = [(*setting, *one) for setting, (rounds, _) in zip(SETTINGS, TALKS, strict=True) for one in rounds]
MODELS = [
    *((FEDGA, model) for _, model in TALKS[:2]),
    *((FEDGA, model.personalise(_data(model.domain))) for _, model in TALKS[:2]),
    (DP_TREE, TALKS[2][1]),
]


@relaxed
@given(st.data())
def test_client_raises_task_error_alone_whatever_the_task_holds(data: Any) -> None:
    scheme, _, domain, step, _ = data.draw(st.sampled_from(ROUNDS))
    wrong = data.draw(damaged(travelled(step.task.to_value())))
    try:
        task = Task.from_value(wrong)
    except (KeyError, TypeError):
        return
    try:
        answer = scheme.client.contribute(task, _data(domain), np.random.default_rng(0))
    except TaskError:
        return
    scheme.server.check(task, answer)


@relaxed
@given(st.data())
def test_server_raises_contribution_error_alone_whatever_the_answer_holds(data: Any) -> None:
    scheme, _, _, step, answer = data.draw(st.sampled_from(ROUNDS))
    wrong = data.draw(damaged(travelled(answer.to_value())))
    try:
        contribution = Contribution.from_value(wrong)
        scheme.server.check(step.task, contribution)
    except ContributionError:
        return
    # What was accepted can be reduced, beside a true answer.
    scheme.server.reduce(step.state, [contribution, answer])


@relaxed
@given(st.data())
def test_reader_raises_document_error_alone_whatever_the_document_holds(data: Any) -> None:
    scheme, model = data.draw(st.sampled_from(MODELS))
    wrong = data.draw(damaged(model.to_document()))
    try:
        again = scheme.from_document(wrong)
    except DocumentError:
        return
    rows = _data(model.domain).X
    width = len(again.domain.features)
    if width == rows.shape[1]:
        assert again.predict(rows).shape == (len(rows),)
    assert all(str(rule) for rule in again.rules())
    again.complexity()
