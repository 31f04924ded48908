"""The model registry: one version per run, kept in the journal's database, shown on retained topics."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from coordinator.engine import Publish, RunState
from coordinator.journal.port import Journal, StoredModel
from schemas.documents import document_digest
from schemas.envelope import Envelope
from schemas.errors import NotFoundError
from schemas.messages import ModelPointer
from schemas.parts import Frame, clearing, frames_for_model
from schemas.record import ModelRecord, Training
from schemas.topics import Topics


class Registry:
    """Records of finished models.

    Parameters
    ----------
    journal : Journal
    fleet : str
    software : str
        Written into records.
    wall : callable
        Wall clock, seconds since the epoch.
    """

    def __init__(self, journal: Journal, fleet: str, software: str, wall: Callable[[], float]) -> None:
        self._journal = journal
        self._fleet = fleet
        self._software = software
        self._wall = wall

    def add(self, effect: Publish, state: RunState) -> StoredModel:
        """Register the model of a finished run; the same run gets the same version again, however often."""

        def make(version: int) -> tuple[str, bytes]:
            record = self._record(effect, state, version)
            return record.digest, record.to_bytes()

        return self._journal.add_model(effect.name, effect.run, make)

    def has(self, effect: Publish) -> bool:
        """Whether the model was registered already: in an earlier life of the coordinator."""
        return any(model.run == effect.run for model in self._journal.models(effect.name))

    def rehearse(self, effect: Publish, state: RunState, topics: Topics, limit: int) -> None:
        """Write a model down and cut it into messages, without registering it; raises whatever stands against it."""
        longest = 2**31 - 1
        frames_for_model(self._record(effect, state, longest).to_bytes(), topics, effect.name, longest, limit)

    def _record(self, effect: Publish, state: RunState, version: int) -> ModelRecord:
        document = effect.model.to_document()
        return ModelRecord(
            name=effect.name,
            version=version,
            digest=document_digest(document),
            document=document,
            fleet=self._fleet,
            run=effect.run,
            scheme=state.spec.scheme,
            cohort=list(effect.cohort),
            domain_contributors=list(effect.domain_contributors),
            parameters={
                "participation": state.spec.participation,
                "seed": state.spec.seed,
                "policy": state.spec.policy.model_dump(mode="json"),
            },
            training=_training(state),
            created=datetime.fromtimestamp(self._wall(), tz=UTC).isoformat(timespec="seconds"),
            software=self._software,
        )

    def names(self) -> list[str]:
        """Names of all models, sorted."""
        return sorted({model.name for model in self._journal.models()})

    def versions(self, name: str) -> list[StoredModel]:
        """All versions of a model, oldest first; raises NotFoundError when there is none."""
        models = self._journal.models(name)
        if not models:
            raise NotFoundError(f"no model {name!r}; known: {', '.join(self.names()) or 'none'}")
        return models

    def get(self, name: str, version: int) -> StoredModel:
        """Return one version; raises NotFoundError when there is none."""
        versions = self.versions(name)
        for model in versions:
            if model.version == version:
                return model
        raise NotFoundError(
            f"model {name!r} has no version {version}; it has {', '.join(str(m.version) for m in versions)}"
        )

    def frames(self, topics: Topics, limit: int, keep: int, name: str) -> list[Frame]:
        """Return all retained messages of a model, in the order to publish them: blobs, then versions, then pointer.

        The newest `keep` versions are retained; older ones are cleared (the HTTP API still has them).

        Raises
        ------
        NotFoundError
            No such model.
        BrokerError, UsageError
            A version cannot be sent with messages of `limit` bytes.
        """
        return self._frames(self.versions(name)[-keep - 1 :], topics, limit, keep, keep)

    def frames_of_newest(self, topics: Topics, limit: int, keep: int, name: str) -> list[Frame]:
        """Return the messages that a new version adds to those retained before; raises as `frames`."""
        return self._frames(self.versions(name)[-keep - 1 :], topics, limit, keep, 1)

    def _frames(self, models: list[StoredModel], topics: Topics, limit: int, keep: int, newest: int) -> list[Frame]:
        frames: list[Frame] = []
        for gone in models[:-keep]:
            retained = frames_for_model(gone.record, topics, gone.name, gone.version, limit)
            frames += clearing([frame.topic for frame in retained.frames])
        for model in models[-newest:]:
            frames += frames_for_model(model.record, topics, model.name, model.version, limit).frames
        last = models[-1]
        pointer = ModelPointer(name=last.name, version=last.version, digest=last.digest)
        envelope = Envelope(fleet=self._fleet, body=pointer, run=last.run, time=self._wall())
        frames.append(Frame(topics.model_current(last.name), envelope.to_bytes()))
        return frames


def _training(state: RunState) -> Training:
    dropped: dict[str, str] = {}
    for summary in state.rounds:
        dropped.update(summary.dropped_agents)
    dropped.update(state.lost)
    counted = {*state.cohort}
    sums_digest = state.summary.get("sums_digest", "")
    return Training(
        rounds=len(state.rounds),
        rows=sum(state.frozen[agent][0] for agent in state.cohort),
        dropped={agent: reason for agent, reason in sorted(dropped.items()) if agent not in counted},
        nullified_cells=state.nullified,
        sums_digest=sums_digest if isinstance(sums_digest, str) else "",
    )
