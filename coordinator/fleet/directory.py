"""Who is there: what the retained birth certificates and last wills say, and the scores that agents report.

One thread writes, any may read. What is known of an agent is a frozen record that is replaced as a whole, and readers
first copy the table of records, in one step that no other thread can come between. So they see the fleet of one moment,
however many agents come and go meanwhile, and a birth costs the same whether anybody reads or not.

The step is ``dict(table)``. Not ``table.copy()``: CPython 3.11 allocates the new dict after it has copied the entries,
and may collect garbage there; a finaliser lets other threads run, and the copy's length is then another's.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator.engine import Offer
from coordinator.fleet.unreadable import Unreadable
from coordinator.journal.port import Journal
from schemas.messages import AgentState, Evaluation

KEPT_EVALUATIONS = 64
"""Scores that are remembered of each agent; the oldest go first: a rollout and the pages look at the latest versions.
Fewer in a fleet so large that they would take more than half of the memory: nobody is turned away for others' scores.
"""

BIRTHS_BURST = 60
"""Changes (up, down, another incarnation or offer) of one agent that are taken as they come: a bad link makes some."""

BIRTHS_PER_MINUTE = 30.0
"""So many after that: each costs a line in the journal. Of what comes faster, the latest is taken when it is due."""

LONGEST_UP = 365 * 86400.0
"""Seconds that an agent may say it has been up when the coordinator meets it; more is a clock that was not set then."""

_AGENT_BYTES = 640
"""Memory of one agent without its own words, offer and scores: record, id, times, place in the table."""
_SCORES_BYTES = 1088
"""Memory of the scores of one model version at one agent. Measured: 1063, with numbers that Python does not share."""
_COUNT_BYTES = 48
"""Memory of one count of a confusion matrix, with its part of the lists."""
_OFFER_BYTES = 400
"""Memory of an offer without its names. Measured: 350."""


def _bytes_of(evaluations: Mapping[Any, Mapping[str, Any]]) -> int:
    """Return the memory of the scores of one agent."""
    return sum(_SCORES_BYTES + _COUNT_BYTES * len(each.get("confusion", ())) ** 2 for each in evaluations.values())


@dataclass(slots=True)
class KnownAgent:
    """One agent. Never changed, but replaced.

    `since` is when it came up; of one that is down, when it was last known to be up. `stopped`: it was told to stop.
    `size` are the bytes that it takes without its offer; `turns` are the changes it may still make as of `counted`.
    """

    status: str
    incarnation: str
    software: str
    offer: Offer
    since: float
    size: int
    turns: float = 0.0
    counted: float = 0.0
    stopped: bool = False
    evaluations: Mapping[tuple[str, int], dict[str, Any]] = field(default_factory=dict)


class SharedOffers:
    """Offers that are kept once for all agents that make the same: most vehicles of a fleet have the same columns.

    Attributes
    ----------
    size : int
        Bytes of all of them in memory.
    """

    def __init__(self) -> None:
        self._known: dict[Offer, tuple[Offer, int]] = {}
        self.size = 0

    def cost(self, offer: Offer) -> int:
        """Return the bytes that one more agent with this offer takes."""
        return 0 if offer in self._known else size_of(offer)

    def acquire(self, offer: Offer) -> Offer:
        """Return the one that is kept, for one more agent."""
        self.size += self.cost(offer)
        kept, users = self._known.get(offer, (offer, 0))
        self._known[kept] = (kept, users + 1)
        return kept

    def release(self, offer: Offer) -> None:
        """Note that an agent needs it no more."""
        kept, users = self._known[offer]
        if users > 1:
            self._known[kept] = (kept, users - 1)
        else:
            del self._known[kept]
            self.size -= size_of(offer)


def size_of(offer: Offer) -> int:
    """Return the bytes of memory that an offer takes: a name of one letter takes fifty to eighty."""
    names = (*offer.schemes, *offer.features, offer.target, *offer.kinds, *offer.far, offer.plan, offer.fault)
    places = sys.getsizeof(offer.schemes) + sys.getsizeof(offer.features)
    return _OFFER_BYTES + places + sum(map(sys.getsizeof, names))


class Fleet:
    """All agents of the fleet.

    Parameters
    ----------
    wall : callable
        Wall clock, for displays.
    clock : callable
        Seconds that only go forward; None: `wall`.
    max_agents, fleet_bytes : int
        See `coordinator.config.FleetLimits`.
    journal : Journal or None
        Has the scores of agents over the lives of coordinators; None: they are lost with this one.

    Attributes
    ----------
    met : set of str
        Agents whose former scores are to be recalled, see `recall`.
    refused : int
        Births that were not taken for want of room.
    held : int
        Bytes of what is held back, see `coordinator.fleet.arrivals`: it has the same memory.
    """

    def __init__(
        self,
        wall: Callable[[], float],
        clock: Callable[[], float] | None = None,
        *,
        max_agents: int,
        fleet_bytes: int,
        journal: Journal | None = None,
    ) -> None:
        self._wall = wall
        self._clock = clock or wall
        self._max_agents = max_agents
        self._fleet_bytes = fleet_bytes
        self._agents: dict[str, KnownAgent] = {}
        self._offers = SharedOffers()
        self._records = 0
        self._down = 0
        self._scores = 0
        self._journal = journal
        self.met: set[str] = set()
        self.unwritten: set[str] = set()
        self.refused = 0
        self.held = 0
        self.unreadable = Unreadable()

    @property
    def size(self) -> int:
        """Bytes of memory that all agents take, at most `fleet_bytes`."""
        return self._records + self._offers.size + self.held

    def fits(self, size: int) -> bool:
        """Whether there is memory for so many bytes more."""
        return self.size + size <= self._fleet_bytes

    def wait(self, agent: str, body: AgentState | None, incarnation: str | None = None, fault: str = "") -> float:
        """Return the seconds until a change of this agent may be taken; 0: now, or nothing would change.

        Parameters
        ----------
        body : AgentState or None
            A birth certificate; None: a last will, of `incarnation`, or its word of a `fault` of its data.
        """
        known = self._agents.get(agent)
        if known is None:
            return 0.0
        if body is not None:
            is_news = (known.status, known.incarnation, known.offer) != ("up", body.incarnation, offer_of(body))
        elif fault:
            is_news = fault != known.offer.fault
        else:
            is_news = known.status == "up" and incarnation in (None, known.incarnation)
        if not is_news:
            return 0.0
        rate = BIRTHS_PER_MINUTE / 60.0
        turns = min(BIRTHS_BURST, known.turns + rate * (self._clock() - known.counted))
        return max(0.0, (1.0 - turns) / rate)

    def up(self, agent: str, body: AgentState, born: float = 0.0) -> Offer | None:
        """Take a birth certificate; the offer when it is news (another incarnation, another offer, or was down).

        `born` is when the agent's process began by its own clock, seconds since the epoch; 0: it did not say. A
        coordinator that meets an agent which was up before takes it for the beginning, unless it lies in the future, or
        farther back than `LONGEST_UP`.
        """
        offer = offer_of(body)
        known = self._agents.get(agent)
        if known is None:
            record = _record("up", body.incarnation, body.software, offer, self._since(born))
            if not self._make_room(record.size + self._offers.cost(offer)):
                self.refused += 1
                return None
            return self._meet(agent, record)
        is_news = (known.status, known.incarnation, known.offer) != ("up", body.incarnation, offer)
        if not is_news:
            return None
        before, shared = self.size, self._offers.acquire(offer)
        self._offers.release(known.offer)
        size = known.size + _words(body.incarnation, body.software) - _words(known.incarnation, known.software)
        if self.size + size - known.size > max(before, self._fleet_bytes):
            self._offers.acquire(known.offer)
            self._offers.release(shared)
            self._put(agent, self._counted(known))
            self.refused += 1
            return None
        says = {
            "status": "up",
            "stopped": False,
            "incarnation": body.incarnation,
            "software": body.software,
            "offer": shared,
        }
        self._put(agent, self._counted(known, **says, since=self._wall(), size=size))
        return shared

    def down(
        self, agent: str, incarnation: str | None, *, software: str = "", born: float = 0.0, stopped: bool = False
    ) -> bool:
        """Take a last will; False when it is not news, or is the will of an earlier process of a living agent.

        An agent that was not known is remembered as down while there is room: the broker kept its will over a restart
        of the coordinator. When it went is not known: it was up when it began.

        Parameters
        ----------
        incarnation : str or None
            None: its retained state was cleared; nobody need remember it.
        born : float
            As for `up`.
        stopped : bool
            It was told to stop; else its connection broke off.
        """
        known = self._agents.get(agent)
        if known is None:
            if incarnation is not None:
                record = replace(_record("down", incarnation, software, Offer(), self._since(born)), stopped=stopped)
                if self._has_room(record.size + self._offers.cost(record.offer)):
                    self._meet(agent, record)
            return False
        if known.status == "down":
            return False
        if incarnation is not None and incarnation != known.incarnation:
            return False
        self._put(agent, self._counted(known, status="down", stopped=stopped, since=self._wall()))
        return True

    def cannot(self, agent: str, state: AgentState, born: float) -> Offer | None:
        """Take an agent's word that it is down because its data cannot be used; the offer that says so when it is news.

        Whatever process said it: one that is alive tells again that it is up.
        """
        known, offer = self._agents.get(agent), Offer(fault=state.fault)
        if known is None:
            record = _record("down", state.incarnation, state.software, offer, self._since(born))
            return self._meet(agent, record) if self._has_room(record.size + self._offers.cost(offer)) else None
        if (known.status, known.offer) == ("down", offer):
            return None
        shared = self._offers.acquire(offer)
        self._offers.release(known.offer)
        self._put(agent, self._counted(known, status="down", stopped=False, offer=shared, since=self._wall()))
        return shared

    def _since(self, born: float) -> float:
        now = self._wall()
        return born if born > 0 and now - LONGEST_UP <= born <= now else now

    def _meet(self, agent: str, record: KnownAgent) -> Offer:
        shared = self._offers.acquire(record.offer)
        self._put(agent, replace(record, offer=shared, turns=BIRTHS_BURST - 1.0, counted=self._clock()))
        self.met.add(agent)
        return shared

    def recall(self) -> None:
        """Take over what agents that were met since had scored before; raises StorageError when it cannot be read."""
        if self.met and self._journal is not None:
            for agent, kept in self._journal.kept("scores", self.met & self._agents.keys()).items():
                self._remember(agent, {(each["name"], each["version"]): each for each in kept})
        self.met = set()

    def _put(self, agent: str, record: KnownAgent) -> None:
        """Let a record take the place of an agent's former one."""
        former = self._agents.get(agent)
        self._records += record.size - (0 if former is None else former.size)
        self._down += (record.status == "down") - (former is not None and former.status == "down")
        self._agents[agent] = record

    def _counted(self, known: KnownAgent, **changes: Any) -> KnownAgent:
        """Return a record after one more change."""
        now = self._clock()
        gained = BIRTHS_PER_MINUTE / 60.0 * (now - known.counted)
        turns = min(float(BIRTHS_BURST), known.turns + gained) - 1.0
        return replace(known, turns=turns, counted=now, **changes)

    def count_up(self) -> int:
        """Return how many agents are up."""
        return len(self._agents) - self._down

    def _has_room(self, size: int) -> bool:
        return len(self._agents) < self._max_agents and self.fits(size)

    def _make_room(self, size: int) -> bool:
        """Forget agents that are down, the longest first, until one more fits."""
        if self._has_room(size):
            return True
        if not self._down:  # a flood of newcomers to a full fleet must not cost a look at everybody each
            return False
        down = sorted((known.since, agent) for agent, known in self._agents.items() if known.status == "down")
        # A tenth at once: a full table is not sorted for every newcomer.
        agents = self._max_agents
        keep = max(0, min(agents - 1, len(self._agents) - max(1, agents // 10)))
        for _, agent in down:
            if len(self._agents) <= keep and self._has_room(size):
                break
            gone = self._agents.pop(agent)
            self._down -= 1
            self._offers.release(gone.offer)
            self._records -= gone.size
            self._scores -= _bytes_of(gone.evaluations)
        return self._has_room(size)

    def evaluated(self, agent: str, body: Evaluation) -> None:
        """Remember the scores, if it has any, of a known agent for a model version (the newest, bounded)."""
        if agent in self.met:
            self.recall()
        known = self._agents.get(agent)
        if known is None or body.cannot:
            return
        scores, told = dict(known.evaluations), body.model_dump(mode="json", exclude={"beside"})
        former = scores.pop((body.name, body.version), None)  # the newest last
        is_again = former is not None and (former["digest"], former["metric"]) == (body.digest, body.metric)
        told["first"] = former["first"] if former is not None and is_again else body.federated
        self._remember(agent, {**scores, (body.name, body.version): told})
        self.unwritten.add(agent)

    def write_scores(self) -> None:
        """Keep what agents scored, in one transaction; raises StorageError when the journal cannot be written."""
        agents, self.unwritten = self.unwritten, set()
        if agents and self._journal is not None:
            known = {agent: list(self._agents[agent].evaluations.values()) for agent in agents & self._agents.keys()}
            self._journal.keep("scores", known, self._max_agents)

    def _remember(self, agent: str, scores: dict[tuple[str, int], dict[str, Any]]) -> None:
        """Let scores take the place of an agent's, the oldest of which go first."""
        known = self._agents[agent]
        size, most = _bytes_of(known.evaluations), self._fleet_bytes // 2
        share = max(most // len(self._agents), _SCORES_BYTES)
        if self._scores + _bytes_of(scores) - size > most:
            share = min(share, size)
        while len(scores) > KEPT_EVALUATIONS or _bytes_of(scores) > share:
            scores.pop(next(iter(scores)))
        more = _bytes_of(scores) - size
        self._scores += more
        self._put(agent, replace(known, evaluations=scores, size=known.size + more))

    def evaluations(self, name: str, version: int, digest: str | None = None) -> dict[str, dict[str, Any]]:
        """Return scores of one model version, by agent; with a `digest` of that document alone. From any thread."""
        agents = sorted(dict(self._agents).items())
        scores_of = {agent: known.evaluations.get((name, version)) for agent, known in agents}
        return {agent: each for agent, each in scores_of.items() if each and digest in (None, each["digest"])}

    def evaluations_of(self, name: str) -> dict[int, dict[str, dict[str, Any]]]:
        """Return scores of all versions of a model, by version and agent; from any thread."""
        versions: dict[int, dict[str, dict[str, Any]]] = {}
        for agent, known in dict(self._agents).items():
            for (model, version), scores in known.evaluations.items():
                if model == name:
                    versions.setdefault(version, {})[agent] = scores
        return versions

    def known(self) -> dict[str, KnownAgent]:
        """Return all agents; from any thread."""
        return dict(self._agents)

    def offers(self) -> dict[str, Offer]:
        """Return the agents that are up; from any thread."""
        return {agent: known.offer for agent, known in dict(self._agents).items() if known.status == "up"}

    def faulty(self) -> dict[str, Offer]:
        """Return the agents that are down because their data cannot be used; from any thread."""
        return {agent: known.offer for agent, known in dict(self._agents).items() if known.offer.fault}

    def counts(self) -> dict[str, int]:
        """Return how many agents are up and down; from any thread."""
        return dict(Counter(known.status for known in dict(self._agents).values()))


def _record(status: str, incarnation: str, software: str, offer: Offer, since: float) -> KnownAgent:
    return KnownAgent(status, incarnation, software, offer, since, _AGENT_BYTES + _words(incarnation, software))


def _words(incarnation: str, software: str) -> int:
    return sys.getsizeof(incarnation) + sys.getsizeof(software)


def offer_of(body: AgentState) -> Offer:
    """Return what a birth certificate offers."""
    more = tuple(body.kinds), tuple(body.far), body.plan, body.held_back
    return Offer(frozenset(body.schemes), tuple(body.features), body.target, *more)
