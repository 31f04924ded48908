"""dp_tree: a differentially private decision tree, the papers' baseline. See README.md in this folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import BaseModel

from glassfleet.contract.messages import Task
from glassfleet.contract.scheme import Abilities, Cost, Participation, PrivateRuns, Purpose
from glassfleet.contract.tasks import check_classes
from glassfleet.crisp import CrispTreeModel, prepare
from glassfleet.crisp.grow import cross_validated_tree
from glassfleet.crisp.tree import TreeBody, read_tree
from glassfleet.data.dataset import Dataset
from glassfleet.data.documents import document_errors, read_document_head
from glassfleet.data.domain import Domain
from lab.schemes.dp_tree.client import DpTreeClient
from lab.schemes.dp_tree.messages import MAX_CLASSES, NAME, read_task
from lab.schemes.dp_tree.params import DpTreeParameters
from lab.schemes.dp_tree.server import DpTreeServer
from schemas.errors import RunFailedError, UsageError


def _alone(parameters: DpTreeParameters, domain: Domain, data: Dataset, seed: int = 0) -> CrispTreeModel:
    """Return what the papers compare with: the vehicle's own CART, its depth chosen by cross-validation."""
    columns = prepare(data, domain)
    if not columns.rows:
        raise RunFailedError("a tree needs rows", "no-rows")
    positive = 1 if len(domain.classes) == 2 else None
    tree = cross_validated_tree(columns, np.random.default_rng([seed % 2**63, 1]), positive=positive)
    return CrispTreeModel(NAME, parameters, domain, tree)


def _private(parameters: DpTreeParameters) -> DpTreeParameters:
    if parameters.noise == "paper":
        raise UsageError(
            'a private run of dp_tree needs noise="aggregate" or "local": what the paper\'s hides is not known'
        )
    return parameters.model_copy(update={"losses": 3 if parameters.losses is None else parameters.losses})


def _openly(parameters: DpTreeParameters) -> None:
    if parameters.noise == "aggregate":
        raise UsageError(
            'noise="aggregate" hides rows in the sum of all answers alone, and in this run each answer is seen by '
            'itself: make it a private run, or use noise="local"'
        )


def _among(task: Task, honest: int) -> Task:
    """Return `task` for a group: the shares of those of it who are honest are the whole noise."""
    question = read_task(task)
    return task if question.kind == "hello" else replace(question, agents=honest + 1).to_task()


def _spent(task: Task) -> tuple[float, float]:
    question = read_task(task)
    return (0.0 if question.parameters.noise == "none" else question.cost), question.parameters.epsilon


def _cost(task: Task, rows: int) -> Cost:
    """Return what an answer may take: each row is counted once for each input, and each sum gets its noise."""
    question = read_task(task)
    entries, sums = rows * question.n_features, sum(math.prod(shape) for shape in question.shapes().values())
    return Cost(2e-7 * (entries + sums), (entries * 80 + sums * 40) / 1e6)


class DifferentiallyPrivateTree:
    """The scheme, as the catalogue knows it."""

    name = NAME
    title = "Differentially private decision tree"
    purpose: frozenset[Purpose] = frozenset({"classification"})
    participation: frozenset[Participation] = frozenset({"elastic"})
    Parameters: type[BaseModel] = DpTreeParameters
    client = DpTreeClient()
    server = DpTreeServer()
    abilities = Abilities(
        categories=True,
        cost=_cost,
        tables=CrispTreeModel.tables,
        alone=_alone,
        private=PrivateRuns(
            lambda task: read_task(task).shapes(), _private, openly=_openly, among=_among, spent=_spent
        ),
    )

    def exact(self, parameters: DpTreeParameters) -> DpTreeParameters:
        """Return `parameters` without noise: nothing is hidden then, for models that stay where the rows are."""
        return parameters.model_copy(update={"noise": "none"})

    def from_document(self, document: Mapping[str, Any]) -> CrispTreeModel:
        """Rebuild a model; raises ``DocumentError`` when the document is malformed."""
        parameters, domain, body = read_document_head(document, NAME, CrispTreeModel.format, DpTreeParameters)
        with document_errors():
            check_classes(domain, NAME, MAX_CLASSES)
            return CrispTreeModel(NAME, parameters, domain, read_tree(TreeBody.model_validate(body), domain))


SCHEME = DifferentiallyPrivateTree()

__all__ = ["SCHEME", "DifferentiallyPrivateTree", "DpTreeParameters"]
