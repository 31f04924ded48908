"""A row with another value than many have is not told by what a private run with support opens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.numerics.statistics import gram_value, unpack_symmetric
from glassfleet.private.columns import decide_columns
from glassfleet.schemes.tsk.messages import read_task as read_tsk
from lab.audit.report import TOLERANCE
from lab.audit.transcript import Opened
from schemas.errors import RunFailedError
from tests.support.privacy.opened_sums import alone_in_a_band, attacked, opened
from tests.support.privacy.transcripts import Fleet, fleet_of
from tests.support.sample_models import unit_domain


def alarmed(vehicles: int = 15, rows: int = 60, constant: tuple[int, ...] = ()) -> Fleet:
    """Return vehicles of which one, v04, has an alarm in one row; an input of the `constant` ones is 0 but in it."""
    rng, fleet = np.random.default_rng(3), {}
    for number in range(vehicles):
        X = rng.uniform(size=(rows, 4))
        y = np.sin(6.0 * X[:, 0]) * X[:, 1] + np.abs(X[:, 2] - 0.5) + rng.normal(0.0, 0.05, rows)
        if not constant or number in constant:
            X[:, 3] = 0.9 * ((number == 4) & (np.arange(rows) == 7))
        fleet[f"v{number:02d}"] = Dataset(("a", "b", "c", "alarm"), "y", X, y)
    return fleet


ALARM = Domain(
    features=tuple(Variable(name=each, low=0.0, high=1.0) for each in ("a", "b", "c", "alarm")),
    target=Variable(name="y", low=-1.2, high=1.7),
)


def leavers(**chosen: Any) -> tuple[int, ...]:
    """Return who goes when v04 does, after its second answer to what a run of `tree` is asked."""
    some, _ = opened("tree", alarmed(), 3, {"v04": 2}, domain=ALARM, **chosen)
    stay = min((each.members for each in some), key=len)
    return tuple(number for number in range(15) if f"v{number:02d}" not in stay)


@pytest.mark.parametrize(
    ("name", "chosen"), [("frt", {}), ("tree", {"max_rules": 4}), pytest.param("tree", {}, marks=pytest.mark.slow)]
)
def test_a_value_that_one_row_has_tells_no_row(name: str, chosen: dict[str, Any]) -> None:
    assert attacked(name, alarmed(), 3, {}, domain=ALARM, **chosen).read == 0
    if name == "tree":
        fleet = alarmed(constant=leavers(**chosen))
        assert attacked(name, fleet, 3, {"v04": 2}, domain=ALARM, **chosen).read == 0


def test_a_value_that_one_row_has_ends_a_run_of_tsk() -> None:
    with pytest.raises(RunFailedError, match="differ from all others in alarm"):
        opened("tsk", alarmed(), 3, {}, domain=ALARM)


def test_a_value_that_one_row_of_those_who_leave_has_ends_a_run_of_tsk() -> None:
    fleet, constant = alarmed(), alarmed(constant=tuple(range(15)))
    for agent, data in fleet.items():
        data.X[:, 3] = np.random.default_rng(int(agent[1:])).uniform(size=data.rows)
    some, _ = opened("tsk", fleet, 3, {"v04": 2}, domain=ALARM)
    stay = min((each.members for each in some), key=len)
    fleet |= {agent: constant[agent] for agent in set(fleet) - stay}
    assert "v04" not in stay
    opened("tsk", fleet, 3, {}, domain=ALARM)
    with pytest.raises(RunFailedError, match="differ from all others in alarm"):
        opened("tsk", fleet, 3, {"v04": 2}, domain=ALARM)


def test_a_column_of_which_one_row_of_a_rule_of_tsk_has_another_value_gives_it_away_and_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = alarmed(constant=tuple(range(15)))
    for agent in ("v01", "v04", "v07", "v09", "v11"):
        fleet[agent].X[:, 3] = np.where(np.arange(60) == 7, 0.3, 0.0)
    chosen: dict[str, Any] = {"domain": ALARM, "n_clusters": 40, "max_rounds": 4}
    assert attacked("tsk", fleet, 3, {}, **chosen).read == 0

    def every(question: Any, _: Any) -> Any:
        return np.ones((len(question.antecedents), 1 + len(question.least_of)), dtype=bool)

    monkeypatch.setattr("glassfleet.schemes.tsk.server.decide_rules", every)
    assert attacked("tsk", fleet, 3, {}, **chosen).read > 0


def test_otherwise_of_two_editions_tells_no_row_of_rules_that_the_second_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("a", "b")
    domain = unit_domain(names)
    chosen = {"n_sets": 3, "n_clusters": 40, "max_rounds": 3}
    alone = np.array([0.93, 0.87])

    def vehicles(gone: tuple[str, ...] = ()) -> Fleet:
        fleet = {}
        for number in range(15):
            rng, agent = np.random.default_rng(number), f"v{number:02d}"
            X = rng.uniform(0.02, 0.48, (80, 2)) if agent in gone else rng.uniform(size=(80, 2))
            if agent in gone[:1]:
                X[5] = alone
            y = np.clip(0.5 + 0.3 * np.sin(5 * X[:, 0]) * X[:, 1] + 0.05 * rng.normal(size=80), 0, 1)
            fleet[agent] = Dataset(names, "y", X, y)
        return fleet

    def is_read() -> bool:
        kinds = [each.task.kind for each in opened("tsk", vehicles(), 3, {}, domain=domain, **chosen)[0]]
        left = {"v04": kinds.index("sums") + 1}
        some, _ = opened("tsk", vehicles(), 3, left, domain=domain, **chosen)
        gone = tuple(sorted(set(vehicles()) - min((each.members for each in some), key=len)))
        some, _ = opened("tsk", vehicles(gone), 3, left, domain=domain, **chosen)
        before, after = (products(each) for each in some if each.task.kind == "sums")
        # What all rules have is the same in both, so of those who left: OTHERWISE, less rules that are in one alone.
        rest = np.sum([before[rule] for rule in before if rule == (3, 3) or rule not in after], axis=0)
        rest -= np.sum([after[rule] for rule in after if rule == (3, 3) or rule not in before], axis=0)
        return float(np.abs(rest[-2, :2] / rest[-2, -2] - alone).max()) < TOLERANCE

    assert not is_read()
    monkeypatch.setattr("glassfleet.schemes.tsk.client.draws", lambda hashes, about: np.ones(len(hashes)))
    assert is_read()


def products(each: Opened) -> dict[tuple[int, ...], NDArray[np.float64]]:
    """Return the product sums of each rule of tsk, over inputs, 1 and target."""
    question = read_tsk(each.task)
    bits = question.parameters.gram_bits
    value = gram_value(each.sums["gram_high"], each.sums["gram_low"], bits=bits) / 2.0 ** (2 * bits)
    assert question.antecedents is not None
    grams = unpack_symmetric(value, question.gram_columns)
    return {tuple(rule): gram for rule, gram in zip(question.antecedents.tolist(), grams, strict=True)}


def test_a_value_of_few_rows_is_common_where_inputs_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    names, fleet = ("a", "b"), {}
    for number in range(8):
        rng = np.random.default_rng(number)
        X = np.column_stack([rng.uniform(0.02, 0.48, 16), rng.uniform(0.02, 1, 16)])
        X[0] = [rng.uniform(0.75, 1), 0.0]
        if number == 4:
            X[5] = [0.93, 0.37]
        y = np.clip(0.5 + 0.3 * np.sin(5 * X[:, 0]) * X[:, 1] + 0.05 * rng.normal(size=16), 0, 1)
        fleet[f"v{number:02d}"] = Dataset(names, "y", X, y)
    chosen: dict[str, Any] = {"domain": unit_domain(names), "n_clusters": 12, "n_sets": 3, "max_rounds": 5}
    assert attacked("tsk", fleet, 3, {}, **chosen).read == 0
    monkeypatch.setattr("glassfleet.private.columns.LEAST_COMMON", 0.07)
    assert attacked("tsk", fleet, 3, {}, **chosen).read > 0


def test_products_of_inputs_that_do_not_vary_give_the_row_of_another_value_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def may_be_columns(*given: Any) -> Any:
        decision = decide_columns(*given)
        decision[:, 0] = True
        return decision

    monkeypatch.setattr("glassfleet.schemes.tree.start.decide_columns", may_be_columns)
    assert attacked("tree", alarmed(), 3, {}, domain=ALARM, max_rules=4).read > 0
    fleet = alarmed(constant=leavers(max_rules=4))
    assert attacked("tree", fleet, 3, {"v04": 2}, domain=ALARM, max_rules=4).read > 0


def test_bands_in_which_one_row_has_another_value_give_it_away_and_are_not_asked_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    domain = Domain(
        features=tuple(Variable(name=each, low=0.0, high=1.0) for each in ("a", "b", "c")),
        target=Variable(name="y", low=-0.5, high=2.0),
    )
    fleet, alone = {}, np.array([0.93, 0.37, 0.61])
    for number in range(15):
        rng = np.random.default_rng(number)
        X = rng.uniform(size=(60, 3))
        X[rng.random(60) < 0.4, 0] = 0.0
        X[X[:, 0] > 0.85, 1:] = 0.0
        if number == 4:
            X[7] = alone
        y = np.abs(X[:, 0] - 0.5) * 2.0 + 0.3 * X[:, 1] * X[:, 2] + rng.normal(0.0, 0.02, 60)
        fleet[f"v{number:02d}"] = Dataset(("a", "b", "c"), "y", X, y)

    def is_read() -> bool:
        candidates = alone_in_a_band(opened("tree", fleet, 3, {}, domain=domain, max_rules=8)[0])
        return any(np.abs(one - alone[1:]).max() < TOLERANCE for one in candidates)

    assert not is_read()
    all_rows_alone = property(lambda asked: np.array([asked.least_rows, *[0] * len(asked.common)]))
    monkeypatch.setattr("glassfleet.schemes.tree.messages.TreeQuestion.least_of", all_rows_alone)
    assert is_read()


@pytest.mark.parametrize("data", ["simulated", pytest.param("qoe", marks=pytest.mark.slow)])
def test_products_of_few_rows_of_another_value_give_rows_of_a_leaf_away(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def every(question: Any, contributions: Any) -> Any:
        columns = np.ones((len(question.nodes), question.n_features + 1), dtype=np.bool_)
        return replace(question, kind="leaves", common=None, columns=columns), columns

    monkeypatch.setattr("glassfleet.schemes.frt.server.answer_leaves", every)
    assert attacked("frt", fleet_of(data, 15), 3, {}).read > 0


@pytest.mark.slow
def test_an_input_that_is_mostly_zero_gives_rows_away_as_a_column_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassfleet.private.columns.MOST_EQUAL", 1.0)
    monkeypatch.setattr("glassfleet.private.columns.LEAST_COMMON", 1.0)
    result = attacked("tree", fleet_of("simulated", 15), 3, {}, max_rules=16)
    assert result.read > 0, result
