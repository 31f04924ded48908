"""A whole model in one page: rules, how its inputs are used, partitions, complexity; and each rule in short.

A polynomial of which nobody knows what it forecasts for its rows is given no number. Its value in the middle of the
inputs' ranges, say, is that of a row that the rule seldom sees - the inputs go together - and can say the opposite of
the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glassfleet.explain.partitions import Partition, partitions
from glassfleet.explain.text import cut_middle, plain
from glassfleet.explain.views import FORMAT, RuleView, View
from glassfleet.model.protocol import OWN_TREE, Model, Nature, nature, readable_rules
from glassfleet.model.rules import Forecasts, Rule, measures_note, most_used
from schemas.codec import document_digest
from schemas.text import counted


class FeatureUse(View):
    """How a model uses one input.

    Attributes
    ----------
    feature, unit : str
    rules : int
        Rules with a condition on it.
    support : float
        Share of the rules' support that rules with a condition on it have, [0, 1].
    terms : dict of str to int
        How many rules name each term.
    """

    feature: str
    unit: str
    rules: int
    support: float
    terms: dict[str, int]


class ModelSummary(View):
    """A model, told as a whole.

    Attributes
    ----------
    format : int
    scheme, digest, target, unit : str
        `digest` is that of the model's document.
    nature : str
        ``rules``, ``network`` or ``structures``: see :data:`glassfleet.model.protocol.Nature`.
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
        uses = [
            f"{use.feature}: in the conditions of {counted(use.rules, 'rules')}" for use in self.features if use.rules
        ]
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
    uses = []
    for variable in model.domain.features:
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
                support=min(support / total, 1.0) if total > 0 else 0.0,
                terms=dict(sorted(terms.items(), key=lambda item: (-item[1], item[0]))),
            )
        )
    return tuple(sorted(uses, key=lambda use: (-use.support, -use.rules, use.feature)))


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
