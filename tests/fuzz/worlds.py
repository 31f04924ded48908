"""The real coordinator and a real agent on the in-memory broker, with a peer who sends them broken messages.

After every input the world is put back, so that each input stands for itself and a failing one can be made again.
"""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from dataclasses import fields
from pathlib import Path

import numpy as np

from broker.port import Handlers, Link, Message
from coordinator.config import CoordinatorConfig
from coordinator.engine import Engine, RunState
from coordinator.journal import Entry
from coordinator.main import assemble
from coordinator.specification.run import RoundPolicy, RunSpec
from edge_agent.agent import Agent
from edge_agent.config import AgentConfig
from edge_agent.models.summed import summed
from edge_agent.runner import link_of
from edge_agent.sources import Source
from glassfleet.contract.messages import Contribution, Task
from glassfleet.evaluation.scores import SCORES
from schemas import codec, limits
from schemas.envelope import Envelope, frames_for_contribution
from schemas.errors import IdentityError, UsageError, WireError
from schemas.messages import AgentState, Body, ContributionBody, Manifest, ModelPointer, Receipt, Refusal, Request
from schemas.topics import Topics, check_id
from tests.fuzz.mutate import break_bytes, edited, mutate, plain
from tests.fuzz.targets import FLEET, benches, bomb, envelopes, halves, record_of, steps
from tests.support.memory_broker import MemoryHub, MemoryTransport
from tests.support.scratch_journal import ScratchJournal

URL = "mqtt://memory"
TOPICS = Topics(FLEET)

LEARNED = ("phase", "features", "target", "domain", "domain_contributors", "frozen", "store", "levels", "cohort")
"""Fields of a run that only an accepted answer may change."""

COUNTED = frozenset({"late", "duplicate", "rejected", "dropped", "asked", "size"})
"""Fields of the open round that a rejected answer may change: the counters, and that its sender is not waited for."""

MAX_ENTRY = 4096
"""Bytes that the journal may grow by for a message that was turned away."""


