"""The coordinator without threads: messages and time go in, messages go out.

One order is kept everywhere, and it is all that crash safety rests on: *decide* (the pure engine computes the next
states; what could not be sent is found out now, and ends the run by name), *append* (one transaction for the whole
batch), *take over* the new states, *perform* the effects. When the append fails the new states are thrown away and
nothing was said to anybody. A crash between append and perform is harmless: effects that shall stand are performed
again at the start, and a receipt that was not sent is asked for by the agent's resend.

The class owns no thread, no clock and no socket: `runner` gives it those, and a simulator may give it others.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from broker.port import Message, Transport
from coordinator.engine import (
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
    Unable,
    standing,
    wakes_at,
)
from coordinator.engine.books import Books, is_counted_only
from coordinator.fleet import FleetLimits
from coordinator.inbound import Birth, Death, Decoder, ForRun, Gone, Ignored, Leftover, PartLimits, Peer, Scores
from coordinator.journal.port import Entry, Journal
from coordinator.models import Models
from coordinator.observer import Nobody, Observer, canonical, place
from coordinator.publisher import Publisher, birth
from coordinator.reception import Reception
from coordinator.records import entry_of, fold, shortened, spec_of
from coordinator.registry import Registry
from coordinator.rival import Rivalry, Rivals
from coordinator.spec import RunSpec
from coordinator.view import run_document, suspended_document
from schemas.errors import GlassfleetError, IdentityError, NotFoundError, StorageError, UsageError
from schemas.limits import MAX_MESSAGE_BYTES
from schemas.messages import Outcome
from schemas.parts import Retained
from schemas.topics import Topics

if TYPE_CHECKING:  # a fleet that does not sign need not load the cryptography
    from schemas.signing import Signer

_log = structlog.get_logger("coordinator")


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
    kept_runs : int
        So many ended runs are remembered; older ones are forgotten, with their models but for the newest
        `retained_versions` of each name.
    software, incarnation : str
        For births and records.
    term : float or None
        Orders the lives of coordinators, see `coordinator.rival`; None: the wall clock.
    fleet_limits : FleetLimits
        What the agents may make it remember, and how fast.
    part_limits : PartLimits
        How much of answers in parts is kept until they are whole.
    rivalry : Rivalry
        How sure it must be that another coordinator has taken over.
    newcomer_pause : float
        Seconds between two repetitions of open requests and model pointers for agents that came up, where the broker
        does not give what is retained to subscriptions with wildcards.
    rollout_settle : float
        Seconds after a connection before a rollout asks who is up.
    observer : Observer or None
        Told of every performed effect and journal transaction: metrics, traces.
    signer : callable or None
        Returns who signs model records now; None: they are not signed.

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
        kept_runs: int = 10_000,
        software: str = "glassfleet",
        incarnation: str = "",
        term: float | None = None,
        fleet_limits: FleetLimits = FleetLimits(),  # noqa: B008 - frozen
        part_limits: PartLimits = PartLimits(),  # noqa: B008 - frozen
        rivalry: Rivalry = Rivalry(),  # noqa: B008 - frozen
        newcomer_pause: float = 1.0,
        rollout_settle: float = 2.0,
        observer: Observer | None = None,
        signer: Callable[[], Signer] | None = None,
    ) -> None:
        self.topics = Topics(fleet)
        self.incarnation = incarnation or secrets.token_hex(8)
        self.software = software
        self.metrics: Counter[str] = Counter()
        self.engine = engine
        self._reception = Reception(wall, clock, fleet_limits, newcomer_pause, self.metrics)
        self.fleet = self._reception.fleet
        self._rivals = Rivals(self.incarnation, wall() if term is None else term, rivalry)
        self.registry = Registry(journal, fleet, software, wall, now=self.now, signer=signer)
        self._journal = journal
        self._observer = observer or Nobody()
        self._clock = clock
        self._wall = wall
        self._keep_records = keep_records
        self._kept_runs = kept_runs
        self._retained_versions = retained_versions
        self._decoder = Decoder(self.topics, part_limits)
        self._books: dict[str, Books] = {}
        self._publisher = Publisher(
            self.topics,
            transport,
            self.registry,
            self.metrics,
            now=self.now,
            wall=wall,
            max_bytes=max_message_bytes,
            retained_versions=retained_versions,
        )
        self._runs: dict[str, RunState] = {}
        self._suspended: dict[str, dict[str, Any]] = {}
        self._started: dict[str, float] = {}
        self.models = Models(
            self.registry, self._publisher, self.fleet.offers, self.metrics, self.now, rollout_settle=rollout_settle
        )
        self._past: dict[str, None] = dict.fromkeys(journal.ended())
        last = journal.last_time()
        # The time line continues where the journal ends: while no coordinator runs, no deadline comes nearer. A new
        # journal's begins at the wall clock, which is never read again to decide anything.
        self._offset = (wall() if last is None else last) - clock()
        for text in journal.damage:
            _log.warning("journal-mended", detail=text)
            self.metrics["journal.mended"] += 1
        begun = clock()
        self.models.resume(journal.decisions())
        self._resume()
        self._observer.resumed(clock() - begun, len(self._runs))
        transport.subscribe(f"{self.topics.prefix}agent/+/state")
        transport.subscribe(f"{self.topics.prefix}agent/+/run/+/contribution")
        transport.subscribe(f"{self.topics.prefix}agent/+/evaluation")
        transport.subscribe(f"{self.topics.prefix}run/+/request")
        # By its full name: a broker that keeps what is retained from wildcards gives it nevertheless.
        transport.subscribe(self.topics.coordinator_state())

    # -- what goes in ---------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the coordinator's own time, seconds."""
        return self._clock() + self._offset

    def outrank(self, term: float) -> None:
        """Let this life's term be later than one that was read before it began; before the first connection."""
        self._rivals.term = max(self._rivals.term, term + 1e-3)

    def connected(self) -> None:
        """Publish everything that is retained: the broker may have forgotten it."""
        self.metrics["connected"] += 1
        self._reception.newcomers.connected()
        self._announce()
        self.models.connected()
        for state in list(self._runs.values()):
            self._stand(state)

    def at(self, clock: float) -> float:
        """Return a time of the clock that was given in the coordinator's own time."""
        return clock + self._offset

    def handle(self, messages: Sequence[Message], arrived: Sequence[float] | None = None) -> None:
        """Take a batch of messages; one journal transaction for all of them.

        Parameters
        ----------
        messages : sequence of Message
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
        now = self.now()
        times = [now] * len(messages) if arrived is None else [self.at(each) for each in arrived]
        events: list[tuple[str, Event]] = []
        for message, at in zip(messages, times, strict=True):
            self.metrics["messages"] += 1
            self.metrics["bytes"] += len(message.payload)
            events += self._events(message, at)
        self._apply(events)

    def tick(self, now: float | None = None) -> None:
        """Let time pass: close what is due. `now` is in the coordinator's own time."""
        at = self.now() if now is None else now
        due = [run for run, state in self._runs.items() if (wake := wakes_at(state)) is not None and wake <= at]
        self._apply([(run, Tick(at)) for run in due])
        clock = self._clock()
        if self._rivals.due is not None and self._rivals.due <= clock:
            self.metrics["births.repeated"] += 1
            self._announce()
        for event in self._reception.released(at):
            self._apply(self._for_all(event))
        self.models.rollouts.tick(at)
        if self._reception.newcomers.is_due(clock):
            self._repeat(self._reception.newcomers.take())

    def next_wake(self) -> float | None:
        """Return when the next `tick` will matter, in the coordinator's own time; None: only a message can."""
        wakes = [wake for state in self._runs.values() if (wake := wakes_at(state)) is not None]
        clocks = self._reception.dues() if self._rivals.due is None else [*self._reception.dues(), self._rivals.due]
        return min([*wakes, *self.models.rollouts.wakes(), *(self.at(due) for due in clocks)], default=None)

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
        if spec.run in self._runs or spec.run in self._past or spec.run in self._suspended:
            raise UsageError(f"run {spec.run!r} exists already; leave the id out to have one made up")
        self.engine.parameters(spec)
        # Whatever the id, no answer to another run, of another journal even, can be counted in this one.
        spec = spec.model_copy(update={"nonce": secrets.token_hex(16)})
        self._started[spec.run] = self._wall()
        self._apply([(spec.run, Start(self.now(), spec, self.fleet.offers()))])
        # The first round opens with the start, or later when enough vehicles are up: it has none, or that one.
        where = {"round": 0} | place(self._runs.get(spec.run))
        _log.info("run-started", run=spec.run, scheme=spec.scheme, participation=spec.participation, **where)
        self.metrics["runs.started"] += 1
        return spec.run

    def cancel(self, run: str, reason: str = "cancelled by an operator") -> None:
        """End a live run; a run that has ended stays as it is. Raises NotFoundError when there is no such run."""
        if run in self._runs:
            self._apply([(run, Cancel(self.now(), reason))])
        elif run in self._suspended:
            ended = suspended_document(self._suspended[run], cancelled=reason, ended=self._wall())
            self._journal.close_run(run, ended, self.now(), keep_records=self._keep_records)
            self._past[run] = None
            del self._suspended[run]
            self._publisher.clear(run)
        elif run not in self._past:
            raise NotFoundError(f"no run {run!r}")

    def stop(self) -> None:
        """Write down what was only counted, and say goodbye: a clean stop does not trigger the last will."""
        wall = self._wall()
        entries = [entry_of(run, books.event(), wall) for run, books in self._books.items() if run in self._runs]
        try:
            self._journal.append(entries)
        except StorageError as fault:
            _log.warning("counts-not-written", reason=str(fault))
        self._books.clear()
        self._publisher.publish_state(
            birth(self.topics, self.incarnation, self.software, "down", term=self._rivals.term)
        )

    # -- what can be seen -----------------------------------------------------------------------------------------

    def run_ids(self) -> list[str]:
        """Ids of all runs, oldest first."""
        return [*self._past, *self._suspended, *self._runs]

    def phases(self) -> dict[str, int]:
        """Return how many runs are in which phase, or suspended; from any thread."""
        live: Counter[str] = Counter(state.phase for state in list(self._runs.values()) if not state.is_ended)
        return {**live, "suspended": len(self._suspended)}

    def nullified(self) -> int:
        """Return how many statistics were nulled at the vehicles in the live runs; from any thread."""
        return sum(state.nullified for state in list(self._runs.values()))

    def state(self, run: str) -> RunState | None:
        """Return the state of a live run."""
        return self._runs.get(run)

    def run(self, run: str) -> dict[str, Any]:
        """Return a run as JSON values; raises NotFoundError when there is no such run."""
        state = self._runs.get(run)
        if state is not None:
            return run_document(
                self.engine, state, started=self._started.get(run, 0.0), ended=None, model=self.models.of_runs.get(run)
            )
        document = self._suspended.get(run) or self._journal.document(run)
        if document is None:
            raise NotFoundError(f"no run {run!r}")
        return document

    # -- inside ---------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        for run in self._journal.unfinished():
            # A list, not an iterator: nothing may hold the database open while it is written to. A damaged record
            # raises here; one that is whole but cannot be followed concerns its own run only.
            entries = list(self._journal.records(run))
            self._started[run] = entries[0].wall
            try:
                state = fold(self.engine, entries)
            except Exception as fault:  # noqa: BLE001  a scheme that is gone or has changed may raise anything
                self._suspend(run, entries, fault)
                continue
            if state is not None:
                self._runs[run] = state
                self.metrics["runs.resumed"] += 1
                _log.info("run-resumed", run=run, **({"phase": state.phase, "round": 0} | place(state)))
        for state in [state for state in self._runs.values() if state.is_ended]:
            self._stand(state)

    def _suspend(self, run: str, entries: Sequence[Entry], fault: Exception) -> None:
        """Leave a run in the journal that this software cannot go on with; the other runs must not wait for it."""
        detail = str(fault) if isinstance(fault, GlassfleetError) else f"{type(fault).__name__}: {fault}"
        self._suspended[run] = suspended_document(
            {
                "run": run,
                "spec": spec_of(entries),
                "started": entries[0].wall,
                "reason": f"suspended: {detail[:300]}. Install what it needs and start the coordinator again, or "
                "cancel it",
            }
        )
        self.metrics["runs.suspended"] += 1
        _log.error("run-suspended", run=run, reason=detail)

    def _events(self, message: Message, at: float) -> Iterable[tuple[str, Event]]:
        found = self._decoder.read(message, at)
        # All subscriptions have wildcards but the one to the coordinator's own topic.
        self._reception.newcomers.wildcards_work |= message.retained and isinstance(found, Birth | Death | Leftover)
        match found:
            case Birth() | Death():
                return self._presence(found, at)
            case Peer(incarnation, status, term):
                self._meet(incarnation, status, term, retained=message.retained)
            case Scores(agent, scores):
                self.fleet.heard(agent)
                if not scores.cannot:
                    self.fleet.evaluated(agent, scores)
                self.models.rollouts.report(agent, scores)
            case Leftover(run, blobs):
                self._leftover(run, blobs)
            case Gone(run) if run in self._runs:
                # Somebody cleared the request of a live run, or the broker lost it: agents took it for the run's end.
                self.metrics["requests.restored"] += 1
                self._stand(self._runs[run])
            case Ignored(code, detail):
                self.metrics[f"ignored.{code}"] += 1
                _log.info("message-ignored", topic=message.topic[:200], code=code, detail=detail)
            case ForRun(run, event) if run in self._runs:
                self.fleet.heard(event.agent)
                return [(run, event)]
            case ForRun(run, event):
                self._answer_for_absent(run, event)
        return []

    def _presence(self, found: Birth | Death, at: float) -> list[tuple[str, Event]]:
        if isinstance(found, Death):
            self._decoder.forget(found.agent)
        event = self._reception.take(found, at)
        return [] if event is None else self._for_all(event)

    def _meet(self, incarnation: str, status: str, term: float, *, retained: bool) -> None:
        if self._rivals.sees(incarnation, status, term, self._clock(), retained=retained):
            raise IdentityError(
                f"another coordinator has taken over fleet {self.topics.fleet!r} (incarnation {incarnation[:8]}, this "
                f"one is {self.incarnation[:8]}): this one stops. Its runs are in its journal; to go on with them, "
                "stop the other and start this one again, or give it another --fleet"
            )

    def _announce(self) -> None:
        self._publisher.publish_state(birth(self.topics, self.incarnation, self.software, "up", term=self._rivals.term))
        self._rivals.published(self._clock())

    def _repeat(self, agents: Iterable[str]) -> None:
        """Publish what is open, and which models there are, for agents that the broker may not have told."""
        came = set(agents)
        for state in list(self._runs.values()):
            current = state.open
            if current is None or not came - set(state.accepted) or (current.limited and not came & set(current.asked)):
                continue
            ready: dict[str, Retained] = {}
            effects = standing(state)
            if self._rehearse(state, effects, ready, again=True) is None:
                self.metrics["requests.repeated"] += 1
                for effect in effects:
                    if isinstance(effect, OpenRound):
                        self._publisher.repeat(effect.run, ready[effect.key])
        self._publisher.pointers()

    def _leftover(self, run: str, blobs: tuple[str, ...]) -> None:
        if run in self._suspended:
            self._publisher.adopt(run, blobs)
        else:
            self._publisher.seen(run, blobs, is_live=run in self._runs)

    def _answer_for_absent(self, run: str, event: Answer | Refused | Malformed) -> None:
        if run in self._suspended:
            # No receipt: the agent keeps its answer and sends it again, for the day when the run goes on.
            self.metrics["ignored.suspended"] += 1
            return
        outcome: Outcome = "late" if run in self._past else "unknown-run"
        reason = "the run has ended" if run in self._past else ""
        if isinstance(event, Malformed):
            outcome, reason = "rejected", event.reason
        self._receipt(SendReceipt(run, event.agent, event.task_digest, outcome, reason), _log.bind(run=run))

    def _for_all(self, event: Event) -> list[tuple[str, Event]]:
        return [(run, event) for run in self._runs]

    def _apply(self, events: Iterable[tuple[str, Event]]) -> None:
        """Decide, append, take over, perform."""
        states: dict[str, RunState] = {}
        books: dict[str, Books | None] = {}
        entries: list[Entry] = []
        effects: list[Effect] = []
        ready: dict[str, Retained] = {}
        wall = self._wall()
        for run, event in events:
            before = states.get(run) or self._runs.get(run)
            after, caused = self.engine.step(before, event)
            counted = books.get(run, self._books.get(run))
            receipt = next((effect for effect in caused if isinstance(effect, SendReceipt)), None)
            if after is not before:
                states[run] = after
                if receipt is not None and before is not None and is_counted_only(before, after):
                    books[run] = counted = counted.copy() if counted is not None else Books()
                    counted.add(before, receipt.task_digest, receipt.outcome, after.at)
                    self.metrics["answers.only-counted"] += 1
                else:
                    if counted is not None:
                        entries.append(entry_of(run, counted.event(), wall))
                    books[run] = None
                    entries.append(entry_of(run, shortened(event, caused), wall))
            unable = self._rehearse(after, caused, ready)
            if unable is not None:
                states[run], instead = self.engine.step(after, unable)
                entries.append(entry_of(run, unable, wall))
                caused = (*_without(caused, unable), *instead)
            effects += caused
        if entries:
            begun = self._clock()
            try:
                self._journal.append(entries)
            except StorageError:
                self.metrics["journal.failed"] += 1
                raise
            self.metrics["journal.records"] += len(entries)
            self.metrics["journal.transactions"] += 1
            self._observer.appended(self._clock() - begun, len(entries))
        self._runs.update(states)
        for run, kept in books.items():
            self._books.pop(run, None)
            if kept is not None:
                self._books[run] = kept
        self._perform(effects, ready)

    def _stand(self, state: RunState) -> None:
        """Perform what shall hold now, again; a run whose request or model this broker cannot carry ends by name."""
        effects = standing(state)
        ready: dict[str, Retained] = {}
        unable = self._rehearse(state, effects, ready, again=True)
        if unable is None:
            self._perform(effects, ready)
        else:
            self._apply([(state.run, unable)])

    def _rehearse(
        self, state: RunState, effects: Iterable[Effect], ready: dict[str, Retained], *, again: bool = False
    ) -> Unable | None:
        """Find out whether the effects can be performed (`again`); requests that are `ready` need not be cut twice."""
        for effect in effects:
            try:
                if isinstance(effect, OpenRound):
                    ready[effect.key] = self._publisher.prepare(effect)
                elif isinstance(effect, Publish) and not (again and self.registry.has(effect)):
                    self._publisher.check_model(effect, state)
            except StorageError:
                raise
            except Exception as fault:  # noqa: BLE001  a model's own code runs here
                cause = "request-too-large" if isinstance(effect, OpenRound) else "model-unpublishable"
                detail = str(fault) if isinstance(fault, GlassfleetError) else f"{type(fault).__name__}: {fault}"
                # The round that cannot be opened is not yet the one where the run stands.
                about = {"phase": effect.phase, "round": effect.number} if isinstance(effect, OpenRound) else {}
                _log.error(cause, run=effect.run, detail=detail, **(place(state) | about))
                return Unable(self.now(), cause, detail[:400])
        return None

    def _perform(self, effects: Iterable[Effect], ready: Mapping[str, Retained]) -> None:
        for effect in effects:
            state = self._runs.get(effect.run)
            # A receipt may concern a round before the one that is open by now; 0: none was opened.
            task = effect.task_digest if isinstance(effect, SendReceipt) else ""
            log = _log.bind(run=effect.run, **({"round": 0} | place(state, task)))
            match effect:
                case OpenRound():
                    self._publisher.request(effect.run, ready[effect.key])
                    self._tell_opened(effect, log)
                case ClearRequest():
                    self._publisher.clear(effect.run)
                case SendReceipt():
                    self._receipt(effect, log)
                case RoundClosed():
                    self._tell_closed(effect, state, log)
                case Restarted():
                    self.metrics["runs.restarts"] += 1
                    log.warning("run-replayed", round=effect.number, lost=list(effect.lost))
                case Publish():
                    self.models.register(effect, self._runs[effect.run], log)
                case Ended():
                    self._finish(effect, log)
            self._observer.performed(effect, state, self.now())

    def _tell_opened(self, effect: OpenRound, log: Any) -> None:
        self.metrics["rounds.opened"] += 1
        log.info(
            "round-opened",
            round=effect.number,
            phase=effect.phase,
            attempt=effect.attempt,
            kind=effect.task.kind,
            asked="all" if effect.asked is None else len(effect.asked),
            remaining=round(max(0.0, effect.closes_at - self.now()), 3),
        )

    def _receipt(self, effect: SendReceipt, log: Any) -> None:
        self.metrics[f"receipts.{effect.outcome}"] += 1
        self._publisher.receipt(effect)
        tell = log.debug if effect.outcome == "accepted" else log.info
        tell("answered", agent=effect.agent, outcome=effect.outcome, reason=effect.reason, task=effect.task_digest[:12])

    def _tell_closed(self, effect: RoundClosed, state: RunState | None, log: Any) -> None:
        self.metrics["rounds.closed"] += 1
        log.info("round-closed", **canonical(effect.summary, state))

    def _finish(self, effect: Ended, log: Any) -> None:
        state = self._runs[effect.run]
        document = run_document(
            self.engine,
            state,
            started=self._started.get(effect.run, self._wall()),
            ended=self._wall(),
            model=self.models.of_runs.get(effect.run),
        )
        self._journal.close_run(effect.run, document, state.at, keep_records=self._keep_records)
        self._past[effect.run] = None
        if len(self._past) > self._kept_runs:
            for run in self._journal.compact(self._kept_runs, self._retained_versions, self.registry.aliases.pinned()):
                self._past.pop(run, None)
        del self._runs[effect.run]
        for memory in (self._started, self.models.of_runs, self._books):
            memory.pop(effect.run, None)
        self.metrics[f"runs.{effect.outcome}"] += 1
        log.info("run-ended", outcome=effect.outcome, reason=effect.reason)


def _without(effects: Iterable[Effect], unable: Unable) -> Iterable[Effect]:
    """Return the effects that still hold when the shell is `unable` to do what they ask."""
    gone = OpenRound if unable.cause == "request-too-large" else Publish | ClearRequest | Ended
    return (effect for effect in effects if not isinstance(effect, gone))
