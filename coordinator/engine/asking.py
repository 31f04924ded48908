"""Whom to ask: the columns of a run, who can answer, and the sample among them. Functions of a run's state."""

from __future__ import annotations

import hashlib
from collections import Counter

from coordinator.engine import learning
from coordinator.engine.state import Offer, RunState
from glassfleet.memory import recalled_names


def columns(state: RunState) -> tuple[tuple[str, ...], str]:
    """Settle the run's columns: as declared, else as most agents that can run the scheme offer them."""
    spec = state.spec
    if spec.domain is not None:
        return spec.domain.names, spec.domain.target_name
    if spec.features is not None and spec.target is not None:
        return recalled_names(spec.memory, spec.features), spec.target
    votes: Counter[tuple[tuple[str, ...], str]] = Counter()
    for offer in _offers(state).values():
        target = spec.target or offer.target
        if spec.target is not None and offer.target not in ("", spec.target):
            continue
        if spec.features is not None and not set(spec.features) <= set(offer.features):
            continue
        features = spec.features or tuple(name for name in offer.features if name != target)
        if features and target:
            votes[recalled_names(spec.memory, features), target] += 1
    if not votes:
        return (), ""
    most = max(votes.values())
    return min(choice for choice, count in votes.items() if count == most)


def able(state: RunState) -> tuple[str, ...]:
    """Return the agents that are up and offer scheme and columns, in the order of id."""
    memory = state.spec.memory_inputs
    features = set(state.features) if memory is None else memory.needed(state.features)
    return tuple(
        sorted(
            agent
            for agent, offer in _offers(state).items()
            if (not offer.features or features <= set(offer.features)) and offer.target in ("", state.target)
        )
    )


def sample(agents: tuple[str, ...], number: float | None, salt: str) -> tuple[str, ...]:
    """Choose agents by the order of their salted hashes: even, and the same whenever it is computed again."""
    assert number is not None
    ranked = sorted(agents, key=lambda agent: hashlib.sha256(f"{salt}/{agent}".encode()).digest())
    return tuple(sorted(ranked[: learning.share(number, len(agents))]))


def _offers(state: RunState) -> dict[str, Offer]:
    return {agent: offer for agent, offer in state.agents.items() if state.spec.scheme in offer.schemes}
