"""What a vehicle looks at before it answers in a private run. The whole defence against a coordinator that lies.

A coordinator may say what it likes about who was lost: a vehicle answers only in editions that shrink along one
chain, by at least `company` each, from the one roster that it met, and never to less than `Roster.least`. So what is
opened of a group in a run are sums over nested sets whose gaps have company. Nor does it answer where a combination
with totals of earlier runs, that any of its group knows, would be about few vehicles. A chain is written to the
vehicle's disk, and synced, before an answer leaves.

The chain is plain data; each function returns a new one, or raises :class:`~glassfleet.errors.PrivacyError` with a code
that may travel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from glassfleet.contract.messages import Task
from glassfleet.errors import PrivacyError, TaskError
from glassfleet.private.groups import Announcement, Edition, Roster, Terms
from glassfleet.private.totals import Total, known, lacking, singled_out
from schemas.codec import Value, digest_of, document_digest
from schemas.errors import DocumentError, WireError

DOMAIN, LEARNING, SCORES = range(3)
"""Parts of a run, in their order: none is gone back to."""

SCORES_SCHEME = "scores"
"""Scheme of the task that asks for summed errors of the finished model."""

_ROUNDING = 1e-9


PAIRS_SCHEME = "pairs"
"""Scheme of the task that asks whose masks fit whose: its answers hold nothing of a vehicle's rows."""


