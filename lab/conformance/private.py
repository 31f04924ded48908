"""The private rounds of a conformance check: the kit is the coordinator, and all the other vehicles."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassfleet import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.discovery import DISCOVERY, DiscoveryParameters, discover
from glassfleet.private.groups import Announcement, Edition, Roster, Terms, parameters_digest, place
from glassfleet.private.layout import Layout, layout_of
from glassfleet.private.masks import RunKey, mask, pair_keys, usable_key
from glassfleet.private.sums import add, question_digest
from glassfleet.scheme import Contribution, Task
from lab.conformance.desk import SILENCE, Desk, Said
from lab.conformance.questions import answer
from schemas.codec import encode
from schemas.envelope import Envelope
from schemas.errors import WireError
from schemas.messages import ContributionBody, PrivateGroup, Refusal, Rosters
from schemas.parts import pack

OTHERS = 10


class Group:
    """The agent and ten made-up vehicles, which have no rows."""

    def __init__(self, desk: Desk, terms: Terms, own: Announcement, message: bytes, keys_task: Task) -> None:
        self.desk, self.terms, self.agent = desk, terms, own.agent
        names = [f"{'0' if number % 2 else 'z'}-other-{number}" for number in range(OTHERS)]
        self.keys = {name: RunKey(hashlib.sha256(name.encode()).digest()) for name in names}
        founders, self.messages = {own.agent: own}, {own.agent: message}
        for name, key in self.keys.items():
            each = Announcement(name, key.public, hashlib.sha256(b"rows" + name.encode()).hexdigest())
            value = each.to_value()
            values = {field: value[field] for field in value if field not in ("agent", "data_digest")}
            given = Contribution("keys", 0, values=values).to_value()
            body = ContributionBody(
                task_digest=keys_task.digest, rows=0, data_digest=each.data_digest, contribution=given
            )
            founders[name] = each
            self.messages[name] = Envelope(terms.fleet, body, run=terms.run, agent=name).to_bytes()
        self.roster = Roster(terms, 0, tuple(founders[name] for name in sorted(founders)))
        self.pairs = {name: pair_keys(key, name, self.roster) for name, key in self.keys.items()}

    def ask(self, task: Task, layout: Layout, edition: Edition, *, question: str = "") -> Said | None:
        """Ask the agent in an edition."""
        question = question or question_digest(edition, task.digest, layout.digest)
        group = PrivateGroup(
            group=0, number=edition.number, members=list(edition.members), question=question,
            founders=[self.messages[each.agent] for each in self.roster.founders],
        )  # fmt: skip
        packed, last = pack(encode(group.model_dump())), max(place(self.terms, each) for each in self.roster.founders)
        told = hashlib.sha256(packed).digest()
        rosters = Rosters(piece=128 * 1024, last=[last], digests=[told], sizes=[len(packed)])
        digest = self.desk.ask(self.terms.run, task, digest=question, private=[], rosters=rosters, packed=packed)
        said = self.desk.answer(self.terms.run, digest)
        self.desk.receipt(self.terms.run, digest)
        return said

    def opened(self, said: Said | None, task: Task, layout: Layout, edition: Edition) -> Any:
        """Return the sum over the edition, whose other members add nothing; or a fault as text."""
        if said is None:
            return "no answer"
        if isinstance(said.body, Refusal):
            return f"refused: {said.body.reason}"
        assert isinstance(said.body, ContributionBody)
        given = said.body.contribution
        masked = given.get("sums", {}).get("masked")
        if said.body.rows or given.get("rows") or set(given["sums"]) != {"masked"} or given.get("values"):
            return "a masked answer has 0 rows and the sum `masked` alone"
        if not isinstance(masked, np.ndarray) or masked.shape != (layout.size,) or masked.dtype != np.int64:
            return f"masked is not a line of {layout.size} int64 numbers"
        nothing = np.zeros(layout.size, dtype=np.int64)
        words = [
            mask(nothing, name, edition, self.pairs[name], task.digest) for name in edition.members if name in self.keys
        ]
        return add([*words, masked.view(np.uint64)])


def private(desk: Desk, run: str, data: Dataset, schemes: Sequence[str]) -> list[str]:
    """Return what is wrong; see `lab.conformance.checks`."""
    name = next((each for each in ("frt", "tree") if each in schemes), "")
    if not name or data.categories or data.y.dtype.kind != "f":
        return ["left out: private rounds are checked over numbers, with frt or tree"]
    scheme = catalogue.load(name)
    parameters = scheme.private(scheme.Parameters(support=0))  # type: ignore[attr-defined]
    nonce = hashlib.sha256(run.encode()).hexdigest()[:32]
    terms = Terms(desk.topics.fleet, run, nonce, name, parameters_digest(parameters))
    keys_task = Task("private", "keys", terms.to_value(), nonce)
    digest = desk.ask(run, keys_task)
    said = desk.answer(run, digest, within=2 * SILENCE)
    desk.receipt(run, digest)
    if said is None or isinstance(said.body, Refusal):
        desk.end(run)
        return [f"left out: it takes no part in private runs ({said.body.reason if said else 'silence'})"]  # type: ignore[union-attr]
    try:
        group = _met(desk, terms, keys_task, said)
    except (WireError, KeyError, TypeError) as fault:
        desk.end(run)
        return [f"the announcement: {fault}"]
    faults = _asked(group, scheme, parameters, data)
    desk.end(run)
    return faults


def _met(desk: Desk, terms: Terms, keys_task: Task, said: Said) -> Group:
    assert isinstance(said.body, ContributionBody)
    given = said.body.contribution
    own = Announcement.from_value({**given["values"], "agent": desk.agent, "data_digest": said.body.data_digest})
    if given["rows"] or given["sums"] or said.body.rows:
        raise WireError("malformed", "an announcement has no rows and no sums")
    if not usable_key(own.key):
        raise WireError("malformed", "the key is no X25519 key")
    return Group(desk, terms, own, said.payload, keys_task)


def _asked(group: Group, scheme: Any, parameters: Any, data: Dataset) -> list[str]:
    faults: list[str] = []
    plain = DiscoveryParameters(features=data.features, target=data.target)
    domain = discover(plain.exact(), [data])
    first = DISCOVERY.server.start(DISCOVERY.private(plain)).task
    second = scheme.server.start(parameters, domain, 0).task
    everybody = group.roster.first()
    agent, members = group.agent, list(everybody.members)
    smaller = Edition(
        group.roster, 1, tuple(name for name in members if name == agent or name not in list(group.keys)[:3])
    )
    for what, owner, task, edition in (
        ("discovery", DISCOVERY, first, everybody),
        (f"{scheme.name}, {second.kind}", scheme, second, everybody),
        (f"{scheme.name}, {second.kind}, of a smaller edition", scheme, second, smaller),
    ):
        posed = Task(task.scheme, task.kind, task.body, group.terms.nonce)
        layout = layout_of(owner, posed)
        said = group.ask(posed, layout, edition)
        total = group.opened(said, posed, layout, edition)
        if isinstance(total, str):
            faults.append(f"{what}: {total}")
            continue
        expected = layout.flatten(answer(task, data))
        if (total != expected).any():
            at = int(np.flatnonzero(total != expected)[0])
            faults.append(
                f"{what}: number {at} of {layout.size} of the opened sum is {total[at]}, expected "
                f"{expected[at]}: its own number, or a mask (pair key, stream key, stream) is another"
            )
    posed = Task(second.scheme, second.kind, second.body, group.terms.nonce)
    layout = layout_of(scheme, posed)
    one_less = Edition(group.roster, 2, tuple(name for name in smaller.members if name != list(group.keys)[-1]))
    back = Edition(group.roster, 3, everybody.members)
    cases = {
        "an edition that one vehicle alone left": (one_less, "", ("single-out", "too-few")),
        "an edition that grows again": (back, "", ("other-edition",)),
        "a question that its task does not make": (smaller, "ab" * 32, ("other-layout",)),
    }
    for what, (edition, question, codes) in cases.items():
        said = group.ask(posed, layout, edition, question=question)
        if said is None or not isinstance(said.body, Refusal) or said.body.reason.split(":")[0] not in codes:
            found = "no word" if said is None else getattr(said.body, "reason", "an answer")
            faults.append(f"{what}: {found}; expected a refusal with {' or '.join(codes)}")
    desk, run = group.desk, group.terms.run
    digest = desk.ask(run, posed)
    said = desk.answer(run, digest)
    desk.receipt(run, digest)
    if said is None or not isinstance(said.body, Refusal) or said.body.reason != "not-private":
        faults.append("a plain request in a run that was announced as private: expected a refusal with not-private")
    return faults
