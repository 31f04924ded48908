"""The coordinator without threads: messages and time go in, messages go out.

One order is kept everywhere, and it is all that crash safety rests on: *decide* (the pure engine computes the next
states), *append* (one transaction for the whole batch), *take over* the new states, *perform* the effects. When the
append fails the new states are thrown away and nothing was said to anybody. A crash between append and perform is
harmless: effects that shall stand are performed again at the start, and a receipt that was not sent is asked for by the
agent's resend.

The class owns no thread, no clock and no socket: `runner` gives it those, and a simulator may give it others.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog

from broker.port import Message, Transport
from coordinator.engine import (
    AgentDown,
    AgentUp,
    Answer,
    Cancel,
    ClearRequest,
    Effect,
    Ended,
    Engine,
    Event,
    Malformed,
    OpenRound,
    Publish,
    Refused,
    Restarted,
    RoundClosed,
    RunState,
    SendReceipt,
    Start,
    Tick,
    TurnedAway,
    standing,
    wakes_at,
)
from coordinator.engine.events import from_value, to_value
from coordinator.fleet import Fleet
from coordinator.inbound import Birth, Death, Decoder, ForRun, Ignored, Leftover, Scores
from coordinator.journal.port import Entry, Journal
from coordinator.registry import Registry
from coordinator.spec import RunSpec
from coordinator.view import run_document
from schemas import codec
from schemas.envelope import Envelope
from schemas.errors import BrokerError, GlassfleetError, NotFoundError, StorageError, UsageError
from schemas.limits import MAX_DECODED_BYTES, MAX_MESSAGE_BYTES
from schemas.messages import CoordinatorState, Receipt, Request
from schemas.parts import Retained, clearing, frames_for_request
from schemas.topics import Topics

_log = structlog.get_logger("coordinator")


def birth(topics: Topics, incarnation: str, software: str, status: str) -> Message:
    """Return the retained message that says whether the coordinator is up; the one with ``down`` is its last will."""
    body = CoordinatorState(status="up" if status == "up" else "down", incarnation=incarnation, software=software)
    return Message(topics.coordinator_state(), Envelope(fleet=topics.fleet, body=body).to_bytes(), retained=True)


class Coordinator:
    """Runs of one fleet.

    Parameters
    ----------
    fleet : str
    transport : Transport
        Started and stopped by the caller; only ``publish`` and ``subscribe`` are used here.
    journal : Journal
    engine : Engine
    clock : callable
        Seconds that only go forward (``time.monotonic``); a simulator gives its own.
    wall : callable
        Wall clock, seconds since the epoch; for displays and records only.
    max_message_bytes : int
        Larger requests and models travel in parts.
    retained_versions : int
        So many versions of each model are kept on retained topics.
    keep_records : bool
        Whether the events of ended runs stay in the journal.
    software, incarnation : str
        For births and records.

    Raises
    ------
    StorageError
        The journal is damaged.
    """

    def __init__(
        self,
        fleet: str,
        transport: Transport,
        journal: Journal,
        engine: Engine,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        retained_versions: int = 10,
        keep_records: bool = True,
        software: str = "glassfleet",
        incarnation: str = "",
    ) -> None:
        self.topics = Topics(fleet)
        self.incarnation = incarnation or secrets.token_hex(8)
        self.software = software
        self.metrics: Counter[str] = Counter()
        self.engine = engine
        self.fleet = Fleet(wall)
        self.registry = Registry(journal, fleet, software, wall)
        self._transport = transport
        self._journal = journal
        self._clock = clock
        self._wall = wall
        self._max_bytes = max_message_bytes
        self._retained_versions = retained_versions
        self._keep_records = keep_records
        self._decoder = Decoder(self.topics)
        self._runs: dict[str, RunState] = {}
        self._started: dict[str, float] = {}
        self._requests: dict[str, tuple[str, Retained]] = {}
        self._models: dict[str, dict[str, Any]] = {}
        self._past: dict[str, None] = dict.fromkeys(journal.ended())
        last = journal.last_time()
        # The time line continues where the journal ends: while no coordinator runs, no deadline comes nearer. A new
        # journal's begins at the wall clock, which is never read again to decide anything.
        self._offset = (wall() if last is None else last) - clock()
        for text in journal.damage:
            _log.warning("journal-mended", detail=text)
            self.metrics["journal.mended"] += 1
        self._resume()
        transport.subscribe(f"{self.topics.prefix}agent/+/state")
        transport.subscribe(f"{self.topics.prefix}agent/+/run/+/contribution")
        transport.subscribe(f"{self.topics.prefix}agent/+/evaluation")
        transport.subscribe(f"{self.topics.prefix}run/+/request")

    # -- what goes in ---------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the coordinator's own time, seconds."""
        return self._clock() + self._offset

    def connected(self) -> None:
        """Publish everything that is retained: the broker may have forgotten it."""
        self.metrics["connected"] += 1
        message = birth(self.topics, self.incarnation, self.software, "up")
        self._publish(message.topic, message.payload, retain=True)
        for frame in self.registry.frames(self.topics, self._limit, self._retained_versions):
            self._publish(*frame, retain=True)
        for state in list(self._runs.values()):
            self._perform(standing(state))

    def handle(self, messages: Sequence[Message]) -> None:
        """Take a batch of messages; one journal transaction for all of them.

        Raises
        ------
        StorageError
            The journal cannot be written. Nothing has changed, nothing was acknowledged: agents will send again.
        """
        at = self.now()
        events: list[tuple[str, Event]] = []
        for message in messages:
            self.metrics["messages"] += 1
            self.metrics["bytes"] += len(message.payload)
            events += self._events(message, at)
        self._apply(events)

    def tick(self, now: float | None = None) -> None:
        """Let time pass: close what is due. `now` is in the coordinator's own time."""
        at = self.now() if now is None else now
        due = [run for run, state in self._runs.items() if (wake := wakes_at(state)) is not None and wake <= at]
        self._apply([(run, Tick(at)) for run in due])

    def next_wake(self) -> float | None:
        """Return when the next `tick` will matter, in the coordinator's own time; None: only a message can."""
        return min((wake for state in self._runs.values() if (wake := wakes_at(state)) is not None), default=None)

    def start_run(self, spec: RunSpec) -> str:
        """Begin a run; returns its id.

        Raises
        ------
        UsageError
            The spec cannot be meant, or the id is taken.
        NotFoundError
            No such scheme.
        StorageError
            The journal cannot be written.
        """
        if spec.run in self._runs or spec.run in self._past:
            raise UsageError(f"run {spec.run!r} exists already; leave the id out to have one made up")
        self.engine.parameters(spec)
        self._started[spec.run] = self._wall()
        self._apply([(spec.run, Start(self.now(), spec, self.fleet.offers()))])
        _log.info("run-started", run=spec.run, scheme=spec.scheme, participation=spec.participation)
        self.metrics["runs.started"] += 1
        return spec.run

    def cancel(self, run: str, reason: str = "cancelled by an operator") -> None:
        """End a live run; a run that has ended stays as it is. Raises NotFoundError when there is no such run."""
        if run in self._runs:
            self._apply([(run, Cancel(self.now(), reason))])
        elif run not in self._past:
            raise NotFoundError(f"no run {run!r}")

    def stop(self) -> None:
        """Say goodbye: a clean stop does not trigger the last will."""
        message = birth(self.topics, self.incarnation, self.software, "down")
        self._publish(message.topic, message.payload, retain=True)

    # -- what can be seen -----------------------------------------------------------------------------------------

    def run_ids(self) -> list[str]:
        """Ids of all runs, oldest first."""
        return [*self._past, *self._runs]

    def state(self, run: str) -> RunState | None:
        """Return the state of a live run."""
        return self._runs.get(run)

    def run(self, run: str) -> dict[str, Any]:
        """Return a run as JSON values; raises NotFoundError when there is no such run."""
        state = self._runs.get(run)
        if state is not None:
            return run_document(
                self.engine, state, started=self._started.get(run, 0.0), ended=None, model=self._models.get(run)
            )
        document = self._journal.document(run)
        if document is None:
            raise NotFoundError(f"no run {run!r}")
        return document

    @property
    def _limit(self) -> int:
        """Bytes of one payload: as configured, or less when the broker says so (MQTT 5)."""
        return min(self._max_bytes, self._transport.max_message_bytes)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        for run in self._journal.unfinished():
            state: RunState | None = None
            # A list, not an iterator: nothing may hold the database open while it is written to.
            for entry in list(self._journal.records(run)):
                self._started.setdefault(run, entry.wall)
                state, _ = self.engine.step(state, _read(entry))
            if state is not None:
                self._runs[run] = state
                self.metrics["runs.resumed"] += 1
                _log.info("run-resumed", run=run, phase=state.phase, round=len(state.rounds) + 1)
        for state in [state for state in self._runs.values() if state.is_ended]:
            self._perform(standing(state))

    def _events(self, message: Message, at: float) -> Iterable[tuple[str, Event]]:
        match self._decoder.read(message, at):
            case Birth(agent, body):
                offer = self.fleet.up(agent, body)
                return [] if offer is None else self._for_all(AgentUp(at, agent, offer))
            case Death(agent, incarnation):
                self._decoder.forget(agent)
                return self._for_all(AgentDown(at, agent)) if self.fleet.down(agent, incarnation) else []
            case Scores(agent, scores):
                self.fleet.evaluated(agent, scores)
            case Leftover(run) if run not in self._runs:
                # A coordinator that was killed before it could clear: the run has ended, its request must not stand.
                self.metrics["requests.cleared-leftover"] += 1
                self._publish(self.topics.request(run), b"", retain=True)
            case Ignored(code, detail):
                self.metrics[f"ignored.{code}"] += 1
                _log.info("message-ignored", topic=message.topic[:200], code=code, detail=detail)
            case ForRun(run, event) if run in self._runs:
                return [(run, event)]
            case ForRun(run, event):
                outcome = "late" if run in self._past else "unknown-run"
                reason = "the run has ended" if run in self._past else ""
                if isinstance(event, Malformed):
                    outcome, reason = "rejected", event.reason
                self._perform([SendReceipt(run, event.agent, event.task_digest, outcome, reason)])  # type: ignore[arg-type]
        return []

    def _for_all(self, event: Event) -> list[tuple[str, Event]]:
        return [(run, event) for run in self._runs]

    def _apply(self, events: Iterable[tuple[str, Event]]) -> None:
        """Decide, append, take over, perform."""
        states: dict[str, RunState] = {}
        entries: list[Entry] = []
        effects: list[Effect] = []
        wall = self._wall()
        for run, event in events:
            before = states.get(run) or self._runs.get(run)
            after, caused = self.engine.step(before, event)
            effects += caused
            if after is not before:
                states[run] = after
                entries.append(_entry(run, _short(event, caused), wall))
        if entries:
            try:
                self._journal.append(entries)
            except StorageError:
                self.metrics["journal.failed"] += 1
                raise
            self.metrics["journal.records"] += len(entries)
            self.metrics["journal.transactions"] += 1
            self._runs.update(states)
        self._perform(effects)

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            log = _log.bind(run=effect.run)
            match effect:
                case OpenRound():
                    self._open(effect, log)
                case ClearRequest():
                    self._clear(effect.run)
                case SendReceipt():
                    self._receipt(effect, log)
                case RoundClosed():
                    self._tell_closed(effect, log)
                case Restarted():
                    self.metrics["runs.restarts"] += 1
                    log.warning("run-replayed", round=effect.number, lost=list(effect.lost))
                case Publish():
                    self._register(effect, log)
                case Ended():
                    self._finish(effect, log)

    def _open(self, effect: OpenRound, log: Any) -> None:
        log = log.bind(round=effect.number, phase=effect.phase, attempt=effect.attempt)
        remaining = max(0.0, effect.closes_at - self.now())
        try:
            retained = self._request(effect, remaining)
            if retained.blobs:
                # Blobs are named by their content: a request in parts says the whole deadline, so that the same round
                # has the same blobs whenever it is published.
                retained = self._request(effect, effect.deadline)
        except BrokerError as fault:
            log.error(  # noqa: TRY400  the reason says it all
                "request-too-large", detail=str(fault)
            )
            self.cancel(effect.run, f"request-too-large: {fault}"[:400])
            return
        _, old = self._requests.get(effect.run, ("", Retained(())))
        self._requests[effect.run] = (effect.key, retained)
        for frame in retained.frames:
            self._publish(*frame, retain=True)
        self._forget_blobs(set(old.blobs) - set(retained.blobs))
        self.metrics["rounds.opened"] += 1
        asked = "all" if effect.asked is None else len(effect.asked)
        log.info("round-opened", kind=effect.task.kind, asked=asked, remaining=round(remaining, 3))

    def _request(self, effect: OpenRound, remaining: float) -> Retained:
        request = Request(
            task=effect.task.to_value(),
            task_digest=effect.task_digest,
            remaining=remaining,
            asked=None if effect.asked is None else list(effect.asked),
        )
        envelope = Envelope(
            fleet=self.topics.fleet,
            body=request,
            run=effect.run,
            scheme=effect.task.scheme,
            round=effect.number,
            attempt=effect.attempt,
            # Agents order the requests of a run by this: the time line of the journal never goes back, and the ordinal
            # tells apart what was opened at the same instant.
            time=effect.closes_at - effect.deadline + 1e-6 * effect.ordinal,
        )
        return frames_for_request(envelope, self.topics, self._limit)

    def _clear(self, run: str) -> None:
        _, old = self._requests.pop(run, ("", Retained(())))
        self._publish(self.topics.request(run), b"", retain=True)
        self._forget_blobs(old.blobs)

    def _forget_blobs(self, blobs: Iterable[str]) -> None:
        for frame in clearing(sorted(blobs)):
            self._publish(*frame, retain=True)

    def _receipt(self, effect: SendReceipt, log: Any) -> None:
        self.metrics[f"receipts.{effect.outcome}"] += 1
        body = Receipt(
            run=effect.run, task_digest=effect.task_digest, outcome=effect.outcome, reason=effect.reason[:500]
        )
        envelope = Envelope(fleet=self.topics.fleet, body=body, run=effect.run, agent=effect.agent, time=self._wall())
        self._publish(self.topics.receipt(effect.agent), envelope.to_bytes())
        tell = log.debug if effect.outcome == "accepted" else log.info
        tell("answered", agent=effect.agent, outcome=effect.outcome, reason=effect.reason, task=effect.task_digest[:12])

    def _tell_closed(self, effect: RoundClosed, log: Any) -> None:
        self.metrics["rounds.closed"] += 1
        summary = effect.summary
        log.info(
            "round-closed",
            round=summary.number,
            phase=summary.phase,
            attempt=summary.attempt,
            asked=len(summary.asked_agents),
            accepted=len(summary.accepted_agents),
            dropped=dict(summary.dropped_agents),
            seconds=round(summary.seconds, 3),
            bytes=summary.bytes,
        )

    def _register(self, effect: Publish, log: Any) -> None:
        state = self._runs[effect.run]
        try:
            model = self.registry.add(effect, state)
            for frame in self.registry.frames(self.topics, self._limit, self._retained_versions, model.name):
                self._publish(*frame, retain=True)
        except StorageError:
            raise
        except (GlassfleetError, ValueError, TypeError) as fault:
            # The run has its named end; a model that cannot be written down is told, not retried for ever.
            self.metrics["models.unpublishable"] += 1
            log.error(  # noqa: TRY400  the reason says it all
                "model-unpublishable", detail=f"{type(fault).__name__}: {fault}"
            )
            return
        self._models[effect.run] = {"name": model.name, "version": model.version, "digest": model.digest}
        self.metrics["models.published"] += 1
        log.info("model-published", name=model.name, version=model.version, digest=model.digest)

    def _finish(self, effect: Ended, log: Any) -> None:
        state = self._runs[effect.run]
        document = run_document(
            self.engine,
            state,
            started=self._started.get(effect.run, self._wall()),
            ended=self._wall(),
            model=self._models.get(effect.run),
        )
        self._journal.close_run(effect.run, document, state.at, keep_records=self._keep_records)
        self._past[effect.run] = None
        del self._runs[effect.run]
        for memory in (self._started, self._models):
            memory.pop(effect.run, None)
        self.metrics[f"runs.{effect.outcome}"] += 1
        log.info("run-ended", outcome=effect.outcome, reason=effect.reason)

    def _publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self.metrics["published"] += 1
        self._transport.publish(topic, payload, retain=retain)


def _short(event: Event, effects: Sequence[Effect]) -> Event:
    """Return what the journal needs of an event: an answer that was not accepted leaves its payload behind."""
    if not isinstance(event, Answer | Refused):
        return event
    receipts = (effect for effect in effects if isinstance(effect, SendReceipt))
    receipt = next(effect for effect in receipts if effect.agent == event.agent)
    if receipt.outcome == "accepted":
        return event
    return TurnedAway(event.at, event.agent, event.task_digest, receipt.outcome, receipt.reason)


def _entry(run: str, event: Event, wall: float) -> Entry:
    return Entry(run, event.kind, event.at, wall, codec.encode(to_value(event)))


def _read(entry: Entry) -> Event:
    try:
        return from_value(codec.decode(entry.body, max_bytes=2 * MAX_DECODED_BYTES))
    except (ValueError, KeyError, TypeError) as fault:
        raise StorageError(
            f"the journal holds a record of run {entry.run!r} that this software cannot read ({fault}): it was written "
            "by another version"
        ) from fault
