"""FedGA: personal trees whose structures evolve in the fleet. See README.md in this folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from glassfleet.contract.messages import Task
from glassfleet.contract.scheme import Cost, Participation, Purpose
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.model.tables import RuleTables
from glassfleet.schemes.fedga.client import FedgaClient, own_tree
from glassfleet.schemes.fedga.messages import Question, read_task
from glassfleet.schemes.fedga.model import PersonalTree, Population, read_document
from glassfleet.schemes.fedga.params import Parameters
from glassfleet.schemes.fedga.params import Parameters as FedgaParameters
from glassfleet.schemes.fedga.server import FedgaServer
from schemas.errors import RunFailedError, UsageError


class FederatedGeneticTrees:
    """The scheme, as the catalogue knows it."""

    name = "fedga"
    title = "Personal trees by a genetic algorithm"
    purpose: frozenset[Purpose] = frozenset({"regression", "classification"})
    participation: frozenset[Participation] = frozenset({"elastic"})
    equals_central = False
    categorical = True
    Parameters: type[BaseModel] = Parameters
    trial = Parameters(generations=4, max_depth=6)
    client = FedgaClient()
    server = FedgaServer()

    def exact(self, parameters: FedgaParameters) -> FedgaParameters:
        """Return `parameters` with all nullification and noise off. The model still differs from the central one."""
        return parameters.model_copy(update={"min_rows": 1, "row_epsilon": None})

    def personalise(self, model: PersonalTree | Population, data: Dataset) -> PersonalTree | Population:
        """Return the vehicle's own tree, made of the population and the vehicle's rows; a tree stays as it is."""
        return model.personalise(data) if isinstance(model, Population) else model

    def alone(self, parameters: FedgaParameters, domain: Domain, data: Dataset, seed: int = 0) -> PersonalTree:
        """Return what the papers compare with: the vehicle's own CART, its depth chosen by cross-validation.

        Raises
        ------
        RunFailedError
            There are no rows.
        """
        tree = own_tree(Question("depth", parameters, domain, seed % 2**63), data)
        if tree is None:
            raise RunFailedError("a tree needs rows", "no-rows")
        return PersonalTree(parameters, domain, tree)

    def private(self, parameters: FedgaParameters) -> FedgaParameters:  # noqa: ARG002 - whatever they are
        """Raise UsageError: vehicles tell structures of their own."""
        raise UsageError("fedga has no private runs: vehicles tell trees of their own and vote, which are no sums")

    def cost(self, task: Task, rows: int) -> Cost:
        """Return what an answer may take: trees are grown, or fitted, each level with a sort of the rows."""
        question = read_task(task)
        parameters, inputs = question.parameters, question.n_features
        levels = question.depth if question.forest is not None else parameters.max_depth * parameters.folds
        trees = inputs if question.forest is None else inputs + question.forest.size
        genes = 0 if question.forest is None else len(question.forest.feature)
        return Cost(2e-7 * rows * trees * levels + 1e-6 * genes, (60 * rows * trees + 100 * genes) / 1e6)

    def tables(self, model: PersonalTree | Population) -> RuleTables:
        """Return a vehicle's tree as plain tables, for exports; raises ``UsageError`` for a population."""
        if isinstance(model, Population):
            raise UsageError(
                "this is a population of tree structures, not a tree: only a vehicle can make a tree of it, with its "
                "own rows. Export the vehicle's own model, or the population as json, markdown or html, or a structure "
                "as svg or png"
            )
        return model.tables()

    def from_document(self, document: Mapping[str, Any]) -> PersonalTree | Population:
        """Rebuild a population or a personal tree; raises ``DocumentError`` when the document is malformed."""
        return read_document(document)


SCHEME = FederatedGeneticTrees()

__all__ = ["SCHEME", "FederatedGeneticTrees", "Parameters", "PersonalTree", "Population"]