@dataclass(frozen=True)
class Chain:
    """What one vehicle has seen and answered of one private run.

    Attributes
    ----------
    agent : str
        Whose chain.
    roster : Roster
        The founders of its group, verified when they were first seen, and never again: certificates are renewed and
        revoked in the middle of runs.
    editions : tuple of Edition
        Those it answered in; the first is all founders, whether it was asked or not.
    part : int
        `DOMAIN`, `LEARNING` or `SCORES`: how far the run was.
    domain : str
        Digest of scheme, parameters and the one domain that is learned over, as the model's document has them; empty
        before.
    tasks : Mapping of str to str
        Digest of the layout of each task that was asked, by the task's digest; empty before it is known.
    answers : Mapping of str to str
        SHA-256 (hex) of what was sent, by question.
    contents : frozenset of str
        Digests of the tasks that were asked, whatever the run's nonce, but for checks of pairs: not about rows.
    spent : float
        Of the run's privacy budget (epsilon), by all answers; 0 where the scheme adds no noise.
    known : tuple of Total
        All that a founder announced, of earlier runs.
    has_left : bool
        Whether the vehicle could not answer a task. It answers nothing after that: which tasks it cannot answer may
        depend on its rows, and asking for more of them would tell of these.
    """

    agent: str
    roster: Roster
    editions: tuple[Edition, ...]
    part: int = DOMAIN
    domain: str = ""
    tasks: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    contents: frozenset[str] = frozenset()
    spent: float = 0.0
    known: tuple[Total, ...] = ()
    has_left: bool = False

    @property
    def totals(self) -> tuple[Total, ...]:
        """What the vehicle knows: of earlier runs, and the editions that it answered in."""
        return (*self.known, *(each.total for each in self.editions))

    def to_value(self) -> dict[str, Value]:
        """Return the chain as a codec value, for the vehicle's disk."""
        return {
            "agent": self.agent,
            "roster": self.roster.to_value(),
            "editions": [[each.number, list(each.members)] for each in self.editions],
            "part": self.part,
            "domain": self.domain,
            "tasks": dict(self.tasks),
            "answers": dict(self.answers),
            "contents": sorted(self.contents),
            "spent": self.spent,
            "known": [each.to_value() for each in self.known],
            "has_left": self.has_left,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Chain:
        """Read :meth:`to_value`; raises WireError when the file is damaged: the vehicle then has no chain."""
        try:
            roster = Roster.from_value(value["roster"])
            editions = tuple(Edition(roster, number, tuple(members)) for number, members in value["editions"])
            earlier = tuple(map(Total.from_value, value["known"]))
            rest = {name: value[name] for name in ("agent", "tasks", "part", "domain", "answers", "spent", "has_left")}
            contents = frozenset(value["contents"])
            return cls(roster=roster, editions=editions, known=earlier, contents=contents, **rest)
        except (KeyError, TypeError, ValueError) as fault:
            raise WireError("malformed", f"chain: {fault}"[:200]) from fault


def meet(own: Announcement, terms: Terms, roster: Roster, totals: Iterable[Total] = ()) -> Chain:
    """Begin the chain of a run with the founders of one's group, whose seals were verified.

    Parameters
    ----------
    own : Announcement
        As it was sent.
    terms : Terms
        As they were when it was sent.
    roster : Roster
        As the coordinator relayed it.
    totals : iterable of Total
        As the coordinator relayed them: all that a founder announced, and maybe others.

    Raises
    ------
    PrivacyError
        ``not-private``: other terms. ``not-member``: without this vehicle, or with another key or other rows.
        ``too-few``: less than own or the run's floor, or than an earlier run demands. ``single-out``: together with
        earlier runs. ``unknown-run``: a founder was in one that the coordinator does not tell of.
    """
    if roster.terms != terms:
        raise PrivacyError("not-private", "the group is of other terms than those that this vehicle answered")
    if roster.by_id.get(own.agent) != own:
        raise PrivacyError("not-member", "this vehicle is not in its group as it announced itself")
    earlier = known(roster.announced, totals)
    if len(earlier) < len(roster.announced):
        raise PrivacyError("unknown-run", "the coordinator does not tell of a run that a founder answered before")
    chain = Chain(own.agent, roster, (), known=earlier)
    return replace(chain, editions=(_checked(chain, roster.first()),))


def same_roster(chain: Chain, roster: Roster) -> None:
    """Raise PrivacyError ``other-roster`` unless `roster` is the one that the chain began with."""
    if roster.digest != chain.roster.digest:
        raise PrivacyError("other-roster", "the founders of the group were others before")


def follow(chain: Chain, number: int, members: Sequence[str]) -> tuple[Chain, Edition]:
    """Return the edition `number` of the group with `members`, and the chain that ends with it.

    Raises
    ------
    PrivacyError
        ``other-edition``: neither the last edition nor a proper subset of it with a higher number, or with somebody who
        is no founder. ``not-member``, ``too-few``; ``single-out``: the gap to the last edition, or to a set of another
        run, is smaller than company.
    """
    edition = Edition(chain.roster, number, tuple(members))
    last = chain.editions[-1]
    if edition.digest == last.digest:
        return chain, last
    if chain.agent not in edition.members:
        raise PrivacyError("not-member", "this vehicle is not in the edition")
    if number <= last.number or not set(edition.members) < set(last.members):
        raise PrivacyError(
            "other-edition", "an edition must be a proper subset of the one before, with a higher number"
        )
    gap = len(last.members) - len(edition.members)
    if gap < chain.roster.terms.company:
        raise PrivacyError("single-out", f"the difference to the edition before would tell of {gap} vehicles")
    return replace(chain, editions=(*chain.editions, _checked(chain, edition))), edition


def admit(chain: Chain, task: Task) -> Chain:
    """Return the chain with `task` counted as asked.

    Raises
    ------
    PrivacyError
        ``not-private``: not a task of the run that was announced: another nonce, scheme or parameters, an earlier part
        of the run, or of some rows of each vehicle only. ``other-domain``: another domain than before.
        ``other-model``: scores of a model that the run cannot have learned. ``too-many-questions``. ``run-left``.
    TaskError
        The task is malformed.
    """
    if chain.has_left:
        raise PrivacyError("run-left", "this vehicle could not answer another task of the run")
    if task.digest in chain.tasks:
        return chain
    if task.nonce != chain.roster.terms.nonce:
        raise PrivacyError("not-private", "the task has another nonce than the run")
    # A check of pairs may come in any part of a run: it is not about rows.
    after = chain
    if task.scheme != PAIRS_SCHEME:
        # What it cannot answer may tell of its rows: this counts as well.
        after = replace(_in_its_part(chain, task), contents=chain.contents | {replace(task, nonce="").digest})
    if len(chain.tasks) >= chain.roster.terms.max_questions:
        raise PrivacyError("too-many-questions", f"{chain.roster.terms.max_questions} tasks were announced")
    return replace(after, tasks={**chain.tasks, task.digest: ""})


def _in_its_part(chain: Chain, task: Task) -> Chain:
    """Return the chain with part and domain of `task`; raises PrivacyError as `admit`."""
    part = _part(chain, task)
    domain = chain.domain
    if part == LEARNING:
        domain = _learned({**task.body, "scheme": task.scheme})
        if chain.domain and domain != chain.domain:
            raise PrivacyError("other-domain", "the run has asked with another domain before")
    if part == SCORES == chain.part:
        raise PrivacyError("too-many-questions", "the run has asked for scores before")
    if part == SCORES and _learned(task.body.get("model")) != chain.domain:
        # Test rows tell of no other model than the run's.
        raise PrivacyError("other-model", "the model to be scored is not of the run's scheme, parameters and domain")
    return replace(chain, part=part, domain=domain)


def lay_out(chain: Chain, task_digest: str, layout_digest: str) -> Chain:
    """Return the chain with the layout of an admitted task noted.

    Raises
    ------
    PrivacyError
        ``other-layout``: this vehicle's software had another one before. A task has the same masks in any layout,
        so the difference of the two answers would be that of two unmasked vectors.
    """
    known = chain.tasks[task_digest]
    if known == layout_digest:
        return chain
    if known:
        raise PrivacyError("other-layout", "this task was laid out otherwise before: by other software")
    return replace(chain, tasks={**chain.tasks, task_digest: layout_digest})


def afford(chain: Chain, question: str, cost: float, budget: float) -> None:
    """Raise PrivacyError ``budget-spent`` unless the run's `budget` has `cost` left, in epsilon, for `question`.

    The answer to a question that was answered before is the same, noise included, and costs nothing more.
    """
    if question not in chain.answers and chain.spent + cost > budget * (1.0 + _ROUNDING):
        raise PrivacyError("budget-spent", f"epsilon {chain.spent:g} of {budget:g} is spent; this costs {cost:g}")


def answered(chain: Chain, question: str, words: NDArray[Any], cost: float = 0.0) -> Chain:
    """Return the chain with the masked answer to `question` noted; to be synced before the answer leaves.

    Parameters
    ----------
    chain : Chain
    question : str
    words : ndarray of uint64
    cost : float
        Of the privacy budget, epsilon.

    Raises
    ------
    PrivacyError
        ``other-answer``: the question was answered with other words before. The difference of the two would be that of
        two unmasked vectors.
    """
    digest = hashlib.sha256(words.astype("<u8").tobytes()).hexdigest()
    known = chain.answers.get(question)
    if known == digest:
        return chain
    if known is not None:
        raise PrivacyError("other-answer", "the same question was answered with other numbers before")
    return replace(chain, answers={**chain.answers, question: digest}, spent=chain.spent + cost)


def _part(chain: Chain, task: Task) -> int:
    """Return the part of the run that a task belongs to; raises PrivacyError ``not-private`` where it has none."""
    terms = chain.roster.terms
    part = {"domain": DOMAIN, terms.scheme: LEARNING, SCORES_SCHEME: SCORES}.get(task.scheme)
    if part is None or part < chain.part:
        raise PrivacyError("not-private", f"a task of {task.scheme!r} does not belong here")
    if task.max_rows_each:
        raise PrivacyError("not-private", "sums over k and over k + 1 rows of each vehicle differ by single rows")
    if part == LEARNING and digest_of(task.body.get("parameters")) != terms.parameters:
        raise PrivacyError("not-private", "the task has other parameters than were announced")
    return part


def _learned(body: object) -> str:
    """Return the digest of scheme, parameters and domain; of a task, or of a model: JSON, in which 1.0 is 1."""
    document = body if isinstance(body, Mapping) else {}
    try:
        return document_digest({name: document.get(name) for name in ("scheme", "parameters", "domain")})
    except DocumentError as fault:
        raise TaskError(f"scheme, parameters or domain cannot be those of a model: {fault}"[:200]) from fault


def _checked(chain: Chain, edition: Edition) -> Edition:
    """Return a new edition if the vehicle may answer in it, whatever it and the others answered before."""
    floor, company = max(chain.roster.least, chain.roster.by_id[chain.agent].floor), chain.roster.terms.company
    if len(edition.members) < floor:
        raise PrivacyError("too-few", f"{len(edition.members)} members; this vehicle speaks in {floor} or more")
    for before in chain.known:
        if more := lacking(before, edition.total.members, company):
            raise PrivacyError("too-few", f"{more} vehicles more of an earlier run over some of these rows are needed")
    if few := singled_out([*chain.totals, edition.total], company):
        raise PrivacyError("single-out", f"with earlier sums it would tell of {len(few)} vehicles")
    return edition
