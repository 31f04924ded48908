"""A population's structures: trees that name inputs only, ranked by fitness.

Thresholds and leaves are each vehicle's own and were never sent, so they only say which input is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from glassfleet.data.domain import Domain, Variable
from glassfleet.explain.branches import Branch
from glassfleet.model.protocol import Model
from glassfleet.model.rules import Condition


@dataclass(frozen=True)
class Structure:
    """One structure.

    Attributes
    ----------
    number : int
        What it is called, from 1: its place in the model's document.
    genes : tuple of int
        In pre-order: the input that is asked for, -1 for a leaf.
    fitness : float
    features : tuple of Variable
        The model's inputs.
    """

    number: int
    genes: tuple[int, ...]
    fitness: float
    features: tuple[Variable, ...]

    @cached_property
    def root(self) -> Branch:
        """The structure as a tree; `Branch.count` and `Branch.support` are leaves."""
        root = Branch()
        waiting = [root]
        for gene in self.genes:
            branch = waiting.pop()
            if gene >= 0:
                sides = enumerate(_sides(self.features[gene]))
                branch.children = [Branch((*branch.path, side), condition) for side, condition in sides]
                waiting += branch.children[::-1]
        _count(root)
        return root

    @property
    def asked(self) -> list[tuple[str, int]]:
        """The inputs that it asks for, and how often; the most often first."""
        names = Counter(self.features[gene].name for gene in self.genes if gene >= 0)
        return sorted(names.items(), key=lambda item: (-item[1], item[0]))

    @property
    def leaves(self) -> int:
        """How many leaves it has."""
        return sum(gene < 0 for gene in self.genes)

    @property
    def depth(self) -> int:
        """Splits on the longest way to a leaf."""
        deepest, open_sides = 0, [0]
        for gene in self.genes:
            level = open_sides.pop()
            if gene >= 0:
                deepest = max(deepest, level + 1)
                open_sides += [level + 1, level + 1]
        return deepest


def _sides(variable: Variable) -> tuple[Condition, Condition]:
    """Return what leads to the two sides of a split, whose threshold is not known here."""
    if variable.categories:
        terms = ("one of its first categories", "one of the others")
    else:
        terms = ("at most a threshold", "above the threshold")
    low, high = variable.low, variable.high
    below, above = (
        Condition(variable.name, term, low, high, low / 2 + high / 2, variable.unit, crisp=True) for term in terms
    )
    return below, above


def _count(branch: Branch) -> int:
    branch.count = sum(map(_count, branch.children)) or 1
    branch.support = float(branch.count)
    return branch.count


def structures(model: Model) -> tuple[Structure, ...]:
    """Return a population's structures, the fittest first; read from the model's document."""
    body = model.to_document()["model"]
    result = [
        Structure(number, tuple(genes), float(fitness), model.domain.features)
        for number, (genes, fitness) in enumerate(zip(body["structures"], body["fitness"], strict=True), 1)
    ]
    return tuple(sorted(result, key=lambda each: (-each.fitness, each.number)))


@dataclass(frozen=True)
class InputUse:
    """How a population uses an input.

    Attributes
    ----------
    feature : str
    structures : int
        Structures that ask for it.
    share : float
        The same as a share of all, [0, 1].
    splits : int
        How often all of them together ask for it.
    """

    feature: str
    structures: int
    share: float
    splits: int


def uses(all_of: Sequence[Structure], domain: Domain) -> list[InputUse]:
    """Return how the inputs are used, the most used first."""
    naming, splits = Counter[str](), Counter[str]()
    for each in all_of:
        for name, times in each.asked:
            naming[name] += 1
            splits[name] += times
    result = [InputUse(name, naming[name], naming[name] / max(len(all_of), 1), splits[name]) for name in domain.names]
    return sorted(result, key=lambda use: (-use.structures, -use.splits, use.feature))
