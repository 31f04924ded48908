"""What is fed with broken messages, piece by piece; each target names its documented errors; others are findings."""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from functools import cache
from typing import Any, Protocol

import numpy as np

from glassfleet.conformance.bench import Bench
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Next, Task
from glassfleet.discovery import DISCOVERY, DiscoveryParameters
from glassfleet.errors import ContributionError, TaskError
from schemas import codec
from schemas.codec import document_digest
from schemas.envelope import Envelope, pack, read_model, unpack
from schemas.errors import DocumentError, GlassfleetError, WireError
from schemas.messages import (
    AgentState,
    ContributionBody,
    CoordinatorState,
    Evaluation,
    Forecast,
    Manifest,
    ModelPointer,
    Part,
    Receipt,
    Refusal,
    Request,
)
from schemas.record import ModelRecord
from schemas.topics import Topics
from schemas.trust.joining import Assembler, BlobStore
from tests.fuzz.mutate import TEXTS, break_bytes, edited, made_up, mutate, odd
from tests.fuzz.mutate import pack as pack_carelessly
from tests.support.coordinator_http import record_of as record_with
from tests.support.sample_models import search

FLEET = "fuzz"
DIGEST = "ab" * 32


@cache
def bomb() -> bytes:
    """Return 100 MiB of zeros in 100 kB: above the largest message, so it must be refused before it is whole."""
    return pack(bytes(100 * 2**20))


class Target(Protocol):
    """Something that takes bytes or values from a peer."""

    name: str

    def feed(self, rng: random.Random) -> str:
        """Make one input and feed it; the outcome for the report. Raises what is not documented."""


@cache
def benches() -> dict[str, Bench]:
    """Every scheme that is installed, with a small fleet."""
    result = {}
    for name in catalogue.names():
        scheme = catalogue.load(name)
        for bench in Bench.all_of(scheme):
            result[f"{name}-{bench.purpose}" if len(scheme.purpose) > 1 else name] = bench
    return result


@cache
def steps(name: str) -> list[tuple[Next, list[Contribution]]]:
    """The rounds of a scheme's run over its bench, with true answers; of domain discovery for ``"domain"``."""
    if name != "domain":
        bench = benches()[name]
        return bench.steps(bench.parameters)
    bench = next(bench for bench in benches().values() if bench.purpose == "regression")
    rows = list(bench.fleet.values())
    return search(DiscoveryParameters(features=rows[0].features, target=rows[0].target), rows)[0]


def halves(name: str) -> tuple[Any, Any]:
    """Client and server of a scheme, or of domain discovery."""
    half: Any = DISCOVERY if name == "domain" else benches()[name].scheme
    return half.client, half.server


def names() -> list[str]:
    """Schemes and domain discovery."""
    return [*benches(), "domain"]


def envelopes() -> list[Envelope]:
    """One true message of every kind."""
    step, answers = steps("frt")[0]
    task = step.task
    answer = ContributionBody(
        task_digest=task.digest, rows=answers[0].rows, data_digest=DIGEST, contribution=answers[0].to_value()
    )
    bodies: list[Any] = [
        CoordinatorState(status="up", incarnation="1", software="s"),
        AgentState(status="up", incarnation="1", schemes=["frt"], features=["a", "b"], target="y"),
        Request(task=task.to_value(), task_digest=task.digest, remaining=3.0, asked=["a", "b"]),
        answer,
        Refusal(task_digest=DIGEST, reason="no"),
        Part(digest=DIGEST, index=1, count=3, data=b"abc"),
        Manifest(digest=DIGEST, count=2, size=10, what="request"),
        Receipt(run="r", task_digest=DIGEST, outcome="rejected", reason="no"),
        ModelPointer(name="m", version=1, digest=DIGEST),
        Evaluation(name="m", version=1, digest=DIGEST, metric="rmse", federated=1.0, local=2.0, rows=3),
        Forecast(name="m", version=1, digest=DIGEST, prediction=1.0, rule="IF", strength=0.5),
    ]
    return [Envelope(fleet=FLEET, body=body, run="r", agent="a", scheme="frt") for body in bodies]


def record_of(name: str) -> ModelRecord:
    """A published model of a scheme."""
    bench = benches()[name]
    document = bench.outcome(bench.parameters).model.to_document()
    return record_with(document, fleet=FLEET, run="r", scheme=document["scheme"], cohort=["a"])


def as_it_arrives(value: Any) -> Any:
    """Encode as a careless peer would, and decode; raises WireError."""
    return codec.decode(pack_carelessly(value))


def named(fault: Exception, outcome: str) -> str:
    """Return `outcome`, when the fault says why."""
    assert str(fault).strip(), "a fault gives its reason"
    return outcome


