"""tree: the blended model tree, few rules with linear models fitted together. See README.md in this folder."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from glassfleet.contract.messages import COLUMNS, SUPPORT, Task
from glassfleet.contract.scheme import Cost, Participation, Purpose
from glassfleet.contract.sums import SumScheme
from glassfleet.schemes.tree.checks import most_bytes, shapes_of
from glassfleet.schemes.tree.client import CLIENT
from glassfleet.schemes.tree.messages import read_task
from glassfleet.schemes.tree.model import FuzzyClassTree, FuzzyTree, from_document, tables
from glassfleet.schemes.tree.params import Parameters
from glassfleet.schemes.tree.regressions import regressions
from glassfleet.schemes.tree.server import SERVER


class TreeScheme(SumScheme):
    """The scheme, as the catalogue knows it."""

    name = "tree"
    title = "Blended model tree"
    purpose: frozenset[Purpose] = frozenset({"regression", "classification"})
    # Rules are fitted together, from sums of several rounds: all must rest on the same vehicles.
    participation: frozenset[Participation] = frozenset({"cohort"})
    categorical = True
    missing_cells = True
    excess = True
    # Linear rules of a number still go on where the usual 2.5 and 97.5 % would clip.
    input_quantiles = (0.001, 0.999)
    Parameters: type[BaseModel] = Parameters
    trial = Parameters(max_rules=8)
    client = CLIENT
    server = SERVER
    tables = staticmethod(tables)
    regressions = staticmethod(regressions)
    from_document = staticmethod(from_document)

    def layout(self, task: Task) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the sums of an answer to `task`, one of a private run; raises TaskError."""
        return shapes_of(read_task(task))

    def most_told(self, task: Task) -> int:
        """Return at which number the counts of an answer to a question of support end."""
        return read_task(task).most_told

    def most_bytes(self, parameters: Any, inputs: int, classes: int) -> tuple[int, str]:
        """Return how many bytes the largest answer of a run can have, and how to make it smaller."""
        return most_bytes(parameters, inputs, classes), "fewer rules (max_rules), fewer inputs, or compact"

    def cost(self, task: Task, rows: int) -> Cost:
        """Return what an answer may take: at most, every row reaches every leaf asked about."""
        question = read_task(task)
        terms, leaves, scored = question.width, len(question.tree.leaves), question.columns * (1 + question.targets)
        if question.kind in ("levels", COLUMNS, "scan"):
            terms = 4 * terms
        elif question.kind == "bins":
            own = 2 * scored * (2 + len(question.features)) * len(question.leaves)
            terms = 5 * terms * 2 * question.latest + terms * len(question.pairs) + own
        elif question.kind == SUPPORT:
            counted = len(question.leaves) * len(question.features) + len(question.tree.overlaps)
            terms = 10 * counted * len(question.least_of)
        elif question.kind == "bands":
            of_bands = 2 * scored * question.parameters.bins * len(question.features)
            terms = (5 * terms + of_bands) * len(question.leaves)
        elif question.kind == "joint":
            terms = 5 * terms * len(question.tree.overlaps)
        elif question.kind == "newton":
            terms = (5 + question.targets * (question.targets + 1)) * terms * leaves
        else:
            terms = 5 * terms * leaves + terms * 2 * len(question.candidates)
        seconds = 5e-4 * (1 + leaves) + 1e-9 * rows * (100 * question.n_inputs + 20 * question.tree.size + terms)
        numbers = rows * (2 * question.n_inputs + question.tree.size + scored) + 4 * terms
        return Cost(seconds, 8e-6 * numbers + 8.0)


SCHEME = TreeScheme()

__all__ = ["SCHEME", "FuzzyClassTree", "FuzzyTree", "Parameters", "TreeScheme"]
