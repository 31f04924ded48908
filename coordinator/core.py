"""The coordinator without threads: messages and time go in, messages go out.

One order is kept everywhere, and it is all that crash safety rests on: *decide*, *append* (one transaction for the
whole batch), *replace* the states, *perform* the effects. To decide, the pure engine computes the next states; what
could not be sent is found now, and ends the run by name. When the append fails the new states are thrown away and
nothing was said to anybody. A crash between append and perform is harmless: effects that shall stand are performed
again at the start, and a receipt that was not sent is asked for by the agent's resend.

The four words are four places: `transaction.decide`, the journal, `directory.Runs` (which also answers questions about
runs) and `effects.EffectHandler`; here they are put in order, and messages become events.
The class owns no thread, no clock and no socket: `process` gives it those, and a simulator may give it others.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from broker.port import Message, Transport
from coordinator.engine import (
    Cancel,
    ClearRequest,
    Effect,
    Engine,
    Event,
    RunState,
    SendReceipt,
    Start,
    Tick,
    standing,
    wakes_at,
)
from coordinator.fleet.arrivals import Arrivals
from coordinator.fleet.directory import Fleet
from coordinator.fleet.leadership import Presence
from coordinator.fleet.witness import Witness
from coordinator.journal.port import Decision, Entry, Journal
from coordinator.messages import UNKNOWN_TASK, Decoder, Ignored, Inbound, Leftover, RetainedRequest, Verified
from coordinator.models.aliases import Aliases
from coordinator.models.central import check_not_reserved
from coordinator.models.lifecycle import Models
from coordinator.models.registry import Registry
from coordinator.models.rollout.shell import Rollouts
from coordinator.runs.directory import Runs
from coordinator.runs.earlier import private_start
from coordinator.runs.effects import EffectHandler, Observer, place
from coordinator.runs.outages import Outages
from coordinator.runs.schedules import Schedules
from coordinator.runs.transaction import Ready, decide
from coordinator.specification.run import RunSpec
from coordinator.specification.schedule import Schedule
from schemas.envelope import Envelope, Retained
from schemas.errors import NotFoundError, StorageError, UsageError
from schemas.messages import AgentState, CoordinatorState, Evaluation, Receipt
from schemas.record import ModelRecord
from schemas.topics import Address, Topics

_log = structlog.get_logger("coordinator")

BIRTH = "birth"
"""Stands for the run in the receipt for a birth that cannot be read."""


class Timeline:
    """The coordinator's own time, which goes on where the journal ends.

    So no deadline comes nearer while no coordinator runs. A new journal's time begins at the wall clock, which is never
    read again to decide anything.

    Parameters
    ----------
    last : float or None
        The latest time in the journal; None: it is new.
    clock : callable
        Seconds that only go forward (``time.monotonic``); a simulator gives its own.
    wall : callable
        Wall clock, seconds since the epoch; for displays and records only.
    """

    def __init__(
        self, last: float | None, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self.clock = clock
        self.wall = wall
        self._offset = (wall() if last is None else last) - clock()

    def now(self) -> float:
        """Return the coordinator's own time, seconds."""
        return self.at(self.clock())

    def at(self, clock: float) -> float:
        """Return a time of the clock in the coordinator's own time."""
        return clock + self._offset


