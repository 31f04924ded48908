"""The coordinator as a program: everything is put together here, once; and its HTTP server and signals."""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import structlog

from broker.port import Transport
from broker.signed import SignedTransport
from coordinator.config import CoordinatorConfig
from coordinator.core import Coordinator, Timeline
from coordinator.engine import Engine
from coordinator.fleet.arrivals import Arrivals
from coordinator.fleet.directory import Fleet
from coordinator.fleet.leadership import Election, Presence
from coordinator.fleet.witness import Witness
from coordinator.journal.port import Journal
from coordinator.journal.sql import SqlJournal
from coordinator.messages import Decoder, Publisher, birth
from coordinator.models.aliases import Aliases
from coordinator.models.lifecycle import Models
from coordinator.models.publication import ModelPublisher
from coordinator.models.registry import Registry
from coordinator.models.rollout.shell import Rollouts
from coordinator.process.intake import Intake
from coordinator.process.link import check_workers, connects, credentials_of, link_of
from coordinator.process.service import Service
from coordinator.process.standby import Standby, StoppedError
from coordinator.runs.directory import Runs
from coordinator.runs.effects import EffectHandler, Observer
from coordinator.runs.outages import Outages
from coordinator.runs.schedules import Schedules
from coordinator.telemetry import logs
from coordinator.telemetry.metrics import Metrics, Refusals, standby_page
from glassfleet.contract import catalogue
from schemas.errors import StorageError, os_faults_as
from schemas.limits import MAX_DECODED_BYTES, MAX_PARTS
from schemas.private_files import private_folder
from schemas.topics import Topics

if TYPE_CHECKING:  # a fleet that does not sign need not load the cryptography, nor one without an API its framework
    from coordinator.http.api import ApiServer
    from coordinator.process.notifier import Channel
    from schemas.trust.signing import Signer, Verifier

_log = structlog.get_logger("coordinator")


def assemble(
    config: CoordinatorConfig,
    transport: Transport,
    journal: Journal,
    engine: Engine,
    *,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
    software: str = "glassfleet",
    incarnation: str = "",
    observers: Sequence[Observer] = (),
    signer: Callable[[], Signer] | None = None,
    verifier: Verifier | None = None,
) -> Coordinator:
    """Put a coordinator together, and let it go on where its journal ends.

    Parameters
    ----------
    config : CoordinatorConfig
        Of it: the fleet, what it may make the coordinator remember, the largest message, and what is kept.
    transport : Transport
        Not started yet.
    clock, wall : callable
        See `Timeline`.
    software, incarnation : str
        For births and records; an empty incarnation is made up.
    observers : sequence of Observer
        Told of every performed effect and journal transaction: metrics.
    signer : callable or None
        Returns who signs model records now; None: they are not signed.
    verifier : Verifier or None
        Knows whom to trust: what it trusts is signed again after a change of authority.

    Raises
    ------
    StorageError
        The journal is damaged.
    """
    fleet, limits = config.fleet, config.fleet_limits
    # The fleet stands in what vehicles of private runs are told, and compare. A scheme is looked up once.
    engine = replace(engine, fleet=fleet, lookup=cache(engine.lookup))
    topics, metrics = Topics(fleet), Counter[str]()
    timeline = Timeline(journal.last_time(), clock, wall)
    now = timeline.now
    outages = Outages(now)
    directory = Fleet(wall, clock, max_agents=limits.max_agents, fleet_bytes=limits.fleet_bytes, journal=journal)
    publisher = Publisher(topics, transport, metrics, now=now, wall=wall, max_bytes=config.connection.max_message_bytes)
    aliases = Aliases(now, wall)
    registry = Registry(journal, aliases, fleet, software, wall, signer, verifier)
    published = ModelPublisher(topics, publisher, registry, aliases, metrics, config.retained_versions)
    rollouts = Rollouts(registry, aliases, published.moved, directory.offers, metrics, now)
    models = Models(registry, aliases, published, rollouts, metrics, now, engine.lookup)
    runs = Runs(
        engine,
        journal,
        wall,
        metrics,
        now=now,
        outages=outages,
        records_days=config.records_days,
        kept_runs=config.kept_runs,
        kept_versions=config.retained_versions,
        room=lambda: min(MAX_DECODED_BYTES, MAX_PARTS * publisher.limit),
    )
    coordinator = Coordinator(
        topics=topics,
        transport=transport,
        journal=journal,
        engine=engine,
        timeline=timeline,
        metrics=metrics,
        observers=observers,
        decoder=Decoder(topics),
        fleet=directory,
        arrivals=Arrivals(directory, clock, metrics),
        witness=Witness(journal, wall, limits.max_agents),
        presence=Presence(
            topics,
            publisher,
            Election(incarnation or secrets.token_hex(8), wall()),
            software,
            clock,
            metrics,
            journal.check,
        ),
        registry=registry,
        aliases=aliases,
        models=models,
        rollouts=rollouts,
        outages=outages,
        runs=runs,
        schedules=Schedules(runs, outages, directory.count_up, now, wall),
        effects=EffectHandler(runs, publisher, models, published, registry, rollouts, metrics, now),
    )
    coordinator.resume()
    return coordinator


