"""With `support` nothing that tree, tsk or frbc open rests on few rows, whatever is added and subtracted.

The oracle asks each row by itself what it would answer: a sum rests on the rows whose own answers to it are not zero.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from glassfleet.contract import catalogue
from glassfleet.contract.messages import Task
from glassfleet.contract.scheme import private_parameters
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.discovery import DISCOVERY, DiscoveryParameters, discover
from glassfleet.discovery.params import RESOLUTION
from glassfleet.private.groups import Terms, parameters_digest
from glassfleet.private.masks import RunKey
from glassfleet.private.simulation import Heard, PrivateFleet, Vehicle
from glassfleet.schemes.tree.messages import read_task
from glassfleet.schemes.tree.support import about_bands, about_category, about_counts, about_pairs, limits_of
from glassfleet.schemes.tsk.messages import TskQuestion
from glassfleet.simulation import central, federated
from schemas.codec import digest_of, document_digest
from schemas.errors import RunFailedError

Parts = dict[str, Dataset]

PARAMETERS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    **{
        name: {"max_rules": st.sampled_from([4, 12]), "min_weight_fraction": st.sampled_from([0.0, 0.05])}
        for name in ("tree", "tree-classes")
    },
    "tsk": {"n_sets": st.integers(2, 4), "n_clusters": st.integers(4, 12), "max_rounds": st.integers(1, 6)},
    "frbc": {"n_sets": st.integers(2, 5), "fraction_bits": st.sampled_from([48, 80])},
}


@st.composite
def fleets(draw: st.DrawFn, name: str) -> tuple[Domain, Parts, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, f, agents = draw(st.integers(120, 300)), draw(st.integers(1, 3)), draw(st.integers(12, 24))
    X = rng.normal(0.5, draw(st.sampled_from([0.1, 0.3])), (n, f))
    if draw(st.booleans()):
        X = np.round(X * 6) / 6
    y: Any = np.clip(np.sin(5 * X[:, 0]) * X[:, -1] + 0.05 * rng.normal(size=n), -1.0, 1.0)
    names = tuple(f"x{i}" for i in range(f))
    features = tuple(Variable(name=name, low=0.0, high=1.0) for name in names)
    domain = Domain(features=features, target=Variable(name="y", low=-1.0, high=1.0))
    if scheme_of(name).name == "tree":
        domain, X, y = with_texts_and_gaps(draw, rng, domain, X, y)
        names = domain.names
    if name in ("frbc", "tree-classes"):
        domain = Domain(features=domain.features, label="y", classes=("high", "low", "odd"))
        odd = 0.02 if name == "frbc" else draw(st.sampled_from([0.0, 0.2]))
        y = np.where(rng.random(n) < odd, "odd", np.where(y > 0.2, "high", "low"))
    owner = np.sort(rng.integers(0, agents, n)) if draw(st.booleans()) else rng.integers(0, agents, n)
    order = np.argsort(y, kind="stable")
    often = rng.choice([1, 1, 1, 6], n) if draw(st.booleans()) else 1
    X, y, owner = (np.repeat(each, often, axis=0) for each in (X[order], y[order], owner))
    parts = {f"v{i:02d}": Dataset(names, "y", X[owner == i], y[owner == i]) for i in range(agents)}
    scheme = scheme_of(name)
    chosen = scheme.Parameters(**draw(st.fixed_dictionaries(PARAMETERS[name])))
    return domain, parts, private_parameters(scheme, chosen, draw(st.sampled_from([1, 3, 8])))


def scheme_of(name: str) -> Any:
    return catalogue.load(name.removesuffix("-classes"))


def with_texts_and_gaps(
    draw: st.DrawFn, rng: np.random.Generator, domain: Domain, X: Any, y: Any
) -> tuple[Domain, Any, Any]:
    """Add a column of text, of which few rows have a category, and empty cells, or few, or neither."""
    features = list(domain.features)
    if draw(st.booleans()):
        code = rng.choice(6, len(X), p=[0.4, 0.3, 0.2, 0.08, 0.01, 0.01])
        X, y = np.column_stack([X, np.where(code < 5, code, 1.5)]), y + np.array([0.0, 0.9, 0.3, 0.1, 0.6, 0.2])[code]
        features.append(Variable(name="kind", low=0.0, high=4.0, categories=tuple("abcde")))
    if (empty := draw(st.sampled_from([0.0, 0.01, 0.3]))) > 0.0:
        gaps = rng.random(len(X)) < empty
        X, y = np.column_stack([np.where(gaps, np.nan, X[:, 0]), X[:, 1:]]), y + 0.5 * gaps
        features[0] = features[0].model_copy(update={"missing": 0.5})
    return domain.model_copy(update={"features": tuple(features)}), X, np.clip(y, -1.0, 1.0)


def met(name: str, parameters: Any, parts: Parts, left: dict[str, int], group: int, heard: list[Heard]) -> PrivateFleet:  # noqa: PLR0917
    terms = Terms("fleet", "run", "nonce", scheme_of(name).name, parameters_digest(parameters))
    vehicles = [Vehicle(agent, rows, RunKey.generate(), left.get(agent)) for agent, rows in parts.items()]
    return PrivateFleet(terms, vehicles, group=group, watch=heard.append)


def opened(heard: list[Heard]) -> dict[int, dict[frozenset[str], list[Task]]]:
    """Return what was opened: by group and members, the tasks in order."""
    spoke: dict[Any, set[str]] = defaultdict(set)
    result: dict[int, dict[frozenset[str], list[Task]]] = defaultdict(lambda: defaultdict(list))
    for each in heard:
        key = each.edition.group, frozenset(each.edition.members), each.task.digest
        spoke[key].add(each.agent)
        if spoke[key] == set(each.edition.members):
            result[key[0]][key[1]].append(each.task)
    return result


def different_rows(data: Dataset) -> list[int]:
    y = np.unique(data.y, return_inverse=True)[1]
    _, first = np.unique(np.nan_to_num(np.column_stack([data.X, y]), nan=-9.0), axis=0, return_index=True)
    return [int(place) for place in first]


class Oracle:
    """Says on how many rows what follows from some answers rests."""

    def __init__(self, name: str, parts: Parts) -> None:
        self.scheme = scheme_of(name)
        # Of equal rows of a vehicle one counts; frbc, whose sums are no products, counts all.
        self.rows = {
            agent: [
                Dataset(data.features, "y", data.X[i : i + 1], data.y[i : i + 1])
                for i in (range(data.rows) if name == "frbc" else different_rows(data))
            ]
            for agent, data in parts.items()
        }
        self.known: dict[Any, dict[str, Any]] = {}

    def answer(self, agent: str, number: int, task: Task) -> dict[str, Any]:
        key = agent, number, task.digest
        sums = self.known.get(key)
        if sums is None:
            given = self.scheme.client.contribute(task, self.rows[agent][number], np.random.default_rng(0))
            sums = self.known[key] = dict(given.sums)
        return sums

    def counts(self, agents: frozenset[str], tasks: list[Task], label: str = "") -> np.ndarray[Any, Any]:
        """Return the rows, or those of a class, behind each sum that follows from answers of `agents` to `tasks`."""
        total: Any = 0
        for agent in agents:
            for number, row in enumerate(self.rows[agent]):
                if label and row.y[0] != label:
                    continue
                view = [(task, self.answer(agent, number, task)) for task in tasks]
                total = total + np.array(getattr(self, self.scheme.name)(view), dtype=np.int64)
        return np.atleast_1d(total)

    def check_classes(self, agents: frozenset[str], tasks: list[Task], classes: tuple[str, ...], support: int) -> None:
        """Of sums with indicators none rests on few rows of a class."""
        with_target = np.array([one for task in tasks for one in are_with_target(task)], dtype=bool)
        for label in classes if with_target.any() else ():
            counts = self.counts(agents, tasks, label)
            assert (~with_target | (counts == 0) | (counts >= max(support, 3))).all(), (label, counts)

    @staticmethod
    def tree(view: Any) -> list[bool]:
        result: list[bool] = []
        for task, sums in view:
            if task.kind == "scan":
                result.append(bool(sums["gram"][0, 0]))
            elif task.kind == "categories":
                result += [bool(one) for one in sums["scores"][:, 0]]
            elif task.kind == "bands":
                result += [bool(one) for one in (*sums["own"][:, 0], *sums["scores"][:, 0])]
            elif task.kind == "joint":
                result += [bool(one) for one in sums["gram"][:, 0]]
        return result

    @staticmethod
    def tsk(view: Any) -> list[bool]:
        return [bool(one) for task, sums in view if task.kind == "sums" for one in sums["count"]]

    def frbc(self, view: Any) -> list[bool]:
        result: list[bool] = []
        for task, sums in view:
            if task.kind == "strengths":
                rules = self.scheme_question(task).rules
                num = sums["num_high"].astype(object) * 2**60 + sums["num_low"]
                den = sums["den_high"].astype(object) * 2**60 + sums["den_low"]
                rest = den.copy()
                np.subtract.at(rest, rules.antecedent_of, num)
                result += [bool(one) for one in (*num, *den, *rest)]
        return result

    @staticmethod
    def scheme_question(task: Task) -> Any:
        from glassfleet.schemes.frbc.messages import FrbcQuestion

        return FrbcQuestion.from_task(task)


def draws_of(task: Task) -> list[str]:
    """Return what decides on the draws of each sum of tree, in the order of its counts: sums of the same may cancel."""
    if task.kind == "scan":
        return ["scan"]  # it has none: all of them cancel
    if task.kind not in {"categories", "bands", "joint"}:
        return []
    question = read_task(task)
    if task.kind == "categories":
        # Draws follow the line whose residuals are summed. A category that is not told has no sum in which rows cancel.
        names = [variable.name for variable in question.domain.features for _ in variable.categories]
        about = [digest_of(about_category(question, name)) for name in names]
        shown = zip(about, question.disclosed.tolist(), strict=True)
        return [f"{key if is_shown else task.digest} {number}" for number, (key, is_shown) in enumerate(shown)]
    if task.kind == "joint":
        return [f"{digest_of(about_pairs(question))} {pair}" for pair in question.tree.overlaps]
    places = [(line, place) for line in range(len(question.leaves)) for place in range(len(question.features))]
    about = [digest_of(about_bands(question, *one)) for one in places]
    limits = [limits_of(question.kept[one]) for one in places]
    bands = [f"{key} {band}" for key, line in zip(about, limits, strict=True) for band in line[1:]]
    return [digest_of(about_counts(question, line, 0)) for line in range(len(question.leaves))] + bands


def are_with_target(task: Task) -> list[bool]:
    """Return which sums of tree, in the order of its counts, have the target's indicators."""
    if task.kind == "joint":
        return [i == j for i, j in read_task(task).tree.overlaps]
    return [task.kind != "categories"] * len(draws_of(task))


