"""May I publish and subscribe where I must, and not where I must not? Tried, not read from a configuration.

Every probe is an empty message, not retained, most on topics with a made-up run, model or vehicle: whoever gets it
although nobody should have, ignores it. Last, the vehicle refuses a task of a made-up run. The coordinator answers with
a receipt, which shows that the whole way there and back works, and tells the coordinator's clock.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from broker.connection import ConnectError, Connection
from broker.port import Link, Message
from broker.servers.mosquitto import AclRule, agent_rules, coordinator_rules
from broker.tls import Tls
from broker.url import is_loopback, parse_url, safe_address
from console.checkup.finding import Finding, fine, warning, wrong
from schemas.envelope import Envelope
from schemas.errors import WireError
from schemas.messages import Receipt, Refusal
from schemas.topics import Topics, matches

Role = Literal["agent", "coordinator"]

_PATIENCE = 3.0
"""Seconds to wait for the broker's answer to a probe, and for the coordinator's receipt."""

_ACL = "let `glassfleet broker config` write its access rules, or take them over from docs/reference/brokers.md"


class _Probe(AbstractContextManager["_Probe"]):
    """A connection that asks one thing at a time."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._address = safe_address(link.url, link.tls, insecure_plaintext=link.insecure_plaintext)
        self.heard: list[tuple[float, Message]] = []
        self._answers: dict[int, str] = {}
        self._refused: dict[int, str] = {}
        self._patterns: list[str] = []
        self._connection = self._open()

    def _open(self) -> Connection:
        connection = Connection(
            self._address,
            self._link,
            "5",
            on_message=lambda message: self.heard.append((time.time(), message)),
            on_acknowledged=self._answers.__setitem__,
            on_refused=self._refused.__setitem__,
        )
        connection.open()
        for pattern in self._patterns:
            connection.subscribe(pattern)
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def publish(self, topic: str, payload: bytes = b"") -> str:
        """Return the broker's complaint about a message on `topic`; empty when it took it."""
        number = self._connection.publish(topic, payload, retain=False)
        end = time.monotonic() + _PATIENCE
        while number not in self._answers and self._connection.lost is None and time.monotonic() < end:
            self._connection.step(0.1)
        lost = self._connection.lost
        if lost is not None:
            # Some brokers do not answer what they forbid, they hang up.
            self._connection.drop()
            self._answers.clear()
            self._refused.clear()
            self._connection = self._open()
            return lost
        return self._answers.pop(number, "no answer")

    def subscribe(self, pattern: str, own: str) -> str:
        """Return the complaint about a subscription; the probe on `own` comes after it, so its answer does, too."""
        self._patterns.append(pattern)
        number = self._connection.subscribe(pattern)
        self.publish(own)
        return self._refused.get(number, "")

    def listen(self, seconds: float) -> Iterator[tuple[float, Message]]:
        """Yield what arrives within so many seconds, with the wall clock of its arrival; what was heard before, too."""
        end = time.monotonic() + seconds
        seen = 0
        while True:
            while seen < len(self.heard):
                yield self.heard[seen]
                seen += 1
            if time.monotonic() >= end or self._connection.lost is not None:
                return
            self._connection.step(0.1)


def access(link: Link, topics: Topics, role: Role, name: str) -> list[Finding]:
    """Try what a process must and must not be allowed.

    Parameters
    ----------
    link : Link
        Its client id is used: with a certificate the broker may end the connection of the running process for it, which
        comes back by itself.
    topics : Topics
    role : "agent" or "coordinator"
    name : str
        The vehicle's id.
    """
    try:
        with _Probe(link) as probe:
            rules = agent_rules(topics, name) if role == "agent" else coordinator_rules(topics)
            is_alone = is_loopback(parse_url(link.url).host) and (link.tls is None or not link.tls.has_certificate)
            result = [
                _reading(probe, topics, rules, role, name),
                *_writing(probe, topics, rules, name, is_alone=is_alone),
            ]
            if role == "agent":
                result += _round_trip(probe, topics, name, link.tls, is_alone=is_alone)
            return result
    except ConnectError as fault:
        return [warning("access", f"not looked at: {fault}", "it is told only by brokers that speak MQTT 5")]


def _candidates(topics: Topics, name: str) -> list[str]:
    """Return a topic of each kind, the vehicle's own ones and a stranger's; all with made-up ids."""
    other = f"doctor-{secrets.token_hex(4)}"
    digest = secrets.token_hex(32)
    own = [topics.evaluation(name), topics.forecast(name)] if name else []
    return [
        *own,
        topics.receipt(other),
        topics.request(other),
        topics.blob(digest, 0),
        topics.model_current(other),
        topics.model_version(other, 1),
        topics.agent_state(other),
        topics.contribution(other),
        topics.evaluation(other),
        topics.forecast(other),
    ]


