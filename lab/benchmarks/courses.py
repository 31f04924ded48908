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

from coordinator.engine import AgentDown, Answer, Event, Offer, OpenRound, Refused, RunState, Start, Tick
from coordinator.engine.asking import wakes_at
from coordinator.engine.draft import standing
from coordinator.engine.machine import Engine
from coordinator.engine.pairing import with_message
from coordinator.specification.run import RunSpec
from glassfleet.contract.messages import Contribution, Done, Next, Task
from glassfleet.contract.scheme import Participation, Purpose
from glassfleet.contract.sums import SumScheme, add_up, ask
from glassfleet.contract.tasks import SchemeQuestion, read_task_head, task_head
from glassfleet.data.documents import RunParameters
from glassfleet.data.domain import Domain, Variable
from glassfleet.evaluation.scores import SCORES
from glassfleet.private.groups import Announcement
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


class _Parameters(RunParameters):
    """None."""


@dataclass(frozen=True)
class _Model:
    def to_document(self) -> dict[str, Any]:
        return {"scheme": "course", "format": 1, "parameters": {}, "domain": _UNIT.to_document(), "model": {}}


@dataclass(frozen=True)
class _Question(SchemeQuestion):
    number: int
    found: int

    def to_task(self) -> Task:
        body = {**task_head(self.parameters, self.domain), "number": self.number, "found": self.found}
        return Task("course", self.kind, body)


class _Course(SumScheme[_Question]):
    """Asks for the number of vehicles, `ROUNDS` times; from `ALIKE` on the question names the last sum.

    That is how a tree's course goes on when a vehicle leaves: its first levels stay, what is below them becomes other.
    """

    name, title, Parameters = "course", "", _Parameters
    purpose, participation = frozenset[Purpose]({"regression"}), frozenset[Participation]({"cohort"})
    kinds = ("count",)

    def read(self, task: Task) -> _Question:
        head = read_task_head(task, self.name, self.kinds, _Parameters)
        return _Question(*head, task.body["number"], task.body["found"])

    def first(self, parameters: Any, domain: Domain, seed: int) -> Next:  # noqa: ARG002
        return ask(_Question("count", parameters, domain, 1, 0), {})

    def shapes(self, question: _Question) -> Mapping[str, tuple[int, ...]]:  # noqa: ARG002
        return {"vehicles": (1,)}

    def answer(self, question: _Question, data: Any) -> Contribution:  # noqa: ARG002
        return Contribution(question.kind, 1, {"vehicles": np.ones(1, dtype=np.int64)})

    def step(self, question: _Question, memory: Any, contributions: Sequence[Contribution]) -> Next | Done:  # noqa: ARG002
        number = question.number + 1
        if number > ROUNDS:
            return Done(cast("Any", _Model()), {})
        vehicles = int(add_up(contributions)["vehicles"][0]) if number > ALIKE else 0
        return ask(replace(question, number=number, found=vehicles), {})

    def from_document(self, document: Mapping[str, Any]) -> Any:
        raise NotImplementedError


_COURSE = _Course()


class Play:
    """One run of the course, played to the engine.

    Parameters
    ----------
    agents : sequence of str
    spec : RunSpec
        With a domain.
    """

    def __init__(self, agents: Sequence[str], spec: RunSpec) -> None:
        real = Engine()
        course = cast("Any", _COURSE)
        self._engine = replace(real, lookup=lambda name: course if name == _COURSE.name else real.lookup(name))
        self._keys = {agent: RunKey.generate().public for agent in agents} if spec.private else {}
        self._at, self._asked = 0.0, ("", 0)
        self.up = list(agents)
        self.requests = 0
        """Sent so far, the one for keys included, the one for scores not."""
        offers = dict.fromkeys(agents, Offer(frozenset({spec.scheme}), _UNIT.names, _UNIT.target_name))
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
            told = Announcement(agent, self._keys[agent], _HEX).to_value()
            values = {name: value for name, value in told.items() if name not in ("agent", "data_digest")}
            contribution = Contribution("keys", 0, values=values)
            return self._event(agent, request, with_message(contribution.to_value(), b"sealed"))
        given = _COURSE.answer(_COURSE.read(request.task), None)
        if not request.groups:
            return self._event(agent, request, given.to_value(), given.rows)
        words = layout_of(_COURSE, request.task).flatten(given)
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
            row = {"vehicles": vehicles, "lost in a round": f"{100 * chance:g} %", "runs": plays}
            for way in ("plain", "private"):
                ended = _lossy(vehicles, plays, chance, private=way == "private")
                row |= {f"{way}: {what}": number for what, number in ended.items()}
            rows.append(row)
    print_table("Runs that lose vehicles", rows)


def _lossy(vehicles: int, plays: int, chance: float, *, private: bool) -> dict[str, str]:
    agents = [f"v{number:04d}" for number in range(vehicles)]
    left, requests = [], []
    for seed in range(plays):
        rng = np.random.default_rng([seed, vehicles, round(chance * 1e6)])

        def lost(_number: int, up: list[str], rng: np.random.Generator = rng) -> list[str]:
            gone = rng.random(len(up)) < chance
            return [agent for agent, is_gone in zip(up, gone, strict=True) if is_gone]

        nonce = hashlib.sha256(str(seed).encode()).hexdigest()[:32]
        privacy = cast("Any", {} if private else None)
        play = Play(agents, RunSpec(run="r", scheme=_COURSE.name, domain=_UNIT, nonce=nonce, private=privacy))
        state = play.go(lost)
        if state.phase == "finished":
            left.append(len(state.cohort))
            requests.append(play.requests)
    medians = {"vehicles left": left, "requests": requests}
    return {
        "ended early": f"{100 * (1 - len(left) / plays):.0f} %",
        **{what: f"{np.median(values):g}" if values else "-" for what, values in medians.items()},
    }
