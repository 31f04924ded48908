"""Which vehicles take part where some do: a seeded hash of the agent's id, so that a share of any fleet is short."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection

ALL = 2**32
"""The threshold below which every agent lies."""


def place(salt: str, agent: str) -> int:
    """Return an agent's place in a rollout, 0 to 2^32 - 1: the first 32 bits of SHA-256 over salt, NUL, agent id."""
    return int.from_bytes(hashlib.sha256(salt.encode() + b"\x00" + agent.encode()).digest()[:4], "big")


def place_in_sample(salt: str, agent: str) -> str:
    """Return an agent's place in the sample of a round: SHA-256 (hex) over salt, slash, agent id."""
    return hashlib.sha256(f"{salt}/{agent}".encode()).hexdigest()


def threshold(salt: str, agents: Collection[str], share: float) -> int:
    """Return the place below which a share of these agents lies, at least one of them.

    Parameters
    ----------
    agents : collection of str
        The agents that are there; empty: the share of all ids.
    share : float
        In (0, 1]; 1 is everyone, whoever comes later too.
    """
    if share >= 1:
        return ALL
    if not agents:
        return max(1, int(share * ALL))
    places = sorted(place(salt, agent) for agent in agents)
    # A share is a decimal number; 0.2 of 15 is 3, though the product of the floats is above it.
    count = max(1, math.ceil(share * len(places) - 1e-9))
    return places[min(count, len(places)) - 1] + 1
