"""When an agent says again that it is up because a coordinator came that may not have heard it. Pure.

A broker keeps birth certificates for whoever subscribes later, but some (RabbitMQ) do not give what they keep to a
subscription with a wildcard, which the coordinator's is. So each life of a coordinator is greeted once. The greetings
of a fleet are spread over a while, each agent at its own, unchanging share of it.
"""

from __future__ import annotations

import hashlib

from schemas.messages import CoordinatorState

SPREAD = 1.0
"""Seconds: the births of ten thousand agents are a stream then, and a run waits for nobody longer than usual."""


class Hail:
    """Which life of the coordinator this agent has been heard by.

    Parameters
    ----------
    own : str
        Incarnation of this process; its hash is the agent's place within `spread`.
    spread : float
        Seconds, >= 0.
    """

    def __init__(self, own: str, spread: float = SPREAD) -> None:
        share = int.from_bytes(hashlib.sha256(own.encode()).digest()[:4], "big") / 2**32
        self._wait = spread * share
        self._seen = ""

    def sees(self, state: CoordinatorState, *, known: bool) -> float | None:
        """Take a coordinator's state; the seconds after which to publish the birth certificate again, or None.

        Parameters
        ----------
        state : CoordinatorState
        known : bool
            The broker had it stored: that coordinator was there before us, and hears the birth that we publish anyway.
        """
        if state.status != "up" or state.incarnation == self._seen:
            return None
        is_first, self._seen = not self._seen, state.incarnation
        return None if known and is_first else self._wait
