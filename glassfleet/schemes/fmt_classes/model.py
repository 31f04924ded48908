"""The finished classifier: it predicts, tells probabilities, explains itself, and is a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.explanation import RUNNERS_UP, Activation, Chance, Explanation
from glassfleet.fuzzy.consequent import linear_score
from glassfleet.fuzzy.linear_rules import outputs_of, tree_complexity
from glassfleet.numerics.softmax import all_scores, probabilities
from glassfleet.numerics.statistics import blocks
from glassfleet.rules import Consequent, Rule
from glassfleet.schemes.fmt.tree import Inputs, Span, Tree, degrees
from glassfleet.schemes.fmt_classes.document import FORMAT, read_document, write_document
from glassfleet.schemes.fmt_classes.params import Parameters
from glassfleet.schemes.fmt_classes.rules import ScoreRules
from glassfleet.tables import RuleTables, lines

Array = NDArray[np.float64]

_ROW_BLOCK = 1 << 13


class FuzzyClassTree:
    """A binary tree of fuzzy cuts with scores of classes, linear in the inputs, in each leaf.

    Parameters
    ----------
    parameters : Parameters
        Of the run.
    inputs : Inputs
        The domain with its classes, levels of categories, and partitions.
    tree : Tree
        The splits.
    rules : ScoreRules
        One line per leaf of `tree`, in its order.
    number : int
        The format of its document: that in which it was read.
    """

    scheme = "fmt_classes"

    def __init__(
        self, parameters: Parameters, inputs: Inputs, tree: Tree, rules: ScoreRules, number: int = FORMAT
    ) -> None:
        self._number = number
        self.parameters = parameters
        self.inputs = inputs
        self.domain: Domain = inputs.domain
        self.tree = tree
        self.rule_numbers = rules

    # --- predicting -------------------------------------------------------------------------------------------------

    def predict(self, X: Array) -> NDArray[Any]:
        """Classify rows `X`, shape (n, F), in the inputs' own units; returns labels (text), shape (n,).

        Of classes with the same score the first answers.
        """
        labels = np.array(self.domain.classes, dtype=np.str_)
        answers: NDArray[Any] = labels[all_scores(self._scores(X)).argmax(axis=0)]
        return answers

    def predict_proba(self, X: Array) -> Array:
        """Return the probability of each class, in the order of the domain's; shape (n, C), rows add up to one."""
        return np.ascontiguousarray(probabilities(self._scores(X)).T)

    def _scores(self, X: Array) -> Array:
        """Return the scores of rows in own units, shape (S, n): the rules', weighted by their degrees."""
        X = self.domain.check_rows(X)
        result = np.zeros((self.rule_numbers.coefficients.shape[1], X.shape[0]))
        for block in blocks(X.shape[0], _ROW_BLOCK):
            inputs = self.inputs.scaled(X[block])
            reached = degrees(self.tree, self.inputs.positions(inputs), self.tree.leaves)
            columns = self.inputs.bent(inputs)
            for rule, leaf in enumerate(self.tree.leaves):
                for score, line in enumerate(self.rule_numbers.coefficients[rule]):
                    result[score, block] += reached[leaf] * outputs_of(line, columns)
        return result

    # --- explaining -------------------------------------------------------------------------------------------------

    def explain(self, x: Array) -> Explanation:
        """Say why the model answers as it does for the one row `x`, shape (F,).

        ``base`` and ``shares`` add up to the log of the odds of the class over the next likely one.
        """
        row = np.asarray(x, dtype=np.float64).reshape(1, -1)
        scores = all_scores(self._scores(row))[:, 0]
        order = sorted(range(len(scores)), key=lambda number: (-float(scores[number]), number))
        inputs = self.inputs.scaled(self.domain.check_rows(row))
        reached = degrees(self.tree, self.inputs.positions(inputs), self.tree.leaves)
        strength = [float(reached[leaf][0]) for leaf in self.tree.leaves]
        blend = np.zeros(self.rule_numbers.coefficients.shape[1:])
        for degree, own in zip(strength, self.rule_numbers.coefficients, strict=True):
            blend += degree * own
        each = np.concatenate([np.zeros_like(blend), blend]) if len(blend) == 1 else blend
        lead = each[order[0]] - each[order[1]]
        terms = lead[1:] * self.inputs.bent(inputs)[:, 0]
        shares = terms[: len(inputs)].copy()
        for (feature, _), term in zip(self.inputs.hinges, terms[len(inputs) :], strict=True):
            shares[feature] += term
        ranked = sorted(range(len(strength)), key=lambda rule: (-strength[rule], rule))
        activations = [
            Activation(self.rules()[rule], strength[rule], self._memberships(rule, inputs[:, 0]))
            for rule in ranked[: RUNNERS_UP + 1]
            if rule == ranked[0] or strength[rule] > 0.0
        ]
        classes, chance = self.domain.classes, self.predict_proba(row)[0]
        among_all = (self.rule_numbers.support[:, None] * self.rule_numbers.shares).sum(axis=0)
        return Explanation(
            prediction=classes[order[0]],
            fired=activations[0],
            runners_up=tuple(activations[1:]),
            shares=dict(zip(self.domain.names, self.domain.by_feature(shares).tolist(), strict=True)),
            base=float(lead[0]),
            measure=f"log of the odds of {classes[order[0]]} over {classes[order[1]]}",
            chances=tuple(
                Chance(classes[number], float(chance[number]), float(among_all[number]), float(scores[number]))
                for number in order
            ),
        )

    def _memberships(self, rule: int, inputs: Array) -> tuple[float, ...]:
        return tuple(self.inputs.membership(f, inputs[f], span) for f, span in self._spans[rule].items())

    @cached_property
    def _spans(self) -> list[Span]:
        n_sets = [len(line) for line in self.inputs.knots]
        return [self.tree.span(leaf, n_sets) for leaf in self.tree.leaves]

    @cached_property
    def _readable(self) -> tuple[Rule, ...]:
        rules, domain = self.rule_numbers, self.domain
        scored = domain.classes[1:] if len(domain.classes) == 2 else domain.classes
        conditions = [tuple(self.inputs.condition(f, *sets) for f, sets in span.items()) for span in self._spans]
        return tuple(
            Rule(
                index=index,
                conditions=own,
                consequent=Consequent(
                    domain.label or "class",
                    domain.classes[int(rules.classes[index])],
                    scores=tuple(
                        linear_score(domain, f"score of {name}", line, own, self.inputs.hinges)
                        for name, line in zip(scored, rules.coefficients[index], strict=True)
                    ),
                ),
                weight=float(rules.weight[index]),
                support=float(rules.support[index]),
                confidence=float(rules.confidence[index]),
            )
            for index, own in enumerate(conditions)
        )

    def rules(self) -> Sequence[Rule]:
        """Return the rules, depth first, lower sides first."""
        return self._readable

    def complexity(self) -> Mapping[str, int | float]:
        """Return nodes (the root not counted), leaves, depth, conditions, and parameters: splits and coefficients."""
        return tree_complexity(self.tree, sum(map(len, self._spans)), self.rule_numbers.coefficients)

    def tables(self) -> RuleTables:
        """Return the model as plain tables, for exports; of the blended scores the highest answers."""
        rules = self.rule_numbers
        return RuleTables(
            evaluator="highest_score",
            conditions=self.inputs.cut_tree(self.tree, crisp=False),
            # Of two leaves that fire alike, the first is named.
            weights=(1.0,) * len(self.tree.leaves),
            constants=tuple(rules.coefficients[:, :, 0].ravel().tolist()),
            slopes=lines(rules.coefficients[:, :, 1:].reshape(rules.coefficients[:, :, 0].size, -1).tolist()),
            hinges=self.inputs.hinges,
            votes=tuple(rules.classes.tolist()),
            partition=True,
            levels=self.inputs.levels if any(self.inputs.levels) else (),
        )

    # --- the document -----------------------------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """Return the model as JSON values; its digest is the model's identity."""
        return write_document(self.parameters, self.inputs, self.tree, self.rule_numbers, self._number)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> FuzzyClassTree:
        """Rebuild a model; raises ``schemas.errors.DocumentError`` when the document is malformed."""
        return cls(*read_document(document))
