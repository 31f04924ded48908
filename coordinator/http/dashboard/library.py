"""The registry's models, ready to be asked: loaded once, kept while they are used."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property

from coordinator.models.aliases import Aliases
from coordinator.models.registry import Registry
from glassfleet.contract import catalogue
from glassfleet.explain import (
    Effect,
    ModelSummary,
    Partition,
    example_row,
    importance,
    main_effects,
    partitions,
    reach,
    starting_row,
    summary,
)
from glassfleet.export.figures import MOST_INPUTS
from glassfleet.export.svg.branches import Branch, rule_tree
from glassfleet.export.svg.rule_summary import RuleSummary, rule_summaries
from glassfleet.export.svg.structures import Structure, structures
from glassfleet.model.baseline import ReferenceRow, reference_of
from glassfleet.model.intervals import over_all
from glassfleet.model.protocol import Model, Nature, nature
from glassfleet.model.rules import Errors, Rule
from schemas.errors import DocumentError
from schemas.record import ModelRecord

MODELS = 16
"""Models that are kept decoded, the size of a version and a candidate of some names."""


@dataclass(frozen=True)
class LoadedModel:
    """A version of a model with its record."""

    record: ModelRecord
    model: Model

    @cached_property
    def reference(self) -> ReferenceRow | None:
        """The typical row that forecasts are compared with; raises VerificationError when it was changed."""
        return reference_of(self.record.parameters, self.model.domain)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.record.name

    @property
    def version(self) -> int:
        """Its version."""
        return self.record.version

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
        counts = self.record.parameters.get("errors")
        return over_all(counts, self.model.domain) if counts else None

    @cached_property
    def example(self) -> tuple[float, ...]:
        """A row to begin with, in the inputs' order: one that the model's most used rule decides."""
        return tuple(float(value) for value in example_row(self.model))

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """The partition of each input."""
        return partitions(self.model)


class Library:
    """Models by name and version; for several threads."""

    def __init__(self, registry: Registry, aliases: Aliases) -> None:
        self._registry = registry
        self._aliases = aliases
        self._models: OrderedDict[tuple[str, int, str], LoadedModel] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str, version: int | None = None) -> LoadedModel:
        """Return a version; None: the one in use (a rollback or a rollout may have left a newer one aside).

        Raises
        ------
        NotFoundError
            No such model or version.
        DamagedError
            It is damaged in the journal.
        DocumentError
            The scheme is not installed here, or has changed.
        """
        champion = self._aliases.current.get(name)
        if version is None and champion is not None:
            version = champion.version
        version = self._registry.heads(name)[-1].version if version is None else version
        stored = self._registry.get(name, version)
        key = (stored.name, stored.version, stored.digest)
        with self._lock:
            known = self._models.get(key)
            if known is not None:
                self._models.move_to_end(key)
                return known
        record = ModelRecord.load(stored.record)
        try:
            model = catalogue.model_of(record)
        except (KeyError, TypeError) as fault:
            raise DocumentError(f"model {name!r} version {stored.version} cannot be read: {fault!r}") from fault
        loaded = LoadedModel(record, model)
        with self._lock:
            self._models[key] = loaded
            while len(self._models) > MODELS:
                self._models.popitem(last=False)
        return loaded