def _writing(probe: _Probe, topics: Topics, rules: list[AclRule], name: str, *, is_alone: bool) -> Iterator[Finding]:
    missing, excess = [], []
    for topic in _candidates(topics, name):
        must = any(rule.access != "read" and matches(rule.pattern, topic) for rule in rules)
        complaint = probe.publish(topic)
        short = topic.removeprefix(topics.prefix)
        if must and complaint:
            missing.append(f"{short} ({complaint})")
        elif not must and not complaint:
            excess.append(short)
    if missing:
        yield wrong("may publish", f"refused: {', '.join(missing)}", f"allow them: {_ACL}")
    else:
        yield fine("may publish", "everything that it must")
    if excess and is_alone:
        yield fine("must not publish", "may do everything: one user for all, as on a broker for this machine alone")
    elif excess:
        yield wrong("must not publish", f"allowed, and should not be: {', '.join(excess)}", f"forbid them: {_ACL}")
    else:
        yield fine("must not publish", "nothing that is others' can be written")


def _reading(probe: _Probe, topics: Topics, rules: list[AclRule], role: Role, name: str) -> Finding:
    own = topics.contribution(name) if role == "agent" else topics.receipt("doctor")
    refused = []
    for rule in rules:
        if rule.access != "write":
            complaint = probe.subscribe(rule.pattern, own)
            if complaint:
                refused.append(f"{rule.pattern.removeprefix(topics.prefix)} ({complaint})")
    if refused:
        return wrong("may subscribe", f"refused: {', '.join(refused)}", f"allow them: {_ACL}")
    return fine("may subscribe", "everything that it must")


def _round_trip(probe: _Probe, topics: Topics, name: str, tls: Tls | None, *, is_alone: bool) -> Iterator[Finding]:
    """Follow one message to the coordinator and back, and look whether a vehicle can listen to others' answers."""
    run = f"doctor-{secrets.token_hex(4)}"
    mine = topics.contribution(name)
    probe.subscribe(topics.contributions(), topics.evaluation(name))
    sent = time.time()
    refusal = Refusal(task_digest="0" * 64, reason="glassfleet doctor")
    payload = Envelope(fleet=topics.fleet, body=refusal, run=run, agent=name, time=sent).to_bytes()
    complaint = probe.publish(mine, _sealed(tls, mine, payload))
    if complaint:
        yield wrong("may publish", f"refused: its own contribution ({complaint})", f"allow it: {_ACL}")
        return
    leaked, answer = False, None
    for at, message in probe.listen(_PATIENCE):
        leaked |= message.topic == mine
        if message.topic == topics.receipt(name) and (result := _receipt_time(message, topics, run)) is not None:
            answer = (at, result)
            break
    if leaked and not is_alone:
        yield wrong("must not subscribe", "a vehicle can read contributions", f"forbid it: {_ACL}")
    elif not leaked:
        yield fine("must not subscribe", "contributions cannot be read by vehicles")
    if answer is None:
        yield warning(
            "coordinator", f"no receipt came back within {_PATIENCE:g} s: no coordinator is up, or {name} may not read "
            "its receipts",
            f"start one with `glassfleet coordinator`; if one is up, {_ACL}",
        )  # fmt: skip
        return
    came, result = answer
    yield fine("coordinator", f"answers over the broker after {1000 * (came - sent):.0f} ms")
    yield clock(result - (sent + came) / 2, (came - sent) / 2)


def _sealed(tls: Tls | None, topic: str, message: bytes) -> bytes:
    if tls is None or tls.key_file is None or tls.cert_file is None:
        return message
    from schemas.trust.signing import Signer  # needs the cryptography

    return Signer(Path(tls.key_file).read_bytes(), Path(tls.cert_file).read_bytes()).seal(topic, message)


def _receipt_time(message: Message, topics: Topics, run: str) -> float | None:
    try:
        envelope = Envelope.from_bytes(message.payload, fleet=topics.fleet)
    except WireError:
        return None
    return envelope.time if isinstance(envelope.body, Receipt) and envelope.run == run else None


def clock(skew: float, accuracy: float) -> Finding:
    """Judge by how many seconds the coordinator's clock is ahead, known to within `accuracy` seconds."""
    apart = max(0.0, abs(skew) - accuracy)
    which = "behind" if skew > 0 else "ahead of"
    fix = "set both clocks, e.g. with systemd-timesyncd or chrony: certificates and signatures have dates"
    if apart > 60:
        return wrong("clock", f"this machine is {apart:.0f} s {which} the coordinator", fix)
    if apart > 2:
        return warning("clock", f"this machine is {apart:.1f} s {which} the coordinator; rounds do not mind", fix)
    near = "0.01 s" if accuracy < 0.01 else f"{accuracy:.2g} s"
    return fine("clock", f"the same as the coordinator's; a difference of less than {near} cannot be seen from here")
