"""BMT: the blended model tree, few rules with linear models fitted together. See README.md in this folder."""

from __future__ import annotations

from pydantic import BaseModel

from glassfleet.scheme import Cost, Participation, Purpose, Task
from glassfleet.schemes.bmt.client import CLIENT
from glassfleet.schemes.bmt.messages import read_task
from glassfleet.schemes.bmt.model import BlendedModelTree
from glassfleet.schemes.bmt.params import Parameters
from glassfleet.schemes.bmt.params import Parameters as BmtParameters
from glassfleet.schemes.bmt.server import SERVER
from schemas.errors import UsageError


class FederatedBlendedTree:
    """The scheme, as the catalogue knows it."""

    name = "bmt"
    title = "Blended model tree"
    purpose: frozenset[Purpose] = frozenset({"regression"})
    # Rules are fitted together, from sums of several rounds: all must rest on the same vehicles.
    participation: frozenset[Participation] = frozenset({"cohort"})
    equals_central = True
    categorical = True
    missing_cells = True
    # As fmt: linear rules still go on where the usual 2.5 and 97.5 % would clip.
    input_quantiles = (0.001, 0.999)
    Parameters: type[BaseModel] = Parameters
    trial = Parameters(max_rules=8)
    client = CLIENT
    server = SERVER
    tables = staticmethod(BlendedModelTree.tables)
    from_document = staticmethod(BlendedModelTree.from_document)

    def exact(self, parameters: BmtParameters) -> BmtParameters:
        """Return `parameters` with which rows are not condensed."""
        return parameters.model_copy(update={"min_rows": 1})

    def private(self, parameters: BmtParameters) -> BmtParameters:  # noqa: ARG002 - whatever they are
        """Raise UsageError: a private run would open sums over the few rows that two rules share."""
        raise UsageError("bmt has no private runs: its sums over pairs of rules rest on the few rows that two share")

    def cost(self, task: Task, rows: int) -> Cost:
        """Return what an answer may take: at most, every row reaches every leaf asked about."""
        question = read_task(task)
        terms, leaves = question.width, len(question.tree.leaves)
        if question.kind in ("levels", "scan"):
            terms = 4 * terms
        elif question.kind == "bins":
            own = 4 * question.columns * (2 + len(question.features)) * len(question.leaves)
            terms = 5 * terms * 2 * question.latest + terms * len(question.pairs) + own
        else:
            terms = 5 * terms * leaves + terms * 2 * len(question.candidates)
        seconds = 5e-4 * (1 + leaves) + 1e-9 * rows * (100 * question.n_inputs + 20 * question.tree.size + terms)
        numbers = rows * (2 * question.n_inputs + question.tree.size + 2 * question.columns) + 4 * terms
        return Cost(seconds, 8e-6 * numbers + 8.0)


SCHEME = FederatedBlendedTree()

__all__ = ["SCHEME", "BlendedModelTree", "FederatedBlendedTree", "Parameters"]
