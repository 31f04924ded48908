"""Runs that lose vehicles, played to the real engine without processes or a network: how often they end early.

What a vehicle answers in a private run is not masked here. Masks cancel in each sum that is complete, and no other is
read, so that the engine decides as it would.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from pydantic import BaseModel

from coordinator.engine import AgentDown, Answer, Event, Offer, OpenRound, Refused, RunState, Start, Tick
from coordinator.engine.asking import wakes_at
from coordinator.engine.draft import standing
from coordinator.engine.machine import Engine
from coordinator.engine.pairing import with_message
from coordinator.specification.run import RunSpec
from glassfleet.contract.messages import Contribution, Done, Next, Task
from glassfleet.data.domain import Domain, Variable
from glassfleet.evaluation.scores import SCORES
from glassfleet.private.layout import layout_of
from glassfleet.private.masks import RunKey
from lab.benchmarks.measure import print_table
from schemas.messages import ContributionBody

ROUNDS, ALIKE = 22, 7
"""Questions of the course in which vehicles are lost at random, and how many of them do not depend on the cohort."""

CHANCES = (0.001, 0.002, 0.005, 0.01)
"""That a vehicle is lost in a round."""

PLAYS = {15: 200, 32: 100, 64: 40, 127: 20}
"""How many runs are played, by vehicles."""

_UNIT = Domain(features=(Variable(name="x", low=0.0, high=1.0),), target=Variable(name="y", low=0.0, high=1.0))
_HEX = "0" * 64


class _Parameters(BaseModel):
    """None."""


@dataclass(frozen=True)
class _Model:
    asked: int

    def to_document(self) -> dict[str, Any]:
        return {"scheme": "course", "format": 1, "parameters": {}, "domain": _UNIT.to_document(), "model": {}}


class _Course:
    """A scheme that asks for the number of vehicles, `ROUNDS` times; from `ALIKE` on the question names the last sum.

    That is how a tree's course goes on when a vehicle leaves: its first levels stay, what is below them becomes other.
    """

    name = "course"
    participation = frozenset({"cohort"})
    Parameters = _Parameters

    @property
    def server(self) -> _Course:
        return self

    def private(self, parameters: _Parameters) -> _Parameters:
        return parameters

    def layout(self, task: Task) -> Mapping[str, tuple[int, ...]]:  # noqa: ARG002
        return {"vehicles": (1,)}

    def start(self, parameters: _Parameters, domain: Domain | None, seed: int) -> Next:  # noqa: ARG002
        return Next({"number": 1}, Task(self.name, "count", {"number": 1, "found": 0, "domain": {}, "parameters": {}}))

    def check(self, task: Task, contribution: Contribution) -> None:
        """Take anything."""

    def reduce(self, state: Mapping[str, Any], contributions: Sequence[Contribution]) -> Next | Done:
        number = state["number"] + 1
        if number > ROUNDS:
            return Done(cast("Any", _Model(number)), {})
        vehicles = sum(int(each.sums["vehicles"][0]) for each in contributions) if number > ALIKE else 0
        body = {"number": number, "found": vehicles, "domain": {}, "parameters": {}}
        return Next({"number": number}, Task(self.name, "count", body))


_COURSE = _Course()


class Play:
    """One run, played to the engine.

    Parameters
    ----------
    agents : sequence of str
    spec : RunSpec
        With a domain.
    give : callable
        The answer of an agent to a task, as it would be in a plain run.
    scheme : any
        Whose answers these are.
    """

    def __init__(
        self, agents: Sequence[str], spec: RunSpec, give: Callable[[str, Task], Contribution], scheme: Any
    ) -> None:
        real = Engine()
        course = cast("Any", _COURSE)
        self._engine = replace(real, lookup=lambda name: course if name == _COURSE.name else real.lookup(name))
        self._give, self._scheme = give, scheme
        self._keys = {agent: RunKey.generate().public for agent in agents} if spec.private else {}
        self._at, self._asked = 0.0, ("", 0)
        self.up = list(agents)
        self.requests = 0
        """Sent so far, the one for keys included, the one for scores not."""
        domain = cast("Any", spec.domain)
        offers = dict.fromkeys(agents, Offer(frozenset({spec.scheme}), domain.names, domain.target.name))
        self.state: RunState | None = None
        self._send(Start(0.0, spec, offers))

    def go(self, lost: Callable[[int, list[str]], Collection[str]]) -> RunState:
        """Play to the end; `lost` says who of those up is lost before a request, by its number, is answered."""
        while self.state is not None and not self.state.is_ended:
            request = next((each for each in standing(self.state) if isinstance(each, OpenRound)), None)
            if request is None or (request.task_digest, request.attempt) == self._asked:
                self._at = max(self._at, wakes_at(self.state) or 0.0)
                self._send(Tick(self._at))
                continue
            asked = self.state.open.asked if self.state.open else ()
            is_new, self._asked = request.task_digest != self._asked[0], (request.task_digest, request.attempt)
            if request.task.scheme == SCORES.name:
                for agent in asked:
                    self._send(Refused(self._at, agent, request.task_digest, "not scored here"))
                continue
            if is_new:
                self.requests += 1
                for agent in lost(self.requests, self.up):
                    self.up.remove(agent)
                    self._send(AgentDown(self._at, agent))
            for agent in [each for each in self.up if each in asked]:
                self._send(self._answer(agent, request))
        assert self.state is not None
        return self.state

    def _answer(self, agent: str, request: OpenRound) -> Answer:
        if request.phase == "pairing":
            contribution = Contribution("keys", 0, values={"key": self._keys[agent], "floor": 8})
            return self._event(agent, request, with_message(contribution.to_value(), b"sealed"))
        given = self._give(agent, request.task)
        if not request.groups:
            return self._event(agent, request, given.to_value(), given.rows)
        words = layout_of(self._scheme, request.task).flatten(given)
        return self._event(agent, request, Contribution(given.kind, 0, sums={"masked": words}).to_value())

    def _event(self, agent: str, request: OpenRound, given: Mapping[str, Any], rows: int = 0) -> Answer:
        body = ContributionBody(task_digest=request.task_digest, rows=rows, data_digest=_HEX, contribution=dict(given))
        return Answer.of(self._at, agent, body)

    def _send(self, event: Event) -> None:
        self.state, _ = self._engine.step(self.state, event)


def ends() -> None:
    """How often runs of `ROUNDS` questions end early when vehicles are lost at random, plain and private."""
    rows = []
    for vehicles, plays in PLAYS.items():
        for chance in CHANCES:
            plain, private = (_lossy(vehicles, plays, chance, private=each) for each in (False, True))
            rows.append((vehicles, f"{100 * chance:g} %", plays, *plain, *private))
    header = ("vehicles", "lost in a round", "runs", "plain: ended early", "vehicles left", "requests")
    print_table("Runs that lose vehicles", (*header, "private: ended early", "vehicles left", "requests"), rows)


def _lossy(vehicles: int, plays: int, chance: float, *, private: bool) -> tuple[str, str, str]:
    agents = [f"v{number:04d}" for number in range(vehicles)]
    failed, left, requests = 0, [], []
    for seed in range(plays):
        rng = np.random.default_rng([seed, vehicles, round(chance * 1e6)])

        def lost(_number: int, up: list[str], rng: np.random.Generator = rng) -> list[str]:
            gone = rng.random(len(up)) < chance
            return [agent for agent, is_gone in zip(up, gone, strict=True) if is_gone]

        play = Play(agents, _spec(seed, private=private), _count, _COURSE)
        state = play.go(lost)
        if state.phase == "finished":
            left.append(len(state.cohort))
            requests.append(play.requests)
        else:
            failed += 1
    return f"{100 * failed / plays:.0f} %", _median(left), _median(requests)


def _median(values: Sequence[int]) -> str:
    return f"{np.median(values):g}" if values else "-"


def _count(agent: str, task: Task) -> Contribution:  # noqa: ARG001
    return Contribution(task.kind, 1, {"vehicles": np.ones(1, dtype=np.int64)})


def _spec(seed: int, *, private: bool) -> RunSpec:
    return RunSpec(
        run="r",
        scheme=_COURSE.name,
        domain=_UNIT,
        nonce=hashlib.sha256(str(seed).encode()).hexdigest()[:32],
        private=cast("Any", {}) if private else None,
    )
