"""What travels: the three questions of FedGA, and reading them without trust."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from glassfleet.contract.messages import Task
from glassfleet.contract.tasks import (
    Remembered,
    SchemeQuestion,
    check_class_order,
    check_integer,
    read_task_head,
    task_errors,
    task_head,
)
from glassfleet.crisp import Forest
from glassfleet.errors import TaskError
from glassfleet.schemes.fedga.params import MAX_DEPTH, MAX_STRUCTURES, FedgaParameters

NAME = "fedga"
Kind = Literal["depth", "local", "candidates"]
KINDS: tuple[Kind, ...] = ("depth", "local", "candidates")


@dataclass(frozen=True)
class FedgaQuestion(SchemeQuestion):
    """A task of this scheme, read and checked; see :class:`~glassfleet.contract.tasks.SchemeQuestion`.

    Attributes
    ----------
    kind : {"depth", "local", "candidates"}
        How deep would you go; which structure do you grow; how good are these structures.
    seed : int
        Of the vehicles' splits into folds, and into fitting and scoring rows. Not of any privacy noise.
    depth : int
        Of the trees; 0 where it is still asked for.
    generation : int
        Of the candidates.
    fit_on_all : bool
        Fit and score on all rows.
    forest : Forest or None
        The candidates.
    """

    kind: Kind
    parameters: FedgaParameters
    seed: int
    depth: int = 0
    generation: int = 0
    fit_on_all: bool = False
    forest: Forest | None = None

    @property
    def positive(self) -> int | None:
        """Class whose F1 is the fitness: the second of two; None: the mean over the classes, or no classes at all."""
        return 1 if len(self.domain.classes) == 2 else None

    def to_task(self) -> Task:
        """Return the task that asks this."""
        body: dict[str, Any] = {**task_head(self.parameters, self.domain), "seed": self.seed}
        if self.kind != "depth":
            body["depth"] = self.depth
        if self.forest is not None:
            body["generation"] = self.generation
            body["fit_on_all"] = self.fit_on_all
            body["structures"] = self.forest.to_value(self.n_features)
        return Task(NAME, self.kind, body)

    @classmethod
    def from_task(cls, task: Task) -> FedgaQuestion:
        """Read `task`; raises :class:`TaskError` with the reason, and nothing else, whatever it holds."""
        kind, parameters, domain = read_task_head(task, NAME, KINDS, FedgaParameters)
        body = task.body
        with task_errors():
            check_class_order(domain)
            seed = check_integer("seed", body["seed"], 0, 2**63 - 1)
            if kind == "depth":
                return cls(kind, parameters, domain, seed)
            depth = check_integer("depth", body["depth"], 1, MAX_DEPTH)
            if kind == "local":
                return cls(kind, parameters, domain, seed, depth)
            generation = check_integer("generation", body["generation"], 0, 2**31)
            if not isinstance(body["fit_on_all"], bool):
                raise TaskError("fit_on_all must be true or false")
            forest = Forest.from_value(body["structures"], len(domain.features), depth, MAX_STRUCTURES)
        return cls(kind, parameters, domain, seed, depth, generation, body["fit_on_all"], forest)


read_task = Remembered(FedgaQuestion.from_task)
"""``FedgaQuestion.from_task``, once for each task."""
