"""Thousands of vehicles in one process, each no more than a socket that speaks MQTT 3.1.1.

What they say is what real vehicles say, but it is computed once for all that have the same rows. So the broker and the
coordinator have all the work of a large fleet, and the vehicles hardly any. `lab.benchmarks.fleets` runs it as a
`lab.experiments.workers.Worker`, whose questions are commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from broker.identity import load_identity
from broker.url import safe_address
from edge_agent.models.summed import summed
from edge_agent.session.answers import answer
from glassfleet.contract.messages import Task
from glassfleet.data.dataset import Dataset
from glassfleet.evaluation.scores import SCORES
from lab.benchmarks.raw_mqtt import Peer, connect, publish
from schemas.envelope import Envelope
from schemas.messages import OUTSIDE, AgentState, ContributionBody, Receipt, Request
from schemas.topics import Topics
from schemas.trust.signing import Signer

ROWS, INPUTS = 40, 4
GROUPS = 8
"""Vehicles with the same number modulo this have the same rows."""

AT_ONCE = 50
"""Vehicles that connect at the same time: a broker's queue of connections takes 100."""

RESEND, HASTE = 20.0, 2.0
"""Seconds without a receipt after which an answer is sent again; and after which when it is asked for again."""

REMEMBERED = 7
"""Requests, and answers, that are remembered beside the newest."""

RECONNECT = 0.5
"""Seconds after which a vehicle that lost the broker tries again."""


K = TypeVar("K")
V = TypeVar("V")


def rows_of(number: int) -> Dataset:
    """Return the rows of a vehicle."""
    rng = np.random.default_rng(number % GROUPS)
    X = rng.random((ROWS, INPUTS))
    y = np.where(X[:, 0] > 0.5, X[:, 1], X[:, 2] ** 2) + rng.normal(0.0, 0.01, ROWS)
    return Dataset(tuple(f"x{index}" for index in range(INPUTS)), "y", X, y)


def name_of(number: int) -> str:
    """Return the id of a vehicle; all have the same length."""
    return f"v{number:05d}"


def signer_of(folder: Path) -> Signer:
    """Return what signs with an identity."""
    identity = load_identity(folder)
    return Signer(identity.key, identity.certificate)


@dataclass
class Vehicle:
    """One vehicle.

    Attributes
    ----------
    away : float
        Seconds for which it stays away when its connection has ended.
    waits : dict
        Answers without a receipt, by task: the message, and when to send it again.
    accepted : dict
        When the receipt was made, by task.
    is_outside : bool
        The run asks it no more.
    """

    number: int
    peer: Peer | None = None
    is_up: asyncio.Event = field(default_factory=asyncio.Event)
    away: float = RECONNECT
    lives: int = 0
    message: int = 1
    waits: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    accepted: dict[str, float] = field(default_factory=dict)
    is_outside: bool = False

    @property
    def id(self) -> str:
        """Its agent id."""
        return name_of(self.number)


