"""Runs of TSK with support: what is counted of rules, and which runs end before anything is summed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glassfleet.contract.messages import SUPPORT, Contribution, Task
from glassfleet.contract.scheme import private_parameters
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.sampling import row_hashes
from glassfleet.errors import TaskError
from glassfleet.numerics.statistics import gram_value, unpack_symmetric
from glassfleet.private.columns import Common
from glassfleet.private.groups import Terms, parameters_digest
from glassfleet.private.layout import draws
from glassfleet.private.masks import RunKey
from glassfleet.private.simulation import PrivateFleet, Vehicle
from glassfleet.schemes.tsk import SCHEME, TskParameters
from glassfleet.schemes.tsk.messages import POWERS, TskQuestion, powers_of
from glassfleet.schemes.tsk.rules import DUST, with_otherwise
from glassfleet.schemes.tsk.server import cuts_of, decide_rules
from glassfleet.simulation import central, federated
from schemas.errors import RunFailedError
from tests.support.sample_models import unit_domain

NAMES = ("a", "b")
DOMAIN = unit_domain(NAMES)
SUPPORTED = TskParameters(support=3, min_rows=1, n_sets=2, n_clusters=6)
RULES = np.array([[0, 0], [1, 1]], dtype=np.int8)
COMMON: Common = ((1, 25), (2, 0))
LEAST = 4


def rows(n: int = 400) -> Dataset:
    rng = np.random.default_rng(5)
    X = rng.random((n, 2)) ** 3
    X[: n // 4, 1] = 0.1  # cell 25 of 256
    y = np.round(4.0 * X[:, 0]) / 4.0
    return Dataset(NAMES, "y", np.concatenate([X, X[:9]]), np.concatenate([y, y[:9]]))


CUTS = np.array([1, 0], dtype=np.int8)


def of_rules(common: Common = COMMON, cuts: Any = CUTS) -> TskQuestion:
    return TskQuestion(SUPPORT, SUPPORTED, DOMAIN, antecedents=RULES, cuts=cuts, common=common)


def strengths(data: Dataset) -> list[Any]:
    low, high = 1 - data.X, data.X
    return [low[:, 0] * low[:, 1], high[:, 0] * high[:, 1]]


def test_powers_of_eight_begin_below_a_quarter() -> None:
    assert powers_of(np.array([1.0, 0.25, 0.24, 1 / 32, 0.03, 1e-12])).tolist() == [0, 0, 1, 1, 2, POWERS - 1]


def test_fleet_is_asked_for_the_strongest_row_of_each_rule() -> None:
    data, asked = rows(), replace(of_rules(), kind="strengths", cuts=None, common=())
    given = SCHEME.client.contribute(asked.to_task(), data, np.random.default_rng(0))
    SCHEME.server.check(asked.to_task(), given)
    for line, strength in zip(given.sums["present"], strengths(data), strict=True):
        assert set(np.flatnonzero(line)) == set(powers_of(strength[strength > DUST]))
    present = np.zeros((2, POWERS), dtype=np.int64)
    present[0, [3, 5]], present[1, 0] = 1, 7
    assert cuts_of(present).tolist() == [4, 1]


def test_values_are_counted_of_different_rows() -> None:
    counts = SCHEME.client.contribute(
        TskQuestion("columns", SUPPORTED, DOMAIN).to_task(), rows(), np.random.default_rng(0)
    )
    assert counts.sums["rows"].sum(axis=1).tolist() == [400] * 3


def test_different_rows_are_counted_by_rule_and_layer_heavy_and_light_ones() -> None:
    data, asked = rows(), replace(of_rules(), parameters=SUPPORTED.model_copy(update={"support": 10**6}))
    given = SCHEME.client.contribute(asked.to_task(), data, np.random.default_rng(0))
    SCHEME.server.check(asked.to_task(), given)
    first = np.arange(data.rows) < 400
    layers = [first, first & (np.floor(data.X[:, 1] * 256) != 25), first & (np.floor(data.y * 256) != 0)]
    expected = [
        [np.count_nonzero(layer & (own >= least)), np.count_nonzero(layer & (own < least) & (own > DUST))]
        for own, least in zip(strengths(data), (1 / 32, 1 / 4), strict=True)
        for layer in layers
    ]
    assert given.sums["rows"].tolist() == expected


def test_inputs_that_are_no_columns_of_a_rule_are_in_none_of_its_products() -> None:
    asked = replace(of_rules(), kind="sums", cuts=None, common=(), columns=np.array([[1, 0, 1], [0, 1, 1]], dtype=bool))
    sums = SCHEME.client.contribute(asked.to_task(), rows(), np.random.default_rng(0)).sums
    gram = unpack_symmetric(gram_value(sums["gram_high"], sums["gram_low"], bits=30), 4)
    assert (gram.any(axis=2) == [[True, False, True, True], [False, True, True, True]]).all()


def counted(asked: TskQuestion, counts: Any, *former: tuple[TskQuestion, int]) -> Contribution:
    """Return an answer with counts of the first rule's layers, and 9 heavy rows of each layer of the second."""

    def given(question: TskQuestion, first: Any) -> Contribution:
        every = [*first, *[(9, 0)] * len(question.least_of)]
        return Contribution(SUPPORT, 500, {"rows": np.array(every, dtype=np.int64)})

    before = tuple((other.to_task(), given(other, [(count, 0)] * len(other.least_of))) for other, count in former)
    return replace(given(asked, counts), former=before)


