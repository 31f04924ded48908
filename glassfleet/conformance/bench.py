"""What the conformance suite works on: a small fleet of made-up rows, and runs of a scheme over it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution, Done, Next, Task
from glassfleet.contract.scheme import Purpose, Scheme
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.model.protocol import Model
from glassfleet.simulation import MAX_ROUNDS, Outcome
from schemas import codec
from schemas.codec import document_digest

Step = tuple[Next, list[Contribution]]
Path = tuple[str | int, ...]

_FEATURES = (
    Variable(name="speed", low=0.0, high=130.0, unit="km/h"),
    Variable(name="signal", low=-120.0, high=-60.0, unit="dBm"),
    Variable(name="lanes", low=1.0, high=4.0),
    Variable(name="constant", low=3.0, high=3.0),
)
_CLASSES = ("bad", "fair", "good")


class ConformanceError(AssertionError):
    """A scheme does not keep the contract; the text says what was expected."""


def require(condition: bool, expected: str) -> None:
    """Raise ConformanceError unless `condition` holds."""
    if not condition:
        raise ConformanceError(f"expected that {expected}")


def raises_only(expected: type[Exception], what: str, act: Callable[[], object]) -> bool:
    """Return whether `act` raises `expected`; all else that it raises becomes a ConformanceError that says `what`."""
    try:
        act()
    except expected:
        return True
    except Exception as fault:
        raise ConformanceError(f"{what} raised {fault_text(fault)} instead of {expected.__name__}") from fault
    return False


def must_refuse(expected: type[Exception], what: str, act: Callable[[], object]) -> None:
    """Raise ConformanceError unless `act` raises `expected`."""
    require(raises_only(expected, what, act), f"{what} raises {expected.__name__}")


@dataclass(frozen=True)
class Run:
    """A run: its rounds, each with the answers, and what it came to."""

    steps: list[Step]
    outcome: Outcome


@dataclass(frozen=True)
class Bench:
    """A scheme and a fleet to try it on.

    Attributes
    ----------
    scheme : Scheme
    parameters : Any
        Of the scheme.
    purpose : {"regression", "classification"}
    domain : Domain
    fleet : dict of str to Dataset
        Three vehicles with rows, that differ from each other, one with a single row, and one with none. Some values
        are outside the domain's limits, and rows repeat.
    """

    scheme: Scheme
    parameters: Any
    purpose: Purpose
    domain: Domain
    fleet: dict[str, Dataset]
    _runs: list[tuple[Any, Run]] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def all_of(cls, scheme: Scheme, parameters: Any = None) -> list[Bench]:
        """Return one bench per purpose of `scheme`."""
        # A scheme of many rounds says by `trial` which shorter run shows the same.
        chosen = scheme.abilities.trial or scheme.Parameters() if parameters is None else parameters
        return [cls.of(scheme, chosen, purpose) for purpose in sorted(scheme.purpose)]

    @classmethod
    def of(cls, scheme: Scheme, parameters: Any, purpose: Purpose) -> Bench:
        """Return the bench for one purpose."""
        rng = np.random.default_rng(2023)
        names = tuple(variable.name for variable in _FEATURES)
        fleet = {}
        for index, rows in enumerate((90, 70, 40, 1, 0)):
            X = np.empty((rows, len(names)))
            X[:, 0] = rng.normal(60.0 + 15.0 * index, 30.0, rows)
            X[:, 1] = rng.uniform(-125.0, -55.0, rows)
            X[:, 2] = rng.integers(1, 5, rows)
            X[:, 3] = 3.0
            X[rows // 2 : rows // 2 + 3] = X[:3]
            quality = X[:, 0] / 130.0 + np.where(X[:, 1] > -90.0, 1.0, 0.0) * X[:, 2] / 4.0 + rng.normal(0, 0.05, rows)
            y: NDArray[Any] = quality * 40.0 - 10.0
            if purpose == "classification":
                y = np.array(_CLASSES)[np.clip(np.floor(quality * 1.5), 0, 2).astype(np.intp)]
            fleet[f"vehicle-{index}"] = Dataset(names, "quality", X, y)
        if purpose == "classification":
            domain = Domain(features=_FEATURES, label="quality", classes=_CLASSES)
        else:
            domain = Domain(features=_FEATURES, target=Variable(name="quality", low=-15.0, high=75.0, unit="%"))
        return cls(scheme, parameters, purpose, domain, fleet)

    @cached_property
    def inputs(self) -> NDArray[np.float64]:
        """Inputs of all vehicles and some far outside the domain."""
        everything = pool([self.fleet[agent] for agent in sorted(self.fleet)]).X
        low, high = everything.min(axis=0), everything.max(axis=0)
        return np.concatenate([everything, [low - 1e3, high + 1e3, (low + high) / 2]])

    def empty(self) -> Dataset:
        """Return a vehicle without rows."""
        return next(iter(self.fleet.values())).at(slice(0))

    def outcome(self, parameters: Any) -> Outcome:
        """Return what the fleet's run came to; it is run once for all checks."""
        return self._run_once(parameters).outcome

    def steps(self, parameters: Any) -> list[Step]:
        """Return the rounds of the fleet's run; it is run once for all checks."""
        return self._run_once(parameters).steps

    def _run_once(self, parameters: Any) -> Run:
        known = next((run for given, run in self._runs if given == parameters), None)
        if known is None:
            known = self.run(parameters)
            self._runs.append((parameters, known))
        return known

    def run(
        self,
        parameters: Any,
        fleet: Mapping[str, Dataset] | None = None,
        *,
        through: Callable[[Any], Any] = lambda value: value,
        reverse: bool = False,
        drop: bool = False,
    ) -> Run:
        """Run the scheme to its end.

        Parameters
        ----------
        parameters : scheme.Parameters
        fleet : mapping of str to Dataset, optional
            Other vehicles than the bench's.
        through : callable
            What tasks, states and contributions pass before they are used (the codec).
        reverse : bool
            Reduce the answers in the opposite order, which is else that of the agents' ids.
        drop : bool
            Leave out another agent in each round.
        """
        fleet = self.fleet if fleet is None else fleet
        step: Next | Done = self.scheme.server.start(parameters, self.domain, 0)
        steps: list[Step] = []
        while isinstance(step, Next):
            if len(steps) == MAX_ROUNDS:
                raise ConformanceError(f"expected that a run ends within {MAX_ROUNDS} rounds")
            task = Task.from_value(through(step.task.to_value()))
            agents = sorted(fleet)
            if drop:
                del agents[len(steps) % len(agents)]
            contributions = []
            for agent in agents:
                value = through(answer(self.scheme, task, agent, fleet[agent]).to_value())
                contributions.append(replace(Contribution.from_value(value), agent=agent))
                self.scheme.server.check(task, contributions[-1])
            steps.append((step, contributions))
            step = self.scheme.server.reduce(through(dict(step.state)), contributions[:: -1 if reverse else 1])
        nullified = sum(given.nullified for _, contributions in steps for given in contributions)
        return Run(steps, Outcome(step.model, len(steps), step.summary, nullified))


