"""Models on the broker: versions, their blobs, and the pointers to them.

Whatever cannot be sent is found out by `check_model` and `check_record` *before* it is written to the journal. What was
written when the broker still took it is counted and logged: the run is finished, and the HTTP API has the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import structlog

from coordinator.engine import Publish, RunState
from coordinator.journal.port import StoredModel
from coordinator.messages import Publisher
from coordinator.models.aliases import CANDIDATE, CURRENT, NO_CANDIDATE, Aliases
from coordinator.models.registry import Registry
from schemas.envelope import Envelope, Frame, clearing, frames_for_model
from schemas.errors import BrokerError, DamagedError, NotFoundError, UsageError
from schemas.messages import ModelPointer
from schemas.record import ModelRecord
from schemas.topics import Topics

_log = structlog.get_logger("coordinator")


@dataclass(eq=False)
class ModelPublisher:
    """What the registry holds, on retained topics: the newest versions of each name, and those that it stands for.

    Parameters
    ----------
    retained_versions : int
        So many versions of each model are kept on retained topics.
    """

    topics: Topics
    publisher: Publisher
    registry: Registry
    aliases: Aliases
    metrics: Counter[str]
    retained_versions: int
    _missing: set[tuple[str, int]] = field(default_factory=set, init=False)

    def check_model(self, effect: Publish, state: RunState) -> None:
        """Find out whether a model can be written down and sent.

        Raises
        ------
        Exception
            It cannot; the scheme's own code runs here, so it may be any.
        """
        self.check_record(self.registry.longest_record(effect, state))

    def check_record(self, record: ModelRecord) -> None:
        """Find out whether a record can be sent; raises BrokerError or UsageError when it cannot."""
        frames_for_model(record.to_bytes(), self.topics, record.name, record.version, self.publisher.limit)

    def model(self, model: StoredModel, before: Collection[int] = ()) -> None:
        """Publish a new version, its blobs, then the pointers; and clear what need not stand any more.

        Parameters
        ----------
        before : collection of int
            Versions that its name stood for before: they are cleared if they are not among the newest.
        """
        models = self.registry.heads(model.name)
        kept = self._kept(models)
        fell = [each for each in models[-self.retained_versions - 1 :] if each not in kept]
        gone = [each for each in models if each.version in before and each not in kept and each not in fell]
        # Not the last one: a version that could not be decided about at first may come after a later one.
        new = [each for each in kept if each.version == model.version]
        with self._unless_unpublishable(model.name):
            frames = [*self._clearing(self._read(fell)), *self._writing(self._read(new))]
            self._publish([*frames, *self._pointers(model.name), *self._clearing(self._read(gone))])

    def moved(self, name: str, before: Collection[int]) -> None:
        """Publish what a name stands for, after it stood for other versions; `before` as in `model`."""
        models = self.registry.heads(name)
        kept = self._kept(models)
        stands_for = self.aliases.pinned_of(name)
        # What is among the newest stands on the broker already.
        newest = models[-self.retained_versions :]
        older = [each for each in kept if each.version in stands_for and each not in newest]
        gone = [each for each in models if each.version in before and each not in kept]
        with self._unless_unpublishable(name):
            written, cleared = self._writing(self._read(older)), self._clearing(self._read(gone))
            self._publish([*written, *self._pointers(name), *cleared])

    def signature(self, former: StoredModel, model: StoredModel) -> None:
        """Clear the parts that only the former record had, and publish the one that was signed again."""
        # Without the other records: when the authority changes, this is asked for each version.
        if self.registry.is_retained(model, self.retained_versions):
            with self._unless_unpublishable(model.name):
                frames = self._writing([model])
                needed = {frame.topic for frame in frames}
                self._publish([*(each for each in self._clearing([former]) if each.topic not in needed), *frames])

    def models(self) -> None:
        """Publish all retained versions again."""
        for name in self.registry.names():
            with self._unless_unpublishable(name):
                self._publish(self.frames(name))

    def frames(self, name: str) -> list[Frame]:
        """Return all retained messages of a model, in the order to publish them: versions and blobs, then pointers.

        Cleared is what a coordinator that was killed may have left: as many versions below the newest, and older ones
        that the name once stood for.

        Raises
        ------
        NotFoundError
            No such model.
        BrokerError, UsageError
            This broker cannot carry a version.
        """
        models, last = self.registry.heads(name), -2 * self.retained_versions
        kept = self._kept(models)
        outlived = self._outlived(name)
        left = [*(each for each in models[:last] if each.version in outlived), *models[last:]]
        cleared = self._clearing(self._read(each for each in left if each not in kept))
        return [*cleared, *self._writing(self._read(kept)), *self._pointers(name)]

    @contextmanager
    def _unless_unpublishable(self, name: str) -> Iterator[None]:
        """Count and log a model that this broker cannot carry; nothing of it is published then."""
        try:
            yield
        except (BrokerError, UsageError) as fault:
            self.metrics["models.unpublishable"] += 1
            _log.error("model-unpublishable", name=name, detail=str(fault))

    def _publish(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self.publisher.publish(*frame, retain=True)

    def _pointers(self, name: str) -> list[Frame]:
        """Return the messages that say what a name stands for; a version that is missing is logged and left out."""
        aliases, frames = self.aliases, []
        candidate, current = self._pointer(aliases.candidate.get(name)), self._pointer(aliases.current.get(name))
        if candidate is not None:
            frames.append(Frame(self.topics.model_candidate(name), candidate))
        elif name in aliases.had_candidate:
            frames += clearing([self.topics.model_candidate(name)])
        if current is not None:
            frames.append(Frame(self.topics.model_current(name), current))
        return frames

    def _pointer(self, pointer: ModelPointer | None) -> bytes | None:
        """Return a pointer's message unless its version is missing: the other models and runs must not wait for it."""
        if pointer is None:
            return None
        name, version = pointer.name, pointer.version
        try:
            run = self.registry.get(name, version).run
        except (NotFoundError, DamagedError):
            if (name, version) not in self._missing:  # logged once: pointers are published often
                self._missing.add((name, version))
                _log.error("model-missing", name=name, version=version, candidate=pointer.trial is not None)
            return None
        return Envelope(fleet=self.topics.fleet, body=pointer, run=run, time=self.aliases.wall()).to_bytes()

    def _outlived(self, name: str) -> set[int]:
        """Return the versions that the name stood for at a time when they were not among the newest.

        A new version does not clear these by its number: a crash after the decision that took the name from one
        leaves it on the broker.
        """
        newest, stands, outlived = 0, dict[str, list[int]](), set[int]()
        for each in self.registry.journal.decisions(name):
            newest = max(newest, int(each.body.get("version", 0)))
            if each.kind in (CURRENT, CANDIDATE):
                beside = (each.body.get("trial") or {}).get("formers", ())
                stands[each.kind] = [int(each.body["version"]), *(int(former["version"]) for former in beside)]
            elif each.kind == NO_CANDIDATE:
                stands.pop(CANDIDATE, None)
            stood = (version for versions in stands.values() for version in versions)
            outlived.update(version for version in stood if version <= newest - self.retained_versions)
        return outlived

    def _kept(self, models: list[StoredModel]) -> list[StoredModel]:
        newest, pinned = models[-self.retained_versions :], self.aliases.pinned()
        return [each for each in models if each in newest or (each.name, each.version) in pinned]

    def _read(self, heads: Iterable[StoredModel]) -> list[StoredModel]:
        """Return versions with their records, without damaged ones: what the broker has of these may be whole."""
        result: list[StoredModel] = []
        for each in heads:
            with suppress(NotFoundError, DamagedError):
                result.append(self.registry.get(each.name, each.version))
        return result

    def _writing(self, models: Iterable[StoredModel]) -> list[Frame]:
        return [
            frame
            for each in models
            for frame in frames_for_model(
                each.record, self.topics, each.name, each.version, self.publisher.limit
            ).frames
        ]

    def _clearing(self, models: Iterable[StoredModel]) -> list[Frame]:
        return clearing(list(dict.fromkeys(frame.topic for frame in reversed(self._writing(models)))))
