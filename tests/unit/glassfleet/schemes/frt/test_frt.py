"""frt: its model and its server."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from glassfleet.contract.messages import Contribution, Done, Next
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError
from glassfleet.schemes.frt import SCHEME, FrtParameters
from glassfleet.simulation import federated
from schemas.errors import RunFailedError, UsageError
from tests.support.sample_models import curve, unit_domain

DOMAIN = Domain(
    features=(
        Variable(name="speed", low=0, high=120, unit="km/h"),
        Variable(name="signal", low=-110, high=-50, unit="dB", terms=("Poor", "Fair", "Good")),
    ),
    target=Variable(name="rate", low=0, high=50, unit="Mb/s"),
)


def _model(**parameters: Any) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.uniform(0, 120, 600), rng.uniform(-110, -50, 600)])
    y = np.clip(25 + 0.4 * (X[:, 1] + 80) - 0.1 * X[:, 0] * (X[:, 1] > -90), 0, 50)
    data = Dataset(("speed", "signal"), "rate", X, y)
    return federated(SCHEME, FrtParameters(n_sets=3, **parameters), DOMAIN, {"a": data}).model, X, y


def test_explanation_ranks_rules_by_what_the_choice_was_made_on():
    model, X, _ = _model()
    by_strength_alone = 0
    for row in X[:50]:
        why = model.explain(row)
        ranked = [why.fired, *why.runners_up]
        normalised = [item.normalised_strength for item in ranked]
        assert normalised == sorted(normalised, reverse=True)
        assert all(item.normalised_strength >= item.strength for item in ranked), "a mean strength is at most 1"
        by_strength_alone += why.fired.strength == max(item.strength for item in ranked)
    assert by_strength_alone < 50, "some row is answered by a rule that is not the strongest; the explanation says why"
    averaged, X, _ = _model(inference="weighted_average")
    assert averaged.explain(X[0]).fired.normalised_strength is None


def test_rule_of_highest_weight_answers_when_none_fires():
    document = _model(max_depth=1, min_samples_fraction=0.0)[0].to_document()
    nodes = document["model"]["nodes"]
    split = nodes[0]["feature"]
    gone = nodes[0]["children"][2]  # cut off the highest set
    rule = nodes[gone]["rule"]
    nodes[0]["children"][2] = None
    del nodes[gone], document["model"]["rules"][rule]
    model = SCHEME.from_document(document)
    row = np.array([60.0, -80.0])
    row[split] = DOMAIN.features[split].high
    why = model.explain(row)
    assert why.fallback
    assert why.fired.strength == 0.0
    assert why.fired.rule.weight == max(rule.weight for rule in model.rules())


NAMES = ("a", "b")
UNIT = unit_domain(NAMES)
RNG = np.random.default_rng(0)


def test_server_refuses_statistics_of_a_feature_on_the_path():
    step: Next | Done = SCHEME.server.start(FrtParameters(min_samples_fraction=0.01), UNIT, 0)
    assert isinstance(step, Next)
    step = SCHEME.server.reduce(step.state, [SCHEME.client.contribute(step.task, curve(), RNG)])
    assert isinstance(step, Next)
    assert step.task.kind == "level"
    answer = SCHEME.client.contribute(step.task, curve(), RNG)
    cells = answer.sums["cell_count"].copy()
    used = int(np.flatnonzero(~cells[0].any(axis=1))[0])
    cells[0, used, 0] = 1
    with pytest.raises(ContributionError, match="path uses already"):
        SCHEME.server.check(step.task, Contribution("level", answer.rows, {**answer.sums, "cell_count": cells}))


def test_server_names_the_end_when_there_are_too_many_rows():
    step = SCHEME.server.start(FrtParameters(), UNIT, 0)
    empty = SCHEME.client.contribute(step.task, curve(0), RNG)
    many = Contribution("level", FrtParameters().max_rows, empty.sums)
    with pytest.raises(RunFailedError, match="too-many-rows"):
        SCHEME.server.reduce(step.state, [many, many])
    with pytest.raises(ContributionError, match="the grid is good for"):
        SCHEME.server.check(step.task, Contribution("level", FrtParameters().max_rows + 1, empty.sums))


def test_server_refuses_more_inputs_than_linear_leaves_take():
    wide = Domain(features=tuple(Variable(name=f"x{i}", low=0, high=1) for i in range(257)), target=UNIT.target)
    with pytest.raises(UsageError, match="order=0"):
        SCHEME.server.start(FrtParameters(), wide, 0)
    assert SCHEME.server.start(FrtParameters(order=0), wide, 0).task.kind == "level"


def test_server_grows_no_deeper_than_told():
    for depth in (0, 1, 2):
        parameters = FrtParameters(max_depth=depth, min_samples_fraction=0.0, min_gain=0.0)
        outcome = federated(SCHEME, parameters, UNIT, {"a": curve()})
        assert outcome.model.complexity()["depth"] == depth


def test_vehicle_keeps_no_copy_of_its_rows_between_questions():
    rows = curve(30_000)
    tracemalloc.start()
    federated(SCHEME, FrtParameters(min_rows=1), UNIT, {"a": rows})
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < rows.X.nbytes / 2


def test_client_nullifies_cells_of_one_or_two_rows_as_the_paper_does():
    step = SCHEME.server.start(FrtParameters(min_rows=1), UNIT, 0)
    two = SCHEME.client.contribute(step.task, curve(2), RNG)
    assert two.nullified > 0
    assert not any(array.any() for array in two.sums.values())
