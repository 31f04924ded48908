"""A vehicle's part in private runs: its key, its chain and its ledger on the disk, and what leaves it.

    runs/{run}/key      the secret of the run, 32 bytes      lives and dies with the rows, ``rows.npz``
    runs/{run}/chain    what was announced, met and answered
    ledger              what was answered in earlier runs over the same rows

Chain and ledger are on the disk before an answer leaves. The rules are in `glassfleet.private`; here are the files, and
the reading of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edge_agent.session.snapshots import Snapshot
from edge_agent.storage import explained, replacing
from glassfleet import catalogue
from glassfleet.errors import ContributionError, PrivacyError, TaskError
from glassfleet.private.chain import Chain, meet, same_roster
from glassfleet.private.groups import Announcement, Roster, Terms
from glassfleet.private.ledger import Ledger, Limits, row_hashes
from glassfleet.private.scores import SCORES
from glassfleet.scheme import Contribution, Task
from schemas import codec
from schemas.envelope import Envelope
from schemas.errors import StorageError, WireError
from schemas.messages import ContributionBody, PrivateGroup, Request
from schemas.topics import Topics

if TYPE_CHECKING:  # fleets without private runs shall not pay for the cryptography
    from glassfleet.private.answering import Asked
    from glassfleet.private.masks import RunKey
    from schemas.trust.signing import Verifier

PRIVATE = "private"
"""Scheme name of the task that asks for keys."""


@dataclass(frozen=True)
class _Met:
    """What the chain's file holds: the announcement, and the chain once the roster was seen."""

    own: Announcement
    terms: Terms
    chain: Chain | None = None