def answer(scheme: Scheme, task: Task, agent: str, data: Dataset) -> Contribution:
    """Return a client's answer, with noise that repeats."""
    seed = hashlib.sha256(f"{agent}/{task.digest}".encode()).digest()[:16]
    return scheme.client.contribute(task, data, np.random.default_rng(int.from_bytes(seed, "big")))


def value_paths(document: Any, most: int) -> list[Path]:
    """Return the places in a JSON document, evenly chosen when there are more than `most`."""
    paths: list[Path] = []

    def walk(value: Any, path: Path) -> None:
        items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
        for key, item in items:
            paths.append((*path, key))
            walk(item, (*path, key))

    walk(document, ())
    return paths[:: max(1, len(paths) // most)]


def replaced(document: Any, path: Path, value: Any) -> Any:
    """Return a JSON document with one place replaced; what is beside that place is shared with the given one."""
    if not path:
        return value
    changed: Any = dict(document) if isinstance(document, Mapping) else list(document)
    changed[path[0]] = replaced(changed[path[0]], path[1:], value)
    return changed


def travelled(value: Any) -> Any:
    """Return the value as it comes out of the codec."""
    return codec.decode(codec.encode(value))


def fresh(data: Dataset) -> Dataset:
    """Return the same rows, with nothing remembered about them."""
    return Dataset(data.features, data.target, data.X, data.y)


def digest_of(model: Model) -> str:
    """Return the digest of a model's document."""
    return document_digest(model.to_document())


def fault_text(fault: Exception) -> str:
    """Return kind and text of what was raised, for messages."""
    return f"{type(fault).__name__} ({fault})"
