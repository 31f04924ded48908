"""Published models, from the broker's retained topics; and whether the authority stands behind them."""

from __future__ import annotations

import queue
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from broker.paho_transport import PahoTransport, connect_once
from broker.port import Handlers, Link, Message
from broker.signed import writers
from console.common import broker_security
from console.progress import progress
from schemas.envelope import Envelope, read_model
from schemas.errors import BrokerError, DocumentError, NotFoundError, VerificationError, WireError
from schemas.messages import Manifest, ModelPointer
from schemas.record import ModelRecord
from schemas.text import printable
from schemas.topics import Topics, check_id
from schemas.trust.joining import BlobStore

if TYPE_CHECKING:
    from schemas.trust.signing import Verifier


QUIET = 0.7
"""Seconds without a message after which all retained messages are taken to have come."""

PATIENCE = 10.0
"""Seconds after which reading is given up."""


@dataclass(frozen=True)
class Signatures:
    """What signatures are held against.

    Attributes
    ----------
    folder : Path or None
        The identity whose authority is trusted; None: nothing is verified, and `judge` says so.
    verifier : Verifier or None
        Its verifier.
    """

    folder: Path | None = None
    verifier: Verifier | None = None

    @classmethod
    def at_hand(cls) -> Signatures:
        """Return those of the identity that the running command was given; raises UsageError when it is none."""
        from broker.credentials import FolderCredentials

        context = click.get_current_context(silent=True)
        folder = None if context is None else context.meta.get("glassfleet.identity")
        return cls() if folder is None else cls(folder, FolderCredentials(folder).verifier)

    @property
    def advice(self) -> str:
        """What to do about a record that is not believed."""
        return (
            f"Trusted is the authority in {self.folder}: name the identity of this fleet with --identity; if it is the "
            "one, somebody else wrote this - look with `glassfleet broker tap --identity`"
        )

    def fault_of(self, result: ModelRecord | Message) -> str:
        """Return why a record, or the message of a pointer, is not believed; empty when it is, or none is verified."""
        if self.verifier is None:
            return ""
        try:
            if isinstance(result, ModelRecord):
                result.verified_by(self.verifier)
            else:
                fleet = result.topic.split("/")[2]
                self.verifier.open(result.topic, result.payload, writers(Topics(fleet).parse(result.topic)))
        except WireError as fault:
            return fault.detail
        return ""

    def judge(self, record: ModelRecord) -> None:
        """Say on stderr, in one line, who signed a record, if there is anything to say.

        Raises
        ------
        VerificationError
            It is not believed.
        """
        what = f"{record.name} v{record.version}"
        if self.verifier is None:
            if record.signatures:
                click.echo(f"{what} is signed; not verified: give --identity (or GLASSFLEET_IDENTITY)", err=True)
            return
        why = self.fault_of(record)
        if why:
            raise VerificationError(f"model {what} is not believed: {why}. {self.advice}")
        click.echo(f"{what}: signed by {record.verified_by(self.verifier)}, verified", err=True)


class Listener:
    """A connection that only listens, under a client id of its own, leaving no session behind.

    Parameters
    ----------
    url : str
        Broker.
    patterns : sequence of str
        Topic filters.

    Raises
    ------
    BrokerError
        On entering: the broker is not there, refuses us, or is none.
    """

    def __init__(self, url: str, *patterns: str) -> None:
        self._link = Link(url=url, client_id=f"gf-reader-{secrets.token_hex(6)}", session_expiry=0, **broker_security())
        self._patterns = patterns
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._transport: PahoTransport | None = None
        self.lost = ""

    def __enter__(self) -> Self:
        # A first look, so that a wrong URL is an error now and not a silent wait.
        connect_once(self._link)
        self._transport = PahoTransport(self._link)
        for pattern in self._patterns:
            self._transport.subscribe(pattern)
        self._transport.start(Handlers(self._messages.put, lambda: None, self._disconnected))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._transport is not None
        self._transport.stop()

    def subscribe(self, pattern: str) -> None:
        """Listen to more."""
        assert self._transport is not None
        self._transport.subscribe(pattern)

    def next(self, timeout: float) -> Message | None:
        """Return the next message, or None when `timeout` seconds brought none."""
        try:
            return self._messages.get(timeout=max(timeout, 0.001))
        except queue.Empty:
            return None

    def _disconnected(self, why: str) -> None:
        self.lost = why