def least_of(name: str, parameters: Any, domain: Domain, tasks: list[Task]) -> Any:
    """Return the fewest rows of each sum: products need as many as they have columns, inputs and 2."""
    if name == "frbc":
        return parameters.support
    if name == "tsk":  # a rule without slopes is a constant, of which there are no products
        questions: list[Any] = [TskQuestion.from_task(task) for task in tasks if task.kind == "sums"]
        sloped = [line[:-1].any() for question in questions for line in question.columns]
        return np.array([max(parameters.support, len(domain.features) + 2 if one else 3) for one in sloped])
    # Not all inputs are columns, and of a category there are no products.
    asked = [task.body.get("regressors", task.body.get("varied")) for task in tasks]
    products = max(parameters.support, max((len(own) + 2 for own in asked if own is not None), default=0))
    others = max(parameters.support, 3)
    each = [others if task.kind == "categories" else products for task in tasks for _ in draws_of(task)]
    return np.array(each, dtype=np.int64)


@pytest.mark.parametrize("name", PARAMETERS)
@settings(max_examples=2)
@given(st.data())
def test_nothing_opened_rests_on_few_rows_and_the_model_is_the_central_one_under_the_record(
    name: str, data: st.DataObject
) -> None:
    domain, parts, parameters = data.draw(fleets(name))
    lost = data.draw(st.lists(st.sampled_from(sorted(parts)), max_size=4, unique=True))
    heard: list[Heard] = []
    left = {agent: data.draw(st.integers(0, 12)) for agent in lost}
    fleet = met(name, parameters, parts, left, data.draw(st.integers(8, 12)), heard)
    scheme = scheme_of(name)
    try:
        outcome = fleet.learn(scheme, parameters, domain)
    except RunFailedError as fault:
        ends = "too-few-for-privacy", "no rule is left", "sums over all rows would tell", "rows are of class"
        assert any(end in str(fault) for end in ends)  # noqa: PT017
    else:
        record = json.loads(json.dumps(outcome.summary.get("withheld", [])))
        alone = central(scheme, parameters, domain, pool([parts[agent] for agent in outcome.cohort]), withheld=record)
        assert document_digest(outcome.model.to_document()) == document_digest(alone.model.to_document())
        assert outcome.summary["sums_digest"] == alone.summary["sums_digest"]

    oracle = Oracle(name, parts)
    for editions in opened(heard).values():
        views = [(members, tasks) for members, tasks in editions.items()]
        for (larger, before), (smaller, after) in combinations(
            sorted(editions.items(), key=lambda one: -len(one[0])), 2
        ):
            asked = {task.digest for task in after}
            views.append((larger - smaller, [task for task in before if task.digest in asked]))
            if scheme.name == "tree":  # other questions may have sums of the same draws
                known = {one for task in after for one in draws_of(task)}
                again = np.array([one in known for task in before for one in draws_of(task)], dtype=bool)
                counts = oracle.counts(larger - smaller, before)[again] if len(again) else again
                least = least_of(name, parameters, domain, before)[again]
                assert ((counts == 0) | (counts >= least)).all(), counts
        for agents, tasks in views:
            counts, least = oracle.counts(agents, tasks), least_of(name, parameters, domain, tasks)
            assert ((counts == 0) | (counts >= least)).all(), counts
            if name == "tree-classes":
                oracle.check_classes(agents, tasks, domain.classes, parameters.support)