class Messages:
    """One true message of every kind, mutated."""

    def __init__(self) -> None:
        self._seeds = [codec.decode(envelope.to_bytes()) for envelope in envelopes()]

    def feed(self, rng: random.Random) -> str:
        return self.take(mutate(rng, rng.choice(self._seeds), codec.encode(rng.choice(self._seeds))))

    @staticmethod
    def take(data: bytes) -> str:
        """Feed one input."""
        raise NotImplementedError


class Codec(Messages):
    """`schemas.codec.decode`: WireError, or a value that reads the same when it is written again."""

    name = "codec"

    @staticmethod
    def take(data: bytes) -> str:
        """Feed one input."""
        try:
            value = codec.decode(data)
        except WireError as fault:
            return fault.code
        try:
            again = codec.encode(value)
        except ValueError:  # an array is one level to us and two to msgpack: the deepest may not nest again
            return "decoded"
        assert codec.encode(codec.decode(again)) == again
        return "decoded"


class Envelopes(Messages):
    """`Envelope.from_bytes` on every kind of message."""

    name = "envelope"

    @staticmethod
    def take(data: bytes) -> str:
        """Feed one input."""
        try:
            envelope = Envelope.from_bytes(data, fleet=FLEET)
        except WireError as fault:
            return named(fault, fault.code)
        assert Envelope.from_bytes(envelope.to_bytes(), fleet=FLEET).body.kind == envelope.body.kind
        return "taken"


