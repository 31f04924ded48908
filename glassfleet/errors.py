"""What a scheme raises when it cannot use what a peer sent."""

from __future__ import annotations


class ContributionError(ValueError):
    """A contribution that cannot be true or does not fit its task. The text is the reason sent to the agent."""


class TaskError(ValueError):
    """A task that this client cannot answer, e.g. it asks for a column that the vehicle lacks."""
