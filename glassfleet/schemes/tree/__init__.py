"""tree: the blended model tree, few rules with linear models fitted together. See README.md in this folder."""

from __future__ import annotations

from typing import Any

from glassfleet.contract.messages import COLUMNS, SUPPORT
from glassfleet.contract.scheme import Abilities, Cost, Participation, Purpose
from glassfleet.contract.sums import SumScheme
from glassfleet.schemes.tree.checks import check_sums, most_bytes, shapes_of
from glassfleet.schemes.tree.client import answer
from glassfleet.schemes.tree.messages import TreeQuestion, read_task
from glassfleet.schemes.tree.model import FuzzyClassTree, FuzzyTree, from_document, tables
from glassfleet.schemes.tree.params import MAX_ROWS, NAME, TreeParameters, check_domain
from glassfleet.schemes.tree.regressions import regressions
from glassfleet.schemes.tree.server import progress_of, step
from glassfleet.schemes.tree.start import first


def _most_bytes(parameters: Any, inputs: int, classes: int) -> tuple[int, str]:
    return most_bytes(parameters, inputs, classes), "fewer rules (max_rules), fewer inputs, or compact"


class TreeScheme(SumScheme[TreeQuestion]):
    """The scheme, as the catalogue knows it."""

    name = NAME
    title = "Blended model tree"
    purpose = frozenset[Purpose]({"regression", "classification"})
    # Rules are fitted together, from sums of several rounds: all must rest on the same vehicles.
    participation = frozenset[Participation]({"cohort"})
    Parameters = TreeParameters
    signed = frozenset({"scores", "slopes"})
    declared = Abilities(
        categories=True,
        missing_cells=True,
        excess=True,
        # Linear rules of a number still go on where the usual 2.5 and 97.5 % would clip.
        input_quantiles=(0.001, 0.999),
        trial=TreeParameters(max_rules=8),
        most_bytes=_most_bytes,
        regressions=regressions,
        tables=tables,
    )
    check_domain = staticmethod(check_domain)
    read = read_task
    shapes = staticmethod(shapes_of)
    first = staticmethod(first)
    answer = staticmethod(answer)
    check_sums = staticmethod(check_sums)
    step = staticmethod(step)
    shown = staticmethod(progress_of)
    from_document = staticmethod(from_document)

    def max_rows(self, parameters: Any) -> int:  # noqa: ARG002 - the same for all
        """Return the largest total number of rows that the sums are good for."""
        return MAX_ROWS

    def cost(self, question: TreeQuestion, rows: int) -> Cost:
        """Return what an answer may take: at most, every row reaches every leaf asked about."""
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

__all__ = ["SCHEME", "FuzzyClassTree", "FuzzyTree", "TreeParameters", "TreeScheme"]
