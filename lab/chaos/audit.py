"""What came of it: journal, logs, outboxes, the broker's retained messages and the models' digests, compared.

The audit trusts none of the processes' own counters: those die with a SIGKILL. It reads what they left behind.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link, Message
from broker.tls import Tls
from coordinator.engine import Answer, Engine
from coordinator.engine.events import from_value
from coordinator.journal.sql import SqlJournal
from coordinator.models.aliases import Aliases
from edge_agent.sources import read_source
from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.data.dataset import pool
from glassfleet.data.domain import Domain
from lab.chaos import breaches
from lab.chaos.certificate_office import StolenIdentity
from lab.chaos.conduct import Played
from lab.chaos.fleet import FLEET, Fleet
from lab.chaos.schedule import COORDINATOR, STANDBY
from lab.processes import read_lines
from schemas import codec
from schemas.codec import document_digest
from schemas.envelope import Envelope
from schemas.errors import WireError
from schemas.messages import Manifest, ModelPointer
from schemas.record import ModelRecord
from schemas.topics import Topics

_SHORT = 8
"""Digits of a task digest in the agents' logs."""
_PATIENCE, _QUIET = 10.0, 0.5
"""Seconds to look for what the broker holds, and without a message after which all of it has come."""
_ENDING = 20.0
"""Seconds for processes to end when they are asked to: one that has just begun takes ten on a loaded machine."""


@dataclass
class Findings:
    """What the audit found; everything in `lost` and below must be empty.

    Attributes
    ----------
    runs : list of dict
        Id, outcome, reason, cohort, restarts, rounds, model, ``equal`` (None where no model was promised).
    sent : int
        Different answers that agents computed and stored.
    sends : int
        Answers handed to the transport, resends included.
    judged : dict of str to int
        What the coordinator said of the answers that reached it.
    accepted : int
        Answers in the journal.
    withdrawn : int
        Answers that never got a receipt because a newer request or the run's end made them needless.
    lost : list of str
        Accepted and not in the journal, or still waiting for a receipt in the end.
    double_counted : list of str
        More than once in the journal, or in a round, or rows of a model that are not those of its cohort.
    unequal : list of str
        Models that are not the central model of their cohort.
    exposed : list of str
        Sums of private runs whose difference tells of too few vehicles.
    again : int
        Private runs over rows over which there had been another.
    leaked : list of str
        Retained topics that stand for nothing.
    intruded : list of str
        What a revoked vehicle could do, or its thief.
    harmed : list of str
        Messages of somebody whose certificate was always good that were refused, and retained ones that would be.
    messages : dict of str to int
        Messages that were lost, doubled and held back by the transport.
    refused : dict of str to int
        Messages that a seal did not cover, by code.
    """

    runs: list[dict[str, Any]] = field(default_factory=list)
    sent: int = 0
    sends: int = 0
    judged: dict[str, int] = field(default_factory=dict)
    accepted: int = 0
    withdrawn: int = 0
    lost: list[str] = field(default_factory=list)
    double_counted: list[str] = field(default_factory=list)
    unequal: list[str] = field(default_factory=list)
    exposed: list[str] = field(default_factory=list)
    again: int = 0
    leaked: list[str] = field(default_factory=list)
    intruded: list[str] = field(default_factory=list)
    harmed: list[str] = field(default_factory=list)
    messages: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """What a fleet left behind.

    Attributes
    ----------
    work : Path
        Folder with ``coordinator/journal.sqlite`` and ``logs/{name}.log``.
    agents : sequence of str
    runs : sequence of str
    pending : sequence of str
        Answers that waited for a receipt in the end.
    retained : mapping of topic to payload
        What the broker held in the end.
    stolen_identities : sequence of StolenIdentity
        Vehicles that were revoked.
    reissued : collection of str
        Whoever had a certificate revoked.
    trust : (bytes, bytes) or None
        CA certificate and revocation list, where messages are signed.
    """

    work: Path
    agents: Sequence[str]
    runs: Sequence[str]
    pending: Sequence[str] = ()
    retained: Mapping[str, bytes] = field(default_factory=dict)
    stolen_identities: Sequence[StolenIdentity] = ()
    reissued: Collection[str] = ()
    trust: tuple[bytes, bytes] | None = None


def gather(played: Played, fleet: Fleet, patience: float = 30.0) -> Evidence:
    """Wait for the outboxes to empty, end coordinator and agents, then look at the broker: nothing changes any more."""
    agents = [name for name in fleet.processes if name not in fleet.coordinators]
    pending = _wait_for_outboxes(fleet.work, agents, patience)
    office = fleet.office
    # It may have died since the last fault, too; one that is away does not say what it holds, or whom it lets in.
    played.broker_died += fleet.revive_broker(patience)
    fleet.end(agents, _ENDING)
    # Who stands by first: it would take the other's place.
    for name in sorted(fleet.coordinators, key=lambda each: each == fleet.leader):
        fleet.end([name], _ENDING)
    played.broker_died += fleet.start_broker()
    retained = read_retained(fleet.broker.url, tls=None if office is None else office.auditor)
    if office is not None:
        for stolen in office.stolen_identities:
            played.broker_died += fleet.start_broker()
            office.try_stolen(stolen)
    for name, process in fleet.processes.items():
        # -15: asked to end before it had got so far as to handle the signal.
        codes = [code for code in process.ends if code not in (0, -15)]
        played.died += [f"{name} ended with code {code} when it was asked to end" for code in codes]
    evidence = Evidence(fleet.work, agents, played.runs, pending, retained)
    if office is None:
        return evidence
    return replace(evidence, stolen_identities=office.stolen_identities, reissued=office.reissued, trust=office.trust)