class CoordinatorWorld:
    """`Coordinator.handle` in the middle of a scheme's run; the peer is a member of its cohort."""

    def __init__(self, scheme: str) -> None:
        self.name = f"{scheme}/coordinator"
        bench = benches()[scheme]
        self._hub = MemoryHub()
        self._receipts: list[Receipt] = []
        self._journal = ScratchJournal()
        transport = MemoryTransport(self._hub, Link(URL, "coordinator"))
        self._core = assemble(
            CoordinatorConfig(fleet=FLEET),
            transport,
            self._journal,
            Engine(),
            clock=lambda: self._hub.now,
            wall=lambda: self._hub.now,
        )
        transport.start(Handlers(lambda m: self._core.handle([m]), self._core.connected, lambda _why: None))
        self._peer = MemoryTransport(self._hub, Link(URL, "peer", max_message_bytes=2**27))
        self._agents = sorted(bench.fleet)
        self._evil = self._agents[2]
        self._peer.subscribe(TOPICS.receipt(self._evil))
        self._peer.start(Handlers(self._hear, lambda: None, lambda _why: None))
        self._hub.pump()
        data = bench.fleet[self._evil]
        for agent in self._agents:
            body = AgentState(
                status="up",
                incarnation="1",
                schemes=[bench.scheme.name],
                features=list(data.features),
                target=data.target,
            )
            self._publish(TOPICS.agent_state(agent), Envelope(fleet=FLEET, body=body, agent=agent).to_bytes())
        spec = RunSpec(
            run="r",
            scheme=bench.scheme.name,
            parameters=bench.parameters.model_dump(mode="json"),
            participation="cohort" if "cohort" in bench.scheme.participation else "elastic",
            rounds=RoundPolicy(min_agents=1, gather_agents=len(self._agents), deadline=3600.0),
            domain=bench.domain,
        )
        self._core.start_run(spec)
        self._hub.pump()
        self._moments: list[tuple[RunState, bytes]] = []
        self._walk(scheme)

    def _walk(self, scheme: str) -> None:
        """Go through the run, and remember each round as it waits for the peer and one other."""
        client, _ = halves(scheme)
        fleet = benches()[scheme].fleet
        while (state := self._core.runs.live.get("r")) is not None:
            task: Task = state.levels[-1].task
            *others, slow = (agent for agent in self._agents if agent != self._evil)
            for agent in [*others, self._evil, slow]:
                rows = fleet[agent]
                if task.scheme == SCORES.name:
                    contribution = summed(task, rows, rows)
                else:
                    contribution = client.contribute(task, rows, np.random.default_rng(0))
                whole = self._answer(agent, task, contribution)
                if agent == self._evil:
                    before = self._core.runs.live.get("r")
                    assert before is not None
                    self._moments.append((before, whole.to_bytes()))
                for frame in frames_for_contribution(whole, TOPICS):
                    self._publish(*frame)
        assert self._core.runs.document("r")["outcome"] == "finished", self._core.runs.document("r")
        self._core.runs.past.clear()

    @staticmethod
    def _answer(agent: str, task: Task, contribution: Contribution) -> Envelope:
        body = ContributionBody(
            task_digest=task.digest,
            rows=contribution.rows,
            data_digest=hashlib.sha256(agent.encode()).hexdigest(),
            contribution=contribution.to_value(),
        )
        return Envelope(fleet=FLEET, body=body, run="r", agent=agent, scheme=task.scheme)

    def feed(self, rng: random.Random) -> str:
        """Send one broken answer, or another broken message; check what it did."""
        state, whole = rng.choice(self._moments)
        self._core.runs.replace_states({"r": state}, {})
        self._journal.clear()
        self._receipts.clear()
        topic, payloads = self._message(rng, whole)
        for payload in payloads:
            self._publish(topic, payload)
        return self._judge(state, topic, payloads, self._journal.entries)

    def replay(self, topic: str, payload: bytes) -> str:
        """Send one message of the corpus in the run's first round; what became of it."""
        state = self._moments[0][0]
        self._core.runs.replace_states({"r": state}, {})
        self._journal.clear()
        self._receipts.clear()
        self._publish(topic, payload)
        return self._judge(state, topic, [payload], self._journal.entries)

    @property
    def reasons(self) -> list[str]:
        """What the receipts of the last input said."""
        return [receipt.reason for receipt in self._receipts]

    def flood(self, messages: int) -> int:
        """Send the same wrong answer, each time with another lie; how many records the journal holds of them."""
        state, whole = self._moments[0]
        self._core.runs.replace_states({"r": state}, {})
        self._journal.clear()
        self._receipts.clear()
        for lie in range(messages):
            value = codec.decode(whole)
            value["body"]["contribution"] = {"lie": lie}
            self._publish(TOPICS.contribution(self._evil), codec.encode(value))
        assert len(self._receipts) == messages
        return len(self._journal.entries)

    def _message(self, rng: random.Random, whole: bytes) -> tuple[str, list[bytes]]:
        topic = TOPICS.contribution(self._evil)
        way = rng.random()
        if way < 0.6:
            return topic, [self._lie(rng, whole)]
        if way < 0.7:
            return topic, [mutate(rng, codec.decode(whole), whole)]
        if way < 0.8:
            return topic, self._parts(rng, whole)
        other = rng.choice(envelopes())
        value = {**codec.decode(other.to_bytes()), "agent": self._evil}
        where = rng.choice((topic, TOPICS.agent_state(self._evil), TOPICS.evaluation(self._evil), TOPICS.request("r")))
        return where, [rng.choice((b"", codec.encode(value), mutate(rng, value, whole)))]

    @staticmethod
    def _lie(rng: random.Random, whole: bytes) -> bytes:
        """A well-formed answer that says something else."""
        value = codec.decode(whole)
        body = value["body"]
        lie = edited(rng, body["contribution"], edits=rng.choice((1, 1, 2)))
        body = {**body, "contribution": lie}
        if rng.random() < 0.2:
            body = edited(rng, body)
        try:
            return codec.encode({**value, "body": body})
        except (TypeError, ValueError):
            return break_bytes(rng, whole, whole)

    def _parts(self, rng: random.Random, whole: bytes) -> list[bytes]:
        envelope = Envelope.from_bytes(whole, fleet=FLEET)
        content = rng.choice((whole, b"\x01" + zlib.compress(self._lie(rng, whole), 1), b"\x00" + whole))
        if rng.random() < 0.01:
            content = bomb()
        digest = hashlib.sha256(content).hexdigest()
        size = -(-len(content) // 3)
        made = []
        for index in range(3):
            part = {"digest": digest, "index": index, "count": 3, "data": content[index * size : (index + 1) * size]}
            value = codec.decode(Envelope(fleet=FLEET, body=Refusal(task_digest=digest, reason=""), run="r").to_bytes())
            value |= {"kind": "part", "agent": envelope.agent, "body": part}
            made.append(codec.encode(value) if rng.random() < 0.9 else mutate(rng, value, whole))
        if rng.random() < 0.3:
            rng.shuffle(made)
        return made

    def _publish(self, topic: str, payload: bytes) -> None:
        self._peer.publish(topic, payload)
        self._hub.pump()

    def _hear(self, message: Message) -> None:
        body = Envelope.from_bytes(message.payload, fleet=FLEET).body
        assert isinstance(body, Receipt)
        self._receipts.append(body)

    def _judge(self, before: RunState, topic: str, payloads: list[bytes], entries: list[Entry]) -> str:
        self._core.runs.past.clear()
        outcomes = [receipt.outcome for receipt in self._receipts]
        after = self._core.runs.live.get("r")
        own = topic == TOPICS.contribution(self._evil)
        if own and len(payloads) == 1 and outcomes:
            assert len(outcomes) == 1, "one receipt for one message"
        if own and len(payloads) == 1 and not outcomes:
            # Only a part of something waits for more; everything else that names its run is answered.
            assert not names_run(payloads[0]) or Envelope.from_bytes(payloads[0], fleet=FLEET).body.kind == "part"
        for receipt in self._receipts:
            assert receipt.outcome in ("accepted", "unknown-run") or receipt.reason, "a reason"
            assert "cannot be checked" not in receipt.reason, f"check() tripped: {receipt.reason}"
        if "accepted" in outcomes:
            reason = "" if after is None else after.reason
            for name in ("scheme-error", "Traceback"):
                assert name not in reason, f"an accepted answer broke the run: {reason}"
            return "accepted"
        assert after is not None, "a run does not end because of a message that was turned away"
        if own:
            self._unchanged(before, after)
            assert sum(len(entry.body) for entry in entries) <= MAX_ENTRY * max(1, len(payloads)), "bounded journal"
        return outcomes[-1] if outcomes else "unanswered"

    @staticmethod
    def _unchanged(before: RunState, after: RunState) -> None:
        for name in LEARNED:
            assert getattr(before, name) is getattr(after, name), f"{name} changed"
        for old, new in zip(before.rounds, after.rounds, strict=True):
            assert (old.accepted_agents, old.dropped_agents) == (new.accepted_agents, new.dropped_agents)
        assert before.open is not None
        assert after.open is not None
        for field in fields(before.open):
            if field.name not in COUNTED:
                assert getattr(before.open, field.name) == getattr(after.open, field.name), f"{field.name} changed"


def names_run(payload: bytes) -> bool:
    """Whether a run can be read in a message, however wrong the rest is."""
    try:
        check_id("run", codec.decode(payload, max_bytes=limits.MAX_DECODED_BYTES)["run"])
    except (UsageError, WireError, LookupError, TypeError):
        return False
    return True


class AgentWorld:
    """`Agent.handle` and what it computes then; the peer can write on every topic that the agent reads."""

    name = "agent"

    def __init__(self, folder: Path) -> None:
        self._hub = MemoryHub()
        bench = benches()["frt"]
        data = bench.fleet["vehicle-2"]
        config = AgentConfig(id="v", fleet=FLEET, broker=URL, data=Path("v"), state_dir=folder)
        self._answers: list[Body] = []
        self._peer = MemoryTransport(self._hub, Link(URL, "peer", max_message_bytes=2**27))
        self._peer.subscribe(TOPICS.contribution("v"))
        self._peer.start(Handlers(self._hear, lambda: None, lambda _why: None))
        self._agent = Agent(
            config,
            Source(data, bench.fleet["vehicle-3"]),
            lambda will: MemoryTransport(self._hub, link_of(config, will)),
            clock=lambda: self._hub.now,
            wall=lambda: self._hub.now,
            incarnation="0",
        )
        self._agent.start()
        self._hub.advance(1.0)
        self._requests = [self._request(step.task) for step, _ in steps("frt")]
        others = [steps(name)[0][0].task for name in ("frbc", "domain")]
        self._requests += [self._request(task) for task in others]
        self._time = 0.0
        self._version = 0
        self._inputs = 0
        self._record = record_of("frt").to_bytes()
        # Everything but births under its own id, whose foreign incarnation rightly stops it.
        self._bodies = [envelope for envelope in envelopes() if envelope.body.kind != "agent-state"]

    @staticmethod
    def _request(task: Task) -> bytes:
        body = Request(task=task.to_value(), task_digest=task.digest, remaining=9.0, asked=["v"])
        return Envelope(fleet=FLEET, body=body, run="r", scheme=task.scheme).to_bytes()

    def feed(self, rng: random.Random) -> str:
        """Send broken messages, let the agent do what it wants to do then, and look at what it says."""
        self._answers.clear()
        outcome = "ignored"
        counts = self._agent.counts.total()
        for topic, payload in self._messages(rng):
            self._peer.publish(topic, payload)
        try:
            self._hub.advance(0.1)
            self._agent.tick(self._hub.now)
            while self._agent.idle():
                pass
            self._hub.pump()
        except IdentityError:
            outcome = "stopped"  # documented: another process claims its id
        assert self._agent.counts.total() > counts, "messages are counted"
        for body in self._answers:
            outcome = body.kind
            assert "internal fault" not in getattr(body, "reason", ""), body
        self._forget()
        return outcome

    def _messages(self, rng: random.Random) -> list[tuple[str, bytes]]:
        request = rng.choice(self._requests)
        way = rng.random()
        if way < 0.55:
            return [(TOPICS.request("r"), self._task(rng, request))]
        if way < 0.65:
            return [(TOPICS.request("r"), mutate(rng, codec.decode(request), request))]
        if way < 0.8:
            return self._blobs(rng, request)
        if way < 0.9:
            self._version += 1
            record = break_bytes(rng, self._record, request)
            if rng.random() < 0.5:
                record = json.dumps(plain(edited(rng, json.loads(self._record))), default=repr).encode()
            pointer = ModelPointer(name="m", version=self._version, digest=json.loads(self._record)["digest"])
            return [
                (TOPICS.model_current("m"), Envelope(fleet=FLEET, body=pointer).to_bytes()),
                (TOPICS.model_version("m", self._version), record),
            ]
        value = codec.decode(rng.choice(self._bodies).to_bytes())
        topics = (TOPICS.receipt("v"), TOPICS.coordinator_state(), TOPICS.model_current("m"), TOPICS.request("r"))
        return [(rng.choice(topics), mutate(rng, value, request))]

    def _task(self, rng: random.Random, request: bytes) -> bytes:
        """A request that is well-formed and newer than the one before; its task is broken."""
        value = codec.decode(request)
        self._time += 1.0
        task = value["body"]["task"]
        task = {**task, "body": edited(rng, task["body"], edits=rng.choice((1, 1, 2)))}
        try:
            body = {**value["body"], "task": task, "task_digest": codec.digest_of(codec.decode(codec.encode(task)))}
            return codec.encode({**value, "time": self._time, "body": body})
        except (TypeError, ValueError):
            return mutate(rng, value, request)

    def _blobs(self, rng: random.Random, request: bytes) -> list[tuple[str, bytes]]:
        envelope = Envelope.from_bytes(request, fleet=FLEET)
        content = rng.choice((b"\x00" + request, b"\x01" + zlib.compress(request, 1), request))
        if rng.random() < 0.01:
            content = bomb()
        digest = hashlib.sha256(content).hexdigest()
        size = len(content) if rng.random() < 0.7 else rng.choice((0, 1, 2**20, 2**31 - 1))
        manifest = Manifest(digest=digest, count=rng.choice((1, 2, 4096)), size=size, what="request")
        outer = Envelope(fleet=FLEET, body=manifest, run="r", time=envelope.time)
        blob = content if rng.random() < 0.7 else break_bytes(rng, content, request)
        return [(TOPICS.request("r"), outer.to_bytes()), (TOPICS.blob(digest, 0), blob)]

    def _forget(self) -> None:
        """End the run now and then, so that its tasks do not pile up."""
        self._inputs += 1
        if self._inputs % 50:
            return
        self._peer.publish(TOPICS.request("r"), b"")
        self._hub.pump()
        self._agent.tick(self._hub.now)

    def _hear(self, message: Message) -> None:
        self._answers.append(Envelope.from_bytes(message.payload, fleet=FLEET).body)

    def close(self) -> None:
        """Release the agent's files."""
        self._agent.stop()
