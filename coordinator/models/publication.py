"""Models on the broker: versions, their blobs, and the pointers to them.

Whatever cannot be sent is found out by `check_model` and `check_record` *before* it is written to the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from coordinator.engine import Publish, RunState
from coordinator.journal.port import StoredModel
from coordinator.messages.publisher import Publisher
from coordinator.models.registry import Registry
from schemas.errors import BrokerError, UsageError
from schemas.record import ModelRecord
from schemas.topics import Topics


class ModelPublisher:
    """What the registry holds, on retained topics.

    Parameters
    ----------
    topics : Topics
    publisher : Publisher
    registry : Registry
    retained_versions : int
        So many versions of each model are kept on retained topics.
    """

    def __init__(self, topics: Topics, publisher: Publisher, registry: Registry, retained_versions: int) -> None:
        self._topics = topics
        self._publisher = publisher
        self._registry = registry
        self.retained_versions = retained_versions

    def check_model(self, effect: Publish, state: RunState) -> None:
        """Find out whether a model can be written down and sent.

        Raises
        ------
        Exception
            It cannot; the scheme's own code runs here, so it may be any.
        """
        self._registry.check_model(effect, state, self._topics, self._publisher.limit)

    def check_record(self, record: ModelRecord) -> None:
        """Find out whether a record can be sent; raises BrokerError or UsageError when it cannot."""
        self._registry.check(record, self._topics, self._publisher.limit)

    def model(self, model: StoredModel, before: Collection[int] = ()) -> None:
        """Publish a new version: its blobs, the version, then the pointers; and clear what need not stand any more.

        Parameters
        ----------
        model : StoredModel
        before : collection of int
            Versions that its name stood for before.

        Raises
        ------
        BrokerError, UsageError
            This broker cannot carry it.
        """
        keep = self.retained_versions
        for frame in self._registry.frames_of_newest(self._topics, self._publisher.limit, keep, model, before):
            self._publisher.publish(*frame, retain=True)

    def moved(self, name: str, before: Collection[int]) -> None:
        """Publish what a name stands for, after it stood for other versions; raises as `model`."""
        keep = self.retained_versions
        for frame in self._registry.frames_of_move(self._topics, self._publisher.limit, keep, name, before):
            self._publisher.publish(*frame, retain=True)

    def signature(self, former: StoredModel, model: StoredModel) -> None:
        """Publish a record that was signed again, and clear what only the former one needed; raises as `model`."""
        keep = self.retained_versions
        for frame in self._registry.frames_of_signature(self._topics, self._publisher.limit, keep, former, model):
            self._publisher.publish(*frame, retain=True)

    def models(self, tell: Callable[[str, Exception], None]) -> None:
        """Publish all retained versions again; `tell` hears of a model that this broker cannot carry."""
        for name in self._registry.names():
            try:
                frames = self._registry.frames(self._topics, self._publisher.limit, self.retained_versions, name)
            except (BrokerError, UsageError) as fault:
                tell(name, fault)
                continue
            for frame in frames:
                self._publisher.publish(*frame, retain=True)

    def pointers(self) -> None:
        """Publish all pointers again; versions and blobs can be had by their names."""
        for name in self._registry.names():
            try:
                self._registry.frames(self._topics, self._publisher.limit, self.retained_versions, name)
            except (BrokerError, UsageError):
                continue  # told when the connection was made
            for frame in self._registry.pointers(self._topics, name):
                self._publisher.publish(*frame, retain=True)
