"""The private rounds of a conformance check: the kit is the coordinator, and all the other vehicles."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.scheme import private_parameters
from glassfleet.data.dataset import Dataset
from glassfleet.discovery import DISCOVERY, DiscoveryParameters, discover
from glassfleet.private.groups import Announcement, Edition, Roster, Terms, parameters_digest, place
from glassfleet.private.layout import Layout, add, layout_of, question_digest
from glassfleet.private.masks import RunKey, mask, pair_keys, usable_key
from lab.conformance.examiner import SILENCE, Heard, LeftOutError, Run, in_run
from lab.conformance.questions import answer
from schemas.codec import encode
from schemas.envelope import Envelope, pack
from schemas.errors import WireError
from schemas.messages import ContributionBody, PrivateGroup, Refusal, Rosters

OTHERS = 10


class Group:
    """The agent and ten made-up vehicles, which have no rows."""

    def __init__(self, run: Run, terms: Terms, own: Announcement, message: bytes, keys_task: Task) -> None:
        self.run, self.terms, self.agent = run, terms, own.agent
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

    def ask(self, task: Task, layout: Layout, edition: Edition, *, question: str = "") -> Heard | None:
        """Ask the agent in an edition."""
        question = question or question_digest(edition, task.digest, layout.digest)
        group = PrivateGroup(
            group=0, number=edition.number, members=list(edition.members), question=question,
            founders=[self.messages[each.agent] for each in self.roster.founders],
        )  # fmt: skip
        packed, last = pack(encode(group.model_dump())), max(place(self.terms, each) for each in self.roster.founders)
        known_by = hashlib.sha256(packed).digest()
        rosters = Rosters(piece=128 * 1024, last=[last], digests=[known_by], sizes=[len(packed)])
        digest, heard = self.run.pose(task, {"private": [], "rosters": rosters}, digest=question, packed=packed)
        self.run.receipt(digest)
        return heard

    def opened(self, heard: Heard | None, task: Task, layout: Layout, edition: Edition) -> Any:
        """Return the sum over the edition, whose other members add nothing; or a fault as text."""
        if heard is None:
            return "no answer"
        if isinstance(heard.body, Refusal):
            return f"refused: {heard.body.reason}"
        assert isinstance(heard.body, ContributionBody)
        given = heard.body.contribution
        masked = given.get("sums", {}).get("masked")
        if heard.body.rows or given.get("rows") or set(given["sums"]) != {"masked"} or given.get("values"):
            return "a masked answer has 0 rows and the sum `masked` alone"
        if not isinstance(masked, np.ndarray) or masked.shape != (layout.size,) or masked.dtype != np.int64:
            return f"masked is not a line of {layout.size} int64 numbers"
        nothing = np.zeros(layout.size, dtype=np.int64)
        words = [
            mask(nothing, name, edition, self.pairs[name], task.digest) for name in edition.members if name in self.keys
        ]
        return add([*words, masked.view(np.uint64)])


def private(run: Run, data: Dataset, schemes: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong; see `lab.conformance.checks`."""
    name = next((each for each in ("frt", "tree") if each in schemes), "")
    if not name or data.categories or data.y.dtype.kind != "f":
        raise LeftOutError("private rounds are checked over numbers, with frt or tree")
    scheme = catalogue.load(name)
    parameters = private_parameters(scheme, scheme.Parameters(), 0)
    nonce = in_run(Task("private", "keys", {}), run.id).nonce
    terms = Terms(run.examiner.topics.fleet, run.id, nonce, name, parameters_digest(parameters))
    keys_task = Task("private", "keys", terms.to_value(), nonce)
    digest = run.ask(keys_task)
    heard = run.answer(digest, within=2 * SILENCE)
    run.receipt(digest)
    if heard is None or isinstance(heard.body, Refusal):
        why = "silence" if heard is None else heard.body.model_dump()["reason"]
        raise LeftOutError(f"it takes no part in private runs: {why}")
    try:
        group = _met(run, terms, keys_task, heard)
    except (WireError, KeyError, TypeError) as fault:
        yield f"the announcement: {fault}"
    else:
        yield from _asked(group, scheme, parameters, data)


def _met(run: Run, terms: Terms, keys_task: Task, heard: Heard) -> Group:
    assert isinstance(heard.body, ContributionBody)
    given, agent = heard.body.contribution, run.examiner.agent
    own = Announcement.from_value({**given["values"], "agent": agent, "data_digest": heard.body.data_digest})
    if given["rows"] or given["sums"] or heard.body.rows:
        raise WireError("malformed", "an announcement has no rows and no sums")
    if not usable_key(own.key):
        raise WireError("malformed", "the key is no X25519 key")
    return Group(run, terms, own, heard.payload, keys_task)


def _asked(group: Group, scheme: Any, parameters: Any, data: Dataset) -> Iterator[str]:
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
        posed = in_run(task, group.run.id)
        layout = layout_of(owner, posed)
        heard = group.ask(posed, layout, edition)
        total = group.opened(heard, posed, layout, edition)
        if isinstance(total, str):
            yield f"{what}: {total}"
            continue
        expected = layout.flatten(answer(task, data))
        if (total != expected).any():
            at = int(np.flatnonzero(total != expected)[0])
            yield (
                f"{what}: number {at} of {layout.size} of the opened sum is {total[at]}, expected "
                f"{expected[at]}: its own number, or a mask (pair key, stream key, stream) is another"
            )
    posed = in_run(second, group.run.id)
    layout = layout_of(scheme, posed)
    one_less = Edition(group.roster, 2, tuple(name for name in smaller.members if name != list(group.keys)[-1]))
    back = Edition(group.roster, 3, everybody.members)
    cases = {
        "an edition that one vehicle alone left": (one_less, "", ("single-out", "too-few")),
        "an edition that grows again": (back, "", ("other-edition",)),
        "a question that its task does not make": (smaller, "ab" * 32, ("other-layout",)),
    }
    for what, (edition, question, codes) in cases.items():
        heard = group.ask(posed, layout, edition, question=question)
        if heard is None or not isinstance(heard.body, Refusal) or heard.body.reason not in codes:
            actual = "no word" if heard is None else getattr(heard.body, "reason", "an answer")
            yield f"{what}: {actual}; expected a refusal with {' or '.join(codes)}"
    digest, heard = group.run.pose(posed)
    group.run.receipt(digest)
    if heard is None or not isinstance(heard.body, Refusal) or heard.body.reason != "not-private":
        yield "a plain request in a run that was announced as private: expected a refusal with not-private"