@dataclass
class PublishedModels:
    """What the retained registry topics say.

    Attributes
    ----------
    current : dict
        Name -> pointer to the current version.
    candidate : dict
        Name -> pointer to the version that is tried, or waits for an operator, see `standing`.
    records : dict
        (name, version) -> record, its digest verified.
    faults : dict
        (name, version) -> why a version cannot be read.
    refused : dict
        (name, version), or (name, 0) for what is current -> why the fleet's authority has not signed it.
    signatures : Signatures
        What signatures are held against.
    """

    current: dict[str, ModelPointer] = field(default_factory=dict)
    candidate: dict[str, ModelPointer] = field(default_factory=dict)
    records: dict[tuple[str, int], ModelRecord] = field(default_factory=dict)
    faults: dict[tuple[str, int], str] = field(default_factory=dict)
    refused: dict[tuple[str, int], str] = field(default_factory=dict)
    signatures: Signatures = field(default_factory=Signatures)

    def standing(self, name: str, version: int) -> str:
        """Return what a version is, for people: current, tried, a candidate and why it is not current, or nothing."""
        current, candidate = self.current.get(name), self.candidate.get(name)
        if current is not None and current.version == version:
            return "current"
        if candidate is None or candidate.version != version:
            return ""
        why = printable(candidate.reason)  # vehicles' words are in it
        return f"candidate, not current: {why}" if why else "candidate, being tried"

    def record(self, name: str, version: int | None) -> ModelRecord:
        """Return a version of a model; says whether its signature was verified.

        Parameters
        ----------
        name : str
        version : int or None
            None: the current one.

        Raises
        ------
        NotFoundError, DocumentError
        VerificationError
            The fleet's authority has not signed it, or which one is current.
        """
        check_id("model", name)
        pointer = None
        if version is None:
            pointer = self.current.get(name)
            if pointer is None:
                self._refuse(name, 0)
                candidate = self.candidate.get(name)
                if candidate is not None:
                    number = candidate.version
                    raise NotFoundError(
                        f"no version of model {name!r} is current; v{number} is a {self.standing(name, number)}. "
                        f"{name}@{number} reads it, glassfleet model promote {name}@{number} makes it current"
                    )
                known = ", ".join(sorted(self.current)) or "none yet"
                raise NotFoundError(f"no model {name!r} is published here; published: {known}")
            version = pointer.version
        record = self.records.get((name, version))
        if record is None:
            self._refuse(name, version)
            reason = self.faults.get((name, version))
            if reason is not None:
                raise DocumentError(f"model {name} version {version} cannot be read: {reason}")
            versions = ", ".join(str(number) for known, number in sorted(self.records) if known == name)
            raise NotFoundError(f"model {name} has no version {version} here; versions: {versions or 'none'}")
        if pointer is not None and pointer.digest != record.digest:
            raise VerificationError(
                f"model {name} version {version} is not the one that its pointer promises: try again"
            )
        self.signatures.judge(record)
        return record

    def _refuse(self, name: str, version: int) -> None:
        """Raise VerificationError if that is why a version, or what is current (0), is not there."""
        why = self.refused.get((name, version))
        if why is not None:
            what = f"model {name} version {version}" if version else f"what is current of model {name}"
            raise VerificationError(f"{what} is not believed: {why}. {self.signatures.advice}")


def read_registry(url: str, fleet: str) -> PublishedModels:
    """Read the registry of a fleet from its broker.

    Raises
    ------
    BrokerError
        The broker is not there, or was lost while reading.
    UsageError
        The identity that the command was given cannot be read.
    """
    topics = Topics(fleet)
    store = BlobStore(topics, max_open=1000)
    registry = PublishedModels(signatures=Signatures.at_hand())
    pending: dict[str, tuple[str, int]] = {}
    end = time.monotonic() + PATIENCE
    filters_ = [f"{topics.prefix}model/+/{what}" for what in ("current", "candidate", "v/+")]
    with progress("reading the models on the broker"), Listener(url, *filters_) as listener:
        # A first message may take longer than the pauses between messages.
        quiet = time.monotonic() + 2 * QUIET
        while time.monotonic() < min(end, quiet):
            message = listener.next(min(end, quiet) - time.monotonic())
            if message is None or not message.payload:
                continue
            quiet = time.monotonic() + (QUIET if not pending else PATIENCE)
            try:
                filters = _take(message, topics, registry, store, pending)
            except WireError:
                continue  # a foreign or damaged message beside the registry's own is no concern of a reader
            if filters:
                listener.subscribe(filters)
                quiet = end
            elif not pending:
                quiet = time.monotonic() + QUIET
        if listener.lost and not registry.current:
            raise BrokerError(f"the broker was lost while reading: {listener.lost}")
    for key in pending.values():
        registry.faults[key] = "not all of its parts are on the broker"
    return registry


def _take(
    message: Message, topics: Topics, registry: PublishedModels, store: BlobStore, pending: dict[str, tuple[str, int]]
) -> str:
    """Take one message; return the filter to subscribe to when it announces parts, else an empty text."""
    address = topics.parse(message.topic)
    if address.kind in {"model-current", "model-candidate"}:
        is_current = address.kind == "model-current"
        body = Envelope.from_bytes(message.payload, fleet=topics.fleet).body
        if isinstance(body, ModelPointer) and body.name == address.name:
            why = registry.signatures.fault_of(message)
            if not why:
                (registry.current if is_current else registry.candidate)[body.name] = body
            elif is_current:
                registry.refused[body.name, 0] = why
    elif address.kind == "model-version":
        content = read_model(message.payload, fleet=topics.fleet)
        if isinstance(content, Manifest):
            # Not its seal is looked at, but the signature of the record that its parts make.
            pending[content.digest] = (address.name, address.number)
            return store.want(content)
        _keep((address.name, address.number), content, registry)
    elif address.kind == "blob" and address.digest in pending:
        key = pending[address.digest]
        try:
            whole = store.add(message.topic, message.payload)
        except WireError as fault:
            registry.faults[key] = fault.detail
            del pending[address.digest]
            raise
        if whole is not None:
            del pending[address.digest]
            _keep(key, whole, registry)
    return ""


def _keep(key: tuple[str, int], data: bytes, registry: PublishedModels) -> None:
    try:
        record = ModelRecord.from_bytes(data)
    except WireError as fault:
        registry.faults[key] = str(fault)
        return
    if (record.name, record.version) == key:
        why = registry.signatures.fault_of(record)
        if why:
            registry.refused[key] = why
        else:
            registry.records[key] = record
    else:
        registry.faults[key] = f"it holds {record.name} version {record.version}"