@pytest.mark.parametrize(
    ("counts", "first"),
    [
        ([(4, 0), (3, 0), (3, 0)], [True] * 4),
        ([(3, 9), (3, 0), (3, 0)], [True, False, True, True]),  # light rows hide nobody
        ([(2, 0), (9, 0), (9, 0)], [False, False, True, True]),
        ([(9, 0), (2, 9), (9, 0)], [True, True, False, True]),
        ([(9, 0), (0, 9), (0, 0)], [True, True, False, True]),
        ([(0, 0), (0, 0), (0, 0)], [True] * 4),
    ],
)
def test_rule_and_each_of_its_layers_rest_on_no_rows_or_on_enough_heavy_ones(counts: Any, first: list[bool]) -> None:
    asked = of_rules()
    assert asked.least_of.tolist() == [LEAST, 3, 3]
    assert decide_rules(asked, [counted(asked, counts)]).tolist() == [first, [True] * 4]


def test_who_left_counts_by_itself_and_what_was_not_counted_before_is_not_enough() -> None:
    asked, every = of_rules(), [(9, 0)] * 3

    def first(*former: tuple[TskQuestion, int]) -> list[bool]:
        line: list[bool] = decide_rules(asked, [counted(asked, every, *former)])[0].tolist()
        return line

    assert first((asked, 9)) == first((asked, 13)) == [True] * 4
    assert first((asked, 10)) == [False] * 4
    assert first((of_rules(COMMON[1:]), 13)) == [True, True, False, True]
    assert first((of_rules(cuts=np.array([2, 0], dtype=np.int8)), 13)) == [False] * 4  # others were heavy


def test_otherwise_is_about_all_other_rules_and_rows_have_draws_in_it() -> None:
    both, one = (with_otherwise(rules, 2) for rules in (RULES, RULES[:1]))
    asked, other = (
        TskQuestion(SUPPORT, SUPPORTED, DOMAIN, antecedents=rules, cuts=np.zeros(len(rules), dtype=np.int8))
        for rules in (both, one)
    )
    given = Contribution(SUPPORT, 500, {"rows": np.full((3, 2), 9)})
    # Of other rules OTHERWISE has other draws, and nothing to compare.
    for before, count, is_enough in ((asked, 3, False), (other, 2, True)):
        former = Contribution(SUPPORT, 500, {"rows": np.full((count, 2), 10)})
        decision = decide_rules(asked, [replace(given, former=((before.to_task(), former),))])
        assert decision[-1].all() == is_enough

    data = rows()
    sums = [
        SCHEME.client.contribute(
            TskQuestion("sums", SUPPORTED, DOMAIN, antecedents=rules, columns=np.ones((len(rules), 3), bool)).to_task(),
            data, np.random.default_rng(0),
        ).sums["ws"]
        for rules in (both, one)
    ]  # fmt: skip
    first, second = strengths(data)
    hashes = row_hashes(data.X.T, data.y)
    for own, rules, left in ((sums[0], both, 1 - first - second), (sums[1], one, 1 - first)):
        assert own[-1] / 2.0**40 == pytest.approx((left * draws(hashes, rules.tolist())).sum(), rel=1e-6)


