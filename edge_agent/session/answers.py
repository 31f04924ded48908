"""Answers to rounds: from the run's snapshot of the rows and the task alone, through the scheme's client half.

Nothing can interrupt the agent's loop while it computes. So it computes by itself only what takes a moment; all else is
computed in a process of its own (``edge_agent.worker``), which ends when the answer is no longer wanted, and
has a limit of time and of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from edge_agent import worker
from edge_agent.session.accounts import WatchStore
from edge_agent.session.events import RequestSeen
from edge_agent.session.private import PRIVATE, PrivateAnswers
from edge_agent.session.snapshots import Snapshot, Snapshots, condense_key, noise_key, privacy_generator
from edge_agent.worker import Budget, WorkItem
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.rows import drawn_for
from glassfleet.contract.scheme import Client
from glassfleet.data.dataset import Dataset
from glassfleet.errors import TaskError
from glassfleet.evaluation.scores import SCORES
from glassfleet.private.pairs import PAIRS
from schemas.codec import document_digest
from schemas.errors import DocumentError
from schemas.messages import ContributionBody

DOMAIN = "domain"
"""Scheme name of domain discovery, which every agent can run."""


LIGHT_CELLS = 50_000
"""Training rows times inputs: from so few a model is learned and scored in about a second."""


class Answerer:
    """Computes answers.

    Parameters
    ----------
    snapshots : Snapshots
    secret : bytes
        The agent's: privacy noise is drawn from it.
    most_bytes : int
        Of an answer, as the outbox can keep it.
    budget : Budget
        Time and memory that an answer may take.
    private : PrivateAnswers
    tests : callable
        Returns the vehicle's test rows.
    score : callable
        Answers the task of scores, see `edge_agent.models.summed.answered`.
    watched : WatchStore
        What is remembered of models that were scored.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        secret: bytes,
        private: PrivateAnswers,
        *,
        tests: Callable[[], Dataset],
        score: Callable[..., dict[str, Any]],
        watched: WatchStore,
        most_bytes: int,
        budget: Budget,
    ) -> None:
        self._snapshots = snapshots
        self._secret = secret
        self._most_bytes = most_bytes
        self._budget = budget
        self._private = private
        self._tests = tests
        self._score = score
        self._watched = watched

    def snapshot(self, run: str, rows: Dataset) -> Snapshot:
        """Return the rows that `run` is answered from; raises StorageError."""
        return self._snapshots.of_run(run, rows)

    def has_snapshot(self, run: str) -> bool:
        """Whether the rows that `run` is answered from are chosen already."""
        return self._snapshots.path(run).exists()

    def drop(self, run: str) -> None:
        """Forget the rows of a run that is over."""
        self._private.end(run)
        self._snapshots.drop(run)

    def is_light(self, task: Task, snapshot: Snapshot) -> bool:
        """Whether the answer takes a moment, so that `compute` gives it; else `start` does.

        Raises
        ------
        TaskError
            The task cannot be read, or takes longer than this vehicle allows, however fast it computes.
        """
        if task.scheme in {PRIVATE, PAIRS.name}:
            return True
        if task.scheme == SCORES.name:
            return snapshot.data.X.size <= LIGHT_CELLS
        cost = _owner_of(task.scheme).abilities.cost(task, snapshot.data.rows)
        if cost is not None and cost.least > self._budget.seconds:
            least = float(f"{cost.least:.0e}")  # rough, so that vehicles of about the same size give one reason
            raise TaskError(f"{self._budget.exceeded_time()}; this needs {least:.0f} or more")
        return cost is not None and cost.fits(worker.LIGHT)

    def compute(self, asked: RequestSeen, snapshot: Snapshot) -> ContributionBody:
        """Answer a task here and now.

        Raises
        ------
        TaskError
            It cannot be answered here; the text says why.
        """
        task = asked.task
        if task.scheme == PRIVATE:
            return self._private.announce(asked, snapshot)
        if task.scheme == PAIRS.name:
            return self._private.masked(asked, snapshot, None)
        if task.scheme == SCORES.name:
            tests = self._snapshots.tests_of_run(asked.run, self._tests())
            return self.body(asked, snapshot, self._score(task, snapshot.data, tests, **self._watch(asked)))
        data = replace(snapshot.data, key=condense_key(self._secret))
        posed, noise = self._posed(asked, snapshot)
        return self.body(asked, snapshot, answer(posed, data, noise))

    def start(self, asked: RequestSeen, snapshot: Snapshot) -> WorkItem:
        """Begin to answer a task in a process of its own, from the snapshot of its run; raises StorageError."""
        task, noise = self._posed(asked, snapshot)
        given: dict[str, Any] = {"task": task.to_value(), "noise": noise, "condense": condense_key(self._secret)}
        rows = [self._snapshots.path(asked.run)]
        if task.scheme == SCORES.name:
            self._snapshots.tests_of_run(asked.run, self._tests())
            rows.append(self._snapshots.test_path(asked.run))
            given["watch"] = self._watch(asked)
        return WorkItem(self._budget, "answer", rows, given, most_bytes=self._most_bytes)

    def _posed(self, asked: RequestSeen, snapshot: Snapshot) -> tuple[Task, bytes]:
        """Return what the client is given, and the key of its noise: of a private run the question's, not the task's.

        Were it the task's, the difference of two editions' sums would have the noise of those who left, and no other.
        """
        task, digest = asked.task, asked.request.task_digest
        if asked.request.private is not None:
            task, digest = self._private.posed(asked, snapshot)
        return task, noise_key(self._secret, asked.run, digest)

    def _watch(self, asked: RequestSeen) -> dict[str, Any]:
        """Return what `edge_agent.models.summed.answered` takes beside rows."""
        body = asked.task.body
        try:
            digests = [document_digest(each) for each in (body.get("model"), body.get("champion")) if each]
        except DocumentError as fault:
            raise TaskError(f"the models to be scored are malformed: {fault}"[:200]) from fault
        known = self._watched.load().of(digests)
        return {"memory": known.to_value(), "run": asked.run, "is_masked": asked.request.private is not None}

    def body(self, asked: RequestSeen, snapshot: Snapshot, answered: dict[str, Any]) -> ContributionBody:
        """Return what is sent, from what `answer` returned; raises PrivacyError, TaskError and StorageError."""
        # First: an answer that was sent and not remembered would be compared with the same night again.
        if (memory := answered.pop("memory", None)) is not None:
            self._watched.take(memory)
        if asked.request.private is not None:
            contribution = Contribution.from_value(answered["contribution"])
            return self._private.masked(asked, snapshot, contribution)
        return ContributionBody(task_digest=asked.request.task_digest, data_digest=snapshot.digest, **answered)


