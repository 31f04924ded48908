"""The fuzzy sets of a model's inputs, from its tables: for drawing them and for degrees; and models in other words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from glassfleet.contract import catalogue
from glassfleet.data.domain import Domain, Variable
from glassfleet.explain.views import View
from glassfleet.fuzzy.partition import linguistic_terms
from glassfleet.model.intervals import TellsForecasts
from glassfleet.model.protocol import Model
from glassfleet.model.tables import Line, RampTree, RuleList, SetTree, SplitTree, knots_of
from schemas.errors import UsageError


class FuzzySet(View):
    """A set of a partition: membership rises from `low` to `peak` and falls to `high`; shoulders stay one outside.

    Attributes
    ----------
    term : str
        What the set is called.
    low, peak, high : float
        In the input's own unit. ``low == peak`` for the first set, ``peak == high`` for the last.
    """

    term: str
    low: float
    peak: float
    high: float

    def degree(self, value: float) -> float:
        """Return the membership of a value in the input's own unit, [0, 1]."""
        if value == self.peak:
            return 1.0
        if value < self.peak:
            return 1.0 if self.low == self.peak else float(np.clip((value - self.low) / (self.peak - self.low), 0, 1))
        return 1.0 if self.high == self.peak else float(np.clip((self.high - value) / (self.high - self.peak), 0, 1))


class Partition(View):
    """The sets of one input, lowest first.

    Attributes
    ----------
    feature, unit : str
    low, high : float
        Limits of the input's domain.
    sets : tuple of FuzzySet
        Empty where the model has none for the input: crisp splits, or a constant input.
    categories : tuple of str
        Of a column of text.
    thresholds : tuple of float
        Where a crisp tree splits the input, ascending, in its own unit; of a tree of ramps, their middles;
        between neighbouring categories that a fuzzy tree tells apart.
    """

    feature: str
    unit: str
    low: float
    high: float
    sets: tuple[FuzzySet, ...] = ()
    categories: tuple[str, ...] = ()
    thresholds: tuple[float, ...] = ()


def partitions(model: Model) -> tuple[Partition, ...]:
    """Return the partition of each input, in the domain's order."""
    tables, count = catalogue.rule_tables(model), len(model.domain.features)
    conditions, levels = (None, ()) if tables is None else (tables.conditions, tables.levels)
    knots = knots_of(conditions, count) if isinstance(conditions, RuleList | SetTree) else None
    cuts: list[set[float]] = [set() for _ in range(count)]
    if isinstance(conditions, SplitTree):
        for feature, threshold in zip(conditions.feature, conditions.threshold, strict=True):
            if feature >= 0:
                cuts[feature].add(threshold)
    for feature, line in enumerate(levels[:count]):  # indicators of empty cells come after the features
        cuts[feature] |= {code + 0.5 for code, (one, other) in enumerate(pairwise(line[1:])) if one != other}
    if isinstance(conditions, RampTree):
        for (_, feature), (begin, end) in zip(conditions.splits, conditions.ramps, strict=True):
            variable = model.domain.inputs[feature]
            if not variable.categories:
                cuts[feature].add(variable.low + 0.5 * (begin + end) * (variable.high - variable.low))
    return tuple(
        Partition(
            feature=variable.name,
            unit=variable.unit,
            low=variable.low,
            high=variable.high,
            sets=() if knots is None or (levels and levels[index]) else _sets(variable, knots[index]),
            categories=variable.categories,
            thresholds=tuple(sorted(cuts[index])),
        )
        for index, variable in enumerate(model.domain.features)
    )


def levels_of(model: Model) -> tuple[Line, ...]:
    """Return the levels of each input's categories; empty for numbers, and where a scheme states none."""
    tables = catalogue.rule_tables(model)
    return tables.levels if tables is not None and tables.levels else ((),) * len(model.domain.inputs)


def _sets(variable: Variable, knots: Sequence[float]) -> tuple[FuzzySet, ...]:
    if variable.high <= variable.low:
        return ()
    terms = linguistic_terms(len(knots), variable)
    peaks = [variable.low + knot * (variable.high - variable.low) for knot in knots]
    last = len(peaks) - 1
    return tuple(
        FuzzySet(term=terms[j], low=peaks[max(j - 1, 0)], peak=peak, high=peaks[min(j + 1, last)])
        for j, peak in enumerate(peaks)
    )


# --- models in other words: the same numbers, the terms and units of another domain -----------------------------------


def in_words_of(model: Model, domain: Domain) -> Model:
    """Return the model that speaks in the terms and units of `domain` and predicts the same.

    Parameters
    ----------
    model : Model
    domain : Domain
        As the model's own but for ``terms`` and ``unit`` of its variables.

    Raises
    ------
    UsageError
        The domain has other variables, limits, categories or classes.
    """
    if domain == model.domain:
        return model
    if _numbers(domain) != _numbers(model.domain):
        raise UsageError(
            "the domain to speak in has other variables, limits or classes than the model's own; only terms and units "
            "may differ. Start from the model's: glassfleet model show NAME --json, document.domain"
        )
    document = {**model.to_document(), "domain": domain.to_document()}
    reworded = catalogue.load(model.scheme).from_document(document)
    if isinstance(model, TellsForecasts) and isinstance(reworded, TellsForecasts):
        reworded.forecasts, reworded.why_few = model.forecasts, model.why_few
    return reworded


def in_terms_of(model: Model, domain: Domain) -> Model:
    """Return the model that names its sets as another model's domain does, so that the rules of the two compare.

    Parameters
    ----------
    model : Model
    domain : Domain
        Of another model. Of an input of the same name the terms are taken, unless both name their sets and not as
        many, and the unit where the limits are equal; all else may differ.
    """

    def spelled(was: Variable, now: Variable | None) -> Variable:
        if now is None or (was.terms and now.terms and len(was.terms) != len(now.terms)):
            return was
        unit = now.unit if (was.low, was.high) == (now.low, now.high) else was.unit
        return was.model_copy(update={"terms": now.terms, "unit": unit})

    own, named = model.domain, {variable.name: variable for variable in domain.features}
    target = own.target
    if target is not None and domain.target is not None and target.name == domain.target.name:
        target = spelled(target, domain.target)
    features = tuple(spelled(variable, named.get(variable.name)) for variable in own.features)
    return in_words_of(model, own.model_copy(update={"features": features, "target": target}))


def _numbers(domain: Domain) -> Domain:
    """Return the domain without its words."""
    return domain.reworded(lambda variable: variable.model_copy(update={"unit": "", "terms": ()}))