class PrivateRuns:
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
    ) -> None:
        self._topics = topics
        self._agent = agent
        self._directory = directory
        self._secret = secret
        self._limits = limits
        self._choice = choice
        self._verifier = verifier
        self._pairs: dict[str, dict[str, bytes]] = {}
        self._rows: dict[str, np.ndarray[Any, np.dtype[np.uint64]]] = {}

    def check(self, run: str, request: Request, snapshot: Snapshot) -> None:
        """Raise PrivacyError unless this vehicle answers the request: before anything is computed from its rows."""
        task = Task.from_value(request.task)
        if task.scheme == PRIVATE or request.private is not None:
            if self._choice == "never":
                raise PrivacyError("not-private", "this vehicle takes part in no private runs")
        elif self._choice == "only":
            raise PrivacyError("not-private", "this vehicle answers private runs only")
        elif self._path(run, "chain").exists():
            raise PrivacyError("not-private", "this run was announced as private")
        if request.private is not None:
            self._accept(run, request.private, task, snapshot)

    def announce(self, run: str, digest: str, task: Task, snapshot: Snapshot) -> ContributionBody:
        """Return the announcement for a run, the same whenever it is asked; raises PrivacyError and TaskError."""
        try:
            terms = Terms.from_value(task.body)
        except WireError as fault:
            raise TaskError(str(fault)) from fault
        if terms.run != run or terms.fleet != self._topics.fleet or terms.nonce != task.nonce:
            raise PrivacyError("not-private", "the terms are of another run")
        catalogue.load(terms.scheme)
        rows = self._hashes(run, snapshot)
        ledger = self._ledger()
        joined = ledger.forget(rows).join(terms, rows, self._limits)
        if joined != ledger:
            self._save_ledger(joined)
        floor = max(self._limits.floor, joined.least_founders(rows))
        met = self._met(run)
        if met is None:
            met = _Met(Announcement(self._agent, self._key(run).public, snapshot.digest, floor), terms)
            self._save(run, met)
        if met.terms != terms or met.own.data_digest != snapshot.digest:
            raise PrivacyError("not-private", "this run was announced under other terms, or with other rows")
        said = Contribution("keys", 0, values={"key": met.own.key, "floor": met.own.floor})
        return ContributionBody(
            task_digest=digest, rows=0, data_digest=met.own.data_digest, contribution=said.to_value()
        )

    def masked(self, run: str, request: Request, snapshot: Snapshot, contribution: Contribution) -> ContributionBody:
        """Return what leaves the vehicle in place of its answer, once chain and ledger are on the disk.

        Raises
        ------
        PrivacyError, TaskError
            It is not answered.
        StorageError
        """
        from glassfleet.private.answering import reply  # noqa: PLC0415 - it needs the cryptography

        assert request.private is not None
        task = Task.from_value(request.task)
        asked = self._accept(run, request.private, task, snapshot)
        try:
            self._scheme(task).server.check(task, contribution)
        except ContributionError as fault:  # nobody else can see it any more
            raise TaskError(f"this vehicle's own answer cannot be true: {fault}") from fault
        chain, words = reply(asked, contribution, self._shared(run, asked.chain.roster))
        met = self._met(run)
        assert met is not None
        self._save(run, replace(met, chain=chain))
        self._save_ledger(self._ledger().note(chain, self._hashes(run, snapshot)))
        said = Contribution(task.kind, 0, sums={"masked": words.view(np.int64)})
        return ContributionBody(
            task_digest=request.task_digest, rows=0, data_digest=met.own.data_digest, contribution=said.to_value()
        )

    def protection(self, run: str, request: Request) -> tuple[dict[str, int] | None, tuple[str, ...]]:
        """Return the floor and the company of a run, None for a plain one, and over whom an answer is summed."""
        met = self._met(run)
        if met is None:
            return None, ()
        groups = request.private or ()
        members = next((each.members for each in groups if self._agent in each.members), ())
        floor = max(met.own.floor, met.terms.floor)
        return {"floor": floor, "company": met.terms.company}, tuple(members)

    def end(self, run: str) -> None:
        """Note that a run is over; its key and chain go with its rows."""
        self._pairs.pop(run, None)
        self._rows.pop(run, None)
        met = self._met(run)
        if met is not None:
            self._save_ledger(self._ledger().close(met.terms.nonce))

    def _accept(self, run: str, groups: Sequence[PrivateGroup], task: Task, snapshot: Snapshot) -> Asked:
        from glassfleet.private.answering import accept  # noqa: PLC0415 - it needs the cryptography

        met = self._met(run)
        if met is None:
            raise PrivacyError("not-member", "this vehicle has not announced itself for the run")
        if met.own.data_digest != snapshot.digest:
            raise PrivacyError("not-member", "the rows are others than those announced")
        group = next((each for each in groups if self._agent in each.members), None)
        if group is None:
            raise PrivacyError("not-member", "this vehicle is in no group")
        roster = self._roster(run, met.terms, group, verify=met.chain is None)
        chain = met.chain
        if chain is None:
            rows = self._hashes(run, snapshot)
            ledger = self._ledger()
            chain = meet(met.own, met.terms, roster, ledger.former(met.terms, rows))
        else:
            same_roster(chain, roster)
        return accept(chain, self._scheme(task), task, group.number, group.members, group.question)

    def _roster(self, run: str, terms: Terms, group: PrivateGroup, *, verify: bool) -> Roster:
        """Read the founders' announcements; their seals are verified once, when the vehicle first meets them."""
        founders = []
        for message in group.founders:
            try:
                envelope = Envelope.from_bytes(message, fleet=self._topics.fleet)
                body = envelope.body
                if not isinstance(body, ContributionBody) or envelope.run != run:
                    raise WireError("malformed", "no announcement for this run")  # noqa: TRY301 - one way for all faults
                if verify and self._verifier is not None:
                    self._open(self._verifier, run, envelope.agent, message)
                values = Contribution.from_value(body.contribution).values
                founders.append(Announcement(envelope.agent, values["key"], body.data_digest, values["floor"]))
            except (WireError, ContributionError, ValueError, KeyError) as fault:
                raise PrivacyError("bad-member", str(fault)) from fault
        return Roster(terms, group.group, tuple(founders))

    def _open(self, verifier: Verifier, run: str, agent: str, message: bytes) -> None:
        from schemas.trust.signing import Owner  # noqa: PLC0415 - it needs the cryptography

        verifier.open(self._topics.contribution(agent, run), message, (Owner("agent", agent),))

    @staticmethod
    def _scheme(task: Task) -> Any:
        if task.scheme == "domain":
            from glassfleet.discovery import DISCOVERY  # noqa: PLC0415 - as in `answers`

            return DISCOVERY
        return SCORES if task.scheme == SCORES.name else catalogue.load(task.scheme)

    def _shared(self, run: str, roster: Roster) -> dict[str, bytes]:
        from glassfleet.private.masks import pair_keys  # noqa: PLC0415 - it needs the cryptography

        if run not in self._pairs:
            self._pairs[run] = pair_keys(self._key(run), self._agent, roster)
        return self._pairs[run]

    def _hashes(self, run: str, snapshot: Snapshot) -> np.ndarray[Any, np.dtype[np.uint64]]:
        if run not in self._rows:
            self._rows[run] = row_hashes(self._secret, snapshot.data)
        return self._rows[run]

    # -- files --------------------------------------------------------------------------------------------------------

    def _path(self, run: str, name: str) -> Path:
        return self._directory / "runs" / run / name

    def _key(self, run: str) -> RunKey:
        from glassfleet.private.masks import RunKey  # noqa: PLC0415 - it needs the cryptography

        path = self._path(run, "key")
        with explained("read", path):
            if path.exists():
                return RunKey(path.read_bytes())
        key = RunKey.generate()
        with replacing(path) as file:
            file.write(key.to_bytes())
        return key

    def _met(self, run: str) -> _Met | None:
        value = self._read(self._path(run, "chain"))
        if value is None:
            return None
        try:
            chain = None if value["chain"] is None else Chain.from_value(value["chain"])
            return _Met(Announcement.from_value(value["own"]), Terms.from_value(value["terms"]), chain)
        except (WireError, KeyError, TypeError) as fault:
            raise _damaged(self._path(run, "chain"), fault) from fault

    def _save(self, run: str, met: _Met) -> None:
        chain = None if met.chain is None else met.chain.to_value()
        self._write(
            self._path(run, "chain"), {"own": met.own.to_value(), "terms": met.terms.to_value(), "chain": chain}
        )

    def _ledger(self) -> Ledger:
        path = self._directory / "ledger"
        value = self._read(path)
        try:
            return Ledger() if value is None else Ledger.from_value(value)
        except WireError as fault:
            raise _damaged(path, fault) from fault

    def _save_ledger(self, ledger: Ledger) -> None:
        self._write(self._directory / "ledger", ledger.to_value())

    @staticmethod
    def _read(path: Path) -> Any:
        with explained("read", path):
            if not path.exists():
                return None
            content = path.read_bytes()
        try:
            return codec.decode(content)
        except WireError as fault:
            raise _damaged(path, fault) from fault

    @staticmethod
    def _write(path: Path, value: dict[str, Any]) -> None:
        with replacing(path) as file:
            file.write(codec.encode(value))


def _damaged(path: Path, fault: Exception) -> StorageError:
    return StorageError(
        f"{path} is damaged ({fault}): without it this vehicle cannot know what it told before. Delete the folder of "
        "the run (for the ledger: the file, once no earlier run's rows are left) and start the agent again"
    )