@dataclass(kw_only=True, eq=False)
class Coordinator:
    """Runs of one fleet; `coordinator.main.assemble` puts it together.

    Attributes
    ----------
    transport : Transport
        Started and stopped by the caller; only ``publish`` and ``subscribe`` are used.
    metrics : Counter
        Counts what happens, by name; other threads may copy it.
    observers : sequence of Observer
        Told of every performed effect and journal transaction: metrics.
    decoder, arrivals, fleet, witness, presence
        What comes from vehicles and other coordinators.
    registry, aliases, models, rollouts, runs, schedules, outages
        What is known; the HTTP API reads them.
    effects
        What is done.
    """

    topics: Topics
    transport: Transport
    journal: Journal
    engine: Engine
    timeline: Timeline
    metrics: Counter[str]
    observers: Sequence[Observer]
    decoder: Decoder
    fleet: Fleet
    arrivals: Arrivals
    witness: Witness
    presence: Presence
    registry: Registry
    aliases: Aliases
    models: Models
    rollouts: Rollouts
    outages: Outages
    runs: Runs
    schedules: Schedules
    effects: EffectHandler

    def resume(self) -> None:
        """Go on where the journal ends, and subscribe; once, before the first connection.

        Raises
        ------
        StorageError
            The journal is damaged.
        """
        for text in self.journal.damage:
            _log.warning("journal-mended", detail=text)
            self.metrics["journal.mended"] += 1
        for row in self.journal.damaged:
            _log.error("journal-damaged", detail=str(row))
            self.metrics["journal.damaged"] += 1
        begun = self.timeline.clock()
        decisions = self.journal.decisions()
        self.models.resume(decisions)
        self.schedules.resume(decisions)
        self.runs.resume()
        for state in [state for state in self.runs.live.values() if state.is_ended]:
            self._restore(state)
        for state in self.runs.live.values():
            self.effects.adopt(state)
        for observer in self.observers:
            observer.resumed(self.timeline.clock() - begun, len(self.runs.live))
        topics = self.topics
        agents = (topics.agent_state("+"), topics.contributions(), topics.evaluation("+"))
        for pattern in (*agents, topics.request("+"), topics.coordinator_state()):
            self.transport.subscribe(pattern)

    # -- what goes in ---------------------------------------------------------------------------------------------

    def connected(self) -> None:
        """Publish everything that is retained: the broker may have forgotten it."""
        self.metrics["connected"] += 1
        self._report_outages(self.timeline.now())
        self.presence.connected()
        self.models.connected()
        self.schedules.connected()
        for state in list(self.runs.live.values()):
            self._restore(state)

    def handle(self, messages: Sequence[Message], arrived: Sequence[float] | None = None) -> None:
        """Take a batch of messages; one journal transaction for all of them.

        Parameters
        ----------
        arrived : sequence of float or None
            When each came, on the clock that was given; None: now. What came before a deadline is in time, however long
            it waited here.

        Raises
        ------
        StorageError
            The journal cannot be written. Nothing has changed, nothing was acknowledged: agents will send again.
        IdentityError
            Another coordinator has taken over this fleet. Nothing of this batch has changed anything.
        """
        now = self.timeline.now()
        times = [now] * len(messages) if arrived is None else [self.timeline.at(each) for each in arrived]
        events: list[tuple[str, Event]] = []
        for message, at in zip(messages, times, strict=True):
            self.metrics["messages"] += 1
            self.metrics["bytes"] += len(message.payload)
            events += self._events(message, at)
        if self.fleet.met:
            self.fleet.recall()
        if self.witness.new:
            self.witness.write()
        if self.fleet.unwritten:
            self.fleet.write_scores()
        self._apply(events)

    def tick(self, now: float | None = None) -> None:
        """Let time pass: close what is due. `now` is in the coordinator's own time."""
        at = self.timeline.now() if now is None else now
        due = [run for run, state in self.runs.live.items() if (wake := wakes_at(state)) is not None and wake <= at]
        if due or self.outages.are_over:
            self._report_outages(at)
        self._apply([(run, Tick(at)) for run in due])
        self.presence.act_if_due()
        for event in self.arrivals.released(at):
            self._apply([(run, event) for run in self.runs.live])
        self.fleet.recall()
        self.models.check_signatures()
        self.rollouts.tick(at)
        self.schedules.tick(at, self)
        self.runs.tidy()

    def next_wake(self) -> float | None:
        """Return when the next `tick` will matter, in the coordinator's own time; None: only a message can."""
        wakes = [wake for state in self.runs.live.values() if (wake := wakes_at(state)) is not None]
        dues = [*self.arrivals.due_times(), self.presence.due]
        clocks = [self.timeline.at(due) for due in dues if due is not None]
        return min([*wakes, *self.rollouts.wakes(), *self.schedules.wakes(), *clocks], default=None)

    def start_run(self, spec: RunSpec, decisions: Sequence[Decision] = ()) -> str:
        """Begin a run, and write decisions down with it, all or nothing; returns its id.

        Raises
        ------
        UsageError
            The spec cannot be meant, or its id is taken, or id or model's name are kept for references, or another
            private run is open.
        NotFoundError
            No such scheme.
        StorageError
            The journal cannot be written.
        """
        self._check_start(spec)
        others = [run for run, state in self.runs.live.items() if state.spec.private is not None]
        if spec.private is not None and others:
            raise UsageError(
                f"private run {others[0]!r} is open, and vehicles take part in one at a time: wait for its end, or "
                "cancel it"
            )
        # Whatever the id, no answer to another run, of another journal even, can be counted in this one.
        window = spec.window and spec.window.started(self.timeline.wall())
        spec = spec.model_copy(update={"nonce": secrets.token_hex(16), "window": window})
        self.runs.begin(spec.run)
        start = Start(self.timeline.now(), spec, self.fleet.offers() | self.fleet.faulty())
        champion = self.models.champion(spec.model)
        if spec.private is not None:
            formers = [each.document for _, each in self.rollouts.formers(spec.model, private=True)]
            in_use = None if champion is None else champion.document
            start = private_start(start, in_use, formers, self.runs.private_past())
        elif champion is not None and not champion.is_private and spec.participation == "cohort":
            start = replace(start, champion=champion.document)
        policy = spec.rounds.with_quorum(len(self._counted(start, champion)))
        start = replace(start, spec=start.spec.model_copy(update={"rounds": policy}))
        self._apply([(spec.run, start)], decisions)
        # The first round opens with the start, or later when enough vehicles are up: it has none, or that one.
        where = {"round": 0} | place(self.runs.live.get(spec.run))
        _log.info("run-started", run=spec.run, scheme=spec.scheme, participation=spec.participation, **where)
        self.metrics["runs.started"] += 1
        return spec.run

    def add_schedule(self, schedule: Schedule) -> None:
        """Keep a schedule; raises UsageError and NotFoundError as `start_run`, or when there is one of that name."""
        self._check_start(schedule.run(0.0))
        self.schedules.add(schedule)

    def _check_start(self, spec: RunSpec) -> None:
        check_not_reserved(spec.run, spec.model)
        if spec.run in self.runs:
            raise UsageError(f"run {spec.run!r} exists already; leave the id out to have one made up")
        self.engine.check_start(spec)

    def _counted(self, start: Start, champion: ModelRecord | None) -> set[str]:
        """Return of whom a run needs half by default: who learned the model in use, or else the vehicles known.

        Elastic rounds are answered by those who are there, and all who ever did so are the model's cohort: of a large
        fleet, many more than are up at a time. They need half of those who are up.
        """
        if start.spec.participation == "elastic":
            known: Iterable[str] = start.agents
        elif champion is not None:
            known = champion.cohort
        else:
            known = self.fleet.known()
        return {*known} - {*start.spec.without}

    def cancel(self, run: str, reason: str = "cancelled by an operator") -> None:
        """End a live run; a run that has ended stays as it is. Raises NotFoundError when there is no such run."""
        if run in self.runs.live:
            self._apply([(run, Cancel(self.timeline.now(), reason))])
        elif run in self.runs.suspended:
            self.runs.cancel_suspended(run, reason, self.timeline.now())
            self._perform([ClearRequest(run)], {})
        elif run not in self.runs.past:
            raise NotFoundError(f"no run {run!r}")

    def stop(self) -> None:
        """Write down what was only counted, and say goodbye."""
        self.runs.write_counts()
        self.presence.goodbye()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _events(self, message: Message, at: float) -> Iterable[tuple[str, Event]]:
        decoded = message.said(at) if isinstance(message, Verified) else self.decoder.decode(message, at)
        match decoded:
            case (run, event) if run in self.runs.live:
                return [(run, event)]
            case (run, event):
                self.effects.reply_not_live(run, event)
            case Envelope(body=AgentState()) | Address(kind="agent-state"):
                return self._presence_events(decoded, at)
            case Ignored(code, detail, agent):
                self._ignore(code, detail, agent, message.topic)
            case _:
                self._take(decoded, message)
        return []

    def _take(self, decoded: Inbound | None, message: Message) -> None:
        """Take what is no event of a run."""
        match decoded:
            case Envelope(body=CoordinatorState() as state, time=term):
                self.presence.check_peer(state.incarnation, state.status, term, retained=message.retained)
            case Address(kind="coordinator-state"):
                self.presence.check_peer("", "down", 0.0, retained=message.retained)
            case Envelope(agent=agent, body=Evaluation() as scores):
                self.fleet.evaluated(agent, scores)
                self.rollouts.report(agent, scores)
            case Leftover(topic):
                self.metrics["retained.cleared"] += 1
                self.transport.publish(topic, b"", retain=True)
            case RetainedRequest(run, blobs):
                self.effects.check_request(run, blobs)
            case Address(kind="request", run=run) if run in self.runs.live:
                # Somebody cleared the request of a live run, or the broker lost it: agents took it for the run's end.
                self.metrics["requests.restored"] += 1
                self._restore(self.runs.live[run])

    def _ignore(self, code: str, detail: str, agent: str, topic: str) -> None:
        self.metrics[f"ignored.{code}"] += 1
        reason = f"{code}: {detail}"[:480]
        if not agent:
            _log.info("message-ignored", topic=topic[:200], code=code, detail=detail)
        elif self.fleet.unreadable.note(agent, reason, self.timeline.wall()):
            receipt = Receipt(run=BIRTH, task_digest=UNKNOWN_TASK, outcome="rejected", reason=reason)
            self.effects.receipt(SendReceipt(BIRTH, agent, receipt), None)

    def _presence_events(self, message: Envelope | Address, at: float) -> list[tuple[str, Event]]:
        state = message.body if isinstance(message, Envelope) else None
        if not isinstance(state, AgentState) or state.status == "down":
            self.decoder.forget(message.agent)
        elif state.forecasts is not None:
            self.witness.saw(message.agent, state.forecasts)
        self.fleet.unreadable.known.pop(message.agent, None)
        event = self.arrivals.event_of(message, at)
        return [] if event is None else [(run, event) for run in self.runs.live]

    def _report_outages(self, at: float) -> None:
        self._apply([(run, event) for event in self.outages.pop_events(at) for run in self.runs.live])

    def _apply(self, events: Iterable[tuple[str, Event]], decisions: Sequence[Decision] = ()) -> None:
        """Decide, append, replace, perform."""
        runs, wall = self.runs, self.timeline.wall()
        transaction = decide(self.engine, runs.live, runs.counters, events, preflight=self.effects.preflight, wall=wall)
        self._append(transaction.entries, decisions)
        runs.replace_states(transaction.states, transaction.counters)
        self._perform(transaction.effects, transaction.ready)

    def _append(self, entries: Sequence[Entry], decisions: Sequence[Decision]) -> None:
        if not entries:
            return
        begun = self.timeline.clock()
        try:
            self.journal.append(entries, decisions)
        except StorageError:
            self.metrics["journal.failed"] += 1
            raise
        self.metrics["journal.records"] += len(entries)
        self.metrics["journal.transactions"] += 1
        for observer in self.observers:
            observer.appended(self.timeline.clock() - begun, len(entries))

    def _perform(self, effects: Iterable[Effect], ready: Mapping[str, Retained]) -> None:
        for effect in effects:
            state = self.runs.live.get(effect.run)
            self.effects.perform(effect, state, ready)
            for observer in self.observers:
                observer.performed(effect, state, self.timeline.now())

    def _restore(self, state: RunState) -> None:
        """Perform what shall hold now, again; a run whose request or model this broker cannot carry ends by name."""
        effects = standing(state)
        ready: Ready = {}
        unable = self.effects.preflight(state, effects, ready, again=True)
        if unable is None:
            self._perform(effects, ready)
        else:
            self._apply([(state.run, unable)])
