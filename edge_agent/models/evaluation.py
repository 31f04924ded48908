"""Scores of a published model on a vehicle's own test rows, beside those of a model learned from its rows alone.

The local model is learned with the very halves of the scheme (as ``glassfleet.simulation.learn_local`` does), but one
round at a time: the agent does a round when it has nothing else to do, so that learning never delays an answer. Where a
round or a prediction takes longer than a moment, all of it is done in a process of its own, under the budget of
answers.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from edge_agent import worker
from edge_agent.recordings.units import unlike
from edge_agent.session.snapshots import write_rows
from edge_agent.storage import make_directory, replacing
from edge_agent.worker import Budget, WorkerError, WorkItem
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Done, Next, Task
from glassfleet.contract.scheme import Cost, Scheme, alone_parameters, personal_model
from glassfleet.data.categories import encode_inputs
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.evaluation.f1 import MOST_CONFUSED, class_counts, confusion, macro_f1
from glassfleet.evaluation.paired import difference
from glassfleet.evaluation.scores import without_few
from glassfleet.model.protocol import Model
from glassfleet.simulation import MAX_ROUNDS
from schemas.codec import canonical_json, document_digest
from schemas.errors import DataError, GlassfleetError
from schemas.log import Log
from schemas.messages import Evaluation, ModelPointer
from schemas.record import ModelRecord

if TYPE_CHECKING:  # who only scores publishes nothing
    from edge_agent.messages import Publisher

KEPT_LOCAL_MODELS = 4
"""Local models that are remembered for scoring, so that they are not learned again for each version."""

_BLOCK = 4096

_CELL_SECONDS: Final = 1e-9
"""Of a prediction, for each row and byte of the model's document: each of its numbers meets each row once."""

_TREE_SECONDS: Final = 2e-5
"""Of learning a cross-validated tree, for each row and input."""

_RESULT_BYTES: Final = 1 << 16

CANNOT_SCORE: Final = (GlassfleetError, WorkerError, KeyError, ValueError, TypeError, ArithmeticError)
"""What a model that cannot be used here raises while it is scored."""


def in_words(fault: BaseException) -> str:
    """Return why a model cannot be scored."""
    if isinstance(fault, WorkerError):
        return str(fault).strip().rpartition("\n")[2]  # of its traceback
    return f"no column {fault} here" if type(fault) is KeyError else str(fault)


class TooLongError(Exception):
    """A piece of work would keep the agent from its messages."""


@dataclass(frozen=True)
class Scores:
    """Test scores, in the target's own unit.

    Attributes
    ----------
    metric : "rmse" or "f1"
        F1 is the mean over the classes that occur in the test rows.
    federated, local : float
    rows : int
        Test rows.
    champion : float or None
        Score of the current model on the same rows, for a candidate.
    champion_digest : str
        Which model that was.
    constant : float
        Score of the constant on the same rows: the mean, or the most frequent class, of the training rows.
    beside : dict of str to list of float
        See `schemas.messages.Evaluation`.
    confusion : list of list of int, or None
        Of a model with at most `MOST_CONFUSED` classes: test rows by what they are and what the model says, see
        :func:`glassfleet.evaluation.f1.confusion`, without classes of few rows
        (`glassfleet.evaluation.scores.without_few`).
    """

    metric: Literal["rmse", "f1"]
    federated: float
    local: float
    rows: int
    constant: float
    champion: float | None = None
    champion_digest: str = ""
    beside: dict[str, list[float]] = field(default_factory=dict)
    confusion: list[list[int]] | None = None


