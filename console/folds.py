"""The folds of an experiment, in this process or in worker processes that speak JSON lines.

A worker is ``python -m console.folds``: the first line it reads is the plan, each further line a fold's number; it
answers each with one line. Numbers travel as JSON and rows as ``.npy`` files, so nothing is pickled, and a worker needs
no ``fork``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from statistics import fmean, stdev
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from glassfleet import catalogue
from glassfleet.data import Dataset, pool
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.domain import Domain
from glassfleet.local import Outcome, central, federated, learn_local
from glassfleet.paper import Rows, protocol_of
from glassfleet.protocols import rmse
from glassfleet.protocols_frbc import f1_scores
from glassfleet.scheme import Scheme
from schemas.errors import GlassfleetError, RunFailedError

SETTINGS = ("local", "federated", "central")
"""LL, FL and CL in full."""

Parts = Mapping[str, Dataset]
FoldResult = dict[str, dict[str, Any]]
"""Per setting: ``measure`` (``rmse`` or ``f1``), ``test`` and ``train`` (per client), for a classifier ``test_classes``
and ``train_classes`` (F1 of each class, per client), ``complexity``, ``bytes_up``, ``bytes_down``, ``nullified``,
``rounds``, ``seconds``."""


@dataclass(frozen=True)
class Plan:
    """One experiment.

    Attributes
    ----------
    scheme : str
        Name in the catalogue.
    parameters : dict
        As JSON values.
    names, target
        Columns.
    protocol : {"paper", "federated"}
        ``paper``: the domain is pooled from all rows, test rows included, as the papers do. ``federated``: the clients
        find it from their training rows by additive histograms, as a real run does.
    clients, folds, seed : int
        Of the nested KFold.
    settings : list of str
        Which of `SETTINGS`.
    """

    scheme: str
    parameters: dict[str, Any]
    names: list[str]
    target: str
    protocol: str
    clients: int
    folds: int
    seed: int
    settings: list[str]


def run_fold(plan: Plan, X: NDArray[np.float64], y: NDArray[Any], fold: int) -> FoldResult:
    """Learn and score every setting of one fold.

    Parameters
    ----------
    plan : Plan
    X : ndarray of float64, shape (n, F)
    y : ndarray of float64, shape (n,)
    fold : int
        In [0, plan.folds).
    """
    scheme = catalogue.load(plan.scheme)
    parameters = scheme.Parameters.model_validate(plan.parameters)
    split = protocol_of(scheme).split(y, fold, plan.folds, plan.clients, plan.seed)
    train, test = (_parts(plan, X, y, rows) for rows in zip(*split, strict=True))
    started = time.perf_counter()
    domain = _domain(plan, scheme, X, y, train)
    domain_seconds = time.perf_counter() - started
    result: FoldResult = {}
    for setting in plan.settings:
        started = time.perf_counter()
        if setting == "local":
            outcomes = learn_local(scheme, parameters, domain, train, plan.seed)
        elif setting == "federated":
            outcomes = dict.fromkeys(train, federated(scheme, parameters, domain, train, plan.seed))
        else:
            outcomes = dict.fromkeys(train, central(scheme, parameters, domain, pool(list(train.values())), plan.seed))
        seconds = time.perf_counter() - started
        result[setting] = _measure(outcomes, train, test, seconds + domain_seconds * (plan.protocol == "federated"))
    return result


def _parts(plan: Plan, X: NDArray[np.float64], y: NDArray[Any], parts: Sequence[Rows]) -> dict[str, Dataset]:
    # Padded, so that the order of names is the order of the parts.
    return {
        f"client-{index:04d}": Dataset(tuple(plan.names), plan.target, X[part], y[part])
        for index, part in enumerate(parts)
    }


def _domain(plan: Plan, scheme: Scheme, X: NDArray[np.float64], y: NDArray[Any], train: Parts) -> Domain:
    if plan.protocol == "paper":
        return protocol_of(scheme).domain(Dataset(tuple(plan.names), plan.target, X, y))
    wanted = DiscoveryParameters(features=tuple(plan.names), target=plan.target, labels=y.dtype.kind == "U")
    return discover(wanted, list(train.values()))


def _measure(outcomes: Mapping[str, Outcome], train: Parts, test: Parts, seconds: float) -> dict[str, Any]:
    # One model for all clients is one run; a model each is a run each.
    runs = list({id(outcome): outcome for outcome in outcomes.values()}.values())
    sizes = [run.model.complexity() for run in runs]
    scores: dict[str, Any] = {"measure": "rmse"}
    for kind, parts in (("test", test), ("train", train)):
        predicted = {name: outcomes[name].model.predict(part.X) for name, part in parts.items()}
        classes = next(iter(outcomes.values())).model.domain.classes
        if classes:
            per_class = [f1_scores(predicted[name], part.y, classes) for name, part in parts.items()]
            scores |= {"measure": "f1", f"{kind}_classes": {c: [line[c] for line in per_class] for c in classes}}
            scores[kind] = [fmean(line.values()) for line in per_class]
        else:
            scores[kind] = [rmse(predicted[name], part.y) for name, part in parts.items()]
    return {
        **scores,
        "complexity": {name: fmean(float(size[name]) for size in sizes) for name in sizes[0]},
        "bytes_up": sum(run.bytes_up for run in runs),
        "bytes_down": sum(run.bytes_down for run in runs),
        "nullified": sum(run.nullified for run in runs),
        "rounds": fmean(run.rounds for run in runs),
        "seconds": seconds,
    }


def run_folds(plan: Plan, X: NDArray[np.float64], y: NDArray[Any], jobs: int) -> Iterator[tuple[int, FoldResult]]:
    """Yield (fold, result) as folds finish, on up to `jobs` processes; 1: in this process.

    Raises
    ------
    RunFailedError
        A fold failed, or a worker process died.
    """
    if jobs == 1:
        for fold in range(plan.folds):
            yield fold, run_fold(plan, X, y, fold)
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glassfleet-")))
        np.save(folder / "X.npy", X, allow_pickle=False)
        np.save(folder / "y.npy", y, allow_pickle=False)
        workers = [stack.enter_context(_Worker(plan, folder)) for _ in range(min(jobs, plan.folds))]
        idle: SimpleQueue[_Worker] = SimpleQueue()
        for worker in workers:
            idle.put(worker)

        def answer(fold: int) -> tuple[int, FoldResult]:
            worker = idle.get()
            try:
                return fold, worker.ask(fold)
            finally:
                idle.put(worker)

        with ThreadPoolExecutor(len(workers)) as threads:
            pending = [threads.submit(answer, fold) for fold in range(plan.folds)]
            try:
                for future in as_completed(pending):
                    yield future.result()
            finally:
                # After a fault or Ctrl-C, folds that run are of no use: without this, leaving would wait for them.
                for future in pending:
                    future.cancel()
                for worker in workers:
                    worker.kill()


class _Worker:
    """A process that runs folds one at a time."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module in our own interpreter
            [sys.executable, "-m", "console.folds", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is for the parent, which ends its workers
        )
        self._write(json.dumps(asdict(plan)))

    def ask(self, fold: int) -> FoldResult:
        """Run one fold."""
        self._write(str(fold))
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RunFailedError(f"the process of fold {fold} died; try --jobs 1 to see why")
        answer = json.loads(line)
        if "error" in answer:
            raise RunFailedError(f"fold {fold}: {answer['error']}")
        result: FoldResult = answer["result"]
        return result

    def kill(self) -> None:
        """End the process, in the middle of a fold if need be; who waits for its answer gets RunFailedError."""
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                assert pipe is not None
                pipe.close()
        self._process.wait()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as fault:
            raise RunFailedError("a process of the experiment died; try --jobs 1 to see why") from fault


