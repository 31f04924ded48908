"""A journal that lasts as long as its process: for simulations, and for trying things out."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator.journal.port import (
    CHECKPOINT,
    REFERENCES,
    ROLLOUT_STARTED,
    ROLLOUTS,
    Damaged,
    Decision,
    Entry,
    Kept,
    Leader,
    StoredModel,
    overview,
)
from schemas.errors import StorageError


@dataclass
class _Content:
    """What outlives one opening."""

    entries: list[Entry] = field(default_factory=list)
    documents: dict[str, str] = field(default_factory=dict)
    closed: dict[str, float] = field(default_factory=dict)
    models: list[StoredModel] = field(default_factory=list)
    decisions: list[tuple[Decision, str]] = field(default_factory=list)
    latest: float | None = None
    leader: Leader | None = None
    by_agent: dict[str, dict[str, str]] = field(default_factory=dict)
    is_open: bool = False


class MemoryJournal:
    """The `Journal` protocol over lists.

    Parameters
    ----------
    before : MemoryJournal or None
        A closed journal whose content is opened again, as a restarted coordinator would.

    Raises
    ------
    StorageError
        `before` is still open.
    """

    def __init__(self, before: MemoryJournal | None = None) -> None:
        self.content: _Content = _Content() if before is None else before.content
        if self.content.is_open:
            raise StorageError("the journal is in use by another coordinator: close that one first")
        self.content.is_open = True
        self._is_mine = True

    # Memory neither tears nor rots.
    damage: tuple[str, ...] = ()
    damaged: tuple[Damaged, ...] = ()

    def append(self, entries: Sequence[Entry], decisions: Sequence[Decision] = ()) -> None:
        """Append all entries and decisions."""
        self.check()
        decided = [(each, json.dumps(each.body)) for each in decisions]  # which may fail
        for entry in entries:
            if entry.kind == CHECKPOINT:
                self._begin_anew(entry)
            else:
                self.content.entries.append(entry)
        self.content.decisions += decided
        times = [*(entry.at for entry in entries), *(decision.at for decision in decisions)]
        self.content.latest = max(times if self.content.latest is None else [self.content.latest, *times], default=None)

    def _begin_anew(self, entry: Entry) -> None:
        all_entries = self.content.entries
        first = next((number for number, each in enumerate(all_entries) if each.run == entry.run), len(all_entries))
        wall = all_entries[first].wall if first < len(all_entries) else entry.wall
        others = [each for each in all_entries[first:] if each.run != entry.run]
        all_entries[first:] = [replace(entry, wall=wall), *others]

    def unfinished(self) -> list[str]:
        """Return the runs with records that have not been closed, in the order of their start."""
        return [
            run
            for run in dict.fromkeys(entry.run for entry in self.content.entries)
            if run not in self.content.documents
        ]

    def records(self, run: str) -> Iterator[Entry]:
        """Yield the records of one run, in order."""
        return iter([entry for entry in self.content.entries if entry.run == run])

    def last_time(self) -> float | None:
        """Return the latest ``at`` ever appended."""
        return self.content.latest

    def close_run(self, run: str, document: dict[str, Any], at: float) -> None:
        """Store the document of an ended run."""
        self.check()
        self.content.documents.setdefault(run, json.dumps(document))
        self.content.closed.setdefault(run, at)
        self.content.latest = max(self.content.latest or 0.0, at)

    def forget_records(self, until: float) -> bool:
        """Let the records of one closed run go."""
        self.check()
        has_records = {entry.run for entry in self.content.entries}
        old = (run for run, at in self.content.closed.items() if at <= until and run in has_records)
        if (oldest := next(old, None)) is None:
            return False
        self.content.entries[:] = [entry for entry in self.content.entries if entry.run != oldest]
        return True

    def compact(
        self,
        keep_runs: int,
        keep_versions: int,
        keep_models: Collection[tuple[str, int]] = (),
        rollouts_from: Mapping[str, float] | None = None,
    ) -> list[str]:
        """Forget all but the newest closed runs, and old rollouts."""
        self.check()
        for name, since in (rollouts_from or {}).items():
            self._forget_rollouts(name, since)
        gone = list(self.content.documents)[: max(0, len(self.content.documents) - keep_runs)]
        for run in gone:
            del self.content.documents[run], self.content.closed[run]
        if gone:
            self.content.entries[:] = [entry for entry in self.content.entries if entry.run not in gone]
            newest = {
                name: max(self.models(name), key=lambda model: model.version).version
                for name in {model.name for model in self.content.models}
            }
            known = {*self.content.documents, *(entry.run for entry in self.content.entries)}
            self.content.models[:] = [
                model
                for model in self.content.models
                if not (model.run in gone or (model.run.startswith(REFERENCES) and model.run not in known))
                or model.version > newest[model.name] - keep_versions
                or (model.name, model.version) in keep_models
            ]
        return gone

    def _forget_rollouts(self, name: str, since: float) -> None:
        decisions = [each for each, _ in self.content.decisions]
        first = next(
            (
                number
                for number, each in enumerate(decisions)
                if (each.name, each.kind) == (name, ROLLOUT_STARTED) and each.at >= since
            ),
            0,
        )
        self.content.decisions[:first] = [
            row for row in self.content.decisions[:first] if row[0].name != name or not row[0].kind.startswith(ROLLOUTS)
        ]

    def ended(self) -> list[str]:
        """Ids of closed runs, in the order of closing."""
        return list(self.content.documents)

    def document(self, run: str) -> dict[str, Any] | None:
        """Return the document of a closed run."""
        text = self.content.documents.get(run)
        return None if text is None else dict(json.loads(text))

    def overviews(self, runs: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return by run the `overview` of closed runs."""
        return {run: overview(document) for run in runs if (document := self.document(run)) is not None}

    def add_model(self, name: str, run: str, make: Callable[[int], tuple[str, bytes]]) -> StoredModel:
        """Register the model of a run under the next version of `name`."""
        self.check()
        for model in self.content.models:
            if model.run == run:
                return model
        version = 1 + max((model.version for model in self.content.models if model.name == name), default=0)
        digest, record = make(version)
        model = StoredModel(name, version, digest, run, record)
        self.content.models.append(model)
        return model

    def put_record(self, model: StoredModel, decisions: Sequence[Decision] = ()) -> None:
        """Put another record in place of a registered version's."""
        self.check()
        key = (model.name, model.version, model.digest)
        for number, each in enumerate(self.content.models):
            if (each.name, each.version, each.digest) == key:
                self.content.models[number] = replace(each, record=model.record)
                break
        else:
            raise StorageError(f"the journal has no version {model.version} of {model.name!r} with this digest")
        if decisions:
            self.append((), decisions)

    def models(self, name: str | None = None) -> list[StoredModel]:
        """Return the registered models, by name and version."""
        chosen = [model for model in self.content.models if name in (None, model.name)]
        return sorted(chosen, key=lambda model: (model.name, model.version))

    def model(self, name: str, version: int) -> StoredModel | None:
        """Return one registered model."""
        key = (name, version)
        return next((model for model in self.content.models if (model.name, model.version) == key), None)

    def heads(self, name: str | None = None) -> list[StoredModel]:
        """Return the registered models without their records, by name and version."""
        return [replace(model, record=b"") for model in self.models(name)]

    def newest(self, name: str, count: int) -> list[int]:
        """Return the newest `count` versions of a model, newest first."""
        return sorted((model.version for model in self.content.models if model.name == name), reverse=True)[:count]

    def decisions(self, name: str | None = None) -> list[Decision]:
        """Return the decisions about one model, or all, in order."""
        kept = [(each, text) for each, text in self.content.decisions if name in (None, each.name)]
        return [replace(each, body=json.loads(text)) for each, text in kept]

    def lead(self, leader: Leader) -> None:
        """Write down who leads."""
        self.check()
        self.content.leader = leader

    def leader(self) -> Leader | None:
        """Return who leads, or led last."""
        return self.content.leader

    def keep(self, what: Kept, values: Mapping[str, Sequence[Mapping[str, Any]]], most: int) -> int:
        """Write down something by vehicle."""
        self.check()
        kept = self.content.by_agent.setdefault(what, {})
        given = sorted(values.items(), key=lambda each: each[0] not in kept)  # a newcomer takes nobody's place
        for agent in values:
            kept.pop(agent, None)
        some = given[: max(0, most - len(kept))]
        kept.update((agent, json.dumps(each)) for agent, each in some)
        return len(values) - len(some)

    def kept(self, what: Kept, agent: str) -> list[dict[str, Any]]:
        """Return what `keep` wrote of a vehicle."""
        return list(json.loads(self.content.by_agent.get(what, {}).get(agent, "[]")))

    def check(self) -> None:
        """Raise StorageError when it is closed."""
        if not self._is_mine:
            raise StorageError("the journal is closed")

    def size_bytes(self) -> int:
        """Return the bytes of the records' bodies, of documents and models."""
        content = self.content
        return sum(
            len(each)
            for each in (
                *(entry.body for entry in list(content.entries)),
                *list(content.documents.values()),
                *(model.record for model in list(content.models)),
                *(text for _, text in list(content.decisions)),
            )
        )

    def close(self) -> None:
        """Release the content."""
        if self._is_mine:
            self.content.is_open = self._is_mine = False
