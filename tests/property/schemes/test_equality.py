"""Promise 1: any spread of rows, any order, any drop-out gives the central model of the rows that took part."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from glassfleet.checks.bench import outcome_of
from glassfleet.local import central, federated
from schemas.codec import decode, encode
from schemas.documents import document_digest
from schemas.errors import RunFailedError
from tests.support.odd_fleets import SETTINGS, OddFleet, odd_fleets

relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
each_scheme = pytest.mark.parametrize("name", SETTINGS)


def _central(fleet: OddFleet, *agents: str) -> Any:
    """Return the central outcome; or how the fleet's run must end too, where no row can be used."""
    try:
        return central(fleet.scheme, fleet.parameters, fleet.domain, fleet.pooled(*agents))
    except RunFailedError as fault:
        return fault


@each_scheme
@relaxed
@given(data=st.data())
def test_fleets_model_equals_the_central_model_for_any_spread(name: str, data: Any) -> None:
    fleet = data.draw(odd_fleets(name))
    expected = _central(fleet)
    if isinstance(expected, RunFailedError):
        with pytest.raises(RunFailedError, match=re.escape(str(expected))):
            federated(fleet.scheme, fleet.parameters, fleet.domain, fleet.parts)
        return

    found = federated(fleet.scheme, fleet.parameters, fleet.domain, fleet.parts)

    assert document_digest(found.model.to_document()) == document_digest(expected.model.to_document())
    assert found.summary["sums_digest"] == expected.summary["sums_digest"]
    assert (found.rounds, found.nullified) == (expected.rounds, 0)


@each_scheme
@relaxed
@given(data=st.data())
def test_survivors_model_over_the_wire_equals_the_central_model_when_vehicles_drop_and_forget(
    name: str, data: Any
) -> None:
    fleet = data.draw(odd_fleets(name))
    survivors = data.draw(st.lists(st.sampled_from(sorted(fleet.parts)), min_size=1, unique=True))
    expected = _central(fleet, *survivors)
    assume(not isinstance(expected, RunFailedError))
    parts = {agent: fleet.parts[agent] for agent in survivors}

    def through(value: Any) -> Any:
        for part in parts.values():
            if fleet.rng.random() < 0.2:
                part.memo.clear()
        return decode(encode(value))

    found = outcome_of(
        fleet.scheme, fleet.parameters, fleet.domain, parts, through=through, reverse=data.draw(st.booleans())
    )

    assert document_digest(found.model.to_document()) == document_digest(expected.model.to_document())


@each_scheme
@relaxed
@given(data=st.data())
def test_model_read_from_its_document_predicts_and_explains_the_same(name: str, data: Any) -> None:
    fleet = data.draw(odd_fleets(name))
    learned = _central(fleet)
    assume(not isinstance(learned, RunFailedError))
    model = learned.model

    again = fleet.scheme.from_document(model.to_document())

    X = fleet.inputs(40)
    assert document_digest(again.to_document()) == document_digest(model.to_document())
    assert np.array_equal(again.predict(X), model.predict(X))
    # A row's prediction does not depend on the rows beside it.
    assert np.array_equal(np.concatenate([model.predict(X[i : i + 1]) for i in range(40)]), model.predict(X))
    for row in X[:8]:
        why = model.explain(row)
        assert again.explain(row) == why
        if isinstance(why.prediction, float):
            size = 1.0 + sum(abs(share) for share in why.shares.values()) + abs(why.base)
            assert abs(why.base + sum(why.shares.values()) - why.prediction) <= 1e-12 * size


HIDING: dict[str, dict[str, Any]] = {
    "frt": {"nullify": True, "min_rows": 1},
    "fmt": {"min_rows": 4},
    "frbc": {"nullify": True, "min_rows": 3},
    "tsk": {"nullify": True, "min_rows": 3},
}


@pytest.mark.parametrize("name", HIDING)
@relaxed
@given(data=st.data())
def test_vehicles_that_hide_small_groups_pass_the_check_and_the_run_ends_in_a_model_or_by_name(
    name: str, data: Any
) -> None:
    fleet = data.draw(odd_fleets(name))
    hiding = fleet.parameters.model_copy(update=HIDING[name])
    try:
        model = outcome_of(fleet.scheme, hiding, fleet.domain, fleet.parts).model
    except RunFailedError as fault:
        assert "min_rows" in str(fault)  # noqa: PT017 - one of two ends
        return
    answers = model.predict(fleet.inputs(50))
    assert set(answers.tolist()) <= set(fleet.domain.classes) or np.isfinite(answers).all()