class Evaluator:
    """Scores models; keeps the scores of the local models that it has learned.

    Parameters
    ----------
    train, test : Dataset
    units : mapping of str to str
        Of their columns, as far as they are known.
    budget : Budget or None
        What long work in a process of its own may take; None: all work is done here, however long it takes.
    directory : Path
        Where that process finds the rows.
    """

    def __init__(
        self,
        train: Dataset,
        test: Dataset,
        *,
        units: Mapping[str, str] | None = None,
        budget: Budget | None = None,
        directory: Path = Path(),
    ) -> None:
        self._train = train
        self._test = test
        self._units = units or {}
        self._budget = budget
        self._directory = directory
        self._local: dict[str, float] = {}
        self.is_waiting = False

    def steps(
        self,
        record: ModelRecord,
        champion: ModelRecord | None = None,
        local: float | None = None,
        formers: Sequence[ModelRecord] = (),
    ) -> Generator[Scores | None]:
        """Yield None after each piece of work, and the scores at last. `is_waiting` while another process works.

        Parameters
        ----------
        record : ModelRecord
        champion : ModelRecord or None
            The current model, when `record` is a candidate.
        local : float or None
            Score of the model learned from the rows here, where it is known.
        formers : sequence of ModelRecord
            Earlier versions; one that cannot be used here is left out.

        Raises
        ------
        schemas.errors.GlassfleetError, KeyError, ValueError
            The model cannot be used here: no such scheme, a column is missing or in another unit, it takes more than
            the budget.
        """
        scheme = catalogue.load(record.scheme)
        domain = scheme.from_document(record.document).domain
        if other := unlike(domain, self._units):
            raise DataError(other)
        key = document_digest(
            {"scheme": scheme.name, "parameters": record.document["parameters"], "domain": domain.to_document()}
        )
        local = self._local.get(key) if local is None else local
        with contextlib.suppress(TooLongError):
            yield from self._here(record, champion, formers, local, key)
            return
        yield from self._apart([record, champion, *formers], local, key)

    def _keep(self, key: str, score: float) -> None:
        while len(self._local) >= KEPT_LOCAL_MODELS:
            self._local.pop(next(iter(self._local)))
        self._local[key] = score

    def _apart(self, asked: Sequence[ModelRecord | None], local: float | None, key: str) -> Generator[Scores | None]:
        """Score in a process of its own."""
        assert self._budget is not None
        self.is_waiting = True
        work, rows = None, [self._directory / "train.npz", self._directory / "test.npz"]
        try:
            while not WorkItem.has_room("score"):
                yield None
            make_directory(self._directory)
            for path, data in zip(rows, (self._train, self._test), strict=True):
                with replacing(path) as file:
                    write_rows(file, data)
            records = [each and each.to_bytes() for each in asked]
            work = WorkItem(self._budget, "score", rows, {"records": records, "local": local}, most_bytes=_RESULT_BYTES)
            while not work.done():
                yield None
            scores = Scores(**work.result())
        finally:
            self.is_waiting = False
            if work is not None:
                work.end()
            for path in rows:
                path.unlink(missing_ok=True)
        self._keep(key, scores.local)
        yield scores

    def _here(
        self,
        record: ModelRecord,
        champion: ModelRecord | None,
        formers: Sequence[ModelRecord],
        local: float | None,
        key: str,
    ) -> Generator[Scores | None]:
        """Score in this process; raises TooLongError before work that is not light, where there is a budget."""
        scheme = catalogue.load(record.scheme)
        predicted = self._predictions(record)
        yield None
        domain = scheme.from_document(record.document).domain
        train, test = self._train, self._test
        score = root_mean_square if domain.target is not None else mean_f1
        if local is None:
            if scheme.abilities.alone is not None:
                self._check(Cost(_TREE_SECONDS * train.rows * len(domain.features), 0.0))

            def check(task: Task) -> None:
                self._check(scheme.abilities.cost(task, train.rows))

            for model in learn_in_steps(scheme, record.document["parameters"], domain, train, check):
                if model is not None:
                    local = score(test.y, predict_in_blocks(model, inputs_of(model, test)))
                    self._keep(key, local)
                    train.memo.clear()
                yield None
        assert local is not None
        metric: Literal["rmse", "f1"] = "rmse" if domain.target is not None else "f1"
        guess = score(test.y, constant(train.y, test.rows))
        few = 0 < len(domain.classes) <= MOST_CONFUSED
        counts = without_few(confusion(test.y, predicted, domain.classes)).tolist() if few else None
        scores = Scores(metric, score(test.y, predicted), local, test.rows, guess, confusion=counts)
        if champion is None:
            yield scores
            return
        yield None
        present = self._predictions(champion)
        former = score(test.y, present)
        beside = {}
        for each in (champion, *formers):
            with contextlib.suppress(*CANNOT_SCORE):
                other = present if each is champion else self._predictions(each)
                pairs = (difference(metric, score, test.y, *pair) for pair in ((predicted, other), (other, present)))
                beside[each.digest] = [number for pair in pairs for number in pair]
            yield None
        yield replace(scores, champion=former, champion_digest=champion.digest, beside=beside)

    def _check(self, cost: Cost | None) -> None:
        if self._budget is not None and not (cost is not None and cost.fits(worker.LIGHT)):
            raise TooLongError

    def _predictions(self, record: ModelRecord) -> NDArray[Any]:
        """Predict the test rows as this vehicle would with a model, or with what it makes of it with its own rows."""
        is_own = catalogue.load(record.scheme).abilities.personalise is not None
        rows = self._test.rows + (self._train.rows if is_own else 0)
        self._check(Cost(_CELL_SECONDS * rows * len(canonical_json(record.document)), 0.0))
        model = usable(record.document, self._train, self._test)
        return predict_in_blocks(model, inputs_of(model, self._test))


