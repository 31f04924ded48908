"""A finished crisp tree as a model: it predicts, explains itself by its path, and is a document."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from glassfleet.crisp.tree import CrispTree, interval_condition, write_tree
from glassfleet.data.documents import document_of
from glassfleet.data.domain import Domain
from glassfleet.model.explanation import Activation, Explanation
from glassfleet.model.rules import Consequent, Forecasts, Rule
from glassfleet.model.tables import RuleTables, SplitTree
from glassfleet.numerics.statistics import rule_weight


class CrispTreeModel:
    """A binary decision or regression tree; not changed after it is made.

    Parameters
    ----------
    scheme : str
        Name of the scheme that learned it.
    parameters : BaseModel
        Of the run.
    domain : Domain
        Inputs, and the target or classes.
    tree : Tree
    """

    format = 1
    clips_inputs = False

    def __init__(self, scheme: str, parameters: BaseModel, domain: Domain, tree: CrispTree) -> None:
        self.scheme = scheme
        self.parameters = parameters
        self.domain = domain
        self.tree = tree

    # --- predicting -------------------------------------------------------------------------------------------------

    def predict(self, X: NDArray[np.float64]) -> NDArray[Any]:
        """Predict rows `X`, shape (n, F), in the inputs' own units (categories as positions among the domain's).

        Returns
        -------
        ndarray, shape (n,)
            Labels (text), or numbers in the target's own unit.

        Raises
        ------
        ValueError
            `X` has another width, or is not finite.
        """
        return self._answers[self.tree.reach(self.domain.check_rows(X))]

    @cached_property
    def _answers(self) -> NDArray[Any]:
        """What each node would say."""
        if self.domain.target is None:
            labels: NDArray[Any] = np.array(self.domain.classes, dtype=np.str_)[self.tree.value.argmax(axis=1)]
            return labels
        return self.domain.unscale_target(self.tree.value[:, 0])

    # --- explaining -------------------------------------------------------------------------------------------------

    def explain(self, x: NDArray[np.float64]) -> Explanation:
        """Say why the model answers as it does for the one row `x`, shape (F,).

        The row goes down one path. ``base`` is what the root says; each split moves that to what its child says, and
        the move is the share of the input that is split on. What is said is the target's mean, or the share of the
        predicted class among the training rows; base and shares add up to it.
        """
        row = self.domain.check_rows(np.asarray(x, dtype=np.float64).reshape(1, -1))
        leaf = int(self.tree.reach(row)[0])
        path = self.tree.path(leaf)
        prediction = self._answers[leaf]
        if self.domain.target is None:
            answers = self.tree.value[path, int(self.tree.value[leaf].argmax())]
        else:
            answers = self._answers[path]
        moves = np.zeros(len(self.domain.features))
        np.add.at(moves, self.tree.feature[path[:-1]], np.diff(answers))
        rule = self.rules()[int(np.searchsorted(self.tree.leaves, leaf))]
        return Explanation(
            prediction=str(prediction) if self.domain.target is None else float(prediction),
            fired=Activation(rule, 1.0, (1.0,) * len(rule.conditions)),
            shares={name: float(move) for name, move in zip(self.domain.names, moves, strict=True)},
            base=float(answers[0]),
            measure=""
            if self.domain.target is not None
            else "share of the predicted class among the leaf's training rows",
        )

    # --- reading ----------------------------------------------------------------------------------------------------

    def rules(self) -> Sequence[Rule]:
        """Return one rule per leaf, left to right: the conditions of its path, joined per input."""
        return self._rules

    @cached_property
    def _rules(self) -> tuple[Rule, ...]:
        return tuple(self._rule(index, int(leaf)) for index, leaf in enumerate(self.tree.leaves))

    def _rule(self, index: int, leaf: int) -> Rule:
        tree = self.tree
        path = tree.path(leaf)
        limits: dict[int, tuple[float, float]] = {}
        for node, child in pairwise(path):
            feature, threshold = int(tree.feature[node]), float(tree.threshold[node])
            low, high = limits.get(feature, (-np.inf, np.inf))
            limits[feature] = (low, min(high, threshold)) if child == node + 1 else (max(low, threshold), high)
        support = float(min(1.0, tree.rows[leaf] / tree.rows[0])) if tree.rows[0] > 0 else 0.0
        confidence = self._confidence(leaf)
        return Rule(
            index=index,
            conditions=tuple(
                interval_condition(self.domain.features[feature], low, high) for feature, (low, high) in limits.items()
            ),
            consequent=self._consequent(leaf),
            weight=float(rule_weight(support, confidence)),
            support=support,
            confidence=confidence,
            **self._measured(leaf, support),
        )

    def _measured(self, leaf: int, rows: float) -> dict[str, Any]:
        """Return what is told of a leaf that says a number: the same for all of its rows."""
        target = self.domain.target
        if target is None:
            return {}
        mean, variance = float(self._answers[leaf]), max(float(self.tree.impurity[leaf]), 0.0)
        error = math.sqrt(variance) * (target.high - target.low)
        return {"forecast": Forecasts(rows, mean, mean, mean), "error": error}

    def _confidence(self, leaf: int) -> float:
        """Share of the leaf's class in it; or the part of the root's variance that the leaf does not have."""
        if self.domain.target is None:
            return float(np.clip(self.tree.value[leaf].max(), 0.0, 1.0))
        whole = float(self.tree.impurity[0])
        return float(np.clip(1.0 - self.tree.impurity[leaf] / whole, 0.0, 1.0)) if whole > 0 else 1.0

    def _consequent(self, leaf: int) -> Consequent:
        if self.domain.target is None:
            return Consequent(self.domain.label or "class", str(self._answers[leaf]))
        return Consequent(self.domain.target.name, float(self._answers[leaf]), self.domain.target.unit)

    def complexity(self) -> Mapping[str, int | float]:
        """Return nodes (leaves included), leaves, depth, mean rule length and parameters."""
        tree = self.tree
        inner = tree.size - len(tree.leaves)
        return {
            "nodes": tree.size,
            "leaves": len(tree.leaves),
            "depth": int(tree.depth.max()),
            "rule_length": float(tree.depth[tree.leaves].mean()),
            "parameters": 2 * inner + len(tree.leaves),
        }

    def tables(self) -> RuleTables:
        """Return the model as plain tables, for exports: one leaf fires, and its class or mean answers."""
        tree, classes = self.tree, self.domain.target is None
        value, rule = tree.value[tree.leaves], np.full(tree.size, -1)
        rule[tree.leaves] = np.arange(len(tree.leaves))
        return RuleTables(
            evaluator="class_vote" if classes else "maximum_matching",
            conditions=SplitTree(
                feature=tuple(tree.feature.tolist()),
                threshold=tuple(tree.threshold.tolist()),
                right=tuple(tree.right.tolist()),
                rule=tuple(rule.tolist()),
            ),
            weights=(1.0,) * len(value),
            constants=() if classes else tuple(value[:, 0].tolist()),
            slopes=((),) * len(value),
            votes=tuple(value.argmax(axis=1).tolist()) if classes else (),
        )

    # --- the document -----------------------------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """Return the model as JSON values; see :mod:`glassfleet.crisp.tree`."""
        return document_of(self.scheme, self.format, self.parameters, self.domain, write_tree(self.tree))
