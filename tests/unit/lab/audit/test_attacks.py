"""Each attack finds a row that was planted, and takes nothing else for one; what it finds is counted right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.contract.scheme import private_parameters
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Variable
from glassfleet.numerics.statistics import carry, gram_sums, pack_symmetric, to_grid
from glassfleet.schemes.tsk.messages import TskQuestion
from glassfleet.schemes.tsk.params import TskParameters
from lab.audit import sums
from lab.audit.journal import conduct, may_lose
from lab.audit.model import model_alone, shadowed
from lab.audit.report import OPENED, audit, leaf_means
from lab.audit.transcript import Opened, View, differences, views
from tests.support.sample_models import unit_domain

F = 3
DOMAIN = unit_domain("abc")
PLANTED = np.array([0.97, 0.41, 0.63, 0.29])
"""Alone in the upper third of the first input; all other rows are in the lower half."""


def rows(count: int, *, planted: bool = False, seed: int = 0) -> NDArray[np.float64]:
    own = np.random.default_rng(seed).random((count, F + 1)) * [0.5, 1, 1, 1]
    return np.vstack([own, PLANTED]) if planted else own


def data_of(own: NDArray[np.float64]) -> Dataset:
    return Dataset(("a", "b", "c"), "y", own[:, :-1].copy(), own[:, -1].copy())


def sent(scheme: str, own: NDArray[np.float64], **parameters: Any) -> View:
    """Return what a vehicle with these rows tells in a run of its own."""
    result: list[Any] = []
    loaded = catalogue.load(scheme)
    simulation.federated(
        loaded, loaded.Parameters.model_validate(parameters), DOMAIN, {"v": data_of(own)},
        listen=lambda task, answer: result.append((task, answer.sums)),
    )  # fmt: skip
    return result


def grams_of(parts: Sequence[NDArray[np.float64]]) -> View:
    """Return one answer of tsk, in which each of these parts of the rows reaches a rule of its own, fully."""
    antecedents = np.array([[n // 4, n // 2 % 2, n % 2] for n in range(len(parts))], dtype=np.int8)
    parameters = TskParameters(n_sets=5, min_rows=1)
    high, low = (np.zeros((len(parts), F + 2, F + 2), dtype=np.int64) for _ in range(2))
    for rule, part in enumerate(parts):
        columns = np.vstack([part[:, :-1].T, np.ones(len(part)), part[:, -1]])
        high[rule], low[rule] = gram_sums(to_grid(columns, parameters.gram_bits), bits=parameters.gram_bits)
    high, low = carry(high, low, bits=parameters.gram_bits)
    task = TskQuestion("sums", parameters, DOMAIN, antecedents=antecedents).to_task()
    return [(task, {"gram_high": pack_symmetric(high), "gram_low": pack_symmetric(low)})]


def together(*lines: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.vstack(lines)


Attack = Callable[[View], sums.Rows]


@pytest.mark.parametrize(("attack", "planted", "random"), [
    (
        sums.spans,
        lambda: grams_of([together(rows(1, seed=1), PLANTED), together(rows(2, seed=2), PLANTED)]),
        lambda: grams_of([rows(2, seed=1), rows(2, seed=2), rows(3, seed=3), rows(50, seed=4)]),
    ),
    (sums.spans, lambda: grams_of([together(PLANTED), rows(9)]), lambda: grams_of([rows(9), rows(9, seed=1)])),
    (
        sums.covariances,
        lambda: grams_of([rows(50, planted=True), rows(50)]),
        lambda: grams_of([rows(50), rows(50, seed=1), rows(51, seed=2)]),
    ),
    (leaf_means, lambda: grams_of([together(PLANTED)]), list),
])  # fmt: skip
def test_attack_reads_the_planted_row_and_nothing_where_rows_hide_each_other(
    attack: Attack, planted: Callable[[], View], random: Callable[[], View]
) -> None:
    assert (np.abs(attack(planted()) - PLANTED).max(axis=1) < 1e-5).any()
    assert len(attack(random())) == 0


def test_remainders_tell_the_target_of_the_row_whose_cell_was_withheld() -> None:
    result = sums.remainders(sent("frt", rows(300, planted=True), min_rows=1, max_depth=1))
    assert np.isnan(result[:, :-1]).all()
    assert np.abs(result[:, -1] - PLANTED[-1]).min() < 1e-8
    assert len(sums.remainders(sent("frt", rows(300), nullify=False, max_depth=1))) == 0


# --- what an attacker holds -------------------------------------------------------------------------------------------


def opened(members: str, *parts: NDArray[np.float64]) -> Opened:
    ((task, result),) = grams_of([together(*parts)])
    return Opened(task, frozenset(members), result)


def test_difference_of_two_editions_is_of_those_who_left() -> None:
    own = {name: rows(30, seed=place) for place, name in enumerate("abc")} | {"d": together(PLANTED)}
    before, after = opened("abcd", *own.values()), opened("abc", *(own[name] for name in "abc"))
    for some in ([before, after], [after, before]):
        (left,) = differences(some)
        assert left.members == {"d"}
        assert np.abs(sums.spans(views([left])[left.members]) - PLANTED).max() < 1e-5
    assert differences([before, before, opened("x", rows(3))]) == []
    lines = audit("private", [before, after], own)
    assert {(line.seen, line.attack): line.read for line in lines if line.attack == "spans"} == {
        ("each group", "spans"): 0, ("who left", "spans"): 1, (OPENED, "spans"): 1,
    }  # fmt: skip
    (result,) = [line for line in lines if (line.seen, line.attack) == ("who left", "spans")]
    assert result.owners == {"d": (1, 1)}


def test_sums_over_different_vehicles_that_share_a_row_meet_in_it() -> None:
    # Nothing is the difference of two sums over the same rows: each edition has groups of its own.
    own = {"a": rows(1, seed=1), "b": rows(2, seed=2), "c": together(PLANTED)}
    before, after = opened("abc", own["a"], own["c"]), opened("bc", own["b"], own["c"])
    for attack, count in ((sums.spans, 1), (sums.covariances, 0)):
        assert len(attack(*views([before, after]).values())) == count
        assert [len(attack(view)) for view in views([before, after]).values()] == [0, 0]


def test_masked_answers_tell_the_sum_of_an_edition_that_is_complete() -> None:
    own = {name: data_of(rows(9, seed=place)) for place, name in enumerate("abcdefghijklmn")}
    scheme = catalogue.load("frt")
    parameters = private_parameters(scheme, scheme.Parameters(max_depth=1, n_sets=2))
    result, outcome = conduct(scheme, parameters, DOMAIN, own, 2)
    assert (outcome.lost, len(outcome.cohort)) == (("a",), 11)
    assert {each.members for each in result} == {frozenset(own), frozenset(outcome.cohort)}
    rng = np.random.default_rng(0)
    for each in result:
        parts = [scheme.client.contribute(each.task, own[agent], rng).sums for agent in each.members]
        for name, array in each.sums.items():
            assert array.tolist() == np.sum([part[name] for part in parts], axis=0).tolist()
    assert may_lose(14)
    assert not may_lose(10)


def test_cell_of_one_row_tells_its_target() -> None:
    result = sums.cells(sent("frt", rows(300, planted=True), nullify=False, max_depth=1))
    assert np.isnan(result[:, :-1]).all()
    assert np.abs(result[:, -1] - PLANTED[-1]).min() < 1e-7
    assert len(sums.cells(sent("frt", rows(300), max_depth=1))) == 0


# --- what counts as read ----------------------------------------------------------------------------------------------


class Memorised:
    """Gives back the targets of what it was learned from; 0.5 for all else."""

    domain = DOMAIN

    def __init__(self, data: Dataset) -> None:
        self._known = {tuple(row): target for row, target in zip(data.X.tolist(), data.y, strict=True)}

    def predict(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([self._known.get(tuple(row), 0.5) for row in X.tolist()])


def test_model_that_memorised_its_rows_tells_them_from_others() -> None:
    members, others = data_of(rows(40)), data_of(rows(30, seed=1))
    result = model_alone(Memorised(members), members, others)  # type: ignore[arg-type]
    assert (result.auc, result.met, result.met_others) == (1.0, 1.0, 0.0)
    forgot = model_alone(Memorised(others.select(())), members, members)  # type: ignore[arg-type]
    assert forgot.auc == pytest.approx(0.5)
    assert model_alone(Memorised(members), members, data_of(rows(0))).auc is None  # type: ignore[arg-type]


def test_model_of_a_constant_gives_every_target_back_and_tells_no_row_from_another() -> None:
    constant = Memorised(data_of(rows(0)))
    constant.domain = DOMAIN.model_copy(update={"target": Variable(name="y", low=0.5, high=0.5)})
    members, others = (replace(data_of(rows(9, seed=seed)), y=np.full(9, 0.5)) for seed in (0, 1))
    result = model_alone(constant, members, others)  # type: ignore[arg-type]
    assert (result.auc, result.met, result.met_others) == (0.5, 1.0, 1.0)


def test_shadows_tell_members_of_a_model_that_memorises_and_of_no_other() -> None:
    data = data_of(rows(60))
    places = np.arange(data.rows)

    def half(mask: Any) -> Dataset:
        return Dataset(data.features, data.target, data.X[places[mask]], data.y[places[mask]])

    memorised = shadowed(lambda mask: Memorised(half(mask)), data, 8)  # type: ignore[arg-type, return-value]
    assert memorised.auc > 0.95
    assert memorised.hits > 0.9
    nothing = shadowed(lambda _: Memorised(half(places < 1)), data, 8)  # type: ignore[arg-type, return-value]
    assert nothing.auc == pytest.approx(0.5, abs=0.1)
