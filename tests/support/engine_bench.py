"""A toy scheme with exact sums and a bench that plays agents against the engine, for the coordinator's tests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from pydantic import BaseModel, ConfigDict

from coordinator.engine import (
    AgentUp,
    Answer,
    Effect,
    Engine,
    Event,
    Offer,
    OpenRound,
    Publish,
    RunState,
    SendReceipt,
    Start,
    Tick,
)
from coordinator.engine.events import from_value
from coordinator.engine.state import Round
from coordinator.runs.view import run_document
from coordinator.specification.run import RunSpec
from glassfleet.contract.messages import Contribution, Done, Next, Task
from glassfleet.contract.scheme import Abilities, Server
from glassfleet.data.domain import Domain
from glassfleet.errors import ContributionError
from schemas import codec
from schemas.errors import NotFoundError
from schemas.messages import ContributionBody, Receipt
from tests.support.sample_models import unit_domain

DOMAIN = unit_domain("x")
OFFER = Offer(frozenset({"toy", "frt"}), ("x",), "y")


class ToyParameters(BaseModel):
    """`levels` rounds; the task of the next one depends on the sum divided by `coarse`: a coarse grid often agrees."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    levels: int = 3
    coarse: int = 1
    max_rows: int = 2**31
    repeats: bool = False
    fails: str = ""


@dataclass(frozen=True)
class ToyModel:
    """The sums of every level."""

    history: tuple[int, ...]
    scheme: str = "toy"
    domain: Domain = DOMAIN

    def to_document(self) -> dict[str, Any]:
        return {
            "scheme": "toy",
            "format": 1,
            "parameters": {},
            "domain": self.domain.to_document(),
            "model": {"history": list(self.history)},
        }


