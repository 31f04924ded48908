"""What a run of FedGA ends with: the population of structures; and the tree that a vehicle makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.contract.tasks import check_class_order
from glassfleet.crisp import CrispTreeModel
from glassfleet.crisp.forest import NIL, Forest, Genes
from glassfleet.crisp.tree import TreeBody, read_tree
from glassfleet.data.dataset import Dataset
from glassfleet.data.documents import Strict, document_errors, document_of, read_document_head
from glassfleet.data.domain import Domain
from glassfleet.model.explanation import Activation, Explanation
from glassfleet.model.protocol import OWN_TREE, Nature
from glassfleet.model.rules import Consequent, Rule
from glassfleet.schemes.fedga.client import choose_tree
from glassfleet.schemes.fedga.messages import NAME, FedgaQuestion
from glassfleet.schemes.fedga.params import MAX_DEPTH, MAX_STRUCTURES, FedgaParameters
from schemas.errors import DocumentError

FORMAT = 1


class PersonalTree(CrispTreeModel):
    """A vehicle's own tree: a structure of the population, fitted to the vehicle's rows. It stays at the vehicle."""

    def __init__(self, parameters: FedgaParameters, domain: Domain, tree: Any) -> None:
        super().__init__(NAME, parameters, domain, tree)

    def to_document(self) -> dict[str, Any]:
        """Return the model as JSON values, ``model.kind`` being ``"tree"``."""
        document = super().to_document()
        document["model"]["kind"] = "tree"
        return document


@dataclass(eq=False)
class Population:
    """The structures that survived, best first, for vehicles to make their own trees of (:meth:`personalise`).

    A structure names inputs only; thresholds and leaves are the vehicles' own and were never sent. By itself the
    population therefore predicts what all vehicles have in common: the most frequent class, or the mean target.

    Attributes
    ----------
    parameters : Parameters
    domain : Domain
    depth : int
        Of the deepest structure that could be.
    seed : int
        Of the vehicles' splits into rows that fit and rows that score.
    fit_on_all : bool
        Whether all rows do both.
    forest : Forest
        The structures.
    fitness : tuple of float
        Of each: F1, or minus the mean squared error of the scaled target.
    prior : tuple of float
        Shares of the classes in the fleet, or the mean scaled target.
    """

    scheme = NAME
    nature: ClassVar[Nature] = "structures"

    parameters: FedgaParameters
    domain: Domain
    depth: int
    seed: int
    fit_on_all: bool
    forest: Forest
    fitness: tuple[float, ...]
    prior: tuple[float, ...]

    def personalise(self, data: Dataset) -> PersonalTree | Population:
        """Return the vehicle's tree: the structure that scores best on its rows, fitted to them.

        A vehicle without rows keeps the population.

        Raises
        ------
        TaskError
            The rows are not those of the domain.
        """
        question = FedgaQuestion(
            "candidates",
            self.parameters,
            self.domain,
            self.seed,
            self.depth,
            fit_on_all=self.fit_on_all,
            forest=self.forest,
        )
        tree = choose_tree(question, data)
        return self if tree is None else PersonalTree(self.parameters, self.domain, tree)

    # --- what it says by itself -------------------------------------------------------------------------------------

    @cached_property
    def _answer(self) -> Any:
        if self.domain.target is None:
            return self.domain.classes[int(np.argmax(self.prior))]
        return float(self.domain.unscale_target(np.array(self.prior))[0])

    def predict(self, X: NDArray[np.float64]) -> NDArray[Any]:
        """Predict rows `X`, shape (n, F): the same for all of them, see the class."""
        return np.full(len(self.domain.check_rows(X)), self._answer)

    def explain(self, x: NDArray[np.float64]) -> Explanation:
        """Say that no input counts before a vehicle has made its own tree."""
        self.domain.check_rows(np.asarray(x, dtype=np.float64).reshape(1, -1))
        what = "the most frequent class" if self.domain.target is None else "the mean"
        note = (
            f"every row gets the same answer here, {what} of all vehicles' rows, and no input has a share in it: these "
            "are tree structures, of which each vehicle makes its own tree"
        )
        return Explanation(
            self._answer, Activation(self.rules()[0], 1.0, ()), notes=(note, f"{OWN_TREE[0].upper()}{OWN_TREE[1:]}")
        )

    @cached_property
    def _rules(self) -> tuple[Rule, ...]:
        target = self.domain.target
        name, unit = (self.domain.label or "class", "") if target is None else (target.name, target.unit)
        everywhere = Consequent("", f"{Consequent(name, self._answer, unit)} for every row")
        rules = [Rule(0, (), everywhere, 0.0, 0.0, 0.0, measured=False)]
        for line, (genes, fitness) in enumerate(zip(self.forest.structures(), self.fitness, strict=True)):
            drawn = draw_structure(genes, self.domain)
            consequent = Consequent("", f"structure {line + 1} (fitness {fitness:.4g}): {drawn}")
            rules.append(Rule(line + 1, (), consequent, 0.0, 0.0, 0.0, measured=False, fitness=float(fitness)))
        return tuple(rules)

    def rules(self) -> Sequence[Rule]:
        """Return the population's own answer, then each structure in words: lines that are no rules."""
        return self._rules

    def complexity(self) -> Mapping[str, int | float]:
        """Return structures, and the mean of their nodes (leaves included), leaves and depth."""
        splits = self.forest.splits()
        return {
            "structures": self.forest.size,
            "mean_nodes": float((2 * splits + 1).mean()),
            "mean_leaves": float((splits + 1).mean()),
            "mean_depth": float(self.forest.depths().mean()),
        }

    # --- the document -----------------------------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """Return the population as JSON values, ``model.kind`` being ``"population"``.

        ``model.structures``: features in pre-order, -1 where nothing is split.
        """
        body = {
            "kind": "population",
            "depth": self.depth,
            "seed": str(self.seed),  # JSON numbers end at 2^53
            "fit_on_all": self.fit_on_all,
            "structures": [genes.tolist() for genes in self.forest.structures()],
            "fitness": list(self.fitness),
            "prior": list(self.prior),
        }
        return document_of(NAME, FORMAT, self.parameters, self.domain, body)


class _Structures(Strict):
    depth: int = Field(ge=1, le=MAX_DEPTH)
    seed: str = Field(pattern=r"^[0-9]{1,19}$")
    fit_on_all: bool
    structures: tuple[tuple[int, ...], ...] = Field(min_length=1, max_length=MAX_STRUCTURES)
    fitness: tuple[float, ...]
    prior: tuple[float, ...] = Field(min_length=1)


def read_document(document: Mapping[str, Any]) -> PersonalTree | Population:
    """Rebuild a population or a tree; raises ``DocumentError`` when the document is malformed."""
    parameters, domain, body = read_document_head(document, NAME, FORMAT, FedgaParameters)
    if not isinstance(body, Mapping):
        raise DocumentError("model is not a JSON object")
    kind, rest = body.get("kind"), {name: part for name, part in body.items() if name != "kind"}
    with document_errors():
        check_class_order(domain)
        if kind == "tree":
            return PersonalTree(parameters, domain, read_tree(TreeBody.model_validate(rest), domain))
        if kind == "population":
            return _population(parameters, domain, _Structures.model_validate(rest))
    raise DocumentError(f"model.kind is {kind!r}, expected 'population' or 'tree'")


def _population(parameters: FedgaParameters, domain: Domain, body: _Structures) -> Population:
    """Return the population; raises ValueError with the reason when it is none."""
    classes = len(domain.classes)
    if len(body.fitness) != len(body.structures) or len(body.prior) != (classes or 1):
        raise ValueError("every structure has a fitness, and every class a share")
    if int(body.seed) >= 2**63:
        raise ValueError("seed is too large")
    if not all(0.0 <= share <= 1.0 for share in body.prior):
        raise ValueError("prior is not in [0, 1]")
    if not all(-1.0 - 1e-9 <= value <= 1.0 + 1e-9 for value in body.fitness):
        raise ValueError("a fitness is not in [-1, 1]")
    structures = []
    for genes in body.structures:
        if not genes or not all(NIL <= gene < len(domain.features) for gene in genes):
            raise ValueError("a structure names an unknown feature, or is empty")
        if len(genes) > 2 << body.depth:
            raise ValueError(f"a structure is longer than depth {body.depth} allows")
        structures.append(np.array(genes, dtype=np.int32))
    forest = Forest.of(structures)
    forest.check(body.depth)
    return Population(
        parameters,
        domain,
        depth=body.depth,
        seed=int(body.seed),
        fit_on_all=body.fit_on_all,
        forest=forest,
        fitness=body.fitness,
        prior=body.prior,
    )


MOST_CHARACTERS = 300
"""Of a drawn structure; a longer one ends with dots."""


def draw_structure(genes: Genes, domain: Domain) -> str:
    """Return a structure as one line: ``speed (signal, lanes (., .))``, left before right, a dot for a leaf."""
    right = Forest.of([genes]).right
    parts: list[str] = []
    length = 0
    stack: list[int | str] = [0]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            text = item
        elif genes[item] < 0:
            text = "."
        else:
            text = domain.features[genes[item]].name
            left, other = item + 1, int(right[item])
            if genes[left] >= 0 or genes[other] >= 0:
                stack += [")", other, ", ", left, " ("]
        parts.append(text)
        length += len(text)
        if length > MOST_CHARACTERS:
            return "".join(parts)[: MOST_CHARACTERS - 4] + " ..."
    return "".join(parts)
