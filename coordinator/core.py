"""The coordinator without threads: messages and time go in, messages go out.

One order is kept everywhere, and it is all that crash safety rests on: *decide* (the pure engine computes the next
states; what could not be sent is found out now, and ends the run by name), *append* (one transaction for the whole
batch), *take over* the new states, *perform* the effects. When the append fails the new states are thrown away and
nothing was said to anybody. A crash between append and perform is harmless: effects that shall stand are performed
again at the start, and a receipt that was not sent is asked for by the agent's resend.

The four words are four places: `turn.decide` with `rehearsal.Rehearsal`, the journal, `runs.Runs` (which is asked about
runs, too) and `performer.Performer`; here they are put in order, and messages become events. The class owns no thread,
no clock and no socket: `runner` gives it those, and a simulator may give it others.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import structlog

from broker.port import Message, Transport
from coordinator.engine import (
    Cancel,
    Effect,
    Engine,
    Event,
    RunState,
    Start,
    Tick,
    standing,
    wakes_at,
)
from coordinator.fleet.arrivals import Reception
from coordinator.fleet.leadership import Rivalry
from coordinator.fleet.presence import Presence
from coordinator.fleet.rebroadcast import PAUSE
from coordinator.journal.port import Entry, Journal
from coordinator.limits import FleetLimits
from coordinator.messages.decoder import (
    Birth,
    Death,
    Decoder,
    ForRun,
    Gone,
    Ignored,
    Leftover,
    PartLimits,
    Peer,
    Scores,
)
from coordinator.messages.publisher import Publisher
from coordinator.models.central import check_not_reserved
from coordinator.models.lifecycle import Models
from coordinator.models.publication import ModelPublisher
from coordinator.models.registry import Registry
from coordinator.models.rollout.shell import SETTLE
from coordinator.runs.directory import Runs
from coordinator.runs.effects import Performer
from coordinator.runs.observer import Nobody, Observer, place
from coordinator.runs.outages import Outages
from coordinator.runs.preflight import Rehearsal
from coordinator.runs.transaction import Ready, decide
from coordinator.spec.run import RunSpec
from schemas.errors import NotFoundError, StorageError, UsageError
from schemas.limits import MAX_MESSAGE_BYTES
from schemas.parts import Retained
from schemas.topics import Topics

if TYPE_CHECKING:  # a fleet that does not sign need not load the cryptography
    from schemas.trust.signing import Signer, Verifier

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
        Orders the lives of coordinators, see `coordinator.fleet.leadership`; None: the wall clock.
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
    verifier : Verifier or None
        Knows whom to trust: what it trusts is signed again after a change of authority.

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
        newcomer_pause: float = PAUSE,
        rollout_settle: float = SETTLE,
        observer: Observer | None = None,
        signer: Callable[[], Signer] | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        self.topics = Topics(fleet)
        self.incarnation = incarnation or secrets.token_hex(8)
        self.software = software
        self.metrics: Counter[str] = Counter()
        self.engine = engine
        self._journal = journal
        self._observer = observer or Nobody()
        self._clock = clock
        self._wall = wall
        last = journal.last_time()
        # The time line continues where the journal ends: while no coordinator runs, no deadline comes nearer. A new
        # journal's begins at the wall clock, which is never read again to decide anything.
        self._offset = (wall() if last is None else last) - clock()
        self.outages = Outages(self.now)

        self._decoder = Decoder(self.topics, part_limits)
        self._reception = Reception(wall, clock, fleet_limits, newcomer_pause, self.metrics)
        self.fleet = self._reception.fleet
        self.registry = Registry(journal, fleet, software, wall, now=self.now, signer=signer, verifier=verifier)
        self._publisher = Publisher(
            self.topics,
            transport,
            self.metrics,
            now=self.now,
            wall=wall,
            max_bytes=max_message_bytes,
        )
        published = ModelPublisher(self.topics, self._publisher, self.registry, retained_versions)
        self._presence = Presence(
            self.topics,
            self._publisher,
            incarnation=self.incarnation,
            software=software,
            term=wall() if term is None else term,
            rivalry=rivalry,
            clock=clock,
            metrics=self.metrics,
        )
        self.models = Models(
            self.registry,
            published,
            self.fleet.offers,
            self.metrics,
            self.now,
            lookup=engine.lookup,
            rollout_settle=rollout_settle,
        )
        self.runs = Runs(
            engine,
            journal,
            wall,
            self.metrics,
            now=self.now,
            outages=self.outages,
            keep_records=keep_records,
            kept_runs=kept_runs,
            kept_versions=retained_versions,
        )
        self._rehearse = Rehearsal(self._publisher, published, self.registry, self.now)
        self._performer = Performer(
            self.runs, self._publisher, self.registry, self.models, self._rehearse, metrics=self.metrics, now=self.now
        )

        for text in journal.damage:
            _log.warning("journal-mended", detail=text)
            self.metrics["journal.mended"] += 1
        for row in journal.damaged:
            _log.error("journal-damaged", detail=str(row))
            self.metrics["journal.damaged"] += 1
        begun = clock()
        self.models.resume(journal.decisions())
        self.runs.resume()
        for state in [state for state in self.runs.live.values() if state.is_ended]:
            self._stand(state)
        self._observer.resumed(clock() - begun, len(self.runs.live))
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
        self._presence.outrank(term)

    def connected(self) -> None:
        """Publish everything that is retained: the broker may have forgotten it."""
        self.metrics["connected"] += 1
        self._tell_outages(self.now())
        self._reception.newcomers.connected()
        self._presence.announce()
        self.models.connected()
        for state in list(self.runs.live.values()):
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
        due = [run for run, state in self.runs.live.items() if (wake := wakes_at(state)) is not None and wake <= at]
        if due or self.outages.are_over:
            self._tell_outages(at)
        self._apply([(run, Tick(at)) for run in due])
        self._presence.announce_if_due()
        for event in self._reception.released(at):
            self._apply([(run, event) for run in self.runs.live])
        self.models.sign_again()
        self.models.rollouts.tick(at)
        if self._reception.newcomers.is_due(self._clock()):
            self._performer.repeat(self._reception.newcomers.take())

    def next_wake(self) -> float | None:
        """Return when the next `tick` will matter, in the coordinator's own time; None: only a message can."""
        wakes = [wake for state in self.runs.live.values() if (wake := wakes_at(state)) is not None]
        clocks = [*self._reception.dues(), *([] if self._presence.due is None else [self._presence.due])]
        return min([*wakes, *self.models.rollouts.wakes(), *(self.at(due) for due in clocks)], default=None)

    def start_run(self, spec: RunSpec) -> str:
        """Begin a run; returns its id.

        Raises
        ------
        UsageError
            The spec cannot be meant, or its id is taken, or id or model's name are kept for references.
        NotFoundError
            No such scheme.
        StorageError
            The journal cannot be written.
        """
        check_not_reserved(spec.run, spec.model)
        if spec.run in self.runs:
            raise UsageError(f"run {spec.run!r} exists already; leave the id out to have one made up")
        self.engine.parameters(spec)
        # Whatever the id, no answer to another run, of another journal even, can be counted in this one.
        spec = spec.model_copy(update={"nonce": secrets.token_hex(16), "guarded": True})
        self.runs.begin(spec.run)
        self._apply([(spec.run, Start(self.now(), spec, self.fleet.offers()))])
        # The first round opens with the start, or later when enough vehicles are up: it has none, or that one.
        where = {"round": 0} | place(self.runs.live.get(spec.run))
        _log.info("run-started", run=spec.run, scheme=spec.scheme, participation=spec.participation, **where)
        self.metrics["runs.started"] += 1
        return spec.run

    def cancel(self, run: str, reason: str = "cancelled by an operator") -> None:
        """End a live run; a run that has ended stays as it is. Raises NotFoundError when there is no such run."""
        if run in self.runs.live:
            self._apply([(run, Cancel(self.now(), reason))])
        elif run in self.runs.suspended:
            self.runs.cancel_suspended(run, reason, self.now())
            self._publisher.clear(run)
        elif run not in self.runs.past:
            raise NotFoundError(f"no run {run!r}")

    def stop(self) -> None:
        """Write down what was only counted, and say goodbye."""
        self.runs.write_counts()
        self._presence.goodbye()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _events(self, message: Message, at: float) -> Iterable[tuple[str, Event]]:
        found = self._decoder.read(message, at)
        # All subscriptions have wildcards but the one to the coordinator's own topic.
        self._reception.newcomers.wildcards_work |= message.retained and isinstance(found, Birth | Death | Leftover)
        match found:
            case Birth() | Death():
                return self._come_and_go(found, at)
            case Peer():
                self._presence.meet(found, retained=message.retained)
            case Scores(agent, scores):
                self.fleet.heard(agent)
                if not scores.cannot:
                    self.fleet.evaluated(agent, scores)
                self.models.rollouts.report(agent, scores)
            case Leftover(run, blobs):
                self._leftover(run, blobs)
            case Gone(run) if run in self.runs.live:
                # Somebody cleared the request of a live run, or the broker lost it: agents took it for the run's end.
                self.metrics["requests.restored"] += 1
                self._stand(self.runs.live[run])
            case Ignored(code, detail):
                self.metrics[f"ignored.{code}"] += 1
                _log.info("message-ignored", topic=message.topic[:200], code=code, detail=detail)
            case ForRun(run, event) if run in self.runs.live:
                self.fleet.heard(event.agent)
                return [(run, event)]
            case ForRun(run, event):
                self._performer.answer_for_absent(run, event)
        return []

    def _come_and_go(self, found: Birth | Death, at: float) -> list[tuple[str, Event]]:
        if isinstance(found, Death):
            self._decoder.forget(found.agent)
        event = self._reception.take(found, at)
        return [] if event is None else [(run, event) for run in self.runs.live]

    def _leftover(self, run: str, blobs: tuple[str, ...]) -> None:
        if run in self.runs.suspended:
            self._publisher.adopt(run, blobs)
        else:
            self._publisher.seen(run, blobs, is_live=run in self.runs.live)

    def _tell_outages(self, at: float) -> None:
        self._apply([(run, event) for event in self.outages.take(at) for run in self.runs.live])

    def _apply(self, events: Iterable[tuple[str, Event]]) -> None:
        """Decide, append, take over, perform."""
        runs, wall = self.runs, self._wall()
        turn = decide(self.engine, runs.live, runs.books, events, rehearse=self._rehearse, wall=wall)
        if turn.only_counted:
            self.metrics["answers.only-counted"] += turn.only_counted
        self._append(turn.entries)
        runs.take_over(turn.states, turn.books)
        self._perform(turn.effects, turn.ready)

    def _append(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        begun = self._clock()
        try:
            self._journal.append(entries)
        except StorageError:
            self.metrics["journal.failed"] += 1
            raise
        self.metrics["journal.records"] += len(entries)
        self.metrics["journal.transactions"] += 1
        self._observer.appended(self._clock() - begun, len(entries))

    def _perform(self, effects: Iterable[Effect], ready: Mapping[str, Retained]) -> None:
        for effect in effects:
            state = self.runs.live.get(effect.run)
            self._performer.perform(effect, state, ready)
            self._observer.performed(effect, state, self.now())

    def _stand(self, state: RunState) -> None:
        """Perform what shall hold now, again; a run whose request or model this broker cannot carry ends by name."""
        effects = standing(state)
        ready: Ready = {}
        unable = self._rehearse(state, effects, ready, again=True)
        if unable is None:
            self._perform(effects, ready)
        else:
            self._apply([(state.run, unable)])
