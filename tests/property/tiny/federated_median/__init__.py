"""A tiny scheme for the simulator: the fleet's median target by bisection. Each task depends on all answers before it.

So a member that is lost in the fourth round changes the course of the run if, and only if, its rows turned one of the
first three steps. Replays and restarts happen as with a tree, at a hundredth of the cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import Field

from glassfleet.contract.messages import Contribution, Done, Next, Task
from glassfleet.contract.sums import SumScheme, ask, taken_up
from glassfleet.contract.tasks import SchemeQuestion, read_task_head, task_errors, task_head
from glassfleet.data.dataset import Dataset
from glassfleet.data.documents import RunParameters, document_of
from glassfleet.data.domain import Domain
from schemas.errors import DocumentError


class MedianParameters(RunParameters):
    rounds: int = Field(default=4, ge=1, le=20)


@dataclass(frozen=True)
class FederatedMedian:
    parameters: MedianParameters
    domain: Domain
    median: float
    rows: int
    """Makes every cohort's model a model of its own."""

    scheme: str = "federated_median"

    def to_document(self) -> dict[str, Any]:
        found = {"median": self.median, "rows": self.rows}
        return document_of(self.scheme, 1, self.parameters, self.domain, found)


@dataclass(frozen=True)
class MedianQuestion(SchemeQuestion):
    low: float
    high: float
    done: int

    @property
    def guess(self) -> float:
        return (self.low + self.high) / 2

    def to_task(self) -> Task:
        place = {"low": self.low, "high": self.high, "done": self.done}
        return Task("federated_median", self.kind, task_head(self.parameters, self.domain) | place)


class MedianScheme(SumScheme[MedianQuestion]):
    name, title, purpose, kinds = "federated_median", "Federated median", frozenset({"regression"}), ("below",)
    Parameters = MedianParameters

    def first(self, parameters: Any, domain: Domain, seed: int) -> Next:
        return ask(MedianQuestion("below", parameters, domain, 0.0, 1.0, 0), {})

    def read(self, task: Task) -> MedianQuestion:
        head = read_task_head(task, self.name, self.kinds, MedianParameters)
        with task_errors():
            return MedianQuestion(*head, task.body["low"], task.body["high"], task.body["done"])

    def shapes(self, question: MedianQuestion) -> Mapping[str, tuple[int, ...]]:
        return {"below": (1,)}

    def answer(self, question: MedianQuestion, data: Dataset) -> Contribution:
        below = np.count_nonzero(question.domain.scale_target(data.y) <= question.guess)
        return Contribution("below", data.rows, {"below": np.array([below])})

    def step(self, question: MedianQuestion, memory: Any, contributions: Sequence[Contribution]) -> Next | Done:
        rows, sums, memory = taken_up(memory, contributions, self.max_rows(question.parameters))
        is_below = 2 * int(sums["below"][0]) >= rows
        low, high = (question.low, question.guess) if is_below else (question.guess, question.high)
        after = replace(question, low=low, high=high, done=question.done + 1)
        if after.done < question.parameters.rounds:
            return ask(after, memory)
        return Done(FederatedMedian(question.parameters, question.domain, after.guess, rows), memory)

    def from_document(self, document: Mapping[str, Any]) -> Any:
        raise DocumentError("nobody reads it: these vehicles have no test rows")


SCHEME = MedianScheme()