class Vehicles:
    """All of them. A command is a coroutine of this class.

    Parameters
    ----------
    url, fleet : str
    count : int
    drop_at : int
        At the question of this number a third of them vanishes without a word; 0: nobody ever does.
    back_after : float
        Seconds after which these come back.
    identities : str
        Folder of their identities; empty: they do not sign.
    """

    def __init__(
        self, url: str, fleet: str, count: int, *, drop_at: int = 0, back_after: float = 5.0, identities: str = ""
    ) -> None:
        self.address = safe_address(url)
        self.topics = Topics(fleet)
        self.vehicles = [Vehicle(number) for number in range(count)]
        self.identities = Path(identities)
        self.signers = [signer_of(self.identities / name_of(number)) for number in range(count) if identities]
        self.door = asyncio.Semaphore(AT_ONCE)
        self.drop_at, self.back_after = drop_at, back_after
        self.rows = [rows_of(number) for number in range(GROUPS)]
        self.questions: list[str] = []
        self.requests: dict[bytes, Envelope] = {}
        self.templates: dict[str, list[bytes]] = {}
        self.tally: Counter[str] = Counter()

    # -- commands ---------------------------------------------------------------------------------------------------

    async def connect(self, tasks: asyncio.TaskGroup, *, silent: bool = False) -> None:
        """Let all come up; `silent`: nobody says so yet, see `announce`."""
        tasks.create_task(self.repeat())
        for vehicle in self.vehicles:
            tasks.create_task(self.live(vehicle, silent=silent))
        await self.all_up()

    async def announce(self) -> None:
        """Let all say that they are up."""
        for vehicle in self.vehicles:
            self.say_up(vehicle)

    async def floor(self, size: int) -> None:
        """Answer whatever is asked on the floor's topic with so many bytes, at once."""
        self.floor_answer = bytes(size)
        await self.all_up()
        await asyncio.gather(*(each.peer.subscribe("gf/1/floor/request") for each in self.vehicles if each.peer))

    async def counted(self) -> dict[str, Any]:
        """Say what was counted, and which answers still have no receipt."""
        return {**self.tally, "waiting": sum(len(vehicle.waits) for vehicle in self.vehicles)}

    # -- inside -------------------------------------------------------------------------------------------------------

    async def all_up(self) -> None:
        """Wait until all are connected, and the broker has made all subscriptions."""
        for vehicle in self.vehicles:
            await vehicle.is_up.wait()

    async def live(self, vehicle: Vehicle, *, silent: bool) -> None:
        """Connect, say so unless `silent`, ask for what concerns it; and again, when the connection has ended."""
        topics, own = self.topics, self.topics.agent_state(vehicle.id)
        identity = self.identities / vehicle.id if self.signers else None
        while True:
            with contextlib.suppress(OSError):
                async with self.door:
                    vehicle.lives += 1
                    will, hear = (own, self.state(vehicle, "down")), partial(self.take, vehicle)
                    vehicle.peer = peer = await connect(self.address, vehicle.id, hear, will, identity)
                    await peer.subscribe(topics.request("+"), topics.receipt(vehicle.id))
                vehicle.is_up.set()
                if not silent:
                    self.say_up(vehicle)
                for message, _ in vehicle.waits.values():
                    peer.send(message)
                await peer.ended.wait()
            vehicle.is_up.clear()
            await asyncio.sleep(vehicle.away)
            silent, vehicle.away = False, RECONNECT

    async def repeat(self) -> None:
        """Send what has no receipt again, each answer when it is due."""
        while True:
            await asyncio.sleep(1.0)
            now = time.monotonic()
            for vehicle in self.vehicles:
                for digest, (message, due) in vehicle.waits.items():
                    if due <= now and vehicle.peer is not None and vehicle.is_up.is_set():
                        vehicle.waits[digest] = (message, now + RESEND)
                        vehicle.peer.send(message)

    def say_up(self, vehicle: Vehicle) -> None:
        """Publish a birth certificate."""
        self.say(vehicle, self.topics.agent_state(vehicle.id), self.state(vehicle, "up"), retain=True)

    def state(self, vehicle: Vehicle, status: Any) -> bytes:
        """Return a birth certificate or a last will."""
        body = AgentState(
            status=status,
            incarnation=str(vehicle.lives),
            schemes=["frt", "tree", "fedavg_mlp"],
            features=list(self.rows[0].features),
            target="y",
        )
        payload = Envelope(fleet=self.topics.fleet, body=body, agent=vehicle.id).to_bytes()
        return self.sealed(vehicle, self.topics.agent_state(vehicle.id), payload)

    def sealed(self, vehicle: Vehicle, topic: str, payload: bytes) -> bytes:
        """Return a message as it is sent, with the vehicle's seal if they sign."""
        return self.signers[vehicle.number].seal(topic, payload) if self.signers else payload

    def say(self, vehicle: Vehicle, topic: str, payload: bytes, *, retain: bool = False) -> bytes:
        """Publish; return the packet."""
        assert vehicle.peer is not None
        vehicle.message = vehicle.message % 65_000 + 1
        message = publish(topic, payload, vehicle.message, retain=retain)
        vehicle.peer.send(message)
        self.tally["bytes.up"] += len(payload)
        return message

    def take(self, vehicle: Vehicle, topic: str, payload: bytes) -> None:
        """Take a message."""
        self.tally["bytes.down"] += len(payload)
        if topic == "gf/1/floor/request":
            self.say(vehicle, f"gf/1/floor/agent/{vehicle.id}/answer", self.floor_answer)
        elif topic.endswith("/receipt"):
            self.receipt(vehicle, payload)
        elif payload:
            if payload not in self.requests:
                request = Envelope.from_bytes(payload, fleet=self.topics.fleet)
                self.requests = {**_newest(self.requests), payload: request}
                self.ask(request)
            self.answer(vehicle, self.requests[payload])

    def receipt(self, vehicle: Vehicle, payload: bytes) -> None:
        """Count a receipt."""
        envelope = Envelope.from_bytes(payload, fleet=self.topics.fleet)
        body = envelope.body
        assert isinstance(body, Receipt)
        vehicle.is_outside |= body.reason in OUTSIDE
        vehicle.waits.pop(body.task_digest, None)
        if body.outcome == "accepted":
            # A broker that went may bring one receipt twice.
            self.tally["doubled"] += vehicle.accepted.setdefault(body.task_digest, envelope.time) != envelope.time

    def ask(self, envelope: Envelope) -> None:
        """Compute the answers to a question, one for each group; its agent is set for each vehicle."""
        request = envelope.body
        assert isinstance(request, Request)
        if request.task_digest in self.templates:
            return
        self.questions.append(request.task_digest)
        task = Task.from_value(request.task)
        answers = [self.template(envelope, request, task, rows) for rows in self.rows]
        self.templates = {**_newest(self.templates), request.task_digest: answers}

    def template(self, envelope: Envelope, request: Request, task: Task, rows: Dataset) -> bytes:
        """Return the answer of the vehicle ``v-----``."""
        if task.scheme == SCORES.name:  # its rows are its test rows, too
            scored = summed(task, rows, rows)
            given: dict[str, Any] = {"rows": scored.rows, "contribution": scored.to_value()}
        else:
            given = answer(task, rows, bytes(32))
        body = ContributionBody(task_digest=request.task_digest, data_digest="0" * 64, **given)
        sent = Envelope(
            fleet=envelope.fleet,
            body=body,
            run=envelope.run,
            agent="v-----",
            scheme=envelope.scheme,
            round=envelope.round,
            attempt=envelope.attempt,
        )
        payload = sent.to_bytes()
        assert payload.count(b"v-----") == 1
        return payload

    def answer(self, vehicle: Vehicle, envelope: Envelope) -> None:
        """Answer, vanish, or do nothing."""
        request = envelope.body
        assert isinstance(request, Request)
        digest = request.task_digest
        is_asked = not vehicle.is_outside and _asks(request, vehicle.id)
        if digest in vehicle.waits:
            message, due = vehicle.waits[digest]
            vehicle.waits[digest] = (message, min(due, time.monotonic() + HASTE))
        if not is_asked or digest in vehicle.accepted or digest in vehicle.waits:
            return
        if len(self.questions) == self.drop_at and vehicle.number % 3 == 0 and vehicle.lives == 1:
            assert vehicle.peer is not None
            vehicle.away = self.back_after
            vehicle.peer.close()
            return
        payload = self.templates[digest][vehicle.number % GROUPS].replace(b"v-----", vehicle.id.encode(), 1)
        topic = self.topics.contribution(vehicle.id)
        payload = self.sealed(vehicle, topic, payload)
        self.tally["answers"] += 1
        self.tally["answer.bytes"] = len(payload)
        vehicle.waits[digest] = (self.say(vehicle, topic, payload), time.monotonic() + RESEND)


def _newest(known: dict[K, V]) -> dict[K, V]:
    """Return what was known last: a round's request may reach some vehicles after the next one reached others."""
    return dict(list(known.items())[-REMEMBERED:])


def _asks(request: Request, agent: str) -> bool:
    if request.asked is not None:
        return agent in request.asked
    return request.sample is None or request.sample.asks(agent)


async def main() -> None:
    """Serve commands until the standard input ends."""
    vehicles = Vehicles(**json.loads(sys.stdin.readline()))
    async with asyncio.TaskGroup() as tasks:
        commands: dict[str, Callable[..., Any]] = {
            "connect": partial(vehicles.connect, tasks),
            **{each.__name__: each for each in (vehicles.announce, vehicles.floor, vehicles.counted)},
        }
        while line := await asyncio.to_thread(sys.stdin.readline):
            command = json.loads(line)
            print(json.dumps({"result": await commands[command.pop("do")](**command)}), flush=True)
        sys.exit()


if __name__ == "__main__":
    asyncio.run(main())
