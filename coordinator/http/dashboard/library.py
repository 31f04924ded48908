"""The registry's models, ready to be asked: loaded once, kept while they are used."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from coordinator.models.aliases import Aliases
from coordinator.models.registry import Registry
from glassfleet.contract import catalogue
from glassfleet.explain.model_view import ModelView
from glassfleet.model.protocol import Model
from schemas.errors import DocumentError
from schemas.record import ModelRecord

MODELS = 16
"""Models that are kept decoded, the size of a version and a candidate of some names."""


@dataclass(frozen=True, kw_only=True)
class LoadedModel(ModelView):
    """A version of a model with its record."""

    record: ModelRecord

    @classmethod
    def of(cls, record: ModelRecord, model: Model) -> LoadedModel:
        """Return a model with its record."""
        return cls(model=model, beside=record.parameters, record=record)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.record.name

    @property
    def version(self) -> int:
        """Its version."""
        return self.record.version


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
        loaded = LoadedModel.of(record, model)
        with self._lock:
            self._models[key] = loaded
            while len(self._models) > MODELS:
                self._models.popitem(last=False)
        return loaded