def answer(task: Task, data: Dataset, noise: bytes) -> dict[str, Any]:
    """Return the number of rows and the contribution as a codec value; raises TaskError. Anywhere the same."""
    data = drawn_for(task, data)
    refuse_cells(task, data)
    contribution = client_of(task.scheme).contribute(task, data, privacy_generator(noise))
    return {"rows": data.rows, "contribution": contribution.to_value()}


def refuse_cells(task: Task, data: Dataset) -> None:
    """Raise TaskError where a scheme would take positions of categories for numbers, or knows no empty cells."""
    if task.scheme == DOMAIN:
        return
    scheme, domain = catalogue.load(task.scheme), task.body.get("domain")
    asked = domain.get("features", []) if isinstance(domain, dict) else []
    for feature in [each for each in asked if isinstance(each, dict)]:
        name = feature.get("name")
        if feature.get("missing") is not None and not scheme.abilities.missing_cells:
            raise TaskError(f"column {name!r} may have empty cells; scheme {task.scheme!r} takes none")
        if (feature.get("lowest"), feature.get("highest")) != (None, None) and not scheme.abilities.excess:
            raise TaskError(f"the line over {name!r} goes on beyond its limits; scheme {task.scheme!r} knows no such")
        if name in data.categories and not scheme.abilities.categories:
            raise TaskError(f"column {name!r} holds text here; scheme {task.scheme!r} takes numbers only")


def client_of(scheme: str) -> Client:
    """Return the client half of a scheme, or of domain discovery."""
    client: Client = _owner_of(scheme).client
    return client


def _owner_of(scheme: str) -> Any:
    if scheme == DOMAIN:
        # Imported when first asked: most starts of an agent are in the middle of a run.
        from glassfleet.discovery import DISCOVERY  # noqa: PLC0415

        return DISCOVERY
    return catalogue.load(scheme)
