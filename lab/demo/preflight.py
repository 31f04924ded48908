"""A run in this process with the rows of a few vehicles: how many rounds it has, and how long an answer takes.

It places what will happen to the fleet (a kill after the last round is none), and the deadline: fifteen vehicles share
this machine's processors, which fifteen vehicles on the road do not.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edge_agent.sources import Source
from glassfleet import simulation
from glassfleet.contract.scheme import input_quantiles_of
from glassfleet.discovery import DiscoveryParameters, discover
from schemas.errors import GlassfleetError

DOMAIN_ROUNDS = 2
"""What the search for the domain takes, nearly always."""

MANY_ROUNDS = 30
"""An elastic run of so many rounds is shown at a quick pace: it waits for laggards again and again."""


@dataclass(frozen=True)
class Preflight:
    """What was learned from it.

    Attributes
    ----------
    rounds : int
        The search for the domain included; at most as many as were asked for.
    seconds : float
        The longest that one vehicle worked on an answer.
    """

    rounds: int
    seconds: float


def run_preflight(scheme: Any, parameters: Any, rows: Sequence[Source], seed: int, *, at_most: int) -> Preflight:
    """Learn from `rows` for at most `at_most` rounds; a run that fails here is left to fail by name in the fleet."""
    data = {f"vehicle-{number}": part.train for number, part in enumerate(rows)}
    first = data["vehicle-0"]
    labels = first.y.dtype.kind in "UO"
    short = _Short(scheme, at_most - DOMAIN_ROUNDS)
    with contextlib.suppress(_Enough, GlassfleetError):
        wanted = DiscoveryParameters(
            features=first.features,
            target=first.target,
            input_quantiles=input_quantiles_of(scheme, labels=labels),
            labels=labels,
        )
        simulation.federated(short, parameters, discover(wanted, [*data.values()]), data, seed)
    return Preflight(DOMAIN_ROUNDS + short.rounds, short.seconds)


def tempo(preflight: Preflight, vehicles: int, participation: str) -> tuple[float, float]:
    """Return pace and deadline, in seconds, at which a run can be watched and nobody is late for want of CPU."""
    is_quick = participation == "elastic" and preflight.rounds >= MANY_ROUNDS
    # The longest, too: an answer that is long once (a first import, a first population) must not slow every round.
    pace, shortest, longest = (0.05, 0.8, 2.5) if is_quick else (0.2, 2.5, 12.0)
    together = preflight.seconds * vehicles / (os.cpu_count() or 1)
    return pace, min(longest, max(shortest, round(pace + 0.3 + 2.0 * together, 1)))


class _Enough(Exception):  # noqa: N818 - a signal, not an error
    """So many rounds were counted as were asked for."""


class _Short:
    """A scheme, its client and its server in one, that counts rounds and seconds and stops after `at_most` rounds."""

    def __init__(self, scheme: Any, at_most: int) -> None:
        self.rounds = 0
        self.seconds = 0.0
        self.name = scheme.name
        self.client = self
        self.server = self
        self._client, self._server = scheme.client, scheme.server
        self._at_most = at_most

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def contribute(self, task: Any, data: Any, rng: Any) -> Any:
        began = time.perf_counter()
        answer = self._client.contribute(task, data, rng)
        self.seconds = max(self.seconds, time.perf_counter() - began)
        return answer

    def reduce(self, state: Any, contributions: Any) -> Any:
        self.rounds += 1
        if self.rounds >= self._at_most:
            raise _Enough
        return self._server.reduce(state, contributions)
