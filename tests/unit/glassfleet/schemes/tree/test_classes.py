"""The tree for classes: sums as defined, scores of maximum likelihood, true probabilities, categories as levels."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from console.operator.words import explanation_lines, rule_lines
from coordinator.engine.learning import discovery_of
from glassfleet.contract.messages import Contribution, Task
from glassfleet.data.condense import condensed
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.discovery import discover
from glassfleet.fuzzy.levels import find_levels
from glassfleet.model.rules import Consequent, Slope
from glassfleet.numerics.softmax import probabilities
from glassfleet.schemes.tree import SCHEME, FuzzyClassTree, TreeParameters
from glassfleet.schemes.tree.messages import TreeQuestion, read_task
from glassfleet.schemes.tree.newton import _solved
from glassfleet.schemes.tree.tree import Split, Tree, degrees
from glassfleet.simulation import Outcome, central, federated
from schemas.errors import RunFailedError, UsageError
from tests.support.sample_models import class_domain, model, trips

CITIES = ("Bern", "Campinas", "Lima", "Pisa", "Rio", "Santos")
NAMES = ("age", "city", "speed")
DOMAIN = Domain(
    features=(
        Variable(name="age", low=0.0, high=80.0),
        Variable(name="city", low=0.0, high=5.0, categories=CITIES),
        Variable(name="speed", low=0.0, high=10.0),
    ),
    label="bought",
    classes=("no", "yes"),
)
EXACT = TreeParameters(min_rows=1)


def rows(n: int = 3000, seed: int = 0) -> tuple[Dataset, NDArray[np.float64]]:
    """Rows whose chances of "yes" are known: of cities 1 and 5 with age, of the others with speed."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 80, n), rng.integers(0, 6, n), rng.uniform(0, 10, n)])
    score = np.where(np.isin(X[:, 1], (1, 5)), 0.1 * (X[:, 0] - 30.0), 0.6 * (X[:, 2] - 8.0))
    chance = 1.0 / (1.0 + np.exp(-score))
    return Dataset(NAMES, "bought", X, np.where(rng.random(n) < chance, "yes", "no")), chance


@pytest.fixture(scope="module")
def learned() -> FuzzyClassTree:
    model: FuzzyClassTree = central(SCHEME, EXACT, DOMAIN, rows()[0]).model
    return model


# --- numbers --------------------------------------------------------------------------------------------------------


def test_probabilities_add_up_and_of_two_classes_the_first_has_the_score_zero() -> None:
    scores = np.random.default_rng(0).normal(0, 5, (4, 1000))
    expected = np.exp(scores) / np.exp(scores).sum(axis=0)
    assert probabilities(scores) == pytest.approx(expected, rel=1e-12)
    both = np.stack([np.zeros(1000), scores[0]])
    assert np.array_equal(probabilities(scores[:1]), probabilities(both))


def test_levels_follow_the_means_and_few_are_told_apart() -> None:
    counts = np.array([100, 100, 100, 100])
    line = find_levels(counts, np.array([[90], [10], [50], [50]]), 1.0)
    assert line[1:] == pytest.approx((1.0, 0.0, 0.5, 0.5))
    assert line[0] == pytest.approx(0.5)  # unknown categories: as the overall mean
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 1000, 40)
    line = find_levels(counts, rng.binomial(counts, rng.random(40))[:, None], 1.0)
    assert len(set(line)) <= 7
    assert find_levels(np.array([5, 5]), np.array([[1], [1]]), 1.0) == (0.0, 0.0, 0.0)


# --- learning -------------------------------------------------------------------------------------------------------


def test_probabilities_are_calibrated_and_near_the_true_ones(learned: FuzzyClassTree) -> None:
    data, chance = rows(6000, seed=1)
    result = learned.predict_proba(data.X)[:, 1]
    assert np.abs(result - chance).mean() < 0.04
    for low in np.arange(0.0, 1.0, 0.1):
        inside = (result >= low) & (result < low + 0.1)
        if inside.sum() > 100:
            assert (data.y[inside] == "yes").mean() == pytest.approx(result[inside].mean(), abs=0.08)


