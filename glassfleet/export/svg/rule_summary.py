"""Rules in short: what a rule forecasts, or, where that is a polynomial, which inputs move it most.

A polynomial is given no single number. Its value in the middle of the inputs' ranges, say, is that of a row that the
rule seldom sees - the inputs go together - and can say the opposite of the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glassfleet.explain.summary import slopes_of
from glassfleet.export.svg.text import number, plain
from glassfleet.rules import Rule
from glassfleet.scheme import Model

STRONGEST = 3
"""So many inputs are named."""


@dataclass(frozen=True)
class RuleSummary:
    """One rule in short.

    Attributes
    ----------
    value : str
        What the rule forecasts, whatever the inputs; empty where that is a polynomial.
    movers : tuple of (str, float)
        Inputs, and by how much the consequent changes over each one's whole range; the strongest first. Empty where
        consequents are no polynomials.
    others : int
        How many more inputs are in the consequent.
    unit : str
        The target's, with a space before it; empty: it has none.
    """

    value: str
    movers: tuple[tuple[str, float], ...] = ()
    others: int = 0
    unit: str = ""

    @property
    def label(self) -> str:
        """A few words for a picture: the value, or what moves it most, with dots for other inputs."""
        if not self.movers:
            return self.value or "constant"
        name, slope = self.movers[0]
        return f"{name} {plain(f'{slope:+.3g}')}{self.unit}{' …' * (self.others > 0 or len(self.movers) > 1)}"


def rule_summaries(model: Model, rules: Sequence[Rule]) -> tuple[RuleSummary, ...]:
    """Return the rules in short, in their order."""
    if not rules:
        return ()
    features = model.domain.features
    place = {variable.name: index for index, variable in enumerate(features)}
    rows = np.tile([variable.low / 2 + variable.high / 2 for variable in features], (len(rules), 1))
    for line, rule in enumerate(rules):
        for part in rule.conditions:
            rows[line, place[part.feature]] = part.peak
    for column, variable in enumerate(features):
        if variable.categories:
            rows[:, column] = np.round(rows[:, column])
    unit = f" {model.domain.target.unit}" if model.domain.target is not None and model.domain.target.unit else ""
    answers = [str(each) if isinstance(each, str) else number(float(each), 3) + unit for each in model.predict(rows)]
    slopes = slopes_of(model)
    if slopes is None or len(slopes) != len(rules):
        return tuple(RuleSummary(answer) for answer in answers)
    found = []
    for answer, line in zip(answers, slopes, strict=True):
        order = [int(at) for at in np.argsort(-np.abs(line)) if line[at]]
        movers = tuple((features[at].name, float(line[at])) for at in order[:STRONGEST])
        found.append(RuleSummary("" if movers else answer, movers, len(order) - len(movers), unit))
    return tuple(found)
