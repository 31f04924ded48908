"""A vehicle's part in private runs: what it announces, what it answers, and what leaves it.

Chain and ledger (`private_files`) are on the disk before an answer leaves. The rules are in `glassfleet.private`; here
messages are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edge_agent.session.events import RequestSeen
from edge_agent.session.private_rows import Met, PrivateFiles, PrivateRows
from edge_agent.session.snapshots import Snapshot, Snapshots
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.data.dataset import Dataset
from glassfleet.errors import ContributionError, PrivacyError, TaskError
from glassfleet.evaluation.scores import SCORES
from glassfleet.private.chain import Chain, meet, same_roster
from glassfleet.private.groups import Announcement, Roster, Terms, place
from glassfleet.private.ledger import Ledger, Limits
from glassfleet.private.pairs import PAIRS
from glassfleet.private.totals import Total
from schemas.envelope import Envelope
from schemas.errors import WireError
from schemas.messages import ContributionBody, Manifest, PrivateGroup
from schemas.topics import Topics

if TYPE_CHECKING:  # fleets without private runs shall not pay for the cryptography
    from glassfleet.private.answering import Asked
    from schemas.trust.signing import Verifier

PRIVATE = "private"
"""Scheme name of the task that asks for keys."""


class PrivateAnswers:
    """Announces the vehicle for private runs and masks its answers.

    Parameters
    ----------
    topics : Topics
    agent : str
    directory : Path
        The agent's own; runs are in ``runs``.
    secret : bytes
        The agent's.
    limits : Limits
        What it asks for, whatever a run's terms say.
    choice : "only", "allowed" or "never"
        Whether runs that are not private are answered, and whether private ones are.
    verifier : Verifier or None
        Verifies the other vehicles' announcements; None: in a fleet that does not sign, they are taken as they are.
    snapshots : Snapshots
        Rows of the runs.
    tests : callable
        Gives the test rows that the vehicle has now.
    """

    def __init__(
        self,
        topics: Topics,
        agent: str,
        directory: Path,
        secret: bytes,
        *,
        limits: Limits,
        choice: Literal["only", "allowed", "never"],
        verifier: Verifier | None,
        snapshots: Snapshots,
        tests: Callable[[], Dataset],
    ) -> None:
        self._topics = topics
        self._agent = agent
        self.files = PrivateFiles(directory)
        self._limits = limits
        self._choice = choice
        self._verifier = verifier
        self._rows = PrivateRows(directory, secret, snapshots, tests, limits.least_rows)
        self._pairs: dict[str, tuple[bytes, dict[str, bytes]]] = {}  # by run: digest of the roster, and the keys
        self._heard: set[str] = set()

    @property
    def is_signed(self) -> bool:
        """Whether the other vehicles' keys are verified."""
        return self._verifier is not None

    def connected(self) -> None:
        """Take note that a connection stands: the requests of all open runs come again."""
        self._heard.clear()

    def heard(self, run: str) -> None:
        """Take note that a run is open at the coordinator."""
        self._heard.add(run)

    def choose(self, asked: RequestSeen) -> None:
        """Raise PrivacyError or TaskError for a request whose kind is not answered: before rows are even read."""
        task = asked.task
        if task.scheme == PRIVATE or asked.request.private is not None:
            if self._choice == "never":
                raise PrivacyError("not-private", "this vehicle takes part in no private runs")
        elif self._choice == "only":
            raise PrivacyError("not-private", "this vehicle answers private runs only")
        elif task.scheme == PAIRS.name:
            raise TaskError(f"not a question of a plain run: {task.scheme}/{task.kind}")
        elif (self.files.runs / asked.run / "chain").exists():
            raise PrivacyError("not-private", "this run was announced as private")

    def rows(self, asked: RequestSeen, present: Dataset) -> Dataset:
        """Return the training rows that a run is answered from, and freeze its test rows: before a snapshot is made.

        Those of the last private run, if there is one over some of these rows. Present ones are offered where enough
        came or went since, and taken once the coordinator says that others have new rows, too. Raises PrivacyError
        ``few-new-rows`` where those of the last run are gone, and few came or went.
        """
        groups = asked.request.private
        if groups is None and asked.task.scheme != PRIVATE:
            return present
        met = self.files.met(asked.run)
        if groups is not None and met is not None and met.chain is None:
            if any(each.renews for each in groups if self._is_mine(each, None)):
                self._rows.take_offer(asked.run)
            return present
        if asked.task.scheme != PRIVATE or met is not None:
            return present
        return self._rows.choose(asked.run, present, self.files.ledger())

    def roster(self, asked: RequestSeen) -> Manifest | None:
        """Return where a request has what it tells this vehicle's group of its members; None: nothing is to be had."""
        request = asked.request
        met = self.files.met(asked.run) if request.rosters is not None else None
        if request.rosters is None or met is None:
            return None
        if any(self._is_mine(group, met.chain) for group in request.private or ()):
            return None
        return request.rosters.of(place(met.terms, met.own))

    def check(self, asked: RequestSeen, snapshot: Snapshot, present: Dataset) -> None:
        """Raise PrivacyError or TaskError unless the request is answered: before anything is computed from the rows.

        The edition and the task are on the disk after that, whatever becomes of the answer: what is refused then
        counts as asked, too. `present` are the rows that the vehicle has now: a run is joined with these alone, and
        earlier runs over none of them are forgotten. A snapshot that an earlier request left may have older rows, over
        which there were runs that are forgotten already.
        """
        run, task, groups = asked.run, asked.task, asked.request.private
        if groups is None:
            if task.scheme == PRIVATE and self.files.met(run) is None:
                if not self._rows.are(run, snapshot, present):
                    raise PrivacyError("not-private", "the run's rows were frozen before it was announced")
                self.files.save_ledger(self.files.ledger().forget(self._rows.of_run(run, snapshot)))
            return
        chain = self._accept(asked, groups, snapshot).chain
        met = self.files.met(run)
        assert met is not None
        if met.chain is None or met.chain.contents != chain.contents:
            self.files.save_ledger(self.files.ledger().asked(chain, self._rows.of_run(run, snapshot)))
        if met.chain != chain:
            self.files.save(run, replace(met, chain=chain))
        if task.scheme == "domain":
            _refuse_text(task, snapshot.data)

    def announce(self, asked: RequestSeen, snapshot: Snapshot) -> ContributionBody:
        """Return the announcement for a run, the same whenever it is asked; raises PrivacyError and TaskError."""
        run, digest = asked.run, asked.request.task_digest
        try:
            terms = Terms.from_value(asked.task.body)
        except WireError as fault:
            raise TaskError(str(fault)) from fault
        if terms.run != run or terms.fleet != self._topics.fleet or digest != _keys_task(terms).digest:
            raise PrivacyError("not-private", "the terms are of another run")
        catalogue.load(terms.scheme)
        rows = self._rows.of_run(run, snapshot)
        ledger, met = self.files.ledger(), self.files.met(run)
        if met is None and ledger.has_answered(terms.nonce):
            raise PrivacyError("run-over", "this run was answered here, and its chain is gone")
        former = self._unheard(ledger, run)
        left = ledger if former is None else ledger.close(former.nonce)
        joined = left.join(terms, rows, self._limits, distinct=self._rows.distinct(run, snapshot))
        if former is not None:  # not before: a request that is refused takes nothing from the open run
            self.files.drop_key(former.run)
            self._pairs.pop(former.run, None)
        if joined != ledger:
            self.files.save_ledger(joined)
        if met is None:
            stands = joined.stands(rows, *self._rows.tags(run, snapshot), terms.nonce) | self._rows.offered(run)
            stands["left"] = joined.left(rows, self._limits, terms.nonce)
            key = self.files.new_key(run).public
            met = Met(Announcement(self._agent, key, snapshot.digest, self._limits.floor, **stands), terms)
            self.files.save(run, met)
        if met.terms != terms or met.own.data_digest != snapshot.digest:
            raise PrivacyError("not-private", "this run was announced under other terms, or with other rows")
        self.files.key(run)
        own = met.own.to_value()
        values = {name: own[name] for name in own if name not in ("agent", "data_digest")}
        contribution = Contribution("keys", 0, values=values)
        return ContributionBody(
            task_digest=digest, rows=0, data_digest=met.own.data_digest, contribution=contribution.to_value()
        )

    def posed(self, asked: RequestSeen, snapshot: Snapshot) -> tuple[Task, str]:
        """Return what the scheme's client is given, and the identity of the question; as `check`, after it."""
        assert asked.request.private is not None
        accepted = self._accept(asked, asked.request.private, snapshot)
        return accepted.posed, accepted.question

    def masked(self, asked: RequestSeen, snapshot: Snapshot, contribution: Contribution | None) -> ContributionBody:
        """Return what leaves the vehicle in place of its answer, once chain and ledger are on the disk.

        Parameters
        ----------
        asked : RequestSeen
        snapshot : Snapshot
        contribution : Contribution or None
            None: the question is not about its rows, see `glassfleet.private.pairs`.

        Raises
        ------
        PrivacyError, TaskError
            It is not answered.
        StorageError
        """
        from glassfleet.private.answering import no_rows, reply  # noqa: PLC0415 - it needs the cryptography

        run, request = asked.run, asked.request
        assert request.private is not None
        accepted = self._accept(asked, request.private, snapshot)
        if contribution is None:
            contribution = no_rows(accepted)
        else:
            self._check_own(asked.task, contribution)
        chain, words = reply(accepted, contribution, self._shared(run, accepted.chain.roster))
        met = self.files.met(run)
        assert met is not None
        self.files.save(run, replace(met, chain=chain))
        self.files.save_ledger(self.files.ledger().note(chain, self._rows.of_run(run, snapshot)))
        self._rows.keep(run)
        answer = Contribution(asked.task.kind, 0, sums={"masked": words.view(np.int64)})
        return ContributionBody(
            task_digest=request.task_digest, rows=0, data_digest=met.own.data_digest, contribution=answer.to_value()
        )

    def _check_own(self, task: Task, contribution: Contribution) -> None:
        if task.scheme != SCORES.name and contribution.rows < self._limits.least_rows:
            # The rows that a task leaves out are the coordinator's choice.
            raise TaskError(f"{contribution.rows} rows: too few to be company for others")
        try:
            self._scheme(task).server.check(task, contribution)
        except ContributionError as fault:  # nobody else can see it any more
            raise TaskError(f"this vehicle's own answer cannot be true: {fault}") from fault

    def protection(self, asked: RequestSeen) -> tuple[dict[str, int] | None, tuple[str, ...]]:
        """Return the floor and the company of a run, None for a plain one, and over whom an answer is summed."""
        is_plain = asked.request.private is None and asked.task.scheme != PRIVATE
        met = None if is_plain else self.files.met(asked.run)
        if met is None:
            return None, ()
        floor = max(met.own.floor, met.terms.floor)
        members = () if asked.request.private is None or met.chain is None else met.chain.editions[-1].members
        return {"floor": floor, "company": met.terms.company}, members

    def end(self, run: str) -> None:
        """Note that a run is over; its key and chain go with its rows."""
        self._pairs.pop(run, None)
        self._rows.forget(run)
        try:
            met, ledger = self.files.met(run), self.files.ledger()
        except PrivacyError:
            return  # what is damaged was told when it was needed
        terms = ledger.open if met is None else met.terms
        if terms is not None and terms.run == run:
            self.files.save_ledger(ledger.close(terms.nonce))

    def leave(self, run: str) -> None:
        """Answer nothing more in a private run: what a vehicle cannot answer may depend on its rows."""
        met = self.files.met(run)
        if met is not None and met.chain is not None and not met.chain.has_left:
            self.files.save(run, replace(met, chain=replace(met.chain, has_left=True)))

    def _unheard(self, ledger: Ledger, run: str) -> Terms | None:
        """Return the terms of an open run of which nothing came on this connection: it ended meanwhile.

        Its request is retained as long as it is open. Should it be open all the same, this vehicle is lost to it.
        """
        was_open = ledger.open
        return None if was_open is None or was_open.run in self._heard | {run} else was_open

    def _accept(self, asked: RequestSeen, groups: Sequence[PrivateGroup], snapshot: Snapshot) -> Asked:
        from glassfleet.private.answering import accept  # noqa: PLC0415 - it needs the cryptography

        run, task = asked.run, asked.task
        met = self.files.met(run)
        if met is None:
            raise PrivacyError("not-member", "this vehicle has not announced itself for the run")
        if self.files.ledger().open != met.terms:
            raise PrivacyError("run-over", "the run ended here, another was joined since, or the ledger is gone")
        group = next((each for each in groups if self._is_mine(each, met.chain)), None)
        if group is None:
            raise PrivacyError("not-member", "this vehicle is in no group")
        chain = met.chain
        if met.own.digest(renews=group.renews if chain is None else chain.roster.renews) != snapshot.digest:
            raise PrivacyError("not-member", "the rows are others than those announced")
        if chain is None:
            roster = self._roster(run, met.terms, group, verify=True)
            chain = meet(met.own, met.terms, roster, map(Total.from_value, group.totals))
        elif group.founders:
            same_roster(chain, self._roster(run, met.terms, group, verify=False))
        members = group.members or chain.editions[-1].members
        return accept(chain, self._scheme(task), task, group.number, members, group.question)

    def _is_mine(self, group: PrivateGroup, chain: Chain | None) -> bool:
        """Whether a group is this vehicle's: it is named, or nobody is, and it is the one of which it keeps a chain."""
        if group.members:
            return self._agent in group.members
        return chain is not None and chain.roster.group == group.group

    def _roster(self, run: str, terms: Terms, group: PrivateGroup, *, verify: bool) -> Roster:
        """Read the founders' announcements; their seals are verified once, when the vehicle first meets them."""
        founders, asked = [], _keys_task(terms).digest
        for message in group.founders:
            member = ""
            try:
                envelope = Envelope.from_bytes(message, fleet=self._topics.fleet)
                member = envelope.agent
                body = envelope.body
                if not isinstance(body, ContributionBody) or envelope.run != run:
                    raise WireError("malformed", "no announcement for this run")  # noqa: TRY301 - one way for all faults
                if verify and self._verifier is not None:
                    self._open(self._verifier, envelope.agent, message)
                if body.task_digest != asked:
                    raise WireError("malformed", "an announcement for another run")  # noqa: TRY301 - as above
                values = {**Contribution.from_value(body.contribution).values, "data_digest": body.data_digest}
                founders.append(Announcement.from_value({**values, "agent": envelope.agent}))
            except (WireError, ContributionError, ValueError, KeyError) as fault:
                raise PrivacyError("bad-member", str(fault), member) from fault
        return Roster(terms, group.group, tuple(founders), group.renews)

    def _open(self, verifier: Verifier, agent: str, message: bytes) -> None:
        from schemas.trust.owner import Owner  # noqa: PLC0415 - it needs the cryptography

        verifier.open(self._topics.contribution(agent), message, (Owner("agent", agent),))

    @staticmethod
    def _scheme(task: Task) -> Any:
        if task.scheme == "domain":
            from glassfleet.discovery import DISCOVERY  # noqa: PLC0415 - as in `answers`

            return DISCOVERY
        special: dict[str, Any] = {SCORES.name: SCORES, PAIRS.name: PAIRS}
        return special.get(task.scheme) or catalogue.load(task.scheme)

    def _shared(self, run: str, roster: Roster) -> dict[str, bytes]:
        from glassfleet.private.masks import pair_keys  # noqa: PLC0415 - it needs the cryptography

        known = self._pairs.get(run)
        if known is None or known[0] != roster.digest:
            known = self._pairs[run] = (roster.digest, pair_keys(self.files.key(run), self._agent, roster))
        return known[1]


def _keys_task(terms: Terms) -> Task:
    """Return the one task that asks for keys under `terms`."""
    return Task(PRIVATE, "keys", terms.to_value(), terms.nonce)


def _refuse_text(task: Task, data: Dataset) -> None:
    """Raise PrivacyError where limits are asked of a column that holds text: a domain can declare it."""
    is_class = data.y.dtype.kind != "f"
    for name in task.body.get("columns") or ():
        if name in data.categories or (is_class and name == data.target):
            raise PrivacyError("text-column", f"column {name!r} holds text here; the run's domain declares none")