def test_cut_of_a_text_names_its_cities_as_a_group(learned: FuzzyClassTree) -> None:
    terms = {part.term for rule in learned.rules() for part in rule.conditions if part.feature == "city"}
    assert terms & {"one of Campinas, Santos", "none of Campinas, Santos", "one of Bern, Lima, Pisa, Rio"}
    assert all(part.crisp for rule in learned.rules() for part in rule.conditions if part.feature == "city")


def test_scores_are_those_of_maximum_likelihood_when_there_is_one_rule() -> None:
    data, _ = rows(2000)
    outcome = central(SCHEME, EXACT.model_copy(update={"max_rules": 1, "holdout": 0.0}), DOMAIN, data)
    model: Any = outcome.model
    z = np.vstack([np.ones(2000), model.scaled_rows(data.X)])
    line = model.base.coefficients[0, 0]
    residual = (data.y == "yes") - 1.0 / (1.0 + np.exp(-(line @ z)))
    # The gradient of the likelihood is the pull.
    pull = pulls(z, outcome) * line
    assert (z @ residual)[line != 0.0] == pytest.approx(pull[line != 0.0], abs=0.05)
    # Which is what the rows speak for: as many rows as slopes are determined, over the slopes' squares.
    curvature = (z * np.abs(residual) * (1.0 - np.abs(residual))) @ z.T
    used = np.flatnonzero(line)
    inverse = np.linalg.inv(curvature[np.ix_(used, used)] + np.diag(pulls(z, outcome)[used]))
    determined = (1.0 - pulls(z, outcome)[used] * np.diagonal(inverse))[1:].sum()
    lengths = (z.var(axis=1) * line * line)[1:].sum()
    assert outcome.summary["pull"] == pytest.approx(determined / lengths, rel=0.1)


def pulls(z: NDArray[np.float64], outcome: Outcome) -> NDArray[np.float64]:
    """Return the pull of each coefficient, in rows."""
    strength: NDArray[np.float64] = cast("float", outcome.summary["pull"]) * z.var(axis=1)
    strength[0] = 0.03
    return strength


def test_more_scores_are_those_of_maximum_likelihood_for_three_classes() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((3000, 2))
    noisy = X + rng.normal(0, 0.2, X.shape)
    y = np.array(["a", "b", "c"])[(noisy.sum(axis=1) > 1.0).astype(int) + (noisy[:, 0] > 0.8)]
    domain = class_domain("uv", "class", "a", "b", "c")
    parameters = EXACT.model_copy(update={"max_rules": 1, "holdout": 0.0})
    outcome = central(SCHEME, parameters, domain, Dataset(("u", "v"), "class", X, y))
    model: Any = outcome.model
    z = np.vstack([np.ones(3000), X.T])
    lines = model.base.coefficients[0]
    e = np.exp(lines @ z)
    for number, name in enumerate(domain.classes):
        used, gradient = lines[number] != 0.0, z @ ((y == name) - e[number] / e.sum(axis=0))
        assert gradient[used] == pytest.approx((pulls(z, outcome) * lines[number])[used], abs=0.1)


def test_step_is_that_of_all_nodes_together_and_tells_how_far_each_is_determined() -> None:
    tree = Tree((Split(0, 0, 0.2, 0.4), Split(2, 1, 0.0, 1.0), Split(1, 0, 0.05, 0.1)))
    n, rng = 6, np.random.default_rng(0)
    strength = rng.uniform(0.1, 2.0, n)
    parts = {leaf: rng.normal(size=(n, n)) for leaf in tree.leaves}
    matrices = {leaf: part @ part.T for leaf, part in parts.items()}
    right = {leaf: rng.normal(size=n) for leaf in tree.leaves}
    found, determined, lengths = _solved(tree, {leaf: (matrices[leaf], right[leaf]) for leaf in tree.leaves}, strength)
    # All nodes written out: each is pulled to the one above, the root to zero.
    size = tree.size * n
    whole, sides = np.zeros((size, size)), np.zeros(size)
    apart = np.zeros((tree.size, n, size))
    for node in range(tree.size):
        own = slice(node * n, node * n + n)
        apart[node][:, own] = np.eye(n)
        if node:
            above = tree.parent(node) * n
            apart[node][:, above : above + n] = -np.eye(n)
        whole += apart[node].T @ np.diag(strength) @ apart[node]
        if node in matrices:
            whole[own, own] += matrices[node]
            sides[own] += right[node]
    expected, covariance = np.linalg.solve(whole, sides), np.linalg.inv(whole)
    for node in range(tree.size):
        assert found[node] == pytest.approx(expected[node * n : node * n + n], rel=1e-9, abs=1e-9)
        variance = np.diagonal(apart[node] @ covariance @ apart[node].T)
        assert determined[node] == pytest.approx(1.0 - strength * variance, abs=1e-9)
        assert lengths[node] == pytest.approx((apart[node] @ expected) ** 2, abs=1e-9)