class Parts:
    """`Assembler`, `BlobStore`, `unpack` and `read_model`: bounded, whatever the parts say."""

    name = "parts"

    def __init__(self) -> None:
        self._whole = pack(envelopes()[3].to_bytes())
        self._topics = Topics(FLEET)
        self._assembler = Assembler(max_bytes=2**20, total_bytes=2**21)
        self._store = BlobStore(self._topics, max_bytes=2**20)

    def feed(self, rng: random.Random) -> str:
        try:
            return rng.choice((self._unpack, self._part, self._part, self._blob, self._blob, self._model))(rng)
        except WireError as fault:
            return fault.code
        finally:
            assert self._assembler.kept_bytes <= 2**21 + 2**20
            assert len(self._store.open_digests) <= 4

    def _content(self, rng: random.Random) -> bytes:
        way = rng.random()
        if way < 0.002:
            return bomb()
        if way < 0.2:
            return bytes([rng.choice((0, 1, 2, 255))]) + rng.randbytes(rng.randrange(60))
        if way < 0.4:
            return b"\x01" + zlib.compress(made_up(rng))
        return break_bytes(rng, self._whole, self._whole) if way < 0.8 else self._whole

    def _unpack(self, rng: random.Random) -> str:
        return f"unpacked-{len(unpack(self._content(rng), max_bytes=2**20)) > 0}"

    def _part(self, rng: random.Random) -> str:
        content = self._content(rng)
        digest = hashlib.sha256(content).hexdigest() if rng.random() < 0.8 else DIGEST
        count = rng.choice((1, 2, 3, 3, 4096))
        room = -(-len(content) // count)
        result = None
        for index in range(min(count, 4)):
            data = content[index * room : (index + 1) * room]
            if rng.random() < 0.1:
                data, index = rng.randbytes(rng.randrange(9)), rng.choice((0, 1, 7, 5000))  # noqa: PLW2901
            part = Part(digest=digest, index=index, count=count, data=data)
            result = self._assembler.add(
                Envelope(fleet=FLEET, body=part, run="r", agent=rng.choice(("a", "a", "b", "c")))
            )
        return "open" if result is None else "whole"

    def _blob(self, rng: random.Random) -> str:
        content = self._content(rng)
        digest = hashlib.sha256(content).hexdigest() if rng.random() < 0.8 else DIGEST
        size = len(content) if rng.random() < 0.8 else rng.choice((0, 1, 2**30))
        self._store.want(Manifest(digest=digest, count=rng.choice((1, 1, 2)), size=size, what="model"))
        topic = self._topics.blob(digest, 0) if rng.random() < 0.9 else rng.choice(TEXTS)
        result = self._store.add(topic, content)
        return "open" if result is None else "whole"

    def _model(self, rng: random.Random) -> str:
        return type(read_model(self._content(rng)[1:], fleet=FLEET)).__name__


class TopicNames:
    """`Topics.parse`."""

    name = "topics"

    def feed(self, rng: random.Random) -> str:
        topics = Topics(FLEET)
        result = (topics.request("r"), topics.contribution("a"), topics.blob(DIGEST, 3), topics.receipt("a"))
        line = rng.choice((*result, topics.model_version("m", 7))).split("/")
        for _ in range(rng.choice((0, 1, 1, 2))):
            place = rng.randrange(len(line))
            line[place] = rng.choice((*TEXTS, "+", "#", "007", "1" * 12, "²", "-1", line[place] + "\n"))
        return self.take("/".join(line))

    @staticmethod
    def take(topic: str) -> str:
        """Feed one topic."""
        topics = Topics(FLEET)
        try:
            address = topics.parse(topic)
        except WireError as fault:
            return fault.code
        assert "\n" not in f"{address.agent}{address.run}{address.name}{address.digest}"
        return address.kind


class Records:
    """`ModelRecord.from_bytes`: JSON that was changed on its way, or signed over with a new digest."""

    name = "record"

    def __init__(self) -> None:
        self._seeds = [json.loads(record_of(name).to_bytes()) for name in benches()]

    def feed(self, rng: random.Random) -> str:
        record = rng.choice(self._seeds)
        if rng.random() < 0.6:
            record = {**record, rng.choice(sorted(record)): odd(rng)} if rng.random() < 0.3 else record
            record = {**record, "document": edited(rng, record["document"])}
            try:
                if rng.random() < 0.5:
                    record = {**record, "digest": document_digest(record["document"])}
                data = json.dumps(record).encode()
            except (DocumentError, TypeError, ValueError, KeyError, RecursionError):
                data = b'{"a":' * rng.choice((5, 5000))
        else:
            text = json.dumps(record).encode()
            data = break_bytes(rng, text, text)
        return self.take(data)

    @staticmethod
    def take(data: bytes) -> str:
        """Feed one input."""
        try:
            record = ModelRecord.from_bytes(data)
        except WireError as fault:
            return fault.code
        assert ModelRecord.from_bytes(record.to_bytes()).digest == record.digest
        return "taken"


class Answers:
    """A scheme's `check`, then `reduce` with what passed: ContributionError first, a named end later."""

    def __init__(self, scheme: str) -> None:
        self.name = f"{scheme}/check"
        self._scheme = scheme
        self._server = halves(scheme)[1]

    def feed(self, rng: random.Random) -> str:
        step, answers = rng.choice(steps(self._scheme))
        place = rng.randrange(len(answers))
        value = edited(rng, answers[place].to_value(), edits=rng.choice((1, 1, 2, 4)))
        if rng.random() < 0.5:  # as it arrives
            try:
                value = as_it_arrives(value)
            except WireError as fault:
                return fault.code
        if not isinstance(value, dict):
            return "no map"
        try:
            contribution = Contribution.from_value(value)
            self._server.check(step.task, contribution)
        except ContributionError as fault:
            return named(fault, "rejected")
        if rng.random() < 0.2:
            try:
                self._server.reduce(step.state, [*answers[:place], contribution, *answers[place + 1 :]])
            except (GlassfleetError, ContributionError):
                return "named-end"
            return "reduced"
        return "accepted"


class Tasks:
    """A scheme's `contribute`: TaskError, or an answer that its own server finds possible."""

    def __init__(self, scheme: str) -> None:
        self.name = f"{scheme}/task"
        self._scheme = scheme
        self._client, self._server = halves(scheme)
        bench = benches().get(scheme) or next(b for b in benches().values() if b.purpose == "regression")
        self._rows = [bench.fleet["vehicle-3"], bench.fleet["vehicle-2"], bench.empty()]

    def feed(self, rng: random.Random) -> str:
        step, _ = rng.choice(steps(self._scheme))
        body = edited(rng, dict(step.task.body), edits=rng.choice((1, 1, 2, 4)))
        try:
            body = as_it_arrives(body)
        except WireError as fault:
            return fault.code
        if not isinstance(body, dict):
            return "no map"
        task = Task(step.task.scheme, step.task.kind if rng.random() < 0.9 else rng.choice(TEXTS), body)
        try:
            answer = self._client.contribute(task, rng.choice(self._rows), np.random.default_rng(0))
        except TaskError as fault:
            return named(fault, "refused")
        self._server.check(task, answer)
        return "answered"


class Documents:
    """A scheme's `from_document`: DocumentError, or a model that can be used."""

    def __init__(self, scheme: str) -> None:
        self.name = f"{scheme}/document"
        self._bench = benches()[scheme]
        self._document = json.loads(json.dumps(self._bench.outcome(self._bench.parameters).model.to_document()))

    def feed(self, rng: random.Random) -> str:
        return self.take(self._bench.scheme, edited(rng, self._document, edits=rng.choice((1, 1, 2, 4))))

    @staticmethod
    def take(scheme: Any, document: Any) -> str:
        """Feed one document to a scheme."""
        try:
            model = scheme.from_document(document)
        except DocumentError as fault:
            return named(fault, "refused")
        with np.errstate(all="ignore"):
            predicted = model.predict(np.full((3, len(model.domain.features)), 0.4))
        assert predicted.shape == (3,)
        return "read"
