"""Follows the model registry: pointer, record, verified, kept on disk, scored.

The pointer ``model/{name}/current`` is read always; a version only when the pointer names it. What arrives replaces
the last good model on disk only after its digest was found to be the one that the pointer promised and, where the
fleet signs, after a coordinator's signature was found good.

A pointer's sequence number may only rise: the highest that was followed is kept on disk, and a lower one is refused,
so that nobody who repeats old messages can bring an old model back. A candidate (``model/{name}/candidate``) is tried
on the test rows beside the current model, when this vehicle is among those that are asked; it is never forecast with.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from broker.port import Transport
from edge_agent.models.evaluation import CANNOT_SCORE, Evaluator, Scores, ScoreTeller, in_words
from edge_agent.models.fetch import Fetcher
from edge_agent.storage import make_directory, replacing
from edge_agent.worker import LOOK
from schemas.envelope import read_model
from schemas.errors import StorageError, WireError
from schemas.log import Log
from schemas.messages import ModelPointer, Trial
from schemas.record import ModelRecord
from schemas.rounds import place
from schemas.topics import Topics

if TYPE_CHECKING:  # fleets that do not sign shall not pay for the cryptography
    from schemas.trust.signing import Verifier

FOLLOWED_MODELS = 64
"""Model names that are followed at once: far more than a fleet learns, and each keeps a document on disk."""

SEQUENCES = ".sequences.json"
"""Name -> highest sequence that was followed. No model's name begins with a dot."""

_CURRENT, _CANDIDATE, _FORMER = "model", "candidate", "former-"


@dataclass(frozen=True)
class _Job:
    """A model to be scored; a candidate beside the current model, if there is one, and former ones."""

    record: ModelRecord
    champion: ModelRecord | None = None
    formers: tuple[ModelRecord, ...] = ()
    is_trial: bool = False