def test_rounds_make_the_chances_of_the_blend_likelier_each_time() -> None:
    data, _ = rows(2000)
    errors = []

    def listen(task: Task, _: Contribution) -> None:
        if task.kind == "newton":
            question = read_task(task)
            assert question.coefficients is not None
            inputs = domain_inputs(question, data)
            reached = degrees(question.tree, inputs)
            z = np.vstack([np.ones(data.rows), inputs[list(question.regressors)]])
            lines = zip(question.tree.leaves, question.coefficients[:, 0], strict=True)
            score = sum(reached[leaf] * (line @ z) for leaf, line in lines)
            errors.append(np.logaddexp(0.0, np.where(data.y == "yes", -score, score)).mean())

    parameters = EXACT.model_copy(update={"holdout": 0.0, "max_rules": 6})
    federated(SCHEME, parameters, DOMAIN, {"v": data}, listen=listen)
    assert errors[0] == pytest.approx(np.log(2.0))
    assert len(errors) > 4
    assert all(after < before + 1e-3 for before, after in pairwise(errors))


def domain_inputs(question: TreeQuestion, data: Dataset) -> NDArray[np.float64]:
    """Return the rows as the question's inputs, shape (F, n)."""
    level = np.array(question.levels[1])[data.X[:, 1].astype(int) + 1]
    return np.vstack([data.X[:, 0] / 80.0, level, data.X[:, 2] / 10.0])


def test_one_rule_is_kept_unless_more_are_better_by_a_standard_error() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(0.5, 0.15, (200, 3)).clip(0, 1)
    y = np.where(X.sum(axis=1) + rng.normal(0, 0.08, 200) > 1.5, "a", "b")  # lines of scores are right
    outcome = central(SCHEME, EXACT, class_domain("uvw", "class", "a", "b"), Dataset(("u", "v", "w"), "class", X, y))
    summary: Any = outcome.summary
    assert max(summary["sizes"]) > 1
    assert min(summary["held_out_brier"]) < summary["held_out_brier"][0]  # lines of indicators speak for more
    assert len(outcome.model.rules()) == 1
    assert re.fullmatch(r"one rule was .* on held-out rows: Brier score 0\S+, with \d+ rules 0\S+", summary["why_few"])


def test_scores_of_a_run_with_support_are_discriminants_and_near_those_of_maximum_likelihood() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(0.5, 0.15, (600, 3)).clip(0, 1)
    y = np.where(X.sum(axis=1) + rng.normal(0, 0.08, 600) > 1.5, "a", "b")
    domain = class_domain("uvw", "class", "a", "b")
    likely, found = (
        central(SCHEME, chosen, domain, Dataset(("u", "v", "w"), "class", X[:400], y[:400])).model
        for chosen in (EXACT, TreeParameters(support=3, max_rules=1))
    )
    own = np.arange(200), (y[400:] == "b").astype(np.intp)
    loss, best = (-np.log(each.predict_proba(X[400:])[own]).mean() for each in (found, likely))
    assert best < loss < 1.3 * best


