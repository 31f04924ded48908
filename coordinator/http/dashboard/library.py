"""The registry's models, ready to be asked: loaded once, kept while they are used."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property

from coordinator.http.dashboard.branches import Branch, grow, grow_splits
from coordinator.http.dashboard.briefs import Brief, briefs
from coordinator.http.dashboard.structures import Structure, structures
from coordinator.models.registry import Registry
from glassfleet import catalogue
from glassfleet.explain import ModelSummary, Partition, example_row, partitions, summary
from glassfleet.nature import Nature, nature
from glassfleet.rules import Rule
from glassfleet.scheme import Model
from schemas.errors import DocumentError
from schemas.record import ModelRecord

MODELS = 16
"""Models that are kept decoded, the size of a version and a candidate of some names."""


@dataclass(frozen=True)
class Shelved:
    """A version of a model with its record."""

    record: ModelRecord
    model: Model

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
    def briefs(self) -> tuple[Brief, ...]:
        """What each rule says in short, by its index."""
        return briefs(self.model, self.rules)

    @cached_property
    def root(self) -> Branch:
        """The rules as a tree."""
        nodes = self.record.document["model"].get("nodes", [])
        leaves = sum("threshold" not in node for node in nodes)
        if leaves < len(nodes) and leaves == len(self.rules):
            return grow_splits(nodes, self.rules, self.model.domain.features)
        return grow(self.rules)

    @cached_property
    def summary(self) -> ModelSummary:
        """The model on one page, without its rules."""
        return summary(self.model, None, top=0)

    @cached_property
    def example(self) -> tuple[float, ...]:
        """A row to begin with, in the inputs' order: one that the model's most used rule decides."""
        return tuple(float(value) for value in example_row(self.model))

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """The partition of each input."""
        return partitions(self.model)


class Library:
    """Models by name and version; for several threads.

    Parameters
    ----------
    registry : Registry
    kept : int
        So many models stay in memory.
    """

    def __init__(self, registry: Registry, kept: int = MODELS) -> None:
        self._registry = registry
        self._kept = kept
        self._shelf: OrderedDict[tuple[str, int, str], Shelved] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str, version: int | None = None) -> Shelved:
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
        champion = self._registry.aliases.current.get(name)
        if version is None and champion is not None:
            version = champion.version
        version = self._registry.versions(name)[-1].version if version is None else version
        stored = self._registry.get(name, version)
        key = (stored.name, stored.version, stored.digest)
        with self._lock:
            found = self._shelf.get(key)
            if found is not None:
                self._shelf.move_to_end(key)
                return found
        record = ModelRecord.load(stored.record)
        scheme = catalogue.load(record.scheme)
        try:
            model = scheme.from_document(record.document)
        except (KeyError, TypeError) as fault:
            raise DocumentError(f"model {name!r} version {stored.version} cannot be read: {fault!r}") from fault
        shelved = Shelved(record, model)
        with self._lock:
            self._shelf[key] = shelved
            while len(self._shelf) > self._kept:
                self._shelf.popitem(last=False)
        return shelved
