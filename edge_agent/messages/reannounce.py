"""When an agent announces itself again because a new coordinator came, with its last scores. Pure.

The former one may have been killed after it took a message and before it wrote it down; answers have receipts, births
and scores have none. So each agent announces itself once to each life of a coordinator. The announcements of a fleet
are spread over a while, each agent at its own, unchanging share of it.
"""

from __future__ import annotations

import hashlib

from schemas.messages import CoordinatorState

SPREAD = 1.0
"""Seconds: the births of ten thousand agents are a stream then, and a run waits for nobody longer than usual."""


class Reannouncer:
    """Knows the life of the coordinator to which this agent has announced itself.

    Parameters
    ----------
    own : str
        Incarnation of this process; its hash is the agent's place within `SPREAD`.
    """

    def __init__(self, own: str) -> None:
        share = int.from_bytes(hashlib.sha256(own.encode()).digest()[:4], "big") / 2**32
        self._wait = SPREAD * share
        self._seen = ""

    def delay(self, state: CoordinatorState, *, was_retained: bool) -> float | None:
        """Return the seconds after which to announce ourselves again; None: this coordinator knows us.

        Parameters
        ----------
        state : CoordinatorState
            As it was read now.
        was_retained : bool
            The broker had it stored: that coordinator was there before us, and hears the birth that we publish anyway.
        """
        if state.status != "up" or state.incarnation == self._seen:
            return None
        is_first, self._seen = not self._seen, state.incarnation
        return None if was_retained and is_first else self._wait
