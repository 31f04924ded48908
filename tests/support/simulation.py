"""A whole fleet in virtual time: the deployed coordinator, agents and schemes; only the clock and the transport differ.

`Simulation` owns a `MemoryHub` (broker, network and clock), one coordinator on an in-memory journal, and agents with
real state directories. Messages are handled when the hub delivers them; ticks are called when they are due; nothing
sleeps. Processes are killed at any publish (`crash_agent_at_publish`, `crash_coordinator_at_publish`) or between
messages (`kill_agent`, `kill_coordinator`), and started again with what survives a SIGKILL: the journal and the state
directories.

The same seed gives the same run, so that a failing schedule can be replayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

from broker.port import ConnectionSettings, Handlers, Link, Message, Transport
from broker.signed import SignedTransport, seal_will
from coordinator.config import CoordinatorConfig
from coordinator.core import Coordinator
from coordinator.engine import Answer, Engine
from coordinator.engine.events import from_value
from coordinator.main import assemble
from coordinator.messages import birth
from coordinator.specification.run import RunSpec
from edge_agent.agent import Agent
from edge_agent.config import AgentConfig
from edge_agent.runner import link_of
from edge_agent.sources import Source
from schemas import codec
from schemas.envelope import Envelope
from schemas.errors import WireError
from schemas.messages import Manifest
from schemas.record import ModelRecord
from schemas.topics import Topics
from tests.support.authorities import FixedCredentials, Issued, TestCa
from tests.support.memory_broker import Faults, MemoryHub, MemoryTransport, Saved
from tests.support.scratch_journal import ScratchJournal

COORDINATOR = "coordinator"
FLEET = "sim"
URL = "mqtt://memory"


class SimulatedCrashError(BaseException):
    """The process dies here. Not an Exception: nothing may handle it, as nothing handles SIGKILL."""


class CrashingTransport:
    """A transport whose owner dies at its `fuse`-th publish, before the message leaves."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.fuse: int | None = None

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                raise SimulatedCrashError
        self._inner.publish(topic, payload, retain=retain)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Simulation:
    """A fleet, its coordinator and its network.

    `state_dir` is of the agents, `seed` decides every fault of the network, and `faults` says how bad it is; `settings`
    are of single agents, e.g. ``{"v1": {"slow": 5.0}}``; `max_message_bytes` is of all processes, and `broker_limit`
    the largest payload that the broker takes: small values force requests, models and contributions into parts. With
    `ca` every process has a certificate of its own, signs, and takes signed messages only. `calendar` is the wall clock
    of all processes at the begin, seconds since the epoch, and `set_clock` moves one; None: a life's wall clock is its
    monotonic one.
    """

    begun: ClassVar[WeakSet[Simulation]] = WeakSet()

    def __init__(
        self,
        sources: Mapping[str, Source],
        state_dir: Path,
        *,
        seed: int = 0,
        faults: Faults | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        max_message_bytes: int = 128 * 1024,
        broker_limit: int | None = None,
        ca: TestCa | None = None,
        calendar: float | None = None,
    ) -> None:
        self.begun.add(self)
        self.ca = ca
        self.refused: Counter[str] = Counter()
        self._issued: dict[str, Issued] = {}
        self.calendar = calendar
        self._moved: Counter[str] = Counter()
        self.hub = MemoryHub(seed=seed, faults=faults)
        self.sources = dict(sources)
        self.journal = ScratchJournal()
        self.coordinator: Coordinator | None = None
        self.agents: dict[str, Agent] = {}
        self.deaths: Counter[str] = Counter()
        self.topics = Topics(FLEET)
        self._state_dir = state_dir
        self._settings = dict(settings or {})
        self._limit = max_message_bytes
        self._broker_limit = max_message_bytes if broker_limit is None else min(max_message_bytes, broker_limit)
        self._lives: Counter[str] = Counter()
        self._wakes: dict[str, float] = {}
        self._broker_is_up = True
        self._transports: dict[str, CrashingTransport] = {}

    @classmethod
    def end_all(cls) -> None:
        """Close the files of all agents: a fleet has a hundred, and nothing else does so before they are many."""
        for simulation in cls.begun:
            for agent in simulation.agents.values():
                agent.release()
        cls.begun.clear()

    # Processes

    def begin(self, seconds: float = 0.0) -> None:
        """Start the coordinator and all agents that do not run, and let that time pass, if any."""
        self.start_coordinator()
        for name in self.sources:
            self.start_agent(name)
        if seconds:
            self.advance(seconds)

    def heal_everything(self) -> None:
        """End all faults: broker, links and processes are up from here on, and the network is good."""
        self.start_broker()
        self.hub.heal()
        self.hub.faults = Faults()
        for transport in self._transports.values():
            transport.fuse = None
        self.begin()

    def start_coordinator(self) -> None:
        """Start it, on the journal that its former life left."""
        if self.coordinator is not None:
            return
        if self._lives[COORDINATOR]:
            self.journal.close()
            self.journal = ScratchJournal(self.journal)
        self._lives[COORDINATOR] += 1
        incarnation = f"coordinator-{self._lives[COORDINATOR]}"
        link = Link(
            URL, COORDINATOR, will=birth(self.topics, incarnation, "sim", "down"), max_message_bytes=self._broker_limit
        )
        transport = self._transports[COORDINATOR] = CrashingTransport(self._connect(COORDINATOR, link))
        clock = self._clock(COORDINATOR)

        def begin() -> None:
            coordinator = self.coordinator = assemble(
                CoordinatorConfig(fleet=FLEET, connection=ConnectionSettings(max_message_bytes=self._limit)),
                transport,
                self.journal,
                Engine(),
                clock=clock,
                wall=self._wall(COORDINATOR, clock),
                software="sim",
                incarnation=incarnation,
            )
            coordinator.outages.lost()

            def connected() -> None:
                coordinator.outages.regained()
                coordinator.connected()

            transport.start(
                Handlers(
                    message=lambda message: self._run(COORDINATOR, lambda: coordinator.handle([message])),
                    connected=lambda: self._run(COORDINATOR, connected),
                    disconnected=lambda why: coordinator.outages.lost(),
                )
            )

        self._run(COORDINATOR, begin)

    def start_agent(self, name: str) -> None:
        """Start an agent, on the state directory that its former life left."""
        if name in self.agents:
            return
        self._lives[name] += 1
        config = AgentConfig(
            id=name,
            fleet=FLEET,
            broker=URL,
            data=Path(name),
            state_dir=self._state_dir,
            **{"max_message_bytes": self._limit, **self._settings.get(name, {})},
        )

        def make_transport(will: Message) -> CrashingTransport:
            link = replace(link_of(config, will), max_message_bytes=self._broker_limit)
            self._transports[name] = CrashingTransport(self._connect(name, link))
            return self._transports[name]

        def begin() -> None:
            clock = self._clock(name)
            agent = self.agents[name] = Agent(
                config,
                self.sources[name],
                make_transport,
                clock=clock,
                wall=self._wall(name, clock),
                incarnation=f"{name}-{self._lives[name]}",
            )
            agent.start(
                Handlers(
                    message=lambda message: self._run(name, lambda: agent.handle(message)),
                    connected=lambda: self._run(name, agent.connected),
                    disconnected=lambda why: self._run(name, lambda: agent.disconnected(why)),
                )
            )

        self._run(name, begin)

    def _connect(self, name: str, link: Link) -> Transport:
        if self.ca is None:
            return MemoryTransport(self.hub, link)
        if name not in self._issued:
            self._issued[name] = self.ca.coordinator() if name == COORDINATOR else self.ca.agent(name)
        signer = self._issued[name].signer()
        assert link.will is not None
        inner: MemoryTransport = MemoryTransport(self.hub, replace(link, will=seal_will(signer, link.will)))

        def refused(message: Message, fault: WireError) -> None:
            del message
            self.refused[fault.code] += 1

        verifier = self.ca.verifier()
        return SignedTransport(inner, self.topics, FixedCredentials(signer, verifier), refused)

    def kill_coordinator(self) -> None:
        """SIGKILL."""
        if self.coordinator is not None:
            self.deaths[COORDINATOR] += 1
            self.coordinator = None
            self._silence(COORDINATOR, COORDINATOR)

    def kill_agent(self, name: str) -> None:
        """SIGKILL."""
        agent = self.agents.pop(name, None)
        if agent is not None:
            self.deaths[name] += 1
            self._silence(name, f"gf-{FLEET}-agent-{name}")
            # What the operating system does for a dead process: locks go, file handles close.
            agent.release()

    def crash_agent_at_publish(self, name: str, count: int) -> None:
        """Let the agent die at its `count`-th publish from now, before the message leaves."""
        if name in self.agents:
            self._transports[name].fuse = count

    def crash_coordinator_at_publish(self, count: int) -> None:
        """Let the coordinator die at its `count`-th publish from now: after the append, among its effects."""
        if self.coordinator is not None:
            self._transports[COORDINATOR].fuse = count

    def stop_broker(self) -> None:
        """Let the broker crash."""
        self._broker_is_up = False
        self.hub.stop_broker()

    def start_broker(self, saved: Saved | None = None) -> None:
        """Start the broker again, unless it runs; with all that it knew (None) or with what it had saved."""
        if not self._broker_is_up:
            self._broker_is_up = True
            self.hub.start_broker(saved)

    def _silence(self, name: str, client_id: str) -> None:
        self.hub.kill(client_id)
        self._wakes.pop(name, None)

    # Time

    def advance(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.hub.advance(seconds)

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do something at a virtual time."""
        self.hub.call_at(when, action)

    def _clock(self, name: str) -> Callable[[], float]:
        born = self.hub.now
        # Every life has a monotonic clock with an origin of its own, as after a reboot.
        return lambda: self.hub.now - born + 1000.0 * self._lives[name]

    def _wall(self, name: str, clock: Callable[[], float]) -> Callable[[], float]:
        begin = self.calendar
        return clock if begin is None else lambda: begin + self.hub.now + self._moved[name]

    def set_clock(self, name: str, seconds: float) -> None:
        """Move the wall clock of a machine by so much from where it is, over restarts."""
        self._moved[name] += int(seconds)

    def _run(self, name: str, action: Callable[[], None]) -> None:
        """Let a process do something, then what is due; it may die in it."""
        try:
            action()
            self._tick(name)
        except SimulatedCrashError:
            if name == COORDINATOR:
                self.kill_coordinator()
            else:
                self.kill_agent(name)

    def _tick(self, name: str) -> None:
        if name == COORDINATOR:
            coordinator = self.coordinator
            if coordinator is None:
                return
            coordinator.tick()
            wake = coordinator.next_wake()
            due = None if wake is None else self.hub.now + wake - coordinator.timeline.now()
        else:
            agent = self.agents.get(name)
            if agent is None:
                return
            clock = agent._clock
            wake = agent.tick(clock())
            while agent.idle():
                pass
            due = None if wake is None else self.hub.now + wake - clock()
        if due is None:
            return
        due = max(due, self.hub.now + 1e-6)  # rounding must not stop the clock
        if self._wakes.get(name, float("inf")) <= due and self._wakes[name] > self.hub.now:
            return
        self._wakes[name] = due
        self.hub.call_at(due, lambda: self._woken(name, due))

    def _woken(self, name: str, due: float) -> None:
        if self._wakes.get(name) == due:
            del self._wakes[name]
            self._run(name, lambda: None)

    # Runs

    def start_run(self, spec: RunSpec) -> str:
        """Start a run; the coordinator must be up."""
        coordinator, started = self.cloud, list[str]()
        self._run(COORDINATOR, lambda: started.append(coordinator.start_run(spec)))
        return started[0] if started else spec.run

    def run_until_ended(self, run: str, *, within: float) -> dict[str, Any]:
        """Advance until the run has its named end, at most `within` virtual seconds; return its document."""
        end = self.hub.now + within
        while self.hub.now < end:
            self.advance(0.5)
            if self.coordinator is not None and self.coordinator.runs.live.get(run) is None:
                return self.coordinator.runs.document(run)
        raise AssertionError(f"run {run} has no named end after {within} virtual seconds")

    @property
    def cloud(self) -> Coordinator:
        """The coordinator; it must be up."""
        assert self.coordinator is not None, "the coordinator is down"
        return self.coordinator

    def record(self, model: str) -> ModelRecord:
        """Return the last published version of a model; there must be one."""
        return ModelRecord.from_bytes(self.journal.models(model)[-1].record)

    def counted_twice(self) -> list[tuple[str, str, str]]:
        """Return (run, agent, task digest) of every answer that the journal holds as accepted more than once."""
        counts: Counter[tuple[str, str, str]] = Counter()
        for entry in self.journal.entries:
            if entry.kind == Answer.kind:
                event = from_value(codec.decode(entry.body))
                assert isinstance(event, Answer)
                counts[entry.run, event.agent, event.task_digest] += 1
        return [key for key, count in counts.items() if count > 1]

    def leaked(self) -> list[str]:
        """Return retained topics that stand for nothing: requests of ended runs, blobs that no message names."""
        named: set[str] = set()
        for topic, payload in self.hub.retained.items():
            if self.topics.parse(topic).kind in ("request", "model-version") and payload[:1] != b"{":
                body = Envelope.from_bytes(payload, fleet=FLEET).body
                if isinstance(body, Manifest):
                    named.update(self.topics.blob(body.digest, index) for index in range(body.count))
        kinds = {topic: self.topics.parse(topic).kind for topic in self.hub.retained}
        return [topic for topic, kind in kinds.items() if kind == "request" or (kind == "blob" and topic not in named)]

    def pending(self) -> dict[str, int]:
        """Return how many answers each living agent still waits to have acknowledged."""
        return {name: len(agent.outbox.contents().pending) for name, agent in self.agents.items()}
