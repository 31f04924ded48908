"""Who is there: what the retained birth certificates and last wills say, and the scores that agents report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from coordinator.engine import Offer
from schemas.messages import AgentState, Evaluation

MAX_AGENTS = 100_000
"""Most agents that are remembered; beyond it, unknown ones are not taken in."""


@dataclass
class KnownAgent:
    """One agent as last seen."""

    status: str
    incarnation: str
    software: str
    offer: Offer
    since: float
    seen: float
    evaluations: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)


class Fleet:
    """All agents of the fleet.

    Parameters
    ----------
    wall : callable
        Wall clock, for displays.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._agents: dict[str, KnownAgent] = {}

    def up(self, agent: str, body: AgentState) -> Offer | None:
        """Take a birth certificate; the offer when it is news (another incarnation, another offer, or was down)."""
        offer = Offer(frozenset(body.schemes), tuple(body.features), body.target)
        known = self._agents.get(agent)
        now = self._wall()
        if known is None:
            if len(self._agents) >= MAX_AGENTS:
                return None
            self._agents[agent] = KnownAgent("up", body.incarnation, body.software, offer, now, now)
            return offer
        is_news = (known.status, known.incarnation, known.offer) != ("up", body.incarnation, offer)
        known.seen = now
        if not is_news:
            return None
        known.status, known.incarnation, known.software, known.offer = "up", body.incarnation, body.software, offer
        known.since = now
        return offer

    def down(self, agent: str, incarnation: str | None) -> bool:
        """Take a last will; False when it is not news, or is the will of an earlier process of a living agent."""
        known = self._agents.get(agent)
        if known is None or known.status == "down":
            return False
        if incarnation is not None and incarnation != known.incarnation:
            return False
        known.status, known.since = "down", self._wall()
        return True

    def evaluated(self, agent: str, body: Evaluation) -> None:
        """Remember the scores of a known agent for a model version (the last 64)."""
        known = self._agents.get(agent)
        if known is None:
            return
        known.evaluations[body.name, body.version] = body.model_dump(mode="json")
        while len(known.evaluations) > 64:
            known.evaluations.pop(next(iter(known.evaluations)))

    def evaluations(self, name: str, version: int) -> dict[str, dict[str, Any]]:
        """Return scores of one model version, by agent."""
        found = {agent: known.evaluations.get((name, version)) for agent, known in sorted(self._agents.items())}
        return {agent: scores for agent, scores in found.items() if scores is not None}

    def offers(self) -> dict[str, Offer]:
        """Return the agents that are up."""
        return {agent: known.offer for agent, known in self._agents.items() if known.status == "up"}

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