def test_rules_are_asked_about_again_where_some_are_left_out() -> None:
    heard: list[TskQuestion] = []
    X = np.concatenate([np.random.default_rng(0).random((60, 2)) * 0.1, [[0.9, 0.9]]])
    data = Dataset(NAMES, "y", X, np.concatenate([X[:60, 0], [0.3]]))
    federated(SCHEME, SUPPORTED, DOMAIN, {"v": data}, listen=lambda task, _: heard.append(TskQuestion.from_task(task)))
    kinds = [asked.kind for asked in heard if asked.kind != "clusters"]
    assert kinds == ["columns", "strengths", "support", "strengths", "support", "sums", "weights"]
    first, second = (asked.antecedents for asked in heard if asked.kind == SUPPORT)
    assert first is not None
    assert second is not None
    assert len(second) < len(first)


@pytest.mark.parametrize(("count", "column"), [(1, 1), (2, 1), (2, 2)])
def test_run_ends_with_the_name_of_a_column_in_which_few_rows_differ(count: int, column: int) -> None:
    table = np.column_stack([rows().X, rows().y])
    table[:, column] = np.where(np.arange(len(table)) < count, 0.7, 0.2)
    with pytest.raises(RunFailedError, match=r"fewer than 3 rows .* differ .* in (b|the target): .*learn with tree"):
        central(SCHEME, SUPPORTED, DOMAIN, Dataset(NAMES, "y", table[:, :2], table[:, 2]))


def test_record_of_a_run_whose_vehicles_have_equal_rows_is_learned_again() -> None:
    # Of each vehicle its own row counts; pooled, the four are one.
    fleet = {}
    for number in range(9):
        data = rows(60)
        X = np.column_stack([np.random.default_rng(number).random(69), np.full(69, 0.2)])
        X[7] = [0.5, 0.7 if number < 4 else 0.2]
        fleet[f"v{number}"] = Dataset(NAMES, "y", X, np.where(np.arange(69) == 7, 0.4, data.y))
    asked, rows_of_all = private_parameters(SCHEME, SUPPORTED, 3), pool(list(fleet.values()))
    terms = Terms("fleet", "run", "nonce", "tsk", parameters_digest(asked))
    vehicles = [Vehicle(agent, data, RunKey.generate()) for agent, data in fleet.items()]
    outcome = PrivateFleet(terms, vehicles).learn(SCHEME, asked, DOMAIN)
    alone = central(SCHEME, asked, DOMAIN, rows_of_all, withheld=outcome.summary["withheld"])
    assert alone.model.to_document() == outcome.model.to_document()
    with pytest.raises(RunFailedError, match="differ from all others in b"):
        central(SCHEME, asked, DOMAIN, rows_of_all)


def test_constant_input_ends_no_run() -> None:
    data = rows()
    X = data.X.copy()
    X[:, 1] = 0.2
    assert central(SCHEME, SUPPORTED, DOMAIN, Dataset(NAMES, "y", X, data.y)).model.rules()


@pytest.mark.parametrize("cuts", [None, [-1, 0], [0, POWERS + 1], [0]])
def test_malformed_cuts_are_refused(cuts: list[int] | None) -> None:
    task, changed = of_rules().to_task(), None if cuts is None else np.array(cuts, dtype=np.int8)
    with pytest.raises(TaskError):
        TskQuestion.from_task(Task(task.scheme, task.kind, {**task.body, "cuts": changed}))


def test_counts_are_asked_in_runs_with_support_alone() -> None:
    strongest = replace(of_rules(), kind="strengths", cuts=None, common=())
    for asked in (of_rules(), strongest, TskQuestion("columns", SUPPORTED, DOMAIN)):
        task = replace(asked, parameters=TskParameters(n_sets=2, n_clusters=6)).to_task()
        with pytest.raises(TaskError, match="of runs with support"):
            TskQuestion.from_task(task)
