"""A vehicle's private runs as its agent has them, and a coordinator that asks it likes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from coordinator.engine.pairing import ANNOUNCED
from edge_agent.session.events import RequestSeen
from edge_agent.session.private import PRIVATE, PrivateAnswers
from edge_agent.session.snapshots import Snapshot, Snapshots
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.scheme import private_parameters
from glassfleet.data.dataset import Dataset
from glassfleet.discovery import DISCOVERY, DiscoveryParameters
from glassfleet.private.groups import Announcement, Edition, Roster, Terms, parameters_digest
from glassfleet.private.layout import layout_of, question_digest
from glassfleet.private.ledger import Limits
from glassfleet.private.masks import RunKey
from glassfleet.private.totals import Total, known
from lab.protocols.paper import pooled_domain
from schemas.envelope import Envelope
from schemas.messages import ContributionBody, PrivateGroup, Request
from schemas.topics import Topics

SECRET = bytes(range(32))
FRT: Any = catalogue.load("frt")
PARAMETERS = private_parameters(FRT, FRT.Parameters(max_depth=2))
OTHERS = tuple(f"v{number:02d}" for number in range(1, 11))


def dataset(seed: int = 0, rows: int = 40) -> Dataset:
    rng = np.random.default_rng(seed)
    return Dataset(("a", "b"), "y", rng.random((rows, 2)), rng.random(rows))


def keys_task(terms: Terms) -> Task:
    return Task(PRIVATE, "keys", terms.to_value(), terms.nonce)


def seen(run: str, request: Request) -> RequestSeen:
    return RequestSeen(run, request, Task.from_value(request.task))


class Victim:
    """A vehicle's private runs as its agent has them, and the coordinator's side of asking it."""

    def __init__(self, folder: Path, choice: Any = "allowed") -> None:
        self.folder, self.choice, self.data = folder, choice, dataset()
        self.tests = dataset(9, rows=0)
        self.totals: dict[Total, None] = {}
        self.others = {agent: RunKey.generate() for agent in OTHERS}
        self.restart()

    def restart(self) -> None:
        self.snapshots = Snapshots(self.folder / "runs", SECRET)
        self.private = PrivateAnswers(
            Topics("fleet"),
            "v00",
            self.folder,
            SECRET,
            limits=Limits(),
            choice=self.choice,
            verifier=None,
            snapshots=self.snapshots,
            tests=lambda: self.tests,
        )

    def frozen(self, run: str, request: Request) -> Snapshot:
        """Return the rows that a request is answered from, once it is checked, as the agent does it."""
        asked = seen(run, request)
        self.private.heard(run)
        self.private.choose(asked)
        rows = self.private.rows(asked, self.data)
        snapshot = self.snapshots.of_run(run, rows)
        self.private.check(asked, snapshot, rows)
        return snapshot

    def announce(self, terms: Terms) -> ContributionBody:
        task = keys_task(terms)
        request = Request(task=task.to_value(), task_digest=task.digest, remaining=1.0)
        return self.private.announce(seen(terms.run, request), self.frozen(terms.run, request))

    def founders(self, terms: Terms, own: ContributionBody, absent: int = 0, renewed: int = 0) -> list[bytes]:
        """Messages of the group's founders: `absent` of the others not among them, and the last few with new rows."""
        digest = keys_task(terms).digest
        bodies = {"v00": own}
        for agent in OTHERS[absent:]:
            new: Any = (
                {"new_rows": terms.nonce, "new_tests": terms.nonce, "new_digest": "1" * 64}
                if agent in OTHERS[len(OTHERS) - renewed :]
                else {}
            )
            announced = Announcement(
                agent, self.others[agent].public, "0" * 64, era="era", rows="rows", **new
            ).to_value()
            contribution = Contribution("keys", 0, values={name: announced[name] for name in ANNOUNCED})
            bodies[agent] = ContributionBody(
                task_digest=digest, rows=0, data_digest=announced["data_digest"], contribution=contribution.to_value()
            )
        return [
            Envelope(fleet="fleet", agent=agent, run=terms.run, body=body, time=0.0).to_bytes()
            for agent, body in sorted(bodies.items())
        ]

    def request(
        self,
        terms: Terms,
        founders: list[bytes],
        task: Task,
        members: Any = None,
        number: int = 0,
        *,
        renews: bool = False,
    ) -> Request:
        """Ask, and tell of the sums of earlier questions as an honest coordinator does."""
        announcements = []
        for message in founders:
            envelope = Envelope.from_bytes(message, fleet="fleet")
            assert isinstance(envelope.body, ContributionBody)
            values = Contribution.from_value(envelope.body.contribution).values
            announced = {**values, "agent": envelope.agent, "data_digest": envelope.body.data_digest}
            announcements.append(Announcement.from_value(announced))
        roster = Roster(terms, 0, tuple(announcements), renews)
        edition = Edition(roster, number, tuple(members or roster.by_id))
        earlier = known(roster.announced, self.totals)
        self.totals |= dict.fromkeys([roster.first().total, edition.total])
        scheme: Any = DISCOVERY if task.scheme == "domain" else FRT
        group = PrivateGroup(
            group=0,
            number=number,
            members=list(edition.members),
            question=question_digest(edition, task.digest, layout_of(scheme, task).digest),
            founders=founders,
            totals=[each.to_value() for each in earlier],
            renews=renews,
        )
        return Request(task=task.to_value(), task_digest=group.question, remaining=1.0, private=[group])

    def answer(self, terms: Terms, request: Request, contribution: Contribution | None = None) -> ContributionBody:
        asked, snapshot = seen(terms.run, request), self.frozen(terms.run, request)
        task = asked.task
        scheme: Any = DISCOVERY if task.scheme == "domain" else FRT
        given = contribution or scheme.client.contribute(task, snapshot.data, np.random.default_rng(0))
        return self.private.masked(asked, snapshot, given)

    def met(self) -> tuple[Terms, list[bytes]]:
        """Announce itself in run r1; return its terms and the founders' messages."""
        terms = terms_of()
        return terms, self.founders(terms, self.announce(terms))

    def end(self, run: str) -> None:
        self.private.end(run)
        self.snapshots.drop(run)


def terms_of(run: str = "r1", nonce: str = "n1", parameters: Any = PARAMETERS) -> Terms:
    return Terms("fleet", run, nonce, "frt", parameters_digest(parameters))


def first_task(terms: Terms, parameters: Any = PARAMETERS, **body: Any) -> Task:
    data = dataset(rows=200)
    task = FRT.server.start(parameters, pooled_domain(data.features, data.target, data.X, data.y), 0).task
    return Task(task.scheme, task.kind, {**task.body, **body}, terms.nonce)


def domain_task(terms: Terms, **changes: Any) -> Task:
    parameters = DISCOVERY.private(DiscoveryParameters(features=("a", "b"), target="y"))
    task = DISCOVERY.server.start(parameters).task
    return Task(task.scheme, task.kind, {**task.body, **changes}, terms.nonce)
