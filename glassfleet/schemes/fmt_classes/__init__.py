"""FMT for classes: few rules that tell a probability of each class, from exact sums. See README.md in this folder."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from glassfleet.aggregate import SumScheme
from glassfleet.scheme import Cost, Participation, Purpose, Task
from glassfleet.schemes.fmt_classes.checks import shapes_of
from glassfleet.schemes.fmt_classes.client import CLIENT
from glassfleet.schemes.fmt_classes.messages import read_task
from glassfleet.schemes.fmt_classes.model import FuzzyClassTree
from glassfleet.schemes.fmt_classes.params import Parameters
from glassfleet.schemes.fmt_classes.params import Parameters as ClassParameters
from glassfleet.schemes.fmt_classes.server import SERVER
from schemas.errors import UsageError


class FederatedClassTree(SumScheme):
    """The scheme, as the catalogue knows it."""

    name = "fmt_classes"
    title = "Fuzzy model tree for classes"
    purpose: frozenset[Purpose] = frozenset({"classification"})
    # A node's sums are its parent's less its sibling's: all rounds must rest on the same vehicles.
    participation: frozenset[Participation] = frozenset({"cohort"})
    categorical = True
    missing_cells = True
    Parameters: type[BaseModel] = Parameters
    client = CLIENT
    server = SERVER
    tables = staticmethod(FuzzyClassTree.tables)
    from_document = staticmethod(FuzzyClassTree.from_document)

    def private(self, parameters: ClassParameters) -> ClassParameters:  # noqa: ARG002 - whatever they are
        """Raise UsageError: a private run would open sums between two cuts, which rest on few rows."""
        raise UsageError("fmt_classes has no private runs: its sums between two cuts rest on few rows")

    def layout(self, task: Task) -> Mapping[str, tuple[int, ...]]:
        """Return names and shapes of the sums of an answer to `task`."""
        return shapes_of(read_task(task))

    def cost(self, task: Task, rows: int) -> Cost:
        """Return what an answer may take: at most, every row reaches every node asked about."""
        question = read_task(task)
        inputs, nodes, lines = question.n_inputs, 1, question.width
        if question.kind == "grow":
            nodes, lines = len(question.nodes), 5 * question.width + len(question.cuts) * (40 + question.width // 2)
        elif question.kind == "newton":
            nodes, scores = question.tree.size, question.n_scores
            lines = scores * (200 + 4 * len(question.columns) + scores * question.squares // 4)
        elif question.kind == "sizes":
            assert question.coefficients is not None
            nodes = question.tree.size
            lines = question.coefficients[:, :, 0].size * (8 + len(question.regressors))
        seconds = 1e-3 + 2e-5 * nodes * lines / 40 + 1e-9 * rows * (100 * inputs + nodes * (20 + lines))
        sums = 2 * question.width if question.kind in {"scan", "hinges"} else nodes * question.width * (1 + lines / 40)
        return Cost(seconds, 1.0 + 8e-6 * (rows * (3 * inputs + len(question.hinges) + nodes) + sums))


SCHEME = FederatedClassTree()

__all__ = ["SCHEME", "FederatedClassTree", "FuzzyClassTree", "Parameters"]
