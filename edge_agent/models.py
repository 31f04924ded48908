"""Follows the model registry: pointer, record, verified, kept on disk, scored.

The pointer ``model/{name}/current`` is read always; a version only when the pointer names it. What arrives replaces
the last good model on disk only after its digest was found to be the one that the pointer promised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from broker.port import Transport
from edge_agent.evaluation import Evaluator, Scores
from edge_agent.fetch import Fetcher
from edge_agent.storage import make_directory, replacing
from schemas.errors import DataError, DocumentError, NotFoundError, WireError
from schemas.messages import ModelPointer
from schemas.parts import read_model
from schemas.record import ModelRecord
from schemas.topics import Topics


class ModelFollower:
    """Keeps the last good model of every name, and scores each new one.

    Parameters
    ----------
    topics : Topics
    transport : Transport
    fetcher : Fetcher
    directory : Path
        Where the last good models are kept, ``{name}.json``.
    evaluator : Evaluator or None
        None: models are kept, not scored.
    publish : callable
        Takes the record and its scores.
    log : structlog logger
    max_names : int
        Model names that are followed at once.
    """

    def __init__(
        self,
        topics: Topics,
        transport: Transport,
        fetcher: Fetcher,
        *,
        directory: Path,
        evaluator: Evaluator | None,
        publish: Callable[[ModelRecord, Scores], None],
        log: Any,
        max_names: int = 64,
    ) -> None:
        self._max_names = max_names
        self._topics = topics
        self._transport = transport
        self._fetcher = fetcher
        self._directory = directory
        self._evaluator = evaluator
        self._publish = publish
        self._log = log
        self._wanted: dict[str, ModelPointer] = {}
        self._have: dict[str, ModelPointer] = {}
        self._queue: list[ModelRecord] = []
        self._work: Iterator[Scores | None] | None = None

    def pointer(self, pointer: ModelPointer) -> None:
        """Take a pointer: fetch its version unless we have it."""
        if pointer in (self._have.get(pointer.name), self._wanted.get(pointer.name)):
            return
        if pointer.name not in self._wanted and len(self._wanted) + len(self._have) >= self._max_names:
            raise WireError("oversize", f"more than {self._max_names} models are followed already")
        self._forget(pointer.name)
        self._wanted[pointer.name] = pointer
        self._transport.subscribe(self._topics.model_version(pointer.name, pointer.version))

    def version(self, name: str, number: int, payload: bytes, now: float) -> None:
        """Take what is retained on a version's topic; versions that nobody wants are ignored.

        Raises
        ------
        WireError
            It is not the model that the pointer promised.
        """
        pointer = self._wanted.get(name)
        if pointer is None or pointer.version != number or not payload:
            return
        found = read_model(payload, fleet=self._topics.fleet)
        if isinstance(found, bytes):
            self._take(pointer, found)
        else:
            self._fetcher.want(f"model/{name}", found, now, lambda content: self._take(pointer, content))

    def idle(self) -> bool:
        """Do one piece of scoring; whether there may be more to do."""
        if self._work is None:
            if not self._queue or self._evaluator is None:
                self._queue.clear()
                return False
            self._work = self._evaluator.steps(self._queue[0])
        try:
            scores = next(self._work, None)
        except (NotFoundError, DocumentError, DataError, KeyError, ValueError, TypeError) as fault:
            self._log.warning("model-not-scored", model=self._queue[0].name, reason=str(fault))
            scores, self._work = None, None
            self._queue.pop(0)
            return bool(self._queue)
        if scores is not None:
            self._publish(self._queue[0], scores)
            self._work = None
            self._queue.pop(0)
        return bool(self._queue)

    def _take(self, pointer: ModelPointer, content: bytes) -> None:
        if self._wanted.get(pointer.name) != pointer:
            return
        record = ModelRecord.from_bytes(content)
        if (record.name, record.version, record.digest) != (pointer.name, pointer.version, pointer.digest):
            raise WireError("digest-mismatch", f"the record of {pointer.name} is not the one that the pointer promises")
        make_directory(self._directory)
        with replacing(self._directory / f"{pointer.name}.json") as file:
            file.write(content)
        self._forget(pointer.name)
        self._have[pointer.name] = pointer
        self._log.info("model-received", model=record.name, version=record.version, digest=record.digest)
        if self._evaluator is not None:
            # Only the newest version of a name is worth scoring.
            self._queue[1:] = [waiting for waiting in self._queue[1:] if waiting.name != record.name]
            self._queue.append(record)

    def _forget(self, name: str) -> None:
        pointer = self._wanted.pop(name, None)
        if pointer is not None:
            self._transport.unsubscribe(self._topics.model_version(name, pointer.version))
            self._fetcher.cancel(f"model/{name}")
