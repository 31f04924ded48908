"""A whole model in one page: rules, how its inputs are used, partitions, complexity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.explain.partitions import Partition, partitions
from glassfleet.explain.views import FORMAT, RuleView, View
from glassfleet.model.protocol import OWN_TREE, Model, Nature, nature, readable_rules
from glassfleet.model.rules import Rule, measures_note, most_used
from schemas.documents import document_digest


class FeatureUse(View):
    """How a model uses one input.

    Attributes
    ----------
    feature, unit : str
    rules : int
        Rules with a condition on it.
    share_of_rules : float
        The same as a share of all rules, [0, 1].
    support : float
        Share of the rules' support that rules with a condition on it have, [0, 1].
    terms : dict of str to int
        How many rules name each term.
    effect : float or None
        For rules with polynomials: by how much the output moves, up or down, when the input crosses a rule's own
        region, the mean over the rules by support; in the target's own unit. None for other consequents.
    """

    feature: str
    unit: str
    rules: int
    share_of_rules: float
    support: float
    terms: dict[str, int]
    effect: float | None

    def text(self, target: str) -> str:
        """Return it in words."""
        parts = [f"in the conditions of {self.rules} rule{'s' * (self.rules != 1)}"] if self.rules else []
        parts += [f"moves {target} by {self.effect:.4g} over a rule's region"] if self.effect else []
        return f"{self.feature}: {', '.join(parts)}"


class ModelSummary(View):
    """A model, told as a whole.

    Attributes
    ----------
    format : int
    scheme, digest, target, unit : str
        `digest` is that of the model's document.
    nature : str
        ``rules``, ``network`` or ``structures``: see :mod:`.nature`.
    classes : tuple of str
        For classifiers.
    complexity : dict of str to float
    rule_count : int
        Rules; structures of a population; 0 for a network.
    rules : tuple of RuleView
        The most used first; structures the fittest first. At most as many as were asked for; none for a network.
    features : tuple of FeatureUse
        The most used first. Empty for networks and structures, whose use of an input no rule tells.
    partitions : tuple of Partition
        In the order of the domain's inputs.
    notes : tuple of str
    """

    format: int = FORMAT
    scheme: str
    nature: Nature
    digest: str
    target: str
    unit: str
    classes: tuple[str, ...]
    complexity: dict[str, float]
    rule_count: int
    rules: tuple[RuleView, ...]
    features: tuple[FeatureUse, ...]
    partitions: tuple[Partition, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        """Return size, how the inputs are used, rules and notes."""
        sizes = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in self.complexity.items())
        notes = [note for note in (measures_note(self.rules), *self.notes) if note]
        uses = [use.text(self.target) for use in self.features if use.rules or use.effect]
        return "\n".join(
            [
                f"{self.target}, by {self.scheme}: {sizes}",
                *uses,
                *(line for rule in self.rules for line in _lines(rule)),
                *["weaker terms are left out; the `text` of each of `rules` has all"]
                * any("weaker terms" in part for rule in self.rules for part in rule.brief),
                *notes,
            ]
        )


def _lines(rule: RuleView) -> list[str]:
    first, *scores = rule.brief
    return [
        f"rule {rule.index} ({rule.measures}): {first}" if rule.measures else first,
        *(f"  {one}" for one in scores),
    ]


def summary(model: Model, *, top: int | None = None) -> ModelSummary:
    """Tell a model as a whole.

    Parameters
    ----------
    model : Model
    top : int or None
        Only so many rules, the first of them; counts are of all rules. None: all.
    """
    own = model.domain
    kind, rules = nature(model), list(readable_rules(model))
    ranked = sorted(rules, key=most_used) if kind == "rules" else rules
    return ModelSummary(
        scheme=model.scheme,
        nature=kind,
        digest=document_digest(model.to_document()),
        target=own.target_name,
        unit=own.target_unit,
        classes=own.classes,
        complexity={name: float(value) for name, value in model.complexity().items()},
        rule_count=len(rules),
        rules=tuple(RuleView.of(rule) for rule in ranked[:top]),
        features=_features(model, rules) if kind == "rules" else (),
        partitions=partitions(model),
        notes=_notes(model),
    )


def _features(model: Model, rules: list[Rule]) -> tuple[FeatureUse, ...]:
    total = sum(rule.support for rule in rules)
    effects = _effects(model, rules)
    uses = []
    for index, variable in enumerate(model.domain.features):
        naming = [(rule, part.term) for rule in rules for part in rule.conditions if part.feature == variable.name]
        terms: dict[str, int] = {}
        for _, term in naming:
            terms[term] = terms.get(term, 0) + 1
        support = sum(rule.support for rule, _ in naming)
        uses.append(
            FeatureUse(
                feature=variable.name,
                unit=variable.unit,
                rules=len(naming),
                share_of_rules=len(naming) / len(rules) if rules else 0.0,
                support=min(support / total, 1.0) if total > 0 else 0.0,
                terms=dict(sorted(terms.items(), key=lambda item: (-item[1], item[0]))),
                effect=None if effects is None else float(effects[index]),
            )
        )
    return tuple(sorted(uses, key=lambda use: (-use.support, -(use.effect or 0.0), -use.rules, use.feature)))


def _effects(model: Model, rules: list[Rule]) -> NDArray[np.float64] | None:
    slopes = slopes_of(model)
    if slopes is None:
        return None
    weight = np.array([rule.support for rule in rules])
    if not weight.sum() > 0:
        weight = np.ones(len(rules))
    effects: NDArray[np.float64] = (slopes * weight[:, None]).sum(axis=0) / weight.sum()
    return effects


def slopes_of(model: Model) -> NDArray[np.float64] | None:
    """Return by how much an input moves each rule over the rule's region, up or down, shape (r, F), in target units.

    None for models whose consequents are no polynomials.
    """
    rules, place = model.rules(), {name: index for index, name in enumerate(model.domain.names)}
    if not rules or rules[0].consequent.slopes is None:
        return None
    slopes = np.zeros((len(rules), len(place)))
    for line, rule in enumerate(rules):
        for slope in rule.consequent.slopes or ():
            slopes[line, place[slope.feature]] += abs(slope.over_region)
    return slopes


def _notes(model: Model) -> tuple[str, ...]:
    kind = nature(model)
    if kind == "network":
        return ("this model is a network: it has no rules; nothing in it can be read",)
    if kind == "structures":
        return (
            "these are tree structures for vehicles to fit; thresholds and leaves are each vehicle's own",
            f"{OWN_TREE[0].upper()}{OWN_TREE[1:]}",
        )
    why = getattr(model, "why_few", "")
    return (why,) if why else ()