def software() -> str:
    """Return name and version."""
    try:
        return f"glassfleet {version('glassfleet')}"
    except PackageNotFoundError:
        return "glassfleet (not installed)"


def build(config: CoordinatorConfig, *, journal: Journal | None = None, standby: Standby | None = None) -> Service:
    """Put a service together from its configuration; a `journal` can be given for tests.

    Parameters
    ----------
    standby : Standby or None
        Waits until no other coordinator has the journal; None: another one is an error.

    Raises
    ------
    StorageError
        Journal or state directory cannot be used.
    BrokerError, UsageError
        The broker's address cannot be meant, or the identity is none of a coordinator.
    StoppedError
        Told to stop while waiting.
    """
    _make_state_folder(config)
    topics = Topics(config.fleet)
    incarnation = os.urandom(8).hex()
    credentials = credentials_of(config.identity)
    if config.identity is not None and config.intake_workers > 1:
        check_workers(config.identity, config.intake_workers)
    refusals = Refusals()

    def count(name: str, by: int = 1) -> None:
        coordinator.metrics[name] += by

    # Before the journal: what cannot be meant is told before a stand-by waits.
    connected = connects(config, credentials, count)
    look = replace(link_of(config, f"-{incarnation}"), session_expiry=0)
    own = connected(replace(link_of(config), will=birth(topics, incarnation, software(), "down")))
    intake = Intake(own, config, topics, count) if config.intake_workers > 1 else None
    if journal is None:
        journal = SqlJournal(config.journal_url, busy_timeout=config.journal_wait, again=standby)
    try:
        if standby is not None:
            standby.leads(journal.leader())
        metrics = Metrics(time.monotonic)
        coordinator = assemble(
            config,
            own if intake is None else intake,
            journal,
            Engine(),
            software=software(),
            incarnation=incarnation,
            signer=None if credentials is None else partial(getattr, credentials, "signer"),
            verifier=None if credentials is None else credentials.verifier,
            observers=[metrics, refusals],
        )
    except BaseException:
        journal.close()
        raise
    looking = own.look if isinstance(own, SignedTransport) else None
    service = Service(
        config, coordinator, metrics=metrics, make_probe=partial(connected, look), refusals=refusals, look=looking
    )
    if intake is not None:
        intake.hold = service.queue.hold
    return service


def _make_state_folder(config: CoordinatorConfig) -> None:
    with os_faults_as(StorageError, f"cannot create the state directory {config.state_dir}"):
        private_folder(config.state_dir)


def run_coordinator(config: CoordinatorConfig) -> None:
    """Run the coordinator until SIGTERM or SIGINT.

    Raises
    ------
    StorageError, BrokerError, UsageError
        See `build` and `Service.serve_forever`; a port that is taken is a UsageError.
    """
    logs.configure(config.log_level, config.log_format, fleet=config.fleet)
    for name in catalogue.names():  # what is loaded now need not be loaded when a run waits
        catalogue.load(name)
    program = _Program()
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.signal(number, lambda *_: program.stop())
            stack.callback(signal.signal, number, before)
        channels = _channels(config)
        server: ApiServer | None = None
        if config.http.api:
            from coordinator.http.api import ApiServer  # noqa: PLC0415  the web framework is slow to import, and optional

            _make_state_folder(config)
            server = ApiServer(config.state_dir, config.http.api_host, config.http.api_port)
            stack.callback(server.stop)
        try:
            service = build(config, standby=_standby(config, server, program) if config.standby else None)
        except StoppedError:
            _log.info("coordinator-down")
            return
        program.service = service
        # An answer that is kept is dozens of objects, in no circle. To look for circles after each 700 new objects, as
        # is usual, costs a fifth of the coordinator's time.
        gc.freeze()
        gc.set_threshold(20_000)
        if server is not None:
            server.start(service)
        if channels:
            from coordinator.process.notifier import Notifier  # noqa: PLC0415  as above

            notifier = Notifier(service, channels)
            stack.callback(notifier.stop)
            notifier.start()
        _log.info("coordinator-up", fleet=config.fleet, state_dir=str(config.state_dir))
        if not program.is_stopped:
            service.serve_forever()
    _log.info("coordinator-down")


def _channels(config: CoordinatorConfig) -> list[Channel]:
    """Return whom to tell; what cannot be meant is told before a stand-by waits."""
    if not config.notify.strip():
        return []
    from coordinator.process.notifier import channels  # noqa: PLC0415  optional, and slow to import

    return channels(config.notify)


class _Program:
    """What a signal ends: first the wait of a stand-by, then the service."""

    def __init__(self) -> None:
        self.is_stopped = False
        self.service: Service | None = None

    def stop(self) -> None:
        """End it soon."""
        self.is_stopped = True
        if self.service is not None:
            self.service.stop()


def _standby(config: CoordinatorConfig, server: ApiServer | None, program: _Program) -> Standby:
    """Return what waits, and answers meanwhile."""

    def begin() -> None:
        if server is not None:
            from coordinator.http.waiting import waiting_app  # noqa: PLC0415  as above

            loopback_only = not config.http.api_expose
            about, leader = (config.fleet, software()), lambda: standby.host
            server.stand_by(waiting_app(*about, leader, standby_page(), loopback_only=loopback_only))

    standby = Standby(config, software(), lambda: program.is_stopped, begin)
    return standby