def usable(document: Mapping[str, Any], train: Dataset, test: Dataset) -> Model:
    """Return what a vehicle with these rows predicts with; raises one of `CANNOT_SCORE`, or TaskError, if it cannot."""
    scheme = catalogue.load(str(document["scheme"]))
    model = scheme.from_document(document)
    if model.domain.target_name != test.target:
        raise ValueError(f"the model's target is {model.domain.target_name!r}, here it is {test.target!r}")
    return personal_model(scheme, model, train)


def inputs_of(model: Model, rows: Dataset) -> NDArray[np.float64]:
    """Return a model's inputs, shape (n, F)."""
    return encode_inputs(rows.select(model.domain.names), model.domain)


def learn_in_steps(
    scheme: Scheme, parameters: Any, domain: Domain, train: Dataset, check: Callable[[Task], None] | None = None
) -> Iterator[Any]:
    """Learn from one vehicle's rows, nothing nullified; yields None after each round, and the model at last.

    `check` sees each task before it is answered; what it raises ends the learning.
    """
    alone = scheme.abilities.alone
    if alone is not None:
        yield alone(scheme.Parameters.model_validate(parameters), domain, train, 0)
        return
    exact = alone_parameters(scheme, scheme.Parameters.model_validate(parameters))
    rng = np.random.default_rng(0)  # nothing is nullified or noised in a model that stays here
    step: Next | Done = scheme.server.start(exact, domain, 0)
    for _ in range(MAX_ROUNDS):
        if isinstance(step, Done):
            yield step.model
            return
        if check is not None:
            check(step.task)
        step = scheme.server.reduce(step.state, [scheme.client.contribute(step.task, train, rng)])
        yield None
    raise ValueError(f"scheme {scheme.name!r} did not finish in {MAX_ROUNDS} rounds")


def predict_in_blocks(model: Any, X: NDArray[np.float64]) -> NDArray[Any]:
    """Predict a block of rows at a time: a vehicle's memory is small."""
    parts = [model.predict(X[start : start + _BLOCK]) for start in range(0, len(X), _BLOCK)]
    return np.concatenate(parts)


def constant(y: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return what a model without inputs forecasts for so many rows: the mean of `y`, or its most frequent class."""
    if y.dtype.kind == "f":
        return np.full(rows, y.mean())
    labels, counts = np.unique(y, return_counts=True)
    return np.full(rows, labels[counts.argmax()])


def root_mean_square(y: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Root of the mean squared error."""
    return float(np.sqrt(np.mean((y - predicted) ** 2)))


def mean_f1(y: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Mean F1 over the classes in `y`."""
    return macro_f1(*class_counts(predicted, y, np.unique(y)))


class ScoreTeller:
    """Publishes scores, and remembers the last of each model.

    Parameters
    ----------
    publisher : Publisher
    counts : Counter
        Counts the models that were scored.
    log : Log
    """

    def __init__(self, publisher: Publisher, counts: Counter[str], log: Log) -> None:
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