class ModelFollower:
    """Keeps the last good model of every name, and scores each new one and each candidate.

    Parameters
    ----------
    topics : Topics
    transport : Transport
    fetcher : Fetcher
    directory : Path
        Where the last good models are kept, ``{name}.json``.
    evaluator : Evaluator or None
        None: models are kept, not scored.
    why_not : callable
        Returns why nothing is scored; empty: it is.
    was_private : callable
        Takes a run; whether this vehicle itself knows that it was a private one.
    scores : ScoreTeller
        Publishes them, and why a candidate that we are asked to try cannot be scored.
    log : Log
    agent : str
        Our id, which decides which candidates we try.
    counts : Counter
        Counts pointers that were refused.
    verifier : Verifier or None
        Verifies the signatures of records; None: unsigned ones are taken.

    Raises
    ------
    StorageError
        The sequences on disk cannot be read.
    """

    def __init__(
        self,
        topics: Topics,
        transport: Transport,
        fetcher: Fetcher,
        *,
        directory: Path,
        evaluator: Evaluator | None,
        scores: ScoreTeller,
        why_not: Callable[[], str],
        was_private: Callable[[str], bool],
        log: Log,
        agent: str,
        counts: Counter[str],
        verifier: Verifier | None = None,
    ) -> None:
        self._topics = topics
        self._transport = transport
        self._fetcher = fetcher
        self._directory = directory
        self._evaluator = evaluator
        self._scores = scores
        self._why_not = why_not
        self._was_private = was_private
        self._log = log
        self._agent = agent
        self._counts = counts
        self._verifier = verifier
        self._wanted: dict[tuple[str, str], ModelPointer] = {}
        self._have: dict[str, ModelPointer] = {}
        self._current: dict[str, ModelRecord] = {}
        self._tried: dict[str, tuple[ModelPointer, bytes]] = {}
        self._formers: dict[tuple[str, int], ModelRecord] = {}
        self._reported: dict[str, tuple[ModelPointer, ModelRecord, Scores]] = {}
        self._queue: list[_Job] = []
        self._work: Generator[Scores | None] | None = None
        self._sequences = _read_sequences(directory / SEQUENCES)

    def pointer(self, pointer: ModelPointer) -> None:
        """Take a pointer: fetch its version unless we have it.

        Raises
        ------
        WireError
            ``too-old``: its sequence is below the highest that was followed; ``oversize``: too many models.
        """
        name = pointer.name
        have, wanted = self._have.get(name), self._wanted.get((_CURRENT, name))
        if pointer in (have, wanted):
            return
        highest = max(self._sequences.get(name, 0), wanted.sequence if wanted else 0)
        is_other = have is not None and (have.version, have.digest) != (pointer.version, pointer.digest)
        if pointer.sequence < highest or (pointer.sequence == highest > 0 and is_other):
            self._counts["pointers-refused"] += 1
            raise WireError(
                "too-old",
                f"the pointer of {name} to version {pointer.version} has sequence {pointer.sequence}, {highest} was "
                "followed already: it was repeated by somebody, or the coordinator's clock and journal went back",
            )
        self._check_room(name)
        self._forget(_CURRENT, name)
        if pointer.reason:
            self._log.info("model-changed", model=name, version=pointer.version, reason=pointer.reason)
        tried = self._tried.get(name)
        self._wanted[_CURRENT, name] = pointer
        if tried is not None and (tried[0].version, tried[0].digest) == (pointer.version, pointer.digest):
            self._accept(_CURRENT, pointer, tried[1])
        else:
            self._transport.subscribe(self._topics.model_version(name, pointer.version))

    def candidate(self, pointer: ModelPointer, trial: Trial) -> None:
        """Take a candidate's pointer: try it if we are asked; when we have told already, tell again.

        Raises
        ------
        WireError
            ``too-old``: it is older than the current model; ``oversize``: too many models.
        """
        name = pointer.name
        if pointer.sequence <= self._sequences.get(name, 0):
            self._counts["pointers-refused"] += 1
            raise WireError("too-old", f"the candidate {name} version {pointer.version} is older than what is current")
        if place(trial.salt, self._agent) >= trial.below:
            self.withdraw(name)
            return
        if why := self._why_not():
            self._scores.cannot(pointer, why)
            return
        reported = self._reported.get(name)
        if reported is not None and _compared(reported[0]) == _compared(pointer):
            # The coordinator may have lost what we said; it counts each agent once.
            self._scores.scored(*reported[1:])
            return
        if any(_compared(known) == _compared(pointer) for known in self._trials(name)):
            return
        self._check_room(name)
        self.withdraw(name)
        self._wanted[_CANDIDATE, name] = pointer
        for each in trial.formers:
            former = ModelPointer(name=name, version=each.version, digest=each.digest)
            self._wanted[f"{_FORMER}{each.version}", name] = former
        for version in (pointer.version, *(each.version for each in trial.formers)):
            self._transport.subscribe(self._topics.model_version(name, version))

    def withdraw(self, name: str) -> None:
        """Stop trying the candidate of a name."""
        for alias in [alias for alias, known in self._wanted if known == name and alias != _CURRENT]:
            self._forget(alias, name)
        self._formers = {key: record for key, record in self._formers.items() if key[0] != name}
        self._reported.pop(name, None)
        if self._tried.pop(name, None) is not None:
            self._queue[1:] = [job for job in self._queue[1:] if job.record.name != name or not job.is_trial]

    def version(self, name: str, number: int, payload: bytes, now: float) -> None:
        """Take what is retained on a version's topic; versions that nobody wants are ignored.

        Raises
        ------
        WireError
            It is not the model that the pointer promised, or no coordinator of this fleet signed it.
        """
        for (alias, known), pointer in list(self._wanted.items()):
            if known != name or pointer.version != number or not payload:
                continue
            content = read_model(payload, fleet=self._topics.fleet)
            if isinstance(content, bytes):
                self._accept(alias, pointer, content)
            else:
                self._fetcher.want(f"{alias}/{name}", content, now, partial(self._accept, alias, pointer))

    def idle(self) -> bool:
        """Do one piece of scoring; whether there may be more to do."""
        if self._work is None:
            if not self._queue or self._evaluator is None:
                self._queue.clear()
                return False
            asked = self._queue[0]
            self._work = self._evaluator.steps(asked.record, asked.champion, formers=asked.formers)
        job = self._queue[0]
        try:
            scores = next(self._work, None)
        except CANNOT_SCORE as fault:
            why = in_words(fault)
            self._log.warning("model-not-scored", model=job.record.name, reason=why)
            tried = self._tried.get(job.record.name)
            if job.is_trial and tried is not None:
                self._scores.cannot(tried[0], why[:200])
            scores, self._work = None, None
            self._queue.pop(0)
            return bool(self._queue)
        if scores is not None:
            self._work = None
            self._queue.pop(0)
            if not job.is_trial:
                self._scores.scored(job.record, scores)
            elif job.record.name in self._tried:
                self._reported[job.record.name] = (self._tried[job.record.name][0], job.record, scores)
                self._scores.scored(job.record, scores)
        return bool(self._queue) and self.next_due(0.0) is None

    def next_due(self, now: float) -> float | None:
        """Return when `idle` has something to do again, while another process scores; None: ask it."""
        return now + LOOK if self._evaluator is not None and self._evaluator.is_waiting else None

    def stop(self) -> None:
        """End the scoring that is under way."""
        self._queue.clear()
        if self._work is not None:
            self._work.close()

    def _accept(self, alias: str, pointer: ModelPointer, content: bytes) -> None:
        name = pointer.name
        if self._wanted.get((alias, name)) != pointer:
            return
        record = ModelRecord.from_bytes(content)
        if (record.name, record.version, record.digest) != (name, pointer.version, pointer.digest):
            raise WireError("digest-mismatch", f"the record of {name} is not the one that the pointer promises")
        if self._verifier is not None:
            record.verified_by(self._verifier)
        if alias == _CANDIDATE:
            self._forget(_CANDIDATE, name)
            self._tried[name] = (pointer, content)
            self._log.info("candidate-received", model=name, version=record.version, digest=record.digest)
            self._compare(name)
            return
        if alias != _CURRENT:
            self._forget(alias, name)
            self._formers[name, record.version] = record
            self._compare(name)
            return
        # The sequence first: a crash between the two leaves an older model, never an older sequence.
        self._keep_sequence(pointer)
        make_directory(self._directory)
        with replacing(self._directory / f"{name}.json") as file:
            file.write(content)
        self._forget(_CURRENT, name)
        self._have[name] = pointer
        before = self._current.get(name)
        self._log.info("model-received", model=name, version=record.version, digest=record.digest)
        if self._evaluator is not None:
            self._current[name] = record
            # Only the newest version of a name is worth scoring.
            self._queue[1:] = [job for job in self._queue[1:] if job.record.name != name]
            is_new = before is None or before.digest != record.digest or before.version != record.version
            # A private run has asked for the fleet's scores; this vehicle tells none of its own.
            if is_new and not self._is_private(record) and not self._why_not():
                self._queue.append(_Job(record))
            self._compare(name)

    def _compare(self, name: str) -> None:
        """Score the candidate, once it and all that it is compared with are here."""
        tried, champion = self._tried.get(name), self._current.get(name)
        if tried is None or tried[0].trial is None:
            return
        if not tried[0].trial.champion:
            champion = None  # the constant, with which every model is compared
        elif champion is None or tried[0].trial.champion != champion.digest:
            return
        versions = [each.version for each in tried[0].trial.formers]
        if any((name, version) not in self._formers for version in versions):
            return
        formers = tuple(self._formers[name, version] for version in versions)
        job = _Job(ModelRecord.from_bytes(tried[1]), champion, formers, is_trial=True)
        if any(self._is_private(each) for each in (job.record, champion, *formers) if each is not None):
            self._scores.cannot(tried[0], "of a private run: this vehicle tells no scores of its own")
            return
        if job not in self._queue:
            self._queue.append(job)

    def _is_private(self, record: ModelRecord) -> bool:
        """Whether a model was learned in a private run: as its record says, or as this vehicle itself knows."""
        return record.is_private or self._was_private(record.run)

    def _trials(self, name: str) -> Iterator[ModelPointer]:
        if (wanted := self._wanted.get((_CANDIDATE, name))) is not None:
            yield wanted
        if name in self._tried:
            yield self._tried[name][0]

    def _check_room(self, name: str) -> None:
        followed = {known for _, known in self._wanted} | set(self._have)
        if name not in followed and len(followed) >= FOLLOWED_MODELS:
            raise WireError("oversize", f"more than {FOLLOWED_MODELS} models are followed already")

    def _keep_sequence(self, pointer: ModelPointer) -> None:
        if pointer.sequence > self._sequences.get(pointer.name, 0):
            sequences = {**self._sequences, pointer.name: pointer.sequence}
            make_directory(self._directory)
            with replacing(self._directory / SEQUENCES) as file:
                file.write(json.dumps(sequences, sort_keys=True).encode())
            self._sequences = sequences

    def _forget(self, alias: str, name: str) -> None:
        pointer = self._wanted.pop((alias, name), None)
        if pointer is not None:
            topic = self._topics.model_version(name, pointer.version)
            if not any(each.name == name and each.version == pointer.version for each in self._wanted.values()):
                self._transport.unsubscribe(topic)
            self._fetcher.cancel(f"{alias}/{name}")


def _compared(pointer: ModelPointer) -> tuple[str, ...]:
    trial = pointer.trial
    return (pointer.digest, *(() if trial is None else (trial.champion, *(each.digest for each in trial.formers))))


def _read_sequences(path: Path) -> dict[str, int]:
    try:
        value = json.loads(path.read_bytes())
        return {str(name): int(number) for name, number in value.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as fault:
        raise StorageError(
            f"cannot read {path} ({fault}): it says which models are too old; restore it, or remove it to take the "
            "models that the broker shows now"
        ) from fault
