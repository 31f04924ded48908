"""Owners of the rules weigh them alone: in one round, with the central rules."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, given, settings

from glassfleet.local import federated
from tests.support.odd_fleets import OddFleet, odd_fleets


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(odd_fleets("frbc"))
def test_owners_find_the_central_rules_with_other_weights_at_most(fleet: OddFleet) -> None:
    assume(any(part.rows for part in fleet.parts.values()))

    def learned(**chosen: Any) -> Any:
        parameters = fleet.parameters.model_copy(update={"max_rules": None, "min_support": 0.0, **chosen})
        return federated(fleet.scheme, parameters, fleet.domain, fleet.parts)

    one, other = learned(weights="owners"), learned()
    assert one.rounds == 1
    assert np.array_equal(one.model.base.antecedents, other.model.base.antecedents)
    assert one.summary["conflicts"] == other.summary["conflicts"]