@pytest.mark.parametrize("is_text", [True, False])
def test_limits_of_classes_are_the_usual_quantiles_and_those_of_a_number_the_schemes(is_text: bool) -> None:
    x = np.arange(10_000.0)
    y: Any = np.where(x > 5000, "a", "b") if is_text else x
    wanted = discovery_of(("x",), "y", {}, SCHEME)
    found = discover(wanted, [Dataset(("x",), "y", x[part::4, None], y[part::4]) for part in range(4)])
    low = found.features[0].low
    assert low == pytest.approx(250.0 if is_text else 10.0, abs=12.0)


def test_explanation_has_the_share_of_each_class_among_all(learned: FuzzyClassTree) -> None:
    data, _ = rows()
    shares = pytest.approx({name: float((data.y == name).mean()) for name in DOMAIN.classes}, abs=1e-6)
    assert {each.label: each.among_all for each in learned.explain(data.X[0]).chances} == shares


def test_unknown_text_is_like_the_overall_mean_and_never_refused(learned: FuzzyClassTree) -> None:
    X = np.array([[40.0, code, 5.0] for code in (-0.5, 2.5, 5.5)])
    assert len(set(learned.predict_proba(X)[:, 1])) == 1


def test_explanation_says_answer_and_rules_and_what_speaks_for_it_without_contradiction() -> None:
    gappy: Any = model("tree-gaps")
    X = trips(200, gaps=True)
    for row in X[gappy.predict(X) != np.array([gappy.explain(row).fired.rule.consequent.value for row in X])][:5]:
        result = gappy.explain(row)
        chances, scores = np.array([(each.probability, each.score) for each in result.chances]).T
        assert chances == pytest.approx(np.exp(scores) / np.exp(scores).sum())
        assert chances.tolist() == sorted(gappy.predict_proba(row[None])[0], reverse=True)
        head, *lines = explanation_lines(result, gappy.domain, row.tolist())
        assert head == f"price = {result.prediction}, probability {chances[0]:.3f}"
        assert not any("THEN" in line or "because" in line for line in lines)
        degrees = [float(line.split()[0]) for line in lines if re.match(r"  [01]\.\d{3}  rule", line)]
        assert sum(degrees) == pytest.approx(1.0, abs=0.005)
        _, *shares, _ = [float(line.split()[0]) for line in lines if re.match(r"  [+-]\d+\.\d{4}  ", line)]
        assert shares == sorted(shares, reverse=True)


def test_rule_is_told_by_its_strongest_terms_unless_in_full(learned: FuzzyClassTree) -> None:
    slopes = tuple(Slope(f"x{number}", 1.0, float(number)) for number in range(9))
    whole = Consequent("class", "a", scores=(Consequent("score of a", 0.0, "", slopes),))
    rule = replace(learned.rules()[0], consequent=whole)
    result = "THEN class is mostly a", "score of a = 0 + 1 x3 + 1 x4 + 1 x5 + 1 x6 + 1 x7 + 1 x8 and 3 weaker terms"
    assert tuple(map(str.strip, rule_lines(rule)[-2:])) == result
    assert "1 x0" in "".join(rule_lines(rule, full=True))


def test_run_names_its_reason_when_there_is_nothing_to_tell_apart() -> None:
    data, _ = rows(20)
    one = DOMAIN.model_copy(update={"classes": ("yes",)})
    with pytest.raises(UsageError, match="nothing to tell apart"):
        central(SCHEME, EXACT, one, data)
    none = Dataset(NAMES, "bought", data.X[:0], data.y[:0])
    with pytest.raises(RunFailedError, match="no-rows"):
        central(SCHEME, EXACT, DOMAIN, none)


# --- what travels ---------------------------------------------------------------------------------------------------


def test_condensed_rows_have_the_texts_of_their_group() -> None:
    data, _ = rows(600)
    data.X[:40, 1] = -0.5  # texts that the run does not know
    made = condensed(data, DOMAIN, 3)
    for name in DOMAIN.classes:
        own, drawn = data.X[data.y == name, 1], made.X[made.y == name, 1]
        assert sorted(own) == sorted(drawn)  # no group is too small here
    assert not np.array_equal(np.sort(made.X[:, 0]), np.sort(data.X[:, 0]))
