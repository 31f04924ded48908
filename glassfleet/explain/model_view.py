"""A model as pages, reports and commands tell it: everything that is computed of it, once, when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from glassfleet.explain.branches import Branch, Structure, rule_tree, structures
from glassfleet.explain.effects import CURVES, Effect, example_row, importance, main_effects, reach, starting_row
from glassfleet.explain.partitions import Partition, partitions
from glassfleet.explain.summary import ModelSummary, RuleSummary, rule_summaries, summary
from glassfleet.model.baseline import ReferenceRow, reference_of
from glassfleet.model.intervals import over_all
from glassfleet.model.protocol import Model, Nature, nature
from glassfleet.model.rules import Errors, Rule

MOST_INPUTS: Final = 100
"""Inputs among which those are looked for that count most."""


@dataclass(frozen=True)
class ModelView:
    """What a model says.

    Attributes
    ----------
    model : Model
    beside : mapping
        What is recorded beside the model's document: the parameters of its record; empty: nothing.
    """

    model: Model
    beside: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def reference(self) -> ReferenceRow | None:
        """The typical row that forecasts are compared with; raises VerificationError when it was changed."""
        return reference_of(self.beside, self.model.domain)

    @cached_property
    def nature(self) -> Nature:
        """What kind of thing the model is."""
        return nature(self.model)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, in the model's order; none where it has none: networks, and structures."""
        return tuple(self.model.rules()) if self.nature == "rules" else ()

    @cached_property
    def structures(self) -> tuple[Structure, ...]:
        """A population's structures, the fittest first; of other models none."""
        return structures(self.model) if self.nature == "structures" else ()

    @cached_property
    def rule_summaries(self) -> tuple[RuleSummary, ...]:
        """What each rule says in short, by its index."""
        return rule_summaries(self.rules)

    @cached_property
    def root(self) -> Branch:
        """The rules as a tree."""
        return rule_tree(self.model) if self.nature == "rules" else Branch()

    @cached_property
    def summary(self) -> ModelSummary:
        """The model on one page, without its rules."""
        return summary(self.model, top=0)

    @cached_property
    def importance(self) -> dict[str, float]:
        """How much inputs count, the most first; of a population nothing."""
        names = [use.feature for use in self.summary.features] or list(self.model.domain.names)
        shares = importance(self.model, self.reference, names[:MOST_INPUTS])
        return dict(sorted(shares.items(), key=lambda each: -each[1]))

    @cached_property
    def reach(self) -> dict[str, float]:
        """How far inputs could move the answer over their ranges; nothing of classes without chances."""
        return reach(self.model, self.reference, list(self.importance))

    @cached_property
    def effects(self) -> tuple[tuple[Effect, ...], str]:
        """How the answer moves with each of the inputs that count most, and the row that the others are taken from."""
        row = starting_row(self.model, self.reference)
        return main_effects(self.model, row.row, self.importance), row.words

    @cached_property
    def errors(self) -> Errors | None:
        """How far off the model is on the fleet's test rows; None: nobody has told, or too few."""
        counts = self.beside.get("errors")
        return over_all(counts, self.model.domain) if counts else None

    @cached_property
    def example(self) -> tuple[float, ...]:
        """A row to begin with, in the inputs' order: one that the model's most used rule decides."""
        return tuple(float(value) for value in example_row(self.model))

    @cached_property
    def divided(self) -> list[Partition]:
        """Of the inputs that count most those with fuzzy sets or thresholds."""
        known = {each.feature: each for each in self.partitions if each.sets or each.thresholds}
        return [known[name] for name in self.importance if name in known][:CURVES]

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """The partition of each input."""
        return partitions(self.model)