def serve(lines: Iterator[str], folder: Path) -> Iterator[str]:
    """Answer the lines that a worker reads."""
    plan = Plan(**json.loads(next(lines)))
    X, y = (np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ("X", "y"))
    for line in lines:
        try:
            answer: dict[str, Any] = {"result": run_fold(plan, X, y, int(line))}
        except (GlassfleetError, ValueError) as fault:
            answer = {"error": str(fault)}
        yield json.dumps(answer)


def mean_of(results: Sequence[FoldResult]) -> dict[str, dict[str, Any]]:
    """Average over folds, per setting: scores per client and their mean, complexity, bytes and the rest."""
    return {setting: _averages([result[setting] for result in results]) for setting in results[0]}


def _averages(folds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    scores: dict[str, Any] = {}
    for kind in ("test", "train"):
        name = f"{kind}_{folds[0]['measure']}"
        scores[name] = _over_folds([fold[kind] for fold in folds])
        by_class = [fold.get(f"{kind}_classes", {}) for fold in folds]
        if by_class[0]:
            lines = {label: _over_folds([fold[label] for fold in by_class]) for label in by_class[0]}
            scores[name]["classes"] = {
                label: {**line, "std": _std(line["per_client"])} for label, line in lines.items()
            }
    complexity = {name: fmean(fold["complexity"][name] for fold in folds) for name in folds[0]["complexity"]}
    rest = {
        name: fmean(fold[name] for fold in folds)
        for name in ("bytes_up", "bytes_down", "nullified", "rounds", "seconds")
    }
    return {**scores, "complexity": complexity, **rest}


def _over_folds(lines: Sequence[Sequence[float]]) -> dict[str, Any]:
    per_client = [fmean(column) for column in zip(*lines, strict=True)]
    return {"per_client": per_client, "mean": fmean(per_client)}


def _std(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


if __name__ == "__main__":
    for reply in serve(sys.stdin, Path(sys.argv[1])):
        print(reply, flush=True)  # noqa: T201 - the parent reads it
