"""Agents that came up and may not have been told what is open. Pure.

Most brokers give what is retained to whoever subscribes; RabbitMQ does not when the subscription has a wildcard. Then
an agent that was never connected knows neither the open requests nor the models. So the coordinator publishes both
again when agents have come up, at most once in a while; unless the broker has shown, on this connection, that it needs
no help: the coordinator's own subscriptions have wildcards, too.
"""

from __future__ import annotations

PAUSE = 1.0
"""Seconds between two repetitions: a fleet that starts comes within some, and each repetition goes to all agents."""


class Rebroadcast:
    """Who came since the last repetition, and when the next is due.

    Attributes
    ----------
    due : float or None
        When to repeat, on the caller's clock.
    wildcards_work : bool
        Whether something retained has come through a subscription with a wildcard.
    """

    def __init__(self) -> None:
        self._agents: set[str] = set()
        self.due: float | None = None
        self.wildcards_work = False

    def connected(self) -> None:
        """Forget what the broker has shown: it may be another one behind the same address."""
        self.wildcards_work = False

    def add(self, agent: str, at: float) -> None:
        """Note that an agent came up at `at`."""
        if self.wildcards_work:
            return
        self._agents.add(agent)
        if self.due is None:
            self.due = at + PAUSE

    def is_due(self, at: float) -> bool:
        """Whether to repeat now; never once the broker has shown that there is no need."""
        if self.wildcards_work:
            self._agents.clear()
            self.due = None
        return self.due is not None and self.due <= at

    def pop_agents(self) -> set[str]:
        """Return who came; the next repetition is due a pause after the next of them."""
        agents, self._agents, self.due = self._agents, set(), None
        return agents
