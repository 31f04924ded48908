"""FRT: the federated first-order fuzzy regression tree. See README.md in this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.scheme import Cost, Participation, Purpose
from glassfleet.contract.sums import SumScheme
from glassfleet.numerics.simplify import moments
from glassfleet.schemes.frt.checks import shapes_of
from glassfleet.schemes.frt.client import ROW_BLOCK, FrtClient
from glassfleet.schemes.frt.document import read_document
from glassfleet.schemes.frt.messages import read_task
from glassfleet.schemes.frt.model import FuzzyRegressionTree
from glassfleet.schemes.frt.params import Parameters
from glassfleet.schemes.frt.server import FrtServer


class FederatedRegressionTree(SumScheme):
    """The scheme, as the catalogue knows it."""

    name = "frt"
    title = "Fuzzy regression tree"
    purpose: frozenset[Purpose] = frozenset({"regression"})
    participation: frozenset[Participation] = frozenset({"cohort", "elastic"})
    Parameters: type[BaseModel] = Parameters
    client = FrtClient()
    server = FrtServer()
    tables = staticmethod(FuzzyRegressionTree.tables)

    def regressions(self, answers: Sequence[tuple[Task, Contribution]]) -> NDArray[np.float64] | None:
        """Return the moment matrices over ``[1, x, y]`` of the final leaves, shape (k, k, L), of one vehicle's rows."""
        for task, answer in reversed(answers):
            if task.kind == "leaves":
                question = read_task(task)
                return moments(answer.sums, question.gram_columns, question.parameters.gram_bits)
        return None

    def layout(self, task: Task) -> Mapping[str, tuple[int, ...]]:
        """Return names and shapes of the sums of an answer to `task`."""
        return shapes_of(read_task(task))

    def most_told(self, task: Task) -> int:
        """Return at which number the counts of an answer to a question of support end."""
        return read_task(task).most_told

    def cost(self, task: Task, rows: int) -> Cost:
        """Return what an answer may take: at most, a row reaches twice as many nodes at each level."""
        question = read_task(task)
        nodes, depth = len(question.nodes), int(question.tree.depth[question.nodes].max())
        reached = min(1 << min(depth, 32), question.tree.size)
        width = question.gram_columns**2 if question.kind == "leaves" else question.n_features * 20
        sums = nodes * width * (1 if question.kind == "leaves" else question.parameters.n_sets)
        entries = rows * question.n_features + rows * reached * (10 + width)
        block = min(rows, ROW_BLOCK)
        # A leaf's sums of a block are a product of their own.
        calls = -(-rows // ROW_BLOCK) * min(nodes, block * reached) if question.kind == "leaves" else 0
        return Cost(1e-4 * calls + 5e-9 * entries + 5e-8 * sums, (block * reached * 100 + sums * 40) / 1e6)

    def from_document(self, document: Mapping[str, Any]) -> FuzzyRegressionTree:
        """Rebuild a model; raises ``DocumentError`` when the document is malformed."""
        return FuzzyRegressionTree(*read_document(document))


SCHEME = FederatedRegressionTree()

__all__ = ["SCHEME", "FederatedRegressionTree", "FuzzyRegressionTree", "Parameters"]
