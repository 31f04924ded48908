"""The union of rules as a sum of tables: the same rules and model, nobody's own, larger tables where needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassfleet import catalogue
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError
from glassfleet.local import central, federated
from glassfleet.private.union import fill
from glassfleet.scheme import Contribution, Next
from schemas.errors import RunFailedError

SCHEME: Any = catalogue.load("frbc")


def fleet(inputs: int, rows: int) -> tuple[Domain, dict[str, Dataset]]:
    rng = np.random.default_rng(0)
    names = tuple(f"x{i}" for i in range(inputs))
    domain = Domain(
        features=tuple(Variable(name=name, low=0.0, high=1.0) for name in names), label="y", classes=("a", "b", "c")
    )
    parts = {
        f"v{i}": Dataset(names, "y", rng.random((rows, inputs)), rng.choice(["a", "b", "c"], rows)) for i in range(3)
    }
    return domain, parts


@pytest.mark.parametrize(("inputs", "rows", "rounds"), [(3, 200, 2), (30, 100, 2), (8, 900, 3)])
def test_rules_and_model_are_those_of_the_union_that_is_told(inputs: int, rows: int, rounds: int) -> None:
    domain, parts = fleet(inputs, rows)
    exact = SCHEME.exact(SCHEME.Parameters())
    by_sum = SCHEME.private(SCHEME.Parameters())
    told, summed = (federated(SCHEME, each, domain, parts) for each in (exact, by_sum))
    assert summed.rounds == rounds, "more than about a thousand rules need a larger table"
    assert summed.model.to_document()["model"] == told.model.to_document()["model"]
    assert summed.summary["sums_digest"] == told.summary["sums_digest"]
    alone = central(SCHEME, by_sum, domain, pool(list(parts.values())))
    assert alone.model.to_document() == summed.model.to_document()
    assert alone.rounds == rounds


def first() -> tuple[Next, Contribution]:
    domain, parts = fleet(3, 50)
    begin = SCHEME.server.start(SCHEME.private(SCHEME.Parameters()), domain, 0)
    return begin, SCHEME.client.contribute(begin.task, parts["v0"], np.random.default_rng(0))


@pytest.mark.parametrize("name", ["class_rows", "unknown_rows", "table"])
@pytest.mark.parametrize("change", [-1, 1, 2**40])
def test_tables_that_cannot_be_true_are_refused(name: str, change: int) -> None:
    begin, answer = first()
    SCHEME.server.check(begin.task, answer)
    sums = {key: array.copy() for key, array in answer.sums.items()}
    sums[name].flat[0] += change
    with pytest.raises(ContributionError):
        SCHEME.server.check(begin.task, Contribution(answer.kind, answer.rows, sums))


def test_a_table_with_what_is_no_rule_ends_the_run_by_name() -> None:
    begin, answer = first()
    table = answer.sums["table"]
    keys = np.full((1, table.shape[1] - 2), 2**29)
    odd = fill(keys, np.array([50]), len(table))
    with pytest.raises(RunFailedError, match="no rule"):
        SCHEME.server.reduce(begin.state, [Contribution("union", 50, {**answer.sums, "table": odd})])
