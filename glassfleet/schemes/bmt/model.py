"""The finished tree: it predicts, explains itself, and is a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.fuzzy.linear_rules import LinearRules, clipped_note, complexity_of, outputs_of, readable_rules
from glassfleet.fuzzy.ramps import Span, ramp_condition, span_degree
from glassfleet.numerics.statistics import blocks
from glassfleet.rules import Activation, Explanation, Rule
from glassfleet.schemes.bmt.document import read_document, write_document
from glassfleet.schemes.bmt.params import Parameters
from glassfleet.schemes.bmt.tree import Tree, degrees

Array = NDArray[np.float64]

RUNNERS_UP = 3
"""Rules named beside the one that decided, in an explanation."""

_ROW_BLOCK = 1 << 13
_ROUNDING = 1e-12


class BlendedModelTree:
    """A binary tree of ramps with a linear model in each leaf; all rules that fire are blended by their degrees.

    Parameters
    ----------
    parameters : Parameters
        Of the run.
    domain : Domain
        Inputs, target and their limits.
    tree : Tree
        The splits.
    rules : Rules
        One line per leaf of `tree`, in its order.
    """

    scheme = "bmt"

    def __init__(self, parameters: Parameters, domain: Domain, tree: Tree, rules: LinearRules) -> None:
        self.parameters = parameters
        self.domain = domain
        self.tree = tree
        self._rules = rules

    # --- predicting -------------------------------------------------------------------------------------------------

    def predict(self, X: Array) -> Array:
        """Predict rows `X`, shape (n, F), in the inputs' own units; returns shape (n,) in the target's unit.

        The result is clipped to the target's limits.
        """
        X = self.domain.check_rows(X)
        result = np.empty(X.shape[0])
        for block in blocks(X.shape[0], _ROW_BLOCK):
            scaled = np.ascontiguousarray(self.domain.scale_inputs(X[block]).T)
            result[block] = np.minimum(np.maximum(self._raw(scaled), 0.0), 1.0)
        return self.domain.unscale_target(result)

    def _raw(self, scaled: Array) -> Array:
        """Return scaled, unclipped forecasts of scaled rows, shape (F, n)."""
        answer = np.zeros(scaled.shape[1])
        reached = degrees(self.tree, scaled)
        for rule, leaf in enumerate(self.tree.leaves):
            answer += reached[leaf] * outputs_of(self._rules.coefficients[rule], scaled)
        return answer

    # --- explaining -------------------------------------------------------------------------------------------------

    def explain(self, x: Array) -> Explanation:
        """Say why the model answers as it does for the one row `x`, shape (F,).

        Where the forecast is clipped to the target's limits, the difference is part of `base`, and `clipped_from` and
        a note tell what the rules say.
        """
        row = np.asarray(x, dtype=np.float64).reshape(1, -1)
        prediction = float(self.predict(row)[0])
        scaled = np.ascontiguousarray(self.domain.scale_inputs(row).T)
        reached = degrees(self.tree, scaled)
        strength = [float(reached[leaf][0]) for leaf in self.tree.leaves]
        order = sorted(range(len(strength)), key=lambda rule: (-strength[rule], rule))
        target = self.domain.target
        assert target is not None
        width = target.high - target.low
        shares = np.zeros(len(self.domain.features))
        for rule, degree in enumerate(strength):
            shares += degree * width * self._rules.coefficients[rule, 1:] * scaled[:, 0]
        activations = [
            Activation(
                self.rules()[rule],
                strength[rule],
                tuple(span_degree(float(scaled[f, 0]), span) for f, span in self._spans[rule].items()),
            )
            for rule in [order[0], *(r for r in order[1 : RUNNERS_UP + 1] if strength[r] > 0.0)]
        ]
        said = float(self.domain.unscale_target(self._raw(scaled))[0])
        # A last digit beyond the limit is rounding, not something the rules say.
        clipped = abs(said - prediction) > _ROUNDING * width
        return Explanation(
            prediction=prediction,
            fired=activations[0],
            runners_up=tuple(activations[1:]),
            shares={name: float(share) for name, share in zip(self.domain.names, shares, strict=True)},
            base=prediction - float(shares.sum()),
            clipped_from=said if clipped else None,
            notes=(clipped_note(self.domain, said, prediction, alone=strength[order[0]] == 1.0),) if clipped else (),
        )

    @cached_property
    def _spans(self) -> list[dict[int, Span]]:
        return [self.tree.spans(leaf) for leaf in self.tree.leaves]

    @cached_property
    def _readable(self) -> tuple[Rule, ...]:
        features = self.domain.features
        conditions = [tuple(ramp_condition(features[f], *span) for f, span in spans.items()) for spans in self._spans]
        return readable_rules(self._rules, self.domain, conditions)

    def rules(self) -> Sequence[Rule]:
        """Return the rules, depth first, lower sides first."""
        return self._readable

    def complexity(self) -> Mapping[str, int | float]:
        """Return the measures of :func:`glassfleet.fuzzy.linear_rules.complexity_of`."""
        return complexity_of(self._rules, self.tree, sum(len(spans) for spans in self._spans))

    # --- the document -----------------------------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """Return the model as JSON values; its digest is the model's identity."""
        return write_document(self.parameters, self.domain, self.tree, self._rules)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> BlendedModelTree:
        """Rebuild a model; raises ``schemas.errors.DocumentError`` when the document is malformed."""
        return cls(*read_document(document))