class ToyServer:
    """Adds what the agents say, level by level."""

    def start(self, parameters: ToyParameters, domain: Any, seed: int) -> Next:
        if parameters.fails == "start":
            raise RuntimeError("no start today")
        return self._ask(parameters, 1, [], 0)

    def check(self, task: Task, contribution: Contribution) -> None:
        if contribution.sums["s"].shape != (1,) or contribution.sums["s"][0] < 0:
            raise ContributionError("s must be one number, at least 0")

    def reduce(self, state: Mapping[str, Any], contributions: Sequence[Contribution]) -> Next | Done:
        parameters = ToyParameters.model_validate(state["parameters"])
        if parameters.fails == "reduce":
            raise RuntimeError("cannot add today")
        total = sum(int(contribution.sums["s"][0]) for contribution in contributions)
        history = [*state["history"], total]
        if len(history) == parameters.levels:
            return Done(ToyModel(tuple(history)), {"sums_digest": hashlib.sha256(str(history).encode()).hexdigest()})
        return self._ask(parameters, len(history) + 1, history, total // parameters.coarse)

    def progress(self, state: Mapping[str, Any]) -> dict[str, Any]:
        return {"levels": len(state["history"])}

    def max_rows(self, parameters: ToyParameters) -> int:
        return parameters.max_rows

    @staticmethod
    def _ask(parameters: ToyParameters, level: int, history: list[int], salt: int) -> Next:
        body = {"level": 1 if parameters.repeats else level, "salt": 0 if parameters.repeats else salt}
        state = {"parameters": parameters.model_dump(mode="json"), "history": history}
        return Next(state, Task("toy", "add", body))


class ToyScheme:
    name = "toy"
    purpose = frozenset({"regression"})
    abilities = Abilities()
    participation = frozenset({"cohort", "elastic"})
    Parameters = ToyParameters
    server = cast("Server", ToyServer())


def toy_answer(agent: str, task: Task, *, value: int | None = None, rows: int = 4) -> Contribution:
    """Answer as `agent` does: a number that depends on agent and task, so that any mix-up changes the model."""
    asked = Task(task.scheme, task.kind, task.body).digest  # without the run's nonce, which no real scheme reads
    drawn = hashlib.sha256(f"{agent}/{asked}".encode()).digest()
    number = int.from_bytes(drawn[:3], "big") if value is None else value
    return Contribution(task.kind, rows, {"s": np.array([number], dtype=np.int64)}, {}, nullified=1)


def central(spec: RunSpec, cohort: Iterable[str]) -> ToyModel:
    """Learn what one place with the cohort's answers would: the reference of promise 1."""
    server = ToyServer()
    outcome: Next | Done = server.start(ToyParameters.model_validate(spec.parameters), DOMAIN, spec.seed)
    while isinstance(outcome, Next):
        answers = [toy_answer(agent, outcome.task) for agent in sorted(cohort)]
        outcome = server.reduce(outcome.state, answers)
    return cast("ToyModel", outcome.model)


class ToyDiscovery:
    """A one-round search that finds `DOMAIN`."""

    def start(self, parameters: Any, domain: Any, seed: int) -> Next:
        return Next({"round": 1}, Task("domain", "histogram", {"round": 1}))

    def check(self, task: Task, contribution: Contribution) -> None:
        pass

    def reduce(self, state: Mapping[str, Any], contributions: Sequence[Contribution]) -> Next | Done:
        if state["round"] == 1:
            return Next({"round": 2}, Task("domain", "histogram", {"round": 2}))
        return Done(DOMAIN)

    def progress(self, state: Mapping[str, Any]) -> dict[str, Any]:
        return {"round": state["round"]}


def lookup(name: str) -> Any:
    if name != "toy":
        raise NotFoundError(f"no scheme {name!r}")
    return ToyScheme()


TOY_ENGINE = Engine(lookup, ToyDiscovery())


NOISE = np.random.default_rng(1).bytes(20_000).hex()


class Wordy:
    """The toy, whose tasks carry `noise` from level `first` on, and whose model goes through `change`."""

    def __init__(self, noise: str = NOISE, first: int = 1, change: Callable[[Any], Any] = lambda model: model) -> None:
        inner = TOY_ENGINE.lookup("toy")
        self.participation, self.Parameters, self.server = inner.participation, inner.Parameters, self
        self.abilities = inner.abilities
        self._inner: Any = inner.server
        self._noise, self._first, self._change = noise, first, change

    def start(self, *args: Any) -> Any:
        return self._wordy(self._inner.start(*args))

    def reduce(self, *args: Any) -> Any:
        return self._wordy(self._inner.reduce(*args))

    def _wordy(self, step: Next | Done) -> Next | Done:
        if isinstance(step, Done):
            return replace(step, model=self._change(step.model))
        if step.task.body["level"] < self._first:
            return step
        return Next(step.state, Task("toy", "add", {**step.task.body, "noise": self._noise}))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def engine_with(scheme: Any) -> Engine:
    return Engine(lambda _name: scheme, TOY_ENGINE.search)


def toy_spec(run: str = "r1", *, domain: Domain | None = DOMAIN, **changes: Any) -> RunSpec:
    """Return a spec of the toy; `policy` is a dict, with a quorum of one vehicle unless it says otherwise."""
    policy = {"min_agents": 1, **changes.pop("rounds", {})}
    return RunSpec.from_document({"run": run, "scheme": "toy", "domain": domain, "rounds": policy, **changes})


def answer_event(
    at: float, agent: str, task: Task, *, value: int | None = None, rows: int = 4, data: str = "d"
) -> Answer:
    contribution = toy_answer(agent, task, value=value, rows=rows)
    digest = hashlib.sha256(f"{agent}{data}".encode()).hexdigest()
    body = ContributionBody(
        task_digest=task.digest, rows=rows, data_digest=digest, contribution=contribution.to_value()
    )
    return Answer.of(at, agent, body, size=100)


@dataclass
class Play:
    """One run under test: sends events and remembers everything that came out."""

    spec: RunSpec
    agents: tuple[str, ...] = ("a", "b", "c")
    engine: Engine = TOY_ENGINE
    at: float = 0.0
    offer: Offer = OFFER
    state: RunState = field(init=False)
    events: list[Event] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        start = Start(self.at, self.spec, dict.fromkeys(self.agents, self.offer))
        self.state, effects = self.engine.step(None, start)
        self.events.append(start)
        self.effects += effects

    def send(self, event: Event) -> tuple[Effect, ...]:
        before = self.state
        self.state, effects = self.engine.step(before, event)
        if self.state is not before:
            self.events.append(event)
        self.effects += effects
        return effects

    def up(self, agent: str, offer: Offer = OFFER) -> tuple[Effect, ...]:
        return self.send(AgentUp(self.at, agent, offer))

    def pass_time(self, seconds: float) -> tuple[Effect, ...]:
        self.at += seconds
        return self.send(Tick(self.at))

    def is_over(self) -> bool:
        """A method, not a property: a type checker takes properties for constant."""
        return self.state.is_ended

    @property
    def phase(self) -> str:
        return self.state.phase

    @property
    def task(self) -> Task:
        return self.state.levels[-1].task

    @property
    def open(self) -> Round:
        """The open round; there must be one."""
        assert self.state.open is not None
        return self.state.open

    def answer(self, *agents: str, task: Task | None = None, **how: Any) -> list[Receipt]:
        """Answer for `agents`; returns their receipts."""
        task = task or self.task
        receipts = []
        for agent in agents:
            effects = self.send(answer_event(self.at, agent, task, **how))
            receipts += [effect.receipt for effect in effects if isinstance(effect, SendReceipt)]
        return receipts

    def outcomes(self, *agents: str, **how: Any) -> list[str]:
        return [f"{receipt.outcome} {receipt.reason}".split(":")[0].strip() for receipt in self.answer(*agents, **how)]

    def finish(self, *agents: str) -> None:
        """Let `agents` answer until the run ends; time passes when nothing else moves it."""
        for _ in range(200):
            if self.is_over():
                return
            task = self.task if self.state.levels else None
            if task is not None and self.state.open is not None:
                open_to = self.state.open
                self.answer(*(a for a in agents if not open_to.limited or a in open_to.asked), task=task)
            if not self.is_over() and (task is None or self.task is task):
                self.pass_time(self.spec.rounds.deadline)
        raise AssertionError(f"the run did not end: {self.state.phase}")

    def of(self, kind: type[Any]) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    @property
    def model(self) -> ToyModel:
        return cast("ToyModel", self.of(Publish)[0].model)

    @property
    def requests(self) -> list[OpenRound]:
        return self.of(OpenRound)


def fold(engine: Engine, journal: Iterable[bytes]) -> RunState:
    """Return where a run stands whose events are in a journal."""
    state: RunState | None = None
    for body in journal:
        state, _ = engine.step(state, from_value(codec.decode(body)))
    assert state is not None
    return state


def fingerprint(engine: Engine, state: RunState) -> str:
    """Return everything in a state as one digest: arrays do not compare."""
    return codec.digest_of(
        {
            "document": run_document(engine, state, started=0.0, ended=None, model=None),
            "at": state.at,
            "without_broker": state.without_broker,
            "frozen": {agent: list(rows) for agent, rows in state.frozen.items()},
            "store": {
                task: {agent: stored.answer_digest for agent, stored in answers.items()}
                for task, answers in state.store.items()
            },
            "levels": [[level.digest, list(level.members), level.nullified] for level in state.levels],
            "editions": [[each.digest, list(each.members)] for each in state.editions],
            "attempts": dict(state.attempts),
            "silent": sorted(state.silent),
            "agents": {agent: offer.to_value() for agent, offer in state.agents.items()},
            "contributors": list(state.domain_contributors),
            "lost": dict(state.lost),
            "model": None if state.model is None else state.model.to_document(),
        }
    )
