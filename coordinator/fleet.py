"""Who is there: what the retained birth certificates and last wills say, and the scores that agents report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from coordinator.engine import Offer
from schemas.messages import AgentState, Evaluation


@dataclass(frozen=True)
class FleetLimits:
    """What a fleet may make the coordinator remember, and how fast.

    Attributes
    ----------
    agents : int
        Most agents that are remembered; a newcomer beyond it takes the place of the one that has been down for longest,
        or is not taken in.
    columns_bytes : int
        Most bytes of all their schemes' and columns' names together, likewise.
    evaluations : int
        Scores that are remembered of each agent; the oldest go first.
    burst : int
        Changes (up, down, another incarnation or offer) of one agent that are taken as they come, ...
    per_minute : float
        ... and so many a minute after that; of what comes faster, the latest is taken when its time has come.
    longest_up : float
        Seconds that an agent may say it has been up when the coordinator meets it; more is taken for a clock that was
        not set when it began.
    """

    agents: int = 100_000
    columns_bytes: int = 256 * 1024 * 1024
    evaluations: int = 64
    burst: int = 60
    per_minute: float = 30.0
    longest_up: float = 365 * 86400.0


@dataclass
class KnownAgent:
    """One agent as last seen.

    `since` is when its status became so, as far as is known; `turns` are the changes that it may still make as of
    `counted`.
    """

    status: str
    incarnation: str
    software: str
    offer: Offer
    since: float
    seen: float
    size: int = 0
    turns: float = 0.0
    counted: float = 0.0
    evaluations: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)


class Fleet:
    """All agents of the fleet.

    Parameters
    ----------
    wall : callable
        Wall clock, for displays.
    clock : callable
        Seconds that only go forward; None: `wall`.
    limits : FleetLimits

    Attributes
    ----------
    began : float
        Since when scores are heard, seconds since the epoch: they are in memory only.
    """

    def __init__(
        self,
        wall: Callable[[], float],
        clock: Callable[[], float] | None = None,
        limits: FleetLimits = FleetLimits(),
    ) -> None:
        self._wall = wall
        self.began = wall()
        self._clock = clock or wall
        self._limits = limits
        self._agents: dict[str, KnownAgent] = {}
        self._size = 0
        self.refused = 0

    def wait(self, agent: str, body: AgentState | None, incarnation: str | None = None) -> float:
        """Return the seconds until a change of this agent may be taken; 0: now, or nothing would change.

        Parameters
        ----------
        agent : str
        body : AgentState or None
            A birth certificate; None: a last will, of `incarnation`.
        incarnation : str or None
        """
        known = self._agents.get(agent)
        if known is None:
            return 0.0
        if body is not None:
            is_news = (known.status, known.incarnation, known.offer) != ("up", body.incarnation, _offer(body))
        else:
            is_news = known.status == "up" and incarnation in (None, known.incarnation)
        if not is_news:
            return 0.0
        rate = self._limits.per_minute / 60.0
        turns = min(self._limits.burst, known.turns + rate * (self._clock() - known.counted))
        return max(0.0, (1.0 - turns) / rate)

    def up(self, agent: str, body: AgentState, born: float = 0.0) -> Offer | None:
        """Take a birth certificate; the offer when it is news (another incarnation, another offer, or was down).

        `born` is when the agent's process began by its own clock, seconds since the epoch; 0: it did not say. A
        coordinator that meets an agent which was up before takes it for the beginning, unless it lies in the future, or
        farther back than `FleetLimits.longest_up`.
        """
        offer = _offer(body)
        known = self._agents.get(agent)
        now = self._wall()
        if known is None:
            size = _size(offer)
            if not self._make_room(size):
                self.refused += 1
                return None
            self._meet(agent, KnownAgent("up", body.incarnation, body.software, offer, self._since(born), now, size))
            return offer
        is_news = (known.status, known.incarnation, known.offer) != ("up", body.incarnation, offer)
        known.seen = now
        if not is_news:
            return None
        self._count(known)
        size = _size(offer)
        if size > known.size and self._size + size - known.size > self._limits.columns_bytes:
            self.refused += 1
            return None
        self._size += size - known.size
        known.size = size
        known.status, known.incarnation, known.software, known.offer = "up", body.incarnation, body.software, offer
        known.since = now
        return offer

    def down(self, agent: str, incarnation: str | None, software: str = "", born: float = 0.0) -> bool:
        """Take a last will; False when it is not news, or is the will of an earlier process of a living agent.

        An agent that was not known is remembered as down while there is room: the broker kept its will over a restart
        of the coordinator. When it went is not known; it is down since now, and was seen when it began.

        Parameters
        ----------
        agent : str
        incarnation : str or None
            None: its retained state was cleared; nobody need remember it.
        software : str
        born : float
            As for `up`.
        """
        known = self._agents.get(agent)
        if known is None:
            limits = self._limits
            if incarnation is not None and len(self._agents) < limits.agents and self._size <= limits.columns_bytes:
                self._meet(agent, KnownAgent("down", incarnation, software, Offer(), self._wall(), self._since(born)))
            return False
        if known.status == "down":
            return False
        if incarnation is not None and incarnation != known.incarnation:
            return False
        self._count(known)
        known.status, known.since = "down", self._wall()
        return True

    def _since(self, born: float) -> float:
        now = self._wall()
        return born if born > 0 and now - self._limits.longest_up <= born <= now else now

    def _meet(self, agent: str, known: KnownAgent) -> None:
        known.turns, known.counted = self._limits.burst - 1.0, self._clock()
        self._agents[agent] = known
        self._size += known.size

    def _count(self, known: KnownAgent) -> None:
        now = self._clock()
        gained = self._limits.per_minute / 60.0 * (now - known.counted)
        known.turns = min(float(self._limits.burst), known.turns + gained) - 1.0
        known.counted = now

    def _make_room(self, size: int) -> bool:
        """Forget agents that are down, the longest first, until one more fits."""
        limits = self._limits
        if len(self._agents) < limits.agents and self._size + size <= limits.columns_bytes:
            return True
        down = sorted((known.since, agent) for agent, known in self._agents.items() if known.status == "down")
        # A tenth at once: a full table is not sorted for every newcomer.
        keep = max(0, min(limits.agents - 1, len(self._agents) - max(1, limits.agents // 10)))
        for _, agent in down:
            if len(self._agents) <= keep and self._size + size <= limits.columns_bytes:
                break
            self._size -= self._agents.pop(agent).size
        return len(self._agents) < limits.agents and self._size + size <= limits.columns_bytes

    def heard(self, agent: str) -> None:
        """Note a sign of life: any message of a known agent."""
        known = self._agents.get(agent)
        if known is not None:
            known.seen = self._wall()

    def evaluated(self, agent: str, body: Evaluation) -> None:
        """Remember the scores of a known agent for a model version (the newest, bounded)."""
        known = self._agents.get(agent)
        if known is None:
            return
        known.evaluations[body.name, body.version] = body.model_dump(mode="json")
        while len(known.evaluations) > self._limits.evaluations:
            known.evaluations.pop(next(iter(known.evaluations)))

    def evaluations(self, name: str, version: int) -> dict[str, dict[str, Any]]:
        """Return scores of one model version, by agent."""
        found = {agent: known.evaluations.get((name, version)) for agent, known in sorted(self._agents.items())}
        return {agent: scores for agent, scores in found.items() if scores is not None}

    def offers(self) -> dict[str, Offer]:
        """Return the agents that are up."""
        return {agent: known.offer for agent, known in self._agents.items() if known.status == "up"}

    def counts(self) -> dict[str, int]:
        """Return how many agents are up and down; from any thread."""
        return dict(Counter(known.status for known in list(self._agents.values())))

    def document(self) -> list[dict[str, Any]]:
        """Return all agents as JSON values."""
        return [
            {
                "agent": agent,
                "status": known.status,
                "incarnation": known.incarnation,
                "software": known.software,
                **known.offer.to_value(),
                "since": known.since,
                "seen": known.seen,
            }
            for agent, known in sorted(self._agents.items())
        ]


def _offer(body: AgentState) -> Offer:
    return Offer(frozenset(body.schemes), tuple(body.features), body.target)


def _size(offer: Offer) -> int:
    return sum(len(name) for name in (*offer.schemes, *offer.features, offer.target))
