"""Vehicles that really mask, and a play in which they answer the engine; for the tests of private runs."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from coordinator.engine import (
    Answer,
    Engine,
    Event,
    Offer,
    OpenRound,
    Publish,
    RunState,
    SendReceipt,
    Start,
    Tick,
    pairing,
    standing,
    wakes_at,
)
from coordinator.engine.events import to_value
from coordinator.runs.transaction import shortened
from coordinator.specification.run import RunSpec
from edge_agent.models.summed import summed
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.data.dataset import Dataset, pool
from glassfleet.discovery import DISCOVERY
from glassfleet.errors import PrivacyError
from glassfleet.evaluation.scores import SCORES
from glassfleet.private.answering import accept, no_rows, reply
from glassfleet.private.chain import Chain, meet
from glassfleet.private.groups import Announcement, Edition, Terms
from glassfleet.private.masks import RunKey, pair_keys
from glassfleet.private.pairs import PAIRS
from glassfleet.private.totals import Member, Total
from glassfleet.simulation import central
from schemas import codec
from schemas.codec import document_digest
from schemas.messages import ContributionBody
from tests.support.engine_bench import fingerprint, fold

OFFER = Offer(frozenset({"tree", "frt"}), ("a", "b"), "y")
NONCE = "7" * 32


@cache
def rows_of(agent: str) -> Dataset:
    """Return a vehicle's rows, a function of its id."""
    rng = np.random.default_rng(list(agent.encode()))
    X = np.round(rng.uniform(0, 1, (12, 2)) * 16) / 16
    return Dataset(("a", "b"), "y", X, np.round(8 * (X[:, 0] + (X[:, 1] > 0.5))) / 8)


@cache
def _key_of(agent: str) -> RunKey:
    return RunKey(hashlib.sha256(agent.encode()).digest())


@cache
def _pairs_of(agent: str, edition: Edition) -> dict[str, bytes]:
    return pair_keys(_key_of(agent), agent, edition.roster)


def total_of(founders: Iterable[str], members: Iterable[str] | None = None) -> Total:
    """Return a sum of an earlier run over the rows that the vehicles have; over all founders unless `members` says."""
    founding, summed = (tuple(map(_member, sorted(each))) for each in (founders, members or founders))
    return Total(founding, summed)


def _member(agent: str) -> Member:
    return Member(agent, "era", "rows")


def stands(earlier: Sequence[Total]) -> dict[str, dict[str, Any]]:
    """Return what each vehicle says of its earlier runs, as its ledger would; the newest comes first in `earlier`."""
    anchors: dict[str, str] = {}
    known: dict[str, set[bytes]] = defaultdict(set)
    for number, total in enumerate(reversed(earlier)):
        founders, members = ([each.agent for each in part] for part in (total.founders, total.members))
        anchor = min((anchors[agent] for agent in founders if agent in anchors), default=f"anchor {number}")
        heard = {total.digest}.union(*(known[agent] for agent in founders))
        for agent in members:
            anchors[agent], known[agent] = anchor, known[agent] | heard
    return {agent: {"anchor": anchors[agent], "totals": tuple(sorted(known[agent]))} for agent in anchors}


def scheme_of(task: Task, tests: Dataset | None = None) -> Any:
    if task.scheme == SCORES.name:  # without test rows, a vehicle tests with the rows that it learns from
        client = SimpleNamespace(contribute=lambda task, data, _: summed(task, data, tests or data))
        return SimpleNamespace(abilities=SCORES.abilities, server=SCORES.server, client=client)
    if task.scheme == PAIRS.name:
        return PAIRS
    return DISCOVERY if task.scheme == "domain" else catalogue.load(task.scheme)


