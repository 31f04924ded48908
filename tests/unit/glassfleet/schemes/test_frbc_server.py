"""The coordinator's half and the vehicle's: weights, conflicts, nullification, reduction, and unusual fleets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import TaskError
from glassfleet.local import central, federated
from glassfleet.scheme import Contribution
from glassfleet.schemes.frbc import SCHEME, Parameters
from glassfleet.schemes.frbc.limbs import split
from glassfleet.schemes.frbc.messages import Candidates
from glassfleet.schemes.frbc.rulebase import weigh
from schemas.errors import RunFailedError, UsageError

NAMES = ("a", "b")
DOMAIN = Domain(
    features=tuple(Variable(name=name, low=0.0, high=1.0) for name in NAMES), label="kind", classes=("g", "h", "k")
)
OPEN = Parameters(n_sets=3, nullify=False, min_rows=1)
RNG = np.random.default_rng(0)


def _data(rows: Any, labels: Any) -> Any:
    X = np.array(rows, dtype=np.float64).reshape(len(labels), 2)
    return Dataset(NAMES, "kind", X, np.array(list(labels), dtype=np.str_))


def _random(n: Any, seed: Any, classes: Any = "ghk") -> Any:
    rng = np.random.default_rng(seed)
    return _data(rng.random((n, 2)), rng.choice(list(classes), n))


def _limbs(values: Any) -> Any:
    high, low = split(np.array(values, dtype=np.float64), 40)
    return high.astype(np.int64), low.astype(np.int64)


def _weigh(antecedents: Any, classes: Any, num: Any, den: Any, rows: Any = 10) -> Any:
    sets = np.array(antecedents, dtype=np.int8)
    words = sets[:, :1].astype(np.int64) * 3 + sets[:, 1:]
    sums = {"rows": np.ones(len(sets), dtype=np.int64)}
    sums["num_high"], sums["num_low"] = _limbs(num)
    sums["den_high"], sums["den_low"] = _limbs(den)
    return weigh(Candidates(words, np.array(classes, dtype=np.int16), sets), sums, rows, OPEN)


# --- weights and conflicts ------------------------------------------------------------------------------------------


def test_server_keeps_the_heaviest_of_conflicting_rules() -> None:
    base, conflicts = _weigh([[0, 0], [0, 0], [1, 2]], [0, 1, 2], [0.25, 0.5, 0.5], [0.75, 0.75, 0.5])

    assert conflicts == 1
    assert base.classes.tolist() == [1, 2]
    assert base.weight.tolist() == [2 / 3, 1.0]


@pytest.mark.parametrize(("num", "den", "winner"), [([0.25, 0.5], [0.5, 1.0], 1), ([0.5, 0.5], [0.5, 0.5], 0)])
def test_server_settles_ties_by_num_then_by_class(num: Any, den: Any, winner: Any) -> None:
    base, _ = _weigh([[0, 0], [0, 0]], [0, 1], num, den)

    assert base.classes.tolist() == [winner]


def test_server_drops_rules_about_which_nothing_is_known() -> None:
    base, conflicts = _weigh([[0, 0], [1, 1]], [0, 1], [0.0, 0.5], [0.0, 0.5])

    assert base.antecedents.tolist() == [[1, 1]]
    assert conflicts == 0


def test_run_weighs_rules_as_the_formula_says() -> None:
    # Both inputs on the middle set's peak: strength 1. Half way to it: 0.5 per input.
    data = _data([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [0.25, 0.5]], "gghk")

    model = central(SCHEME, OPEN, DOMAIN, data).model

    rules = {tuple(sets): (int(c), w) for sets, c, w in zip(
        model.base.antecedents.tolist(), model.base.classes, model.base.weight, strict=True
    )}  # fmt: skip
    assert rules == {(1, 1): (0, 2.0 / 3.5), (0, 1): (2, 1.0)}
    assert model.base.support.tolist() == [0.25, 0.5]


def test_owners_count_their_own_rows_only_and_pooled_all_rows() -> None:
    fleet = {"v1": _data([[0.5, 0.5]], "g"), "v2": _data([[0.3, 0.5], [1.0, 1.0]], "hg")}

    owners = federated(SCHEME, OPEN.model_copy(update={"weights": "owners"}), DOMAIN, fleet)
    pooled = federated(SCHEME, OPEN, DOMAIN, fleet)

    # v1 alone found (1, 1) -> g; v2's rows at 0.3 found (1, 1) -> h. Each is pure at its owner; the larger Num stays.
    assert owners.rounds == 1
    assert pooled.rounds == 2
    assert owners.model.base.weight.tolist() == [1.0, 1.0]
    assert pooled.model.base.weight.tolist() == [1.0 / 1.6, 1.0]


# --- nullification --------------------------------------------------------------------------------------------------


def test_agent_leaves_out_classes_that_are_too_few_to_condense() -> None:
    rows = [[0.1 * i, 0.07 * i * i % 1] for i in range(9)]
    data = _data(rows, "gggghhkkk")  # two inputs: a class needs three different rows
    step: Any = SCHEME.server.start(Parameters(n_sets=3), DOMAIN, 0)

    answer = SCHEME.client.contribute(step.task, data, RNG)

    SCHEME.server.check(step.task, answer)
    assert set(answer.values["classes"].tolist()) == {0, 2}
    assert answer.sums["class_rows"].tolist() == [4, 0, 3]
    assert answer.rows == 7


# --- reduction ------------------------------------------------------------------------------------------------------


def test_reduced_model_is_what_the_run_would_have_made() -> None:
    data = _random(300, 1)
    whole = central(SCHEME, OPEN, DOMAIN, data).model

    for size in (1, 3, 5):
        small = central(SCHEME, OPEN.model_copy(update={"max_rules": size}), DOMAIN, data)
        assert small.model.to_document() == whole.reduced(size).to_document()
        assert small.summary["reduced"] == whole.base.size - size
        assert small.model.base.support.min() >= np.sort(whole.base.support)[-size]
    with pytest.raises(ValueError, match="at least 1"):
        whole.reduced(0)


def test_reduction_by_support_may_leave_the_most_frequent_class_alone() -> None:
    data = _random(100, 2, "gghhh")
    model = central(SCHEME, OPEN.model_copy(update={"min_support": 1.0}), DOMAIN, data).model

    assert model.base.unconditional
    assert set(model.predict(data.X).tolist()) == {"h" if (data.y == "h").sum() >= 50 else "g"}


# --- unusual fleets -------------------------------------------------------------------------------------------------


def test_rows_of_unknown_classes_are_left_out_and_counted() -> None:
    known = _random(40, 5)
    more = Dataset(NAMES, "kind", np.vstack([known.X, RNG.random((7, 2))]), np.append(known.y, ["zebra"] * 7))

    with_them = federated(SCHEME, OPEN, DOMAIN, {"v1": more})
    without = federated(SCHEME, OPEN, DOMAIN, {"v1": known})

    assert with_them.summary["unknown_rows"] == 7
    assert with_them.model.base.antecedents.tolist() == without.model.base.antecedents.tolist()
    assert with_them.model.base.weight.tolist() == without.model.base.weight.tolist()


def test_client_refuses_rows_that_are_all_of_unknown_classes() -> None:
    task = SCHEME.server.start(OPEN, DOMAIN, 0).task

    with pytest.raises(TaskError, match="no row's 'kind' is one of the run's 3 classes"):
        SCHEME.client.contribute(task, _data([[0, 0]], ["zebra"]), RNG)


def test_server_refuses_classes_that_it_cannot_number() -> None:
    features = DOMAIN.features
    for classes in (("b", "a"), ("a", "a")):
        with pytest.raises(UsageError, match="lexicographic order"):
            SCHEME.server.start(OPEN, Domain(features=features, label="kind", classes=classes), 0)
    many = tuple(sorted(f"{i:05d}" for i in range(40_000)))
    with pytest.raises(UsageError, match="at most 32768"):
        SCHEME.server.start(OPEN, Domain(features=features, label="kind", classes=many), 0)


def test_run_with_more_sums_than_an_agent_can_hold_ends_by_name() -> None:
    classes = tuple(f"{i:05d}" for i in range(30_000))
    domain = Domain(features=DOMAIN.features, label="kind", classes=classes)
    labels = RNG.choice(classes[:2], 4000)
    data = Dataset(NAMES, "kind", RNG.random((4000, 2)), labels)

    with pytest.raises(RunFailedError, match="antecedents of 30000 classes"):
        federated(SCHEME, OPEN.model_copy(update={"n_sets": 20}), domain, {"v1": data})
    with pytest.raises(TaskError, match="antecedents of 30000 classes"):
        federated(SCHEME, OPEN.model_copy(update={"n_sets": 20, "weights": "owners"}), domain, {"v1": data})


def test_grid_says_how_many_rows_it_is_good_for() -> None:
    assert SCHEME.server.max_rows(OPEN) == 2**23 - 1
    assert SCHEME.server.max_rows(Parameters(fraction_bits=64)) == 2**31 - 1
    step: Any = SCHEME.server.start(OPEN, DOMAIN, 0)
    answer = Contribution("rules", 2**23 - 1, {
        "class_rows": np.zeros(3, dtype=np.int64), "unknown_rows": np.zeros(1, dtype=np.int64),
    }, {"antecedents": np.zeros((0, 1), dtype=np.int64), "classes": np.zeros(0, dtype=np.int16)})  # fmt: skip
    SCHEME.server.check(step.task, answer)
    with pytest.raises(RunFailedError, match="too-many-rows"):
        SCHEME.server.reduce(step.state, [answer, answer])


# --- answers that cannot be true ------------------------------------------------------------------------------------
