"""Agents in the order of id; many are, and they are looked up at every message."""

from __future__ import annotations

from bisect import bisect_left


def holds(agents: tuple[str, ...], agent: str) -> bool:
    """Whether an agent is among those in the order of id."""
    at = bisect_left(agents, agent)
    return at < len(agents) and agents[at] == agent


def inserted(agents: tuple[str, ...], agent: str) -> tuple[str, ...]:
    """Return agents in the order of id, with `agent` among them."""
    at = bisect_left(agents, agent)
    return agents if holds(agents, agent) else (*agents[:at], agent, *agents[at:])