def examine(evidence: Evidence, files: Mapping[str, Path]) -> Findings:
    """Compare everything with everything.

    Parameters
    ----------
    evidence : Evidence
    files : mapping of agent id to Path
        Their data, for the central models.
    """
    findings = Findings(lost=list(evidence.pending))
    journal = SqlJournal(f"sqlite:///{evidence.work / 'coordinator' / 'journal.sqlite'}")
    try:
        counted = _read_journal(journal, evidence.runs, findings)
        _check_models(journal, files, findings)
        engine = Engine(fleet=FLEET)
        opened = {run: breaches.summed_over(engine, list(journal.records(run))) for run in evidence.runs}
        # Not the newest versions: the gate may have left one a candidate.
        aliases = Aliases(time.monotonic, time.time)
        aliases.apply(journal.decisions())
        pointers = {each.name: (each.version, each.digest) for each in aliases.current.values()}
    finally:
        journal.close()
    findings.exposed, findings.again = breaches.exposed(opened), breaches.again(opened)
    _check_retained(evidence.retained, pointers, findings)
    _read_logs(evidence, counted, findings)
    if evidence.trust is not None:
        findings.harmed += breaches.stale(evidence.retained, Topics(FLEET), evidence.trust)
        findings.intruded += breaches.intrusions(
            evidence.stolen_identities, evidence.work / "logs" / f"{COORDINATOR}.log"
        )
    return findings


# The outboxes


def _wait_for_outboxes(work: Path, agents: Sequence[str], patience: float) -> list[str]:
    """Return the answers that still wait for a receipt after `patience` seconds without faults."""
    end = time.monotonic() + patience
    while True:
        waiting = [item for name in agents for item in _pending(work, name)]
        if not waiting or time.monotonic() > end:
            return waiting
        time.sleep(0.1)


def _pending(work: Path, name: str) -> list[str]:
    path = work / "vehicles" / "agents" / FLEET / name / "outbox.sqlite"
    # Read-only, while the agent goes on writing.
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5.0)
    try:
        rows = database.execute("SELECT run, task_digest FROM answer WHERE status = 'pending'").fetchall()
    finally:
        database.close()
    return [f"{name}: answer {digest[:_SHORT]} of {run} waits for a receipt" for run, digest in rows]


# The broker


def read_retained(url: str, fleet: str = FLEET, tls: Tls | None = None) -> dict[str, bytes]:
    """Return all retained messages of the fleet, as somebody sees them who subscribes now."""
    result: dict[str, bytes] = {}
    latest = [time.monotonic()]
    connected = threading.Event()

    def take(message: Message) -> None:
        latest[0] = time.monotonic()
        if message.retained and message.payload:
            result[message.topic] = message.payload

    transport = PahoTransport(Link(url, f"gf-{fleet}-audit", session_expiry=0, tls=tls))
    transport.subscribe(f"{Topics(fleet).prefix}#")
    transport.start(Handlers(take, connected.set, lambda _why: None))
    try:
        connected.wait(_PATIENCE)
        end = time.monotonic() + _PATIENCE
        latest[0] = time.monotonic()
        while time.monotonic() < min(end, latest[0] + _QUIET):
            time.sleep(0.02)
    finally:
        transport.stop()
    return result


def _check_retained(retained: Mapping[str, bytes], pointers: Mapping[str, tuple[int, str]], findings: Findings) -> None:
    topics = Topics(FLEET)
    named: set[str] = set()
    shown: dict[str, tuple[int, str]] = {}
    for topic, payload in retained.items():
        kind = topics.parse(topic).kind
        if payload[:1] == b"{" or kind == "revoked":
            continue  # a model record in one piece; a list that is the CA's
        try:
            body = Envelope.from_bytes(payload, fleet=FLEET).body if kind != "blob" else None
        except WireError as fault:
            findings.leaked.append(f"{topic}: {fault}")
            continue
        if isinstance(body, Manifest):
            named.update(topics.blob(body.digest, index) for index in range(body.count))
        if isinstance(body, ModelPointer) and topic == topics.model_current(body.name):
            shown[body.name] = (body.version, body.digest)
    for topic in sorted(retained):
        kind = topics.parse(topic).kind
        if kind == "request":
            findings.leaked.append(f"{topic}: the request of an ended run is retained")
        elif kind == "blob" and topic not in named:
            findings.leaked.append(f"{topic}: a part that nothing names is retained")
    if shown != dict(pointers):
        findings.leaked.append(f"the retained pointers {shown} are not the current ones, {dict(pointers)}")