@pytest.mark.parametrize("name", PARAMETERS)
@settings(max_examples=3)
@given(st.data())
def test_one_group_without_losses_learns_what_pooled_rows_would(name: str, data: st.DataObject) -> None:
    domain, parts, parameters = data.draw(fleets(name))
    # Equal rows of two vehicles count for each; pooled they are one. Beyond the limits rows of one class are equal.
    lows, highs = np.array([(each.low, each.high) for each in domain.features]).T
    within = [replace(part, X=np.clip(part.X, lows, highs), memo={}) for part in parts.values()]
    assume(sum(map(len, map(different_rows, within))) == len(different_rows(pool(within))))
    scheme = scheme_of(name)
    try:
        outcome = met(name, parameters, parts, {}, 32, []).learn(scheme, parameters, domain)
    except RunFailedError as fault:
        assert any(end in str(fault) for end in ("no rule is left", "rows are of class"))  # noqa: PT017
        return
    alone = central(scheme, parameters, domain, pool(list(parts.values())))
    assert document_digest(outcome.model.to_document()) == document_digest(alone.model.to_document())


@settings(max_examples=8)
@given(st.data())
def test_limits_have_enough_rows_at_them_and_are_those_of_the_pooled_rows(data: st.DataObject) -> None:
    _, parts, _ = data.draw(fleets("tree"))
    support = data.draw(st.sampled_from([0, 1, 3, 20]))
    names = next(iter(parts.values())).features
    wanted = DiscoveryParameters(
        features=names, target="y", guarded=False, input_quantiles=(0.001, 0.999), missing=True
    )
    asked = private_parameters(DISCOVERY, wanted, support)
    lost = data.draw(st.lists(st.sampled_from(sorted(parts)), max_size=4, unique=True))
    fleet = met("tree", asked, parts, {agent: data.draw(st.integers(0, 4)) for agent in lost}, 8, [])
    try:
        result = fleet.learn(DISCOVERY, asked, None)
    except RunFailedError as fault:
        assert "too-few-for-privacy" in str(fault)  # noqa: PT017
        return
    cohort = [parts[agent] for agent in result.cohort]
    assert result.model == discover(asked, cohort)
    rows = pool(cohort)
    least = min(max(support, 1), (rows.rows + 1) // 2)
    for variable, cells in zip((*result.model.features, result.model.target), (*rows.X.T, rows.y), strict=True):
        column = cells[~np.isnan(cells)]
        assert (variable.missing is None) == (len(column) == rows.rows)
        if variable.high > variable.low:
            ranked, bin_width = np.sort(column), (variable.high - variable.low) / RESOLUTION
            assert ranked[least - 1] <= variable.low + bin_width or variable is not result.model.target
            assert (column <= variable.low + bin_width).sum() >= least
            assert (column >= variable.high - bin_width).sum() >= least


@settings(max_examples=3)
@given(st.data())
def test_averaged_network_is_that_of_those_who_stay(data: st.DataObject) -> None:
    domain, parts, _ = data.draw(fleets("tsk"))
    scheme = catalogue.load("fedavg_mlp")
    parameters = private_parameters(scheme, scheme.Parameters(hidden=(3,), rounds=2, epochs=1))
    lost = data.draw(st.lists(st.sampled_from(sorted(parts)), max_size=len(parts) // 2, unique=True))
    fleet = met("fedavg_mlp", parameters, parts, {agent: data.draw(st.integers(0, 3)) for agent in lost}, 8, [])
    try:
        outcome = fleet.learn(scheme, parameters, domain, 5)
    except RunFailedError as fault:
        assert "too-few-for-privacy" in str(fault)  # noqa: PT017 - the other outcome is as good
        return
    plain = federated(scheme, parameters, domain, {agent: parts[agent] for agent in outcome.cohort}, 5)
    assert document_digest(outcome.model.to_document()) == document_digest(plain.model.to_document())
