"""A run as plain frozen data. Nothing here decides anything.

What every message of a vehicle may change is in persistent maps: a step costs the same in a large fleet as in a small
one. They have no order of their own.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from immutables import Map

from coordinator.engine.events import Offer
from coordinator.specification.run import RunSpec
from glassfleet.contract.messages import Contribution, State, Task
from glassfleet.data.domain import Domain
from glassfleet.evaluation.influence import Influence
from glassfleet.private.groups import Edition
from glassfleet.private.totals import Total
from schemas.codec import Value

Phase = Literal[
    "gathering", "pairing", "domain", "recruiting", "learning", "checking", "scoring", "finished", "failed", "cancelled"
]
T = TypeVar("T")
ENDED: frozenset[Phase] = frozenset({"finished", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Stored:
    """An accepted answer.

    Attributes
    ----------
    rows : int
        Of the vehicle, whose contribution may rest on fewer.
    """

    answer_digest: str
    rows: int
    contribution: Contribution


Store = Mapping[str, Mapping[str, Stored]]
"""Accepted answers by task digest, then agent."""

CountedRows = Mapping[tuple[int, int, str], tuple[Task, Contribution]]
"""By group, number of its edition and task digest: a question of `COUNTS`, and the sum of the answers."""


def changed(value: T, changes: Mapping[str, Any]) -> T:
    """Return a copy of a frozen value with other fields; most messages of a vehicle change two values of a run.

    ``dataclasses.replace`` sets each field anew, past the guard that freezes it: seven times the time.
    """
    copy = object.__new__(type(value))
    fields = vars(copy)
    fields.update(vars(value))
    known = len(fields)
    fields.update(changes)
    if len(fields) != known:
        raise TypeError(f"{type(value).__name__} has no field {', '.join(changes.keys() - vars(value).keys())}")
    return copy


@dataclass(frozen=True)
class Level:
    """One step of growth: the server half's state and the task that it asks.

    Attributes
    ----------
    number : int
        Round within its phase, from 1.
    digest : str
        What its answers are stored under.
    questions : tuple of str
        What is asked: the task, or in a private run the task in each group's edition.
    members : tuple of str
        Whose answers were reduced; empty while open.
    nullified : int
        Statistics that those members had nulled.
    """

    number: int
    state: State
    task: Task
    digest: str
    questions: tuple[str, ...]
    members: tuple[str, ...] = ()
    nullified: int = 0


@dataclass(frozen=True)
class Round:
    """The open round.

    Attributes
    ----------
    digest : str
        Of its task.
    asked : tuple of str
        Who is waited for, in the order of id; in a round that is open to all it grows as agents come up.
    limited : bool
        Whether only `asked` may answer.
    opened_at, closes_at : float
        `closes_at` is the deadline without the grace.
    extensions : int
        How many were used.
    dropped : Map[str, str]
        Who will not answer, and why.
    former : tuple of str
        Pairing: vehicles of an earlier run for whom it waits, as others would be left out without them.
    late, duplicate, rejected : int
        Counters.
    size, rows : int
        Bytes and rows of the accepted answers.
    request_bytes : int
        Of what was asked, each time that it was.
    """

    kind: Literal["pairing", "domain", "statistics"]
    number: int
    attempt: int
    digest: str
    asked: tuple[str, ...]
    limited: bool
    opened_at: float
    closes_at: float
    extensions: int = 0
    dropped: Map[str, str] = field(default_factory=Map)
    former: tuple[str, ...] = ()
    late: int = 0
    duplicate: int = 0
    rejected: int = 0
    size: int = 0
    rows: int = 0
    request_bytes: int = 0

    def asks(self, agent: str) -> bool:
        """Whether an agent is asked."""
        return holds(self.asked, agent)


@dataclass(frozen=True)
class RoundSummary:
    """A closed round, for the record.

    `seconds` and `opened_at` on the coordinator's time line; `bytes` of accepted answers; `request_bytes` of the
    request, each time that it was sent, before it is sealed or cut into parts; `late_agents` answered after the end.
    """

    number: int
    phase: Literal["pairing", "domain", "statistics"]
    kind: str
    attempt: int
    task_digest: str
    asked_agents: tuple[str, ...]
    accepted_agents: tuple[str, ...]
    dropped_agents: Mapping[str, str]
    late: int
    duplicate: int
    rejected: int
    seconds: float
    bytes: int
    opened_at: float
    late_agents: tuple[str, ...] = ()
    request_bytes: int = 0

    def to_document(self) -> dict[str, Any]:
        """Return the summary as the API shows it."""
        told = {name: value for name, value in vars(self).items() if name not in ("task_digest", "opened_at")}
        return {
            **told,
            "asked": len(self.asked_agents),
            "accepted": len(self.accepted_agents),
            "dropped": len(self.dropped_agents),
            "seconds": round(self.seconds, 6),
            **{name: list(told[name]) for name in ("asked_agents", "accepted_agents", "late_agents")},
            "dropped_agents": dict(sorted(self.dropped_agents.items())),
        }


@dataclass(frozen=True)
class RunState:
    """Everything about one run.

    Attributes
    ----------
    parameters : Any
        ``spec.parameters``, checked by the scheme.
    at : float
        When it last changed.
    reason : str
        Why it ended as it did.
    agents : Map[str, Offer]
        Who is up.
    features, target
        Columns of the run, once settled.
    kinds : Mapping of str to str
        What these hold at most agents, where it is not just numbers; see `Offer`.
    max_rows_each : int
        At most so many rows of each agent count; 0: all (or not yet found).
    guard : Mapping
        Who is far out, see :data:`glassfleet.discovery.guard.Notes`.
    frozen : Map[str, tuple of (int, str)]
        Rows and data digest of each agent, fixed by its first accepted answer.
    store : Store
        Answers to the open round, and to closed ones to which a replay may come back.
    levels : tuple of Level
        Growth in the present phase; the last level is the open one. Of closed ones to which no replay comes back
        state, question and members are gone.
    editions : tuple of Edition
        Private runs: the groups as they stand, once the vehicles are paired; by number.
    summed : tuple of Total
        Private runs: over each edition that there was, in order.
    earlier : tuple of Total
        Private runs: those of earlier ones, the newest first.
    runs_left : Mapping[str, int]
        Private runs: how many over its rows each founder joins, this one included.
    counted_rows : Mapping
        Private runs with support: what groups told, in this and in former editions, on how many rows something rests.
    sealed : Mapping[str, bytes]
        Private runs: each founder's announcement as it came, with its seal.
    met : frozenset of bytes
        Private runs: digests of editions in which all members have answered, who keep what they were told, and of the
        rosters of these.
    cohort : tuple of str
        Cohort participation: the members, once fixed. Elastic: who has been counted so far.
    founders : int
        Size of the cohort when it was fixed.
    lost : Mapping[str, str]
        Former members and why they were lost.
    champion : Mapping or None
        Document of the model that the name stood for when the run began; in a plain run none of a private one.
    formers : tuple of Mapping
        Private runs: documents of earlier ones, the best known first.
    private : Mapping
        Private runs: what protected the answers that the model rests on, see `scoring`; empty before it is learned.
    scores : Mapping
        Private runs: the fleet's test scores (`glassfleet.evaluation.scores`), or ``missing``: why there are none.
    errors : Mapping
        The finished model's errors on test rows (:func:`glassfleet.model.intervals.recorded_errors`); empty: nobody
        told any.
    drift : Mapping
        How far rules and inputs of `champion` moved (`glassfleet.evaluation.scores`); empty: nobody told.
    harmful : Influence or None
        Plain runs of a cohort: the member without which the others gain.
    false_answers : tuple of str
        Private runs: vehicles whose answers fitted with nobody's, see `glassfleet.private.pairs`.
    silent : frozenset of str
        Agents that missed their last deadline and have not been heard since: rounds do not wait for them.
    without_broker : float
        Seconds of the open round, or of the gathering, in which the coordinator had no broker, as far as it was told.
    attempts : Mapping[str, int]
        Highest attempt by ``"{kind}/{number}"``.
    nullified : int
        Statistics that were nulled at the vehicles, over all counted answers.
    joined_bins : int
        The same of domain discovery: small counts that vehicles joined to a neighbour before they told them.
    """

    spec: RunSpec
    parameters: Any
    phase: Phase
    at: float
    started_at: float
    reason: str = ""
    agents: Map[str, Offer] = field(default_factory=Map)
    features: tuple[str, ...] = ()
    target: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    domain: Domain | None = None
    domain_contributors: tuple[str, ...] = ()
    max_rows_each: int = 0
    guard: Mapping[str, Any] = field(default_factory=dict)
    frozen: Map[str, tuple[int, str]] = field(default_factory=Map)
    store: Store = field(default_factory=dict)
    levels: tuple[Level, ...] = ()
    editions: tuple[Edition, ...] = ()
    summed: tuple[Total, ...] = ()
    earlier: tuple[Total, ...] = ()
    runs_left: Mapping[str, int] = field(default_factory=dict)
    counted_rows: CountedRows = field(default_factory=dict)
    sealed: Mapping[str, bytes] = field(default_factory=dict)
    met: frozenset[bytes] = frozenset()
    cohort: tuple[str, ...] = ()
    founders: int = 0
    lost: Mapping[str, str] = field(default_factory=dict)
    champion: Mapping[str, Any] | None = None
    formers: tuple[Mapping[str, Any], ...] = ()
    private: Mapping[str, Value] = field(default_factory=dict)
    scores: Mapping[str, Value] = field(default_factory=dict)
    errors: Mapping[str, Value] = field(default_factory=dict)
    drift: Mapping[str, Value] = field(default_factory=dict)
    harmful: Influence | None = None
    false_answers: tuple[str, ...] = ()
    silent: frozenset[str] = frozenset()
    open: Round | None = None
    without_broker: float = 0.0
    attempts: Mapping[str, int] = field(default_factory=dict)
    rounds: tuple[RoundSummary, ...] = ()
    restarts: int = 0
    nullified: int = 0
    joined_bins: int = 0
    model: Any = None
    summary: Mapping[str, Value] = field(default_factory=dict)

    @property
    def is_ended(self) -> bool:
        """Whether the run has reached its named end."""
        return self.phase in ENDED

    @property
    def is_fixed(self) -> bool:
        """Whether a cohort is fixed: only its members count from here on."""
        if self.spec.private is not None:
            return self.phase in ("domain", "learning", "checking", "scoring")
        return self.phase in ("learning", "scoring") and self.spec.participation == "cohort"

    @property
    def asks_members(self) -> bool:
        """Whether all members are asked; a check of pairs is put to one group of them."""
        return self.is_fixed and self.phase != "checking"

    @property
    def waited_for(self) -> tuple[str, ...]:
        """The fixed cohort; in a private run those of it who take part in what is asked now, in the order of id."""
        if not self.editions:
            return self.cohort
        return tuple(sorted(agent for edition in self.asked_editions for agent in edition.members))

    @property
    def asked_editions(self) -> tuple[Edition, ...]:
        """Private runs: the groups that are asked now; one alone while its pairs are checked."""
        if self.phase != "checking":
            return self.editions
        return tuple(each for each in self.editions if each.group == self.levels[-1].task.body["group"])

    @property
    def awaited(self) -> int:
        """How many have neither answered the open round nor been dropped from it."""
        current = self.open
        return len(current.asked) - len(self.store.get(current.digest, {})) - len(current.dropped) if current else 0

    def quorum(self, current: Round) -> int:
        """Return how many answers the open round needs; test errors of whoever tells are better than none."""
        if self.phase == "checking" or (self.phase == "scoring" and not self.editions):
            return 1
        return share(self.spec.rounds.min_agents, self.founders if self.is_fixed else len(current.asked))

    @property
    def run(self) -> str:
        """Its id."""
        return self.spec.run

    @property
    def accepted(self) -> tuple[str, ...]:
        """Agents with an accepted answer to the open round, in the order of id."""
        return () if self.open is None else tuple(sorted(self.store.get(self.open.digest, {})))


def holds(agents: tuple[str, ...], agent: str) -> bool:
    """Whether an agent is among those in the order of id."""
    at = bisect_left(agents, agent)
    return at < len(agents) and agents[at] == agent


def inserted(agents: tuple[str, ...], agent: str) -> tuple[str, ...]:
    """Return agents in the order of id, with `agent` among them."""
    at = bisect_left(agents, agent)
    return agents if holds(agents, agent) else (*agents[:at], agent, *agents[at:])


def share(number: float | None, of: int) -> int:
    """Resolve a number of agents or a fraction of them; at least 1, which is what None stands for."""
    if number is None:
        return 1
    wanted = number if isinstance(number, int) else math.ceil(number * of - 1e-9)
    return max(1, wanted)