class Vehicle:
    """One vehicle's side of a run, as `edge_agent.session.private` keeps it, without files.

    Attributes
    ----------
    vectors : list of bytes
        What it masked: nobody else may ever have these bytes.
    refused : list of PrivacyError
    lies : bool
        Whether it answers noise in place of masked vectors.

    Parameters
    ----------
    agent : str
    stands : mapping
        What it says of earlier runs, see `stands`.
    tests : Dataset or None
        Its test rows; None: the rows that it learns from.
    """

    def __init__(self, agent: str, stands: Mapping[str, Any] | None = None, *, tests: Dataset | None = None) -> None:
        self.tests = tests
        self.agent = agent
        self.chain: Chain | None = None
        rows, member = hashlib.sha256(agent.encode()).hexdigest(), _member(agent)
        own = {"era": member.era, "rows": member.rows, **(stands or {})}
        self.own = Announcement(agent, _key_of(agent).public, rows, **own)
        self.vectors: list[bytes] = []
        self.refused: list[PrivacyError] = []
        self.lies = False

    def answer(self, at: float, request: OpenRound, **changes: Any) -> Answer | None:
        """Return the answer to a request; None: it is not asked, or refuses."""
        try:
            if request.phase == "pairing":
                return self._announce(at, request.task, **changes)
            return self._masked(at, request, **changes)
        except PrivacyError as fault:
            self.refused.append(fault)
            return None

    def _announce(self, at: float, task: Task, **changes: Any) -> Answer:
        assert Terms.from_value(task.body).nonce == task.nonce
        own = self.own.to_value()
        values = {name: own[name] for name in pairing.ANNOUNCED} | {pairing.SEALED: self.agent.encode()}
        values |= changes.pop("values", {})
        return self._event(at, task.digest, Contribution("keys", 0, values=values), **changes)

    def _masked(self, at: float, request: OpenRound, **changes: Any) -> Answer | None:
        group = next((each for each in request.groups if self.agent in each.edition.members), None)
        if group is None:
            return None
        edition, told, scheme = group.edition, group.body, scheme_of(request.task, self.tests)
        # Who is not told again has kept it.
        assert told.members in ([], list(edition.members))
        assert told.members or (self.chain is not None and edition in self.chain.editions)
        assert len(told.founders) in (0, len(edition.roster.founders))
        assert told.founders or (self.chain is not None and self.chain.roster == edition.roster)
        assert told.founders or not told.totals
        if self.chain is None:
            self.chain = meet(self.own, edition.roster.terms, edition.roster, map(Total.from_value, told.totals))
        asked = accept(self.chain, scheme, request.task, edition.number, edition.members, told.question)
        if scheme is PAIRS:
            given = no_rows(asked)
        else:
            given = scheme.client.contribute(request.task, rows_of(self.agent), np.random.default_rng(0))
            scheme.server.check(request.task, given)
        self.chain, words = reply(asked, given, _pairs_of(self.agent, edition.roster.first()))
        self.vectors.append(asked.layout.flatten(given).tobytes())
        words = words + changes.pop("noise", np.uint64(0))
        if self.lies:
            words = np.random.default_rng(len(self.vectors)).integers(0, 2**64, words.size, dtype=np.uint64)
        contribution = Contribution(request.task.kind, 0, sums={"masked": words.view(np.int64)})
        return self._event(at, request.task_digest, contribution, **changes)

    def _event(self, at: float, digest: str, text: Contribution, **changes: Any) -> Answer:
        data, contribution = self.own.data_digest, text.to_value()
        body = ContributionBody(task_digest=digest, rows=0, data_digest=data, contribution=contribution)
        return replace(Answer.of(at, self.agent, body), **changes)


