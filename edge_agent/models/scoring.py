"""What an agent says about models that it has scored, or cannot score."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from edge_agent.messages import Publisher
from edge_agent.models.evaluation import Scores
from schemas.messages import Evaluation, ModelPointer
from schemas.record import ModelRecord


class ScoreTeller:
    """Publishes scores, and remembers the last of each model.

    Parameters
    ----------
    publisher : Publisher
    counts : Counter
        Counts the models that were scored.
    log : structlog logger
    """

    def __init__(self, publisher: Publisher, counts: Counter[str], log: Any) -> None:
        self._publisher = publisher
        self._counts = counts
        self._log = log
        self._last: dict[str, tuple[str, Evaluation]] = {}

    def scored(self, record: ModelRecord, scores: Scores) -> None:
        """Publish how a model did on our test rows."""
        self._counts["evaluations"] += 1
        self._log.info(
            "evaluated",
            model=record.name,
            version=record.version,
            metric=scores.metric,
            federated=round(scores.federated, 6),
            local=round(scores.local, 6),
            champion=None if scores.champion is None else round(scores.champion, 6),
            rows=scores.rows,
        )
        body = Evaluation(
            name=record.name,
            version=record.version,
            digest=record.digest,
            **asdict(scores),
        )
        self._last[record.name] = (record.run, body)
        self._publisher.evaluation(body, run=record.run)

    def cannot(self, pointer: ModelPointer, why: str) -> None:
        """Publish that we are asked to try a candidate, and why we cannot."""
        champion = pointer.trial.champion if pointer.trial is not None else ""
        self._log.info("candidate-not-scored", model=pointer.name, version=pointer.version, reason=why)
        body = Evaluation(
            name=pointer.name,
            version=pointer.version,
            digest=pointer.digest,
            metric="rmse",
            federated=0.0,
            local=0.0,
            rows=0,
            champion_digest=champion,
            cannot=why,
        )
        self._publisher.evaluation(body)

    def repeat(self) -> None:
        """Publish the last scores of each model again: another coordinator may have another journal."""
        for run, body in self._last.values():
            self._publisher.evaluation(body, run=run)
