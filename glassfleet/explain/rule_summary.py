"""Rules in short: what a rule forecasts for its rows, and, where that is a polynomial, which inputs move it most.

A polynomial of which nobody knows what it forecasts for its rows is given no number. Its value in the middle of the
inputs' ranges, say, is that of a row that the rule seldom sees - the inputs go together - and can say the opposite of
the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glassfleet.explain.text import cut_middle, plain
from glassfleet.model.rules import Forecasts, Rule

STRONGEST = 3
"""So many inputs are named."""
LABEL, SHORTEST = 32, 8
"""Characters of a few words, for which a long input's name is shortened, but not to fewer than the latter."""


@dataclass(frozen=True)
class RuleSummary:
    """One rule in short.

    Attributes
    ----------
    value : str
        What the rule forecasts: as its consequent has it, whatever the inputs are; of a polynomial the mean and range
        over the rule's rows, or empty where nobody knows them.
    movers : tuple of (str, float)
        Inputs, and by how much each moves the consequent over the middle 80 % of the rule's rows, or, where nobody
        knows these, over the rule's region; the strongest first. Empty where consequents are no polynomials.
    others : int
        How many more inputs are in the consequent.
    unit : str
        The target's, with a space before it; empty: it has none.
    forecast : Forecasts or None
        What a polynomial forecasts for the rule's rows.
    """

    value: str
    movers: tuple[tuple[str, float], ...] = ()
    others: int = 0
    unit: str = ""
    forecast: Forecasts | None = None

    @property
    def label(self) -> str:
        """A few words for a picture: what the rule forecasts, or what moves it most, with dots for other inputs."""
        if self.forecast is not None:
            return f"{self.forecast.short}{self.unit}"
        if self.value or not self.movers:
            return self.value
        name, slope = self.movers[0]
        change = f" {plain(f'{slope:+.3g}')}{self.unit}{' …' * (self.others > 0 or len(self.movers) > 1)}"
        return cut_middle(name, max(LABEL - len(change), SHORTEST)) + change


def rule_summaries(rules: Sequence[Rule]) -> tuple[RuleSummary, ...]:
    """Return the rules in short, in their order."""
    return tuple(map(_summary, rules))


def _summary(rule: Rule) -> RuleSummary:
    consequent, forecast = rule.consequent, rule.forecast
    unit = f" {consequent.unit}" if consequent.unit else ""
    slopes = sorted(consequent.slopes or (), key=lambda slope: -abs(slope.over_region))
    if slopes:
        movers = tuple((slope.term, slope.over_region) for slope in slopes[:STRONGEST])
        if forecast is not None:
            movers = tuple(sorted(forecast.moves.items(), key=lambda move: -abs(move[1])))
        value = "" if forecast is None else f"{forecast.text}{unit}"
        return RuleSummary(value, movers, len(slopes) - len(movers), unit, forecast)
    return RuleSummary(plain(f"{'mostly ' * bool(consequent.scores)}{consequent.answer()}"))
