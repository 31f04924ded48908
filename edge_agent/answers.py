"""Answers to rounds: from the run's frozen rows and the task alone, through the scheme's client half."""

from __future__ import annotations

from collections.abc import Callable

from edge_agent.freeze import Freezer, Frozen, privacy_generator
from glassfleet import catalogue
from glassfleet.data import Dataset
from glassfleet.draw import drawn_for
from glassfleet.memory import Memory, remember
from glassfleet.scheme import Client, Task, TaskError
from schemas.envelope import Envelope
from schemas.errors import BrokerError, DataError, UsageError
from schemas.messages import ContributionBody
from schemas.parts import frames_for_contribution
from schemas.topics import Topics

DOMAIN = "domain"
"""Scheme name of domain discovery, which every agent can run."""


class Answerer:
    """Computes answers.

    Parameters
    ----------
    topics : Topics
    freezer : Freezer
    secret : bytes
        The agent's: privacy noise is drawn from it.
    most_bytes : int
        Of an answer, as the outbox can keep it.
    """

    def __init__(self, topics: Topics, freezer: Freezer, secret: bytes, *, most_bytes: int) -> None:
        self._topics = topics
        self._freezer = freezer
        self._secret = secret
        self._most_bytes = most_bytes

    def freeze(self, run: str, rows: Dataset) -> Frozen:
        """Return the rows that `run` is answered from; raises StorageError."""
        return self._freezer.freeze(run, rows)

    def drop(self, run: str) -> None:
        """Forget the rows of a run that is over."""
        self._freezer.drop(run)

    def compute(self, run: str, digest: str, task: Task, frozen: Frozen) -> ContributionBody:
        """Answer a task.

        Raises
        ------
        TaskError
            It cannot be answered here; the text says why.
        """
        rng = privacy_generator(self._secret, run, digest)
        data = drawn_for(task, with_memory(task, frozen.data))
        refuse_text(task, data)
        contribution = client_of(task.scheme).contribute(task, data, rng)
        return ContributionBody(
            task_digest=digest,
            rows=data.rows,
            data_digest=frozen.digest,
            contribution=contribution.to_value(),
        )

    def pack(self, envelope: Envelope, limit: Callable[[], int]) -> bytes:
        """Encode an answer; raises TaskError for one that could never be sent or kept: nobody shall wait for it."""
        payload = envelope.to_bytes()
        if len(payload) > self._most_bytes:
            raise TaskError(f"the answer has {len(payload)} bytes; outbox_max_bytes is {self._most_bytes} here")
        if len(payload) > limit():
            try:
                frames_for_contribution(envelope, self._topics, limit())
            except (BrokerError, UsageError) as fault:
                raise TaskError(f"the answer is too large: {fault}") from fault
        return payload


def with_memory(task: Task, data: Dataset) -> Dataset:
    """Return the rows with the memory inputs that the task's run declares; raises TaskError when they cannot be had."""
    domain = task.body.get("domain")
    declared = task.body.get("memory") if task.scheme == DOMAIN else isinstance(domain, dict) and domain.get("memory")
    if not declared:
        return data
    try:
        return remember(data, Memory.from_document(declared))
    except (DataError, UsageError) as fault:
        raise TaskError(str(fault)) from fault


def refuse_text(task: Task, data: Dataset) -> None:
    """Raise TaskError where a scheme for numbers would take the positions of categories for numbers."""
    if not data.categories or task.scheme == DOMAIN or getattr(catalogue.load(task.scheme), "categorical", False):
        return
    domain = task.body.get("domain")
    asked = domain.get("features", []) if isinstance(domain, dict) else []
    for name in [feature.get("name") for feature in asked if isinstance(feature, dict)]:
        if name in data.categories:
            raise TaskError(f"column {name!r} holds text here; scheme {task.scheme!r} takes numbers only")


def client_of(scheme: str) -> Client:
    """Return the client half of a scheme, or of domain discovery."""
    if scheme == DOMAIN:
        # Imported when first asked: most starts of an agent are in the middle of a run.
        from glassfleet.discovery import DISCOVERY  # noqa: PLC0415

        return DISCOVERY.client
    return catalogue.load(scheme).client
