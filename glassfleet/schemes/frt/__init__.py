"""FRT: the federated first-order fuzzy regression tree. See README.md in this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.scheme import Abilities, Cost, Purpose
from glassfleet.contract.sums import SumScheme
from glassfleet.numerics.linear import moments
from glassfleet.schemes.frt.client import ROW_BLOCK, answer
from glassfleet.schemes.frt.messages import NAME, FrtQuestion, check_sums, read_task, shapes_of
from glassfleet.schemes.frt.model import FrtModel, read_document
from glassfleet.schemes.frt.params import FrtParameters
from glassfleet.schemes.frt.server import first, progress_of, step


def regressions(answers: Sequence[tuple[Task, Contribution]]) -> NDArray[np.float64] | None:
    """Return the moment matrices over ``[1, x, y]`` of the final leaves, shape (k, k, L), of one vehicle's rows."""
    for task, given in reversed(answers):
        if task.kind == "leaves":
            question = read_task(task)
            return moments(given.sums, question.gram_columns, question.parameters.gram_bits)
    return None


class FederatedRegressionTree(SumScheme[FrtQuestion]):
    """The scheme, as the catalogue knows it."""

    name = NAME
    title = "Fuzzy regression tree"
    purpose = frozenset[Purpose]({"regression"})
    Parameters = FrtParameters
    declared = Abilities(regressions=regressions, tables=FrtModel.tables)
    read = read_task
    shapes = staticmethod(shapes_of)
    first = staticmethod(first)
    answer = staticmethod(answer)
    check_sums = staticmethod(check_sums)
    step = staticmethod(step)
    shown = staticmethod(progress_of)

    def cost(self, question: FrtQuestion, rows: int) -> Cost:
        """Return what an answer may take: at most, a row reaches twice as many nodes at each level."""
        nodes, depth = len(question.nodes), int(question.tree.depth[question.nodes].max())
        reached = min(1 << min(depth, 32), question.tree.size)
        width = question.gram_columns**2 if question.kind == "leaves" else question.n_features * 20
        sums = nodes * width * (1 if question.kind == "leaves" else question.parameters.n_sets)
        entries = rows * question.n_features + rows * reached * (10 + width)
        block = min(rows, ROW_BLOCK)
        # A leaf's sums of a block are a product of their own.
        calls = -(-rows // ROW_BLOCK) * min(nodes, block * reached) if question.kind == "leaves" else 0
        return Cost(1e-4 * calls + 5e-9 * entries + 5e-8 * sums, (block * reached * 100 + sums * 40) / 1e6)

    def from_document(self, document: Mapping[str, Any]) -> FrtModel:
        """Rebuild a model; raises ``DocumentError`` when the document is malformed."""
        return FrtModel(*read_document(document))


SCHEME = FederatedRegressionTree()

__all__ = ["SCHEME", "FederatedRegressionTree", "FrtModel", "FrtParameters"]