class PrivateStage:
    """A private run whose journal is kept as the shell keeps it, and that can be restarted from it.

    Parameters
    ----------
    agents : sequence of str
        Who is up.
    earlier : sequence of Total
        Of earlier runs, the newest first.
    champion, formers : dict or None, sequence of dict
        Documents of the model that is in use, and of those that were.
    tests : callable or None
        Returns the test rows of a vehicle; None: it tests with those that it learns from.
    spec : any
        Of the run's document.
    """

    def __init__(
        self,
        agents: list[str],
        engine: Engine | None = None,
        *,
        earlier: Sequence[Total] = (),
        champion: dict[str, Any] | None = None,
        formers: Sequence[dict[str, Any]] = (),
        tests: Callable[[str], Dataset] | None = None,
        **spec: Any,
    ) -> None:
        self.engine = engine or Engine()
        founding = stands(earlier)
        self.vehicles = {
            agent: Vehicle(agent, founding.get(agent), tests=tests(agent) if tests else None) for agent in agents
        }
        self.at = 0.0
        document = {
            "run": "r1",
            "scheme": "frt",
            "nonce": NONCE,
            "parameters": {"max_depth": 2, "n_sets": 2},
            "private": {},
            **spec,
        }
        spoken = RunSpec.from_document(document), dict.fromkeys(agents, OFFER)
        start = Start(0.0, *spoken, champion, tuple(formers), tuple(earlier))
        self.journal: list[bytes] = [codec.encode(to_value(start))]
        self.state, _ = self.engine.step(None, start)
        self.requests: list[OpenRound] = []
        self.published: list[Publish] = []
        self.sent: list[Answer] = []
        self._note()

    @property
    def request(self) -> OpenRound | None:
        """What is asked now."""
        return _open(self.state)

    @property
    def reason(self) -> str:
        """Why the run ended as it did."""
        return self.state.reason

    @property
    def phase(self) -> str:
        """Where the run is."""
        return self.state.phase

    def send(self, event: Event) -> list[str]:
        """Hand an event to the engine; return the outcomes of receipts."""
        before = self.state
        self.state, effects = self.engine.step(before, event)
        if self.state is not before:
            self.journal.append(codec.encode(to_value(shortened(event, effects))))
        self._note()
        self.published += [each for each in effects if isinstance(each, Publish)]
        receipts = [each.receipt for each in effects if isinstance(each, SendReceipt)]
        return [f"{each.outcome} {each.reason}".strip() for each in receipts]

    def answer(self, *agents: str, request: OpenRound | None = None, **changes: Any) -> list[str]:
        """Let vehicles answer what is asked now, or was asked in `request`; return the outcomes."""
        outcomes = []
        asked = request or self.request
        for agent in agents:
            event = None if asked is None else self.vehicles[agent].answer(self.at, asked, **changes)
            if event is not None:
                self.sent.append(event)
                outcomes += self.send(event)
        return outcomes

    def finish(self, *agents: str, leaves: Mapping[str, int] | None = None) -> None:
        """Let `agents` answer until the run ends; time passes when nothing else moves it.

        `leaves` says for some after how many closed rounds they answer no more.
        """
        for _ in range(300):
            if self.state.is_ended:
                return
            before = self.state.open
            closed = len(self.state.rounds)
            self.answer(*(agent for agent in agents if (leaves or {}).get(agent, closed + 1) > closed))
            if self.state.open is before or (before and self.state.open and before.digest == self.state.open.digest):
                self.wait()
        raise AssertionError(f"hung in {self.state.phase}")

    def wait(self, seconds: float | None = None) -> None:
        """Let time pass, as far as the deadline."""
        wake = wakes_at(self.state)
        self.at = self.at + seconds if seconds is not None else max(self.at, wake or 0.0)
        self.send(Tick(self.at))

    def restart(self) -> None:
        """Go on from the journal; the state must be the same."""
        folded = fold(self.engine, self.journal)
        assert fingerprint(self.engine, folded) == fingerprint(self.engine, self.state)
        assert _asked(folded) == _asked(self.state)
        self.state = folded

    def check_end(self) -> None:
        """Check what holds of every private run that has ended."""
        state = self.state
        assert state.is_ended
        self.restart()
        if state.phase == "finished":
            assert document_digest(state.model.to_document()) == self.central_digest()
            assert len(state.cohort) >= 8
            if state.spec.domain is None:
                assert set(state.cohort) <= set(state.domain_contributors)
        else:
            assert state.reason
        kept = b"".join(self.journal)
        for vehicle in self.vehicles.values():
            assert not any(vector[16:] in kept for vector in vehicle.vectors if len(set(vector)) > 8)
        assert all(event.rows == 0 for event in self.sent)

    def central_digest(self) -> str:
        """Return the digest of the model that one place learns from the rows of the cohort."""
        state = self.state
        assert state.domain is not None
        rows = pool([rows_of(agent) for agent in state.cohort])
        scheme = catalogue.load(state.spec.scheme)
        withheld = state.summary.get("withheld", ())
        return document_digest(
            central(scheme, state.parameters, state.domain, rows, withheld=withheld).model.to_document()
        )

    def _note(self) -> None:
        request = self.request
        if request is None:
            return
        last = self.requests[-1] if self.requests else None
        if last is None or (last.task_digest, last.attempt) != (request.task_digest, request.attempt):
            self.requests.append(request)


def _open(state: RunState) -> OpenRound | None:
    return next((each for each in standing(state) if isinstance(each, OpenRound)), None)


def _asked(state: RunState) -> object:
    """Return the open round, its task and request (arrays do not compare) by their digests."""
    opened = _open(state)
    if opened is None:
        return None
    return {**vars(opened), "task": opened.task.digest, "request": codec.digest_of(opened.request.model_dump())}
