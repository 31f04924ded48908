"""What the demonstration compares with: central and local learning on the same rows, in this process."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from edge_agent.models.evaluation import mean_f1, predict_in_blocks, root_mean_square
from edge_agent.sources import Source
from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.scheme import input_quantiles_of, personal_model, promises_central
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.model.protocol import Model
from schemas.codec import document_digest
from schemas.errors import GlassfleetError
from schemas.record import ModelRecord

Metric = Literal["rmse", "f1"]


@dataclass(frozen=True)
class Score:
    """Test score at one vehicle: RMSE in the target's own unit, or F1 (macro); None without test rows."""

    local: float | None
    federated: float | None
    central: float | None


@dataclass(frozen=True)
class Verdict:
    """The references beside the published model.

    Attributes
    ----------
    model : Model
        The published one.
    title : str
        The scheme's.
    federated, central : str
        Digest of the published model, and of the model that one machine learns with the run's domain from the pooled
        rows that the cohort used, condensed or not. `central` is empty for schemes that are elastic only.
    promised : bool
        Whether the scheme, in this setting, promises that the two are equal (cohort participation).
    is_typical : bool
        Whether the typical row in the published model's record is the one that the central model comes with.
    pooled : float or None
        Where the two differ, or rows were condensed: mean test score of the central model of the rows as they are.
    metric : "rmse" or "f1"
    personal : mapping of str to Model
        The published model as each vehicle forecasts with it: its own tree where the scheme makes one of the vehicle's
        rows, else the published model itself.
    scores : mapping of str to Score
        By vehicle. LL learns from the vehicle's rows, CL from those of *all* vehicles, both with the run's domain.
    """

    model: Model
    title: str
    federated: str
    central: str
    promised: bool
    is_typical: bool = True
    pooled: float | None = None
    metric: Metric = "rmse"
    personal: Mapping[str, Model] = field(default_factory=dict)
    scores: Mapping[str, Score] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Promise 1, of the model and of the typical row beside it."""
        return self.federated == self.central and self.is_typical

    def mean(self, setting: str) -> float | None:
        """Return the mean test score over the vehicles for ``"local"``, ``"federated"`` or ``"central"``."""
        return mean([getattr(score, setting) for score in self.scores.values()])

    def median(self, setting: str) -> float | None:
        """Return the median over the vehicles, which a few wild rows of a local model do not move."""
        there = [value for score in self.scores.values() if (value := getattr(score, setting)) is not None]
        return statistics.median(there) if there else None


def judge(record: ModelRecord, rows: Mapping[str, Source], seed: int) -> Verdict:
    """Learn the references for a published model and score all of them.

    Parameters
    ----------
    record : ModelRecord
    rows : mapping of str to Source
        All vehicles of the fleet; the record's cohort is among them.
    seed : int
        The run's.
    """
    scheme = catalogue.load(record.scheme)
    model = catalogue.model_of(record)
    parameters = scheme.Parameters.model_validate(record.document["parameters"])
    domain = model.domain
    names = domain.names
    train = {vehicle: part.train.select(names) for vehicle, part in rows.items()}
    test = {vehicle: part.test.select(names) for vehicle, part in rows.items()}
    most = int(record.parameters.get("max_rows_each", 0))
    cohort = {vehicle: simulation.counted_rows(train[vehicle], domain, most) for vehicle in sorted(record.cohort)}

    pooled = pool(list(train.values()))
    everyone: Any
    if "cohort" in scheme.participation:
        withheld = record.parameters.get("withheld", ())
        document, beside = simulation.central_of(scheme, parameters, domain, cohort, seed, withheld)
        is_typical = all(record.parameters.get(name) == value for name, value in beside.items())
        central = document_digest(document)
        # Of rows as they are the two are one model: it is learned once.
        is_condensed = getattr(parameters, "group_rows", 1) > 1
        reference = (
            simulation.central(scheme, parameters, domain, pool(list(cohort.values())), seed).model
            if is_condensed
            else scheme.from_document(document)
        )
        # Each model as it predicts: some schemes make a tree of their own of it where the rows are.
        everyone = personal_model(scheme, simulation.central(scheme, parameters, domain, pooled, seed).model, pooled)
    else:
        # No set of rows has the model of a scheme that is elastic only, so there is no digest to compare; what one
        # machine makes of all rows is what it would learn from them alone, without a fleet.
        reference, central, is_typical = None, "", True
        everyone = _alone(scheme, parameters, domain, "", pooled, seed)
    personal = {vehicle: personal_model(scheme, model, part) for vehicle, part in train.items()}
    scores = {
        vehicle: Score(
            score(_alone(scheme, parameters, domain, vehicle, train[vehicle], seed), part),
            score(personal[vehicle], part),
            score(everyone, part),
        )
        for vehicle, part in test.items()
    }
    return Verdict(
        model=model,
        title=scheme.title,
        federated=record.digest,
        central=central,
        is_typical=is_typical,
        promised=promises_central(scheme, parameters) or "withheld" in record.parameters,
        pooled=None
        if reference is None or document_digest(reference.to_document()) == record.digest
        else mean([score(personal_model(scheme, reference, train[vehicle]), part) for vehicle, part in test.items()]),
        metric="f1" if domain.target is None else "rmse",
        personal=personal,
        scores=scores,
    )


def score(model: Any, data: Dataset) -> float | None:
    """Return the root mean squared error on `data`, or F1 (macro) for classes; None without a model or rows."""
    if model is None or not data.rows:
        return None
    predicted = predict_in_blocks(model, data.X)
    return mean_f1(data.y, predicted) if data.y.dtype.kind in "UO" else root_mean_square(data.y, predicted)


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are there."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def _alone(scheme: Any, parameters: Any, domain: Domain, vehicle: str, train: Dataset, seed: int) -> Any:  # noqa: PLR0917
    """Return what a vehicle learns from its own rows; None when they are too few for this scheme."""
    try:
        return simulation.learn_local(scheme, parameters, domain, {vehicle: train}, seed)[vehicle].model
    except GlassfleetError:
        return None


# --- A run in this process with the rows of a few vehicles: how many rounds it has, and how long an answer takes ------
#
# It places what will happen to the fleet (a kill after the last round is none), and the deadline: 15 vehicles share
# this machine's processors, which fifteen vehicles on the road do not.


DOMAIN_ROUNDS = 2
"""What the search for the domain takes, nearly always."""

MANY_ROUNDS = 30
"""An elastic run of so many rounds is shown at a quick pace: it waits for laggards again and again."""


def run_preflight(
    scheme: Any, parameters: Any, rows: Sequence[Source], seed: int, *, at_most: int
) -> tuple[int, float]:
    """Learn from `rows` for at most `at_most` rounds; a run that fails here is left to fail by name in the fleet.

    Returns
    -------
    int, float
        Rounds, the search for the domain included; and the most seconds that a vehicle worked on an answer.
    """
    data = {f"vehicle-{number}": part.train for number, part in enumerate([*rows, *rows][:2])}
    first = data["vehicle-0"]
    labels = first.y.dtype.kind in "UO"
    asked, seconds, last = set[str](), 0.0, time.perf_counter()

    def listen(task: Task, _answer: Contribution) -> None:
        nonlocal seconds, last
        now = time.perf_counter()
        if task.digest in asked or not asked:  # else the server's half has worked as well
            seconds = max(seconds, now - last)
        last = now
        if task.digest not in asked and len(asked) == at_most - DOMAIN_ROUNDS:
            raise _Enough
        asked.add(task.digest)

    with contextlib.suppress(_Enough, GlassfleetError):
        wanted = DiscoveryParameters(
            features=first.features,
            target=first.target,
            input_quantiles=input_quantiles_of(scheme, labels=labels),
            labels=labels,
        )
        domain, last = discover(wanted, [*data.values()]), time.perf_counter()
        simulation.federated(scheme, parameters, domain, data, seed, listen=listen)
    return DOMAIN_ROUNDS + len(asked), seconds


def tempo(rounds: int, seconds: float, vehicles: int, participation: str) -> tuple[float, float]:
    """Return pace and deadline, in seconds, at which a run can be watched and nobody is late for want of CPU.

    `rounds` and `seconds` are a preflight's.
    """
    is_quick = participation == "elastic" and rounds >= MANY_ROUNDS
    # The longest, too: an answer that is long once (a first import, a first population) must not slow every round.
    pace, shortest, longest = (0.05, 0.8, 2.5) if is_quick else (0.2, 2.5, 12.0)
    together = seconds * vehicles / (os.cpu_count() or 1)
    return pace, min(longest, max(shortest, round(pace + 0.3 + 2.0 * together, 1)))


class _Enough(Exception):  # noqa: N818 - a signal, not an error
    """So many rounds were counted as were asked for."""
