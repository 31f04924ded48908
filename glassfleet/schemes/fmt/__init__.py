"""FMT: the fuzzy model tree, few rules with linear models, from exact sums. See README.md in this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from glassfleet.aggregate import SumScheme
from glassfleet.errors import TaskError
from glassfleet.fuzzy.levels import needs_levels
from glassfleet.private.support import no_texts
from glassfleet.scheme import SUPPORT, Contribution, Cost, Participation, Purpose, Task
from glassfleet.schemes.fmt.checks import shapes_of
from glassfleet.schemes.fmt.client import CLIENT
from glassfleet.schemes.fmt.grow import moments
from glassfleet.schemes.fmt.messages import read_task
from glassfleet.schemes.fmt.model import FuzzyModelTree
from glassfleet.schemes.fmt.params import Parameters
from glassfleet.schemes.fmt.server import SERVER


class FederatedModelTree(SumScheme):
    """The scheme, as the catalogue knows it."""

    name = "fmt"
    title = "Fuzzy model tree"
    purpose: frozenset[Purpose] = frozenset({"regression"})
    # A node's sums are its parent's less its sibling's: all rounds must rest on the same vehicles.
    participation: frozenset[Participation] = frozenset({"cohort"})
    categorical = True
    missing_cells = True
    # The usual 2.5 and 97.5 % would clip one row in twenty of each input, where linear rules still go on.
    input_quantiles = (0.001, 0.999)
    Parameters: type[BaseModel] = Parameters
    trial = Parameters(max_rules=8)
    client = CLIENT
    server = SERVER
    tables = staticmethod(FuzzyModelTree.tables)
    from_document = staticmethod(FuzzyModelTree.from_document)

    def regressions(self, answers: Sequence[tuple[Task, Contribution]]) -> NDArray[np.float64] | None:
        """Return the moment matrices over ``[1, x, y]`` of the final leaves, shape (k, k, L), of one vehicle's rows."""
        for task, answer in answers:
            if task.kind == "leaves":
                return moments(answer.sums["gram"], len(read_task(task).columns) + 2)
        return None

    def layout(self, task: Task) -> Mapping[str, tuple[int, ...]]:
        """Return names and shapes of the sums of an answer to `task`, one of a private run; raises TaskError."""
        question = read_task(task)
        if needs_levels(question.domain):
            raise TaskError(no_texts(self.name))
        return shapes_of(question)

    def most_told(self, task: Task) -> int:
        """Return at which number the counts of an answer to a question of support end."""
        return read_task(task).most_told

    def cost(self, task: Task, rows: int) -> Cost:
        """Return what an answer may take: at most, every row reaches every node asked about."""
        question = read_task(task)
        inputs, nodes, cuts = question.n_inputs, 1, 0
        lines, calls = 5 * question.width, 1  # work for each row and node, and for each node alone
        if question.kind == "grow":
            nodes, cuts = len(question.nodes), len(question.cuts)
            lines, calls = lines + cuts * (40 + question.width // 2), cuts
        elif question.kind == SUPPORT:
            nodes, layers = len(question.children), len(question.least_of)
            lines = calls = len(question.split_features) * (40 * (1 + question.tree.depth) + 4 * layers)
            cuts = layers * len(question.split_features) * question.n_cells // question.width
        elif question.kind == "leaves":
            nodes = len(question.asked_leaves)
        elif question.kind == "sizes":
            assert question.coefficients is not None
            nodes = question.tree.size
            lines = calls = len(question.coefficients) * (8 + len(question.regressors))
        seconds = 2e-5 * (question.tree.size + nodes * calls) + 1e-9 * rows * (100 * inputs + nodes * (20 + lines))
        return Cost(seconds, 8e-6 * (rows * (2 * inputs + nodes) + nodes * question.width * (1 + cuts)))


SCHEME = FederatedModelTree()

__all__ = ["SCHEME", "FederatedModelTree", "FuzzyModelTree", "Parameters"]
