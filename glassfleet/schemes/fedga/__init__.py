"""FedGA: personal trees whose structures evolve in the fleet. See README.md in this folder."""

from __future__ import annotations

from pydantic import BaseModel

from glassfleet.contract.messages import Task
from glassfleet.contract.scheme import Abilities, Cost, Participation, Purpose
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.model.tables import RuleTables
from glassfleet.schemes.fedga.client import FedgaClient, own_tree
from glassfleet.schemes.fedga.messages import NAME, FedgaQuestion, read_task
from glassfleet.schemes.fedga.model import PersonalTree, Population, read_document
from glassfleet.schemes.fedga.params import FedgaParameters
from glassfleet.schemes.fedga.server import FedgaServer
from schemas.errors import RunFailedError, UsageError


def _alone(parameters: FedgaParameters, domain: Domain, data: Dataset, seed: int = 0) -> PersonalTree:
    """Return what the papers compare with: the vehicle's own CART, its depth chosen by cross-validation.

    Raises
    ------
    RunFailedError
        There are no rows.
    """
    tree = own_tree(FedgaQuestion("depth", parameters, domain, seed % 2**63), data)
    if tree is None:
        raise RunFailedError("a tree needs rows", "no-rows")
    return PersonalTree(parameters, domain, tree)


def _cost(task: Task, rows: int) -> Cost:
    """Return what an answer may take: trees are grown, or fitted, each level with a sort of the rows."""
    question = read_task(task)
    parameters, inputs = question.parameters, question.n_features
    levels = question.depth if question.forest is not None else parameters.max_depth * parameters.folds
    trees = inputs if question.forest is None else inputs + question.forest.size
    genes = 0 if question.forest is None else len(question.forest.feature)
    return Cost(2e-7 * rows * trees * levels + 1e-6 * genes, (60 * rows * trees + 100 * genes) / 1e6)


def _tables(model: PersonalTree | Population) -> RuleTables:
    """Return a vehicle's tree as plain tables, for exports; raises ``UsageError`` for a population."""
    if isinstance(model, Population):
        raise UsageError(
            "this is a population of tree structures, not a tree: only a vehicle can make a tree of it, with its "
            "own rows. Export the vehicle's own model, or the population as json, or its fittest structure as svg"
        )
    return model.tables()


class FederatedGeneticTrees:
    """The scheme, as the catalogue knows it."""

    name = NAME
    title = "Personal trees by a genetic algorithm"
    purpose: frozenset[Purpose] = frozenset({"regression", "classification"})
    participation: frozenset[Participation] = frozenset({"elastic"})
    Parameters: type[BaseModel] = FedgaParameters
    client = FedgaClient()
    server = FedgaServer()
    abilities = Abilities(
        categories=True,
        trial=FedgaParameters(generations=4, max_depth=6),
        cost=_cost,
        tables=_tables,
        # The vehicle's own tree, made of the population; a tree stays as it is.
        personalise=lambda model, data: model.personalise(data) if isinstance(model, Population) else model,
        alone=_alone,
        private="vehicles tell trees of their own and vote, which are no sums",
    )
    from_document = staticmethod(read_document)

    def exact(self, parameters: FedgaParameters) -> FedgaParameters:
        """Return `parameters` with all nullification and noise off. The model still differs from the central one."""
        return parameters.model_copy(update={"min_rows": 1, "row_epsilon": None})


SCHEME = FederatedGeneticTrees()

__all__ = ["SCHEME", "FederatedGeneticTrees", "FedgaParameters", "PersonalTree", "Population"]
