"""What the demonstration compares with: central and local learning on the same rows, in this process."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassfleet import catalogue, local
from glassfleet.data import Dataset, pool
from glassfleet.domain import Domain
from glassfleet.scheme import Model
from qoe.demo.vehicles import VehicleRows
from schemas.documents import document_digest
from schemas.record import ModelRecord


@dataclass(frozen=True)
class Score:
    """Test RMSE at one vehicle, in the target's own unit; None without test rows."""

    local: float | None
    federated: float | None
    central: float | None


@dataclass(frozen=True)
class Nullification:
    """What Check & nullify does to this cohort's model, beside the model that nothing was nullified for.

    Attributes
    ----------
    cells : int
        Statistics set to zero at the vehicles, in all rounds.
    rmse : float or None
        Mean test RMSE of the model so learned.
    digest : str
    same_model : bool
        Whether tree and rules are the same as with nullification off (the documents differ in the parameters anyway).
    """

    cells: int
    rmse: float | None
    digest: str
    same_model: bool


@dataclass(frozen=True)
class Verdict:
    """The references beside the published model.

    Attributes
    ----------
    model : Model
        The published one.
    federated, central : str
        Digest of the published model, and of the model that one machine learns from the pooled rows of the cohort with
        the run's domain and nullification off.
    scores : mapping of str to Score
        By vehicle. LL learns from the vehicle's rows, CL from those of *all* vehicles, both with the run's domain.
    nullification : Nullification or None
        None where the scheme's parameters know none.
    """

    model: Model
    federated: str
    central: str
    scores: Mapping[str, Score] = field(default_factory=dict)
    nullification: Nullification | None = None

    @property
    def equal(self) -> bool:
        """Promise 1."""
        return self.federated == self.central

    def mean(self, setting: str) -> float | None:
        """Return the mean test RMSE over the vehicles for ``"local"``, ``"federated"`` or ``"central"``."""
        return mean([getattr(score, setting) for score in self.scores.values()])

    def median(self, setting: str) -> float | None:
        """Return the median over the vehicles, which a few wild rows of a local model do not move."""
        there = [value for score in self.scores.values() if (value := getattr(score, setting)) is not None]
        return statistics.median(there) if there else None


def judge(record: ModelRecord, rows: Mapping[str, VehicleRows], seed: int) -> Verdict:
    """Learn the references for a published model and score all of them.

    Parameters
    ----------
    record : ModelRecord
    rows : mapping of str to VehicleRows
        All vehicles of the fleet; the record's cohort is among them.
    seed : int
        The run's.
    """
    scheme = catalogue.load(record.scheme)
    model = scheme.from_document(record.document)
    parameters = scheme.Parameters.model_validate(record.document["parameters"])
    domain = model.domain
    names = domain.names
    train = {vehicle: part.train.select(names) for vehicle, part in rows.items()}
    test = {vehicle: part.test.select(names) for vehicle, part in rows.items()}
    cohort = {vehicle: train[vehicle] for vehicle in sorted(record.cohort)}

    reference = local.central(scheme, parameters, domain, pool(list(cohort.values())), seed)
    everyone = local.central(scheme, parameters, domain, pool(list(train.values())), seed).model
    alone = local.learn_local(scheme, parameters, domain, train, seed)
    scores = {
        vehicle: Score(rmse(alone[vehicle].model, part), rmse(model, part), rmse(everyone, part))
        for vehicle, part in test.items()
    }
    return Verdict(
        model=model,
        federated=record.digest,
        central=document_digest(reference.model.to_document()),
        scores=scores,
        nullification=_nullified(scheme, parameters, domain, cohort, reference.model, list(test.values()), seed),
    )


def rmse(model: Any, data: Dataset) -> float | None:
    """Return the root mean squared error on `data` in the target's own unit; None without rows."""
    if not data.rows:
        return None
    error = np.asarray(model.predict(data.X), dtype=np.float64) - data.y
    return float(np.sqrt(np.mean(error * error)))


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are there."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def _nullified(  # noqa: PLR0917 - one call, above
    scheme: Any,
    parameters: Any,
    domain: Domain,
    cohort: Mapping[str, Dataset],
    exact_model: Any,
    test: Sequence[Dataset],
    seed: int,
) -> Nullification | None:
    """Learn the cohort's model once more with nullification as the scheme's defaults have it."""
    defaults = scheme.Parameters()
    switched = [
        name
        for name in type(parameters).model_fields
        if getattr(scheme.exact(defaults), name) != getattr(defaults, name)
    ]
    if not switched:
        return None
    on = parameters.model_copy(update={name: getattr(defaults, name) for name in switched})
    outcome = local.federated(scheme, on, domain, cohort, seed)
    document = outcome.model.to_document()
    return Nullification(
        cells=outcome.nullified,
        rmse=mean([rmse(outcome.model, part) for part in test]),
        digest=document_digest(document),
        same_model=document["model"] == exact_model.to_document()["model"],
    )
