"""Thousands of vehicles in one process, each no more than a socket that speaks MQTT 3.1.1.

What they say is what real vehicles say, but it is computed once for all that have the same rows. So the broker and the
coordinator have all the work of a large fleet, and the vehicles hardly any. `lab.benchmarks.fleets` runs it as a
`lab.experiments.workers.Worker`, whose questions are commands.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
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
from lab.benchmarks.raw_mqtt import KEEPALIVE, PINGREQ, Peer, packet, publish
from schemas.envelope import Envelope
from schemas.messages import OUTSIDE, AgentState, ContributionBody, Receipt, Request
from schemas.topics import Topics
from schemas.trust.signing import Signer

ROWS, INPUTS = 40, 4
GROUPS = 8
"""Vehicles with the same number modulo this have the same rows."""

AT_ONCE = 50
"""Vehicles that connect in one step: others are heard in between, and a broker's queue of connections takes 100."""

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

    `waits` are the answers without a receipt, by task: the message, and when to send it again; `accepted`, by task, is
    when the receipt was made; `is_outside`: the run asks it no more.
    """

    number: int
    peer: Peer | None = None
    lives: int = 0
    silent_since: float = field(default_factory=time.monotonic)
    message: int = 1
    waits: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    accepted: dict[str, float] = field(default_factory=dict)
    is_outside: bool = False


class Vehicles:
    """All of them.

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
        self.selector = selectors.DefaultSelector()
        self.drop_at, self.back_after = drop_at, back_after
        self.rows = [rows_of(number) for number in range(GROUPS)]
        self.questions: list[str] = []
        self.requests: dict[bytes, Envelope] = {}
        self.templates: dict[str, list[bytes]] = {}
        self.back: list[tuple[float, Vehicle]] = []
        self.tally: Counter[str] = Counter()
        self.looked = time.monotonic()

    # -- commands ---------------------------------------------------------------------------------------------------

    def connect(self, *, silent: bool = False) -> dict[str, Any]:
        """Let all come up; `silent`: nobody says so yet, see `announce`."""
        begun = time.monotonic()
        for vehicle in self.vehicles:
            self.come_up(vehicle, silent=silent)
            if vehicle.number % 50 == 49:
                self.subscribed()  # the broker takes no more connections at once
        self.subscribed()
        return {"seconds": time.monotonic() - begun}

    def announce(self) -> dict[str, Any]:
        """Let all say that they are up."""
        begun = time.monotonic()
        for vehicle in self.vehicles:
            self.say(vehicle, self.topics.agent_state(name_of(vehicle.number)), self.state(vehicle, "up"), retain=True)
        return {"seconds": time.monotonic() - begun}

    def floor(self, size: int) -> dict[str, Any]:
        """Answer whatever is asked on the floor's topic with so many bytes, at once."""
        self.floor_answer = bytes(size)
        while self.back:
            self.come_up(self.back.pop()[1])
        for vehicle in self.vehicles:
            assert vehicle.peer is not None
            vehicle.peer.subscribe("gf/1/floor/request")
        self.subscribed()
        return {}

    def counted(self) -> dict[str, Any]:
        """Say what was counted, and which answers still have no receipt."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        waiting = sum(len(vehicle.waits) for vehicle in self.vehicles)
        return {**self.tally, "waiting": waiting, "processor": usage.ru_utime + usage.ru_stime}

    # -- inside -------------------------------------------------------------------------------------------------------

    def come_up(self, vehicle: Vehicle, *, silent: bool = False) -> None:
        """Connect, say so unless `silent`, and ask for what concerns it."""
        agent, topics = name_of(vehicle.number), self.topics
        vehicle.lives += 1
        identity = self.identities / agent if self.signers else None
        will = (topics.agent_state(agent), self.state(vehicle, "down"))
        vehicle.peer = peer = Peer(self.address, agent, will, identity)
        self.selector.register(peer.socket, selectors.EVENT_READ, vehicle)
        peer.subscribe(topics.request("+"), topics.receipt(agent))
        if not silent:
            self.say(vehicle, topics.agent_state(agent), self.state(vehicle, "up"), retain=True)
        for message, _ in vehicle.waits.values():
            peer.send(message)
        self.watch(vehicle)

    def leave(self, vehicle: Vehicle, back_after: float) -> None:
        """End a connection without a word, if there is one, and come back later."""
        if vehicle.peer is not None:
            self.selector.unregister(vehicle.peer.socket)
            vehicle.peer.close()
            vehicle.peer = None
        self.back.append((time.monotonic() + back_after, vehicle))

    def state(self, vehicle: Vehicle, status: Any) -> bytes:
        """Return a birth certificate or a last will."""
        names = self.rows[0].features
        body = AgentState(
            status=status,
            incarnation=str(vehicle.lives),
            schemes=["frt", "tree", "fedavg_mlp"],
            features=list(names),
            target="y",
        )
        topic = self.topics.agent_state(name_of(vehicle.number))
        return self.sealed(
            vehicle, topic, Envelope(fleet=self.topics.fleet, body=body, agent=name_of(vehicle.number)).to_bytes()
        )

    def sealed(self, vehicle: Vehicle, topic: str, payload: bytes) -> bytes:
        """Return a message as it is sent, with the vehicle's seal if they sign."""
        return self.signers[vehicle.number].seal(topic, payload) if self.signers else payload

    def say(self, vehicle: Vehicle, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish."""
        assert vehicle.peer is not None
        vehicle.message = vehicle.message % 65_000 + 1
        vehicle.peer.send(publish(topic, payload, vehicle.message, retain=retain))
        self.tally["bytes.up"] += len(payload)
        self.watch(vehicle)

    def subscribed(self) -> None:
        """Wait until the broker has made all subscriptions."""
        while any(vehicle.peer is not None and vehicle.peer.subscribing for vehicle in self.vehicles):
            self.step(0.1)

    def watch(self, vehicle: Vehicle) -> None:
        """Wait until the socket takes more, when it has not taken all."""
        peer = vehicle.peer
        if peer is not None:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.unsent else 0)
            if self.selector.get_key(peer.socket).events != events:
                self.selector.modify(peer.socket, events, vehicle)

    def step(self, timeout: float) -> bool:
        """Take what has come; whether a command is among it."""
        is_told, begun = False, time.monotonic()
        is_due = any(at <= begun for at, _ in self.back)
        for key, mask in self.selector.select(0 if is_due else timeout):
            vehicle = key.data
            is_told |= vehicle is None
            if vehicle is None or vehicle.peer is None:
                continue
            try:
                if mask & selectors.EVENT_WRITE:
                    vehicle.peer.flush()
                if mask & selectors.EVENT_READ:
                    self.read(vehicle, vehicle.peer)
                self.watch(vehicle)
            except OSError:
                self.tally["connections lost"] += 1
                self.leave(vehicle, RECONNECT)
        now = time.monotonic()
        due = [each for each in self.back if each[0] <= now]
        self.back = due[AT_ONCE:] + [each for each in self.back if each[0] > now]
        for _, vehicle in due[:AT_ONCE]:
            try:
                self.come_up(vehicle)
            except OSError:
                self.leave(vehicle, RECONNECT)
        if now - self.looked > 1.0:
            self.looked = now
            self.repeat(now)
        return is_told

    def read(self, vehicle: Vehicle, peer: Peer) -> None:
        """Take the messages of one vehicle."""
        for topic, payload in peer.messages():
            self.tally["bytes.down"] += len(payload)
            self.take(vehicle, topic, payload)
            if vehicle.peer is not peer:
                return

    def repeat(self, now: float) -> None:
        """Give a sign of life, and send what has no receipt again."""
        for vehicle in self.vehicles:
            if vehicle.peer is None:
                continue
            again = [packet(PINGREQ)] if vehicle.silent_since < now - KEEPALIVE / 2 else []
            for digest, (message, due) in list(vehicle.waits.items()):
                if due <= now:
                    self.tally["resent"] += 1
                    vehicle.waits[digest] = (message, now + RESEND)
                    again.append(message)
            if again:
                vehicle.silent_since = now
                with contextlib.suppress(OSError):  # noticed when it is read
                    vehicle.peer.send(b"".join(again))
                self.watch(vehicle)

    def take(self, vehicle: Vehicle, topic: str, payload: bytes) -> None:
        """Take a message."""
        if topic == "gf/1/floor/request":
            self.say(vehicle, f"gf/1/floor/agent/{name_of(vehicle.number)}/answer", self.floor_answer)
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
        self.tally[f"receipts.{body.outcome}"] += 1
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
        agent, digest = name_of(vehicle.number), request.task_digest
        is_asked = not vehicle.is_outside and _asks(request, agent)
        if digest in vehicle.waits:
            message, due = vehicle.waits[digest]
            vehicle.waits[digest] = (message, min(due, time.monotonic() + HASTE))
        if not is_asked or digest in vehicle.accepted or digest in vehicle.waits:
            return
        if len(self.questions) == self.drop_at and vehicle.number % 3 == 0 and vehicle.lives == 1:
            self.tally["vanished"] += 1
            self.leave(vehicle, self.back_after)
            return
        payload = self.templates[digest][vehicle.number % GROUPS].replace(b"v-----", agent.encode(), 1)
        topic = self.topics.contribution(agent)
        payload = self.sealed(vehicle, topic, payload)
        self.tally["answers"] += 1
        self.tally["answer.bytes"] = len(payload)
        self.say(vehicle, topic, payload)
        vehicle.waits[digest] = (publish(topic, payload, vehicle.message), time.monotonic() + RESEND)


def _newest(known: dict[K, V]) -> dict[K, V]:
    """Return what was known last: a round's request may reach some vehicles after the next one reached others."""
    return dict(list(known.items())[-REMEMBERED:])


def _asks(request: Request, agent: str) -> bool:
    if request.asked is not None:
        return agent in request.asked
    return request.sample is None or request.sample.asks(agent)


def main() -> None:
    """Serve commands until the standard input ends."""
    # Without a buffer: a line that is read ahead would wake nobody.
    with os.fdopen(sys.stdin.fileno(), "rb", buffering=0) as commands:
        vehicles = Vehicles(**json.loads(commands.readline()))
        vehicles.selector.register(commands, selectors.EVENT_READ, None)
        while True:
            if vehicles.step(0.5):
                line = commands.readline()
                if not line:
                    return
                command = json.loads(line)
                print(json.dumps({"result": getattr(vehicles, command.pop("do"))(**command)}), flush=True)


if __name__ == "__main__":
    main()