# Journal and models


def _read_journal(journal: SqlJournal, runs: Sequence[str], findings: Findings) -> set[tuple[str, str, str]]:
    """Return (agent, run, start of the task digest) of all accepted answers."""
    counts: Counter[tuple[str, str, str]] = Counter()
    ended = set(journal.ended())
    for run in runs:
        document = journal.document(run)
        if run not in ended or document is None:
            findings.runs.append({"run": run, "outcome": None, "reason": "has not ended"})
            continue
        findings.runs.append(
            {key: document[key] for key in ("run", "outcome", "reason", "cohort", "restarts", "model")}
            | {"rounds": len(document["rounds"]), "equal": None}
        )
        for summary in document["rounds"]:
            agents = summary["accepted_agents"]
            if len(agents) != len(set(agents)):
                findings.double_counted.append(f"{run}: round {summary['number']} counts an agent twice")
        for entry in journal.records(run):
            if entry.kind == Answer.kind:
                event = from_value(codec.decode(entry.body))
                assert isinstance(event, Answer)
                counts[event.agent, run, event.task_digest] += 1
    findings.accepted = len(counts)
    findings.double_counted += [f"{key}: {count} times in the journal" for key, count in counts.items() if count > 1]
    return {(agent, run, digest[:_SHORT]) for agent, run, digest in counts}


def _check_models(journal: SqlJournal, files: Mapping[str, Path], findings: Findings) -> None:
    sources = {name: read_source(path, hold_back=True).train for name, path in files.items()}
    central: dict[str, str] = {}
    by_run = {model.run: ModelRecord.from_bytes(model.record) for model in journal.models()}
    for run in findings.runs:
        if run["outcome"] != "finished":
            continue
        record = by_run.get(run["run"])
        if record is None:
            findings.unequal.append(f"{run['run']} finished without a model")
            continue
        withheld = record.parameters.get("withheld", ())
        key = json.dumps([record.cohort, record.document["domain"], withheld])
        if key not in central:
            scheme = catalogue.load(record.scheme)
            parameters = scheme.Parameters.model_validate(record.document["parameters"])
            domain = Domain.from_document(record.document["domain"])
            most = int(record.parameters.get("max_rows_each", 0))
            rows = pool(
                [simulation.counted_rows(sources[name].select(domain.names), domain, most) for name in record.cohort]
            )
            alone = simulation.central(scheme, parameters, domain, rows, withheld=withheld)
            central[key] = document_digest(alone.model.to_document())
        run["equal"] = central[key] == record.digest == document_digest(record.document)
        if not run["equal"]:
            findings.unequal.append(f"{run['run']}: {record.digest} is not the central {central[key]}")
        own = sum(sources[name].rows for name in record.cohort)
        if record.training.rows != own:
            findings.double_counted.append(f"{run['run']}: {record.training.rows} rows; the cohort has {own}")


# Logs


def _read_logs(evidence: Evidence, counted: set[tuple[str, str, str]], findings: Findings) -> None:
    judged: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    sent: set[tuple[str, str, str]] = set()
    settled: set[tuple[str, str, str]] = set()
    accepted: Counter[tuple[str, str, str]] = Counter()
    logs = evidence.work / "logs"
    coordinators = [name for name in (COORDINATOR, STANDBY) if (logs / f"{name}.log").exists()]
    for name in (*coordinators, *evidence.agents):
        lines = read_lines(logs / f"{name}.log")
        refused, wrongly = breaches.refusals(((name, line) for line in lines), Topics(FLEET), evidence.reissued)
        findings.refused = dict(sorted((Counter(findings.refused) + Counter(refused)).items()))
        findings.harmed += wrongly
        for line in lines:
            event = line.get("event", "")
            if event in ("message-lost", "message-doubled", "message-held"):
                messages[event.removeprefix("message-")] += 1
            elif name in coordinators and event == "answered":
                judged[line["outcome"]] += 1
                if line["outcome"] == "accepted" and line.get("reason") != "refusal noted":
                    accepted[line["agent"], line["run"], line["task"][:_SHORT]] += 1
            elif event == "answered":
                sent.add((name, line["run"], line["task"][:_SHORT]))
                findings.sends += 1
            elif event == "resent":
                findings.sends += 1
            elif event == "receipt":
                key = (name, line["run"], line["task"][:_SHORT])
                settled.add(key)
                is_answer = line.get("reason") != "refusal noted"
                if line["outcome"] in ("accepted", "duplicate") and is_answer and key not in counted:
                    findings.lost.append(f"{key}: the agent was told {line['outcome']}, the journal has no such answer")
    findings.judged = dict(sorted(judged.items()))
    findings.messages = dict(sorted(messages.items()))
    findings.sent = len(sent)
    findings.withdrawn = len(sent - settled - counted)
    findings.lost += [f"{key}: accepted, and not in the journal" for key in accepted if key not in counted]
    findings.double_counted += [f"{key}: accepted {count} times" for key, count in accepted.items() if count > 1]
