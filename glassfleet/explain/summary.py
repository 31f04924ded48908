"""A whole model in one page: rules, how its inputs are used, partitions, complexity."""

from __future__ import annotations

from glassfleet.explain.partitions import Partition, partitions
from glassfleet.explain.views import FORMAT, RuleView, View
from glassfleet.model.protocol import OWN_TREE, Model, Nature, nature, readable_rules
from glassfleet.model.rules import Rule, measures_note, most_used
from schemas.documents import document_digest
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
