"""Whether a model is better: than the version before, than what each vehicle learns alone, and over its versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from coordinator.core import Coordinator
from coordinator.fleet.differences import in_one_metric
from coordinator.http.dashboard.library import LoadedModel
from coordinator.http.dashboard.standing import NameStanding
from coordinator.journal.port import StoredModel
from glassfleet.evaluation.paired import SAME, in_words, relative
from schemas.errors import GlassfleetError
from schemas.record import ModelRecord

VERSIONS = 20
"""So many versions, the newest, are in the curve."""


class ScorePair(NamedTuple):
    """One vehicle: two scores on the same test rows, and how much worse the second is, relative to the first."""

    agent: str
    before: float
    after: float
    worse: float


@dataclass(frozen=True)
class Comparison:
    """Two scores of each of some vehicles: alone and together, or with two versions.

    Attributes
    ----------
    metric : str
        ``rmse`` or ``f1``; empty without scores.
    before, after : float
        Means over the vehicles; of a private run, the fleet's own figures.
    lines : list of Pair
        Who is worse off most first; empty for a private run.
    """

    metric: str
    before: float
    after: float
    lines: list[ScorePair]

    @classmethod
    def of(cls, metric: str, scores: Iterable[tuple[str, float, float]]) -> Comparison | None:
        """Compare vehicles' scores: agent, before, after; None when there are none."""
        lines = [ScorePair(agent, before, after, relative(metric, after, before)) for agent, before, after in scores]
        if not lines:
            return None
        lines.sort(key=lambda line: (-line.worse, line.agent))
        before = sum(line.before for line in lines) / len(lines)
        return cls(metric, before, sum(line.after for line in lines) / len(lines), lines)

    @property
    def worse_by(self) -> float:
        """How much worse the second is over all, relative to the first; negative: better."""
        return relative(self.metric, self.after, self.before)

    @property
    def worse(self) -> list[ScorePair]:
        """Who is worse off with the second."""
        return [line for line in self.lines if line.worse >= SAME]

    @property
    def better(self) -> int:
        """How many are better off with the second."""
        return sum(line.worse <= -SAME for line in self.lines)

    @property
    def is_better(self) -> bool:
        """Whether the second is better over all, and for more than half of the vehicles where they are known."""
        return self.worse_by <= -SAME and (not self.lines or 2 * self.better > len(self.lines))


def against(result: Comparison, other: str) -> str:
    """Return how the second stands against the first, by its name: ``1.1 % better than version 2``."""
    words = in_words(result.worse_by)
    return f"{words} {'as' if abs(result.worse_by) < SAME else 'than'} {other}"


def other_version(stands: NameStanding, loaded: LoadedModel, known: Sequence[StoredModel]) -> int:
    """Return the version to compare a model with: the one in use; of that, the one before; 0: there is none."""
    whole = [each.version for each in known if not each.is_damaged]
    if stands.current != loaded.version and stands.current in whole:
        return stands.current
    below = [number for number in whole if number < loaded.version]
    return stands.previous if stands.previous in below else max(below, default=0)


def versions(coordinator: Coordinator, before: LoadedModel, after: LoadedModel) -> Comparison | None:
    """Compare two versions by what vehicles measured with both on the same test rows; None when nobody has.

    Of private runs' versions no vehicle's own scores are shown, whoever sent some.
    """
    if _target(before) != _target(after) or before.record.is_private or after.record.is_private:
        return None
    evaluations = coordinator.fleet.evaluations_of(after.name)
    first, second = (_of(evaluations, each.version, each.record.digest) for each in (before, after))
    metric, second = in_one_metric(second)
    scores = []
    for agent, each in second.items():
        other = first.get(agent)
        if each["champion_digest"] == before.record.digest and each["champion"] is not None:
            score = each["champion"]
        # Other test rows make scores that cannot be compared.
        elif other is not None and (other["metric"], other["rows"]) == (each["metric"], each["rows"]):
            score = other["federated"]
        else:
            continue
        scores.append((agent, float(score), float(each["federated"])))
    return Comparison.of(metric, scores)


def alone(record: ModelRecord) -> Comparison | None:
    """Compare a private run's model with what each vehicle learns alone, by the fleet's figures."""
    summed = record.parameters.get("scores", {})
    if "candidate" not in summed or "local" not in summed:
        return None
    return Comparison(summed["metric"], summed["local"], summed["candidate"], [])


class Point(NamedTuple):
    """A version's scores: means over the vehicles that sent some, or the fleet's figures of a private run."""

    version: int
    alone: float
    together: float
    vehicles: int


def curve(coordinator: Coordinator, name: str, known: Sequence[StoredModel], metric: str) -> list[Point]:
    """Return the scores of a name's newest versions, oldest first, as far as they are known in `metric`.

    Parameters
    ----------
    known : sequence of StoredModel
        All versions, oldest first, without their records.
    """
    scores = coordinator.fleet.evaluations_of(name)
    points = []
    for stored in (each for each in known[-VERSIONS:] if not each.is_damaged):
        lines = [each for each in _of(scores, stored.version, stored.digest).values() if each["metric"] == metric]
        if lines:
            local, federated = (sum(each[what] for each in lines) / len(lines) for what in ("local", "federated"))
            points.append(Point(stored.version, local, federated, len(lines)))
            continue
        run = coordinator.runs.overviews([stored.run])
        if run and not run[0]["private"]:  # most are not, and records can be large
            continue
        with suppress(GlassfleetError):  # a record that this software cannot read has no point
            record = ModelRecord.load(coordinator.registry.get(name, stored.version).record)
            summed = alone(record)
            if summed is not None and summed.metric == metric:
                vehicles = int(record.parameters["scores"]["vehicles"])
                points.append(Point(stored.version, summed.before, summed.after, vehicles))
    return points


def _target(loaded: LoadedModel) -> tuple[str, str, tuple[str, ...]]:
    domain = loaded.model.domain
    return domain.target_name, domain.target.unit if domain.target is not None else "", domain.classes


def _of(scores: Mapping[int, Mapping[str, dict[str, Any]]], version: int, digest: str) -> dict[str, dict[str, Any]]:
    return {agent: each for agent, each in scores.get(version, {}).items() if each["digest"] == digest}
