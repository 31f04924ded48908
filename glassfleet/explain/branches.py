"""Trees that can be opened: of a model's rules, which share branches; and of a population's structures.

Thresholds and leaves of structures are each vehicle's own and were never sent: they say which input is asked for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from glassfleet.contract import catalogue
from glassfleet.crisp.tree import interval_condition
from glassfleet.data.domain import Domain, Variable
from glassfleet.explain.partitions import levels_of
from glassfleet.fuzzy.partition import ramp_condition
from glassfleet.model.protocol import Model
from glassfleet.model.rules import Condition, Rule
from glassfleet.model.tables import RampTree, SplitTree


@dataclass
class Branch:
    """A condition with everything that comes after it.

    Attributes
    ----------
    path : tuple of int
        Position among the siblings, from the root down; the root has ().
    condition : Condition or None
        None at the root, and for the rule that answers where no other does.
    children : list of Branch
        In the order of the first rule that has them.
    rules : list of Rule
        Those that end here.
    support : float
        Sum over all rules below.
    count : int
        Number of rules below.
    """

    path: tuple[int, ...] = ()
    condition: Condition | None = None
    children: list[Branch] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    support: float = 0.0
    count: int = 0

    @property
    def key(self) -> str:
        """The path as it stands in addresses, e.g. ``"0.2.1"``; empty for the root."""
        return ".".join(str(step) for step in self.path)

    def all(self) -> Iterator[Branch]:
        """Yield this branch and all below it, those above first."""
        yield self
        for child in self.children:
            yield from child.all()

    @property
    def forecast(self) -> float | None:
        """The mean of the forecasts of all rules below, each by its rows; None where nobody knows them."""
        forecasts = [rule.forecast for branch in self.all() for rule in branch.rules if rule.forecast is not None]
        rows = sum(each.rows for each in forecasts)
        return sum(each.rows * each.mean for each in forecasts) / rows if rows > 0.0 else None

    @property
    def usual(self) -> str | None:
        """The class that rules below say with the most support; None where they say numbers."""
        support: dict[str, float] = {}
        for rule in (rule for branch in self.all() for rule in branch.rules):
            if isinstance(rule.consequent.value, str):
                support[rule.consequent.value] = support.get(rule.consequent.value, 0.0) + rule.support
        return max(support, key=lambda label: (support[label], label), default=None)

    @property
    def feature(self) -> str:
        """What the children are told apart by; empty when that differs, or there are none."""
        names = {child.condition.feature for child in self.children if child.condition is not None}
        return names.pop() if len(names) == 1 else ""


def grow(rules: Sequence[Rule]) -> Branch:
    """Return the tree of all rules.

    For a fuzzy tree learner it is the learned tree; for a rule base, whose rules name their inputs in the same order,
    it is the tree that reads the inputs one after the other. OTHERWISE comes last. Binary trees: see `rule_tree`.
    """
    root = Branch()
    last: list[Rule] = []
    seen: dict[tuple[int, ...], dict[tuple[str, str], Branch]] = {}
    for rule in rules:
        here = root
        _count(here, rule)
        if rule.otherwise:
            last.append(rule)
            continue
        for condition in rule.conditions:
            known = seen.setdefault(here.path, {})
            child = known.get((condition.feature, condition.term))
            if child is None:
                child = Branch((*here.path, len(here.children)), condition)
                known[condition.feature, condition.term] = child
                here.children.append(child)
            here = child
            _count(here, rule)
        here.rules.append(rule)
    for rule in last:
        root.children.append(Branch((len(root.children),), rules=[rule], support=rule.support, count=1))
    return root


def rule_tree(model: Model) -> Branch:
    """Return the rules of a model as a tree; of trees whose rules join the conditions on an input, the learned one."""
    rules, features = tuple(model.rules()), model.domain.inputs
    tables = catalogue.rule_tables(model)
    conditions = None if tables is None else tables.conditions
    if isinstance(conditions, SplitTree):
        return _binary(_crisp_splits(conditions, features), rules)
    if isinstance(conditions, RampTree):
        return _binary(_ramp_splits(conditions, features, levels_of(model)), rules)
    return grow(rules)


Sides = tuple[Condition, Condition]
_ANY = (-math.inf, math.inf)


def _binary(nodes: Iterator[Sides | int], rules: Sequence[Rule]) -> Branch:
    """Return a binary tree from its nodes in pre-order: the two sides of a split, or the rule of a leaf."""
    root = Branch()
    waiting = [root]
    inner: list[Branch] = []
    for node in nodes:
        branch = waiting.pop()
        if isinstance(node, int):
            branch.rules = [rules[node]]
            _count(branch, rules[node])
            continue
        branch.children = [Branch((*branch.path, side), condition) for side, condition in enumerate(node)]
        waiting += branch.children[::-1]
        inner.append(branch)
    for branch in reversed(inner):  # what is below a branch comes after it
        branch.support = sum(child.support for child in branch.children)
        branch.count = sum(child.count for child in branch.children)
    return root


def _crisp_splits(tree: SplitTree, features: Sequence[Variable]) -> Iterator[Sides | int]:
    """Yield splits and leaves; of categories, those that the splits above have left."""
    waiting: list[tuple[int, dict[int, tuple[float, float]]]] = [(0, {})]
    while waiting:
        node, limits = waiting.pop()
        if tree.rule[node] >= 0:
            yield int(tree.rule[node])
            continue
        feature, threshold = tree.feature[node], tree.threshold[node]
        low, high = limits.get(feature, _ANY) if features[feature].categories else _ANY
        below, above = (low, min(high, threshold)), (max(low, threshold), high)
        yield interval_condition(features[feature], *below), interval_condition(features[feature], *above)
        waiting += [(tree.right[node], {**limits, feature: above}), (node + 1, {**limits, feature: below})]


def _ramp_splits(
    tree: RampTree, features: Sequence[Variable], levels: Sequence[Sequence[float]]
) -> Iterator[Sides | int]:
    """Yield the splits, and leaves; the children of split i are nodes 2i + 1 and 2i + 2."""
    split_of = {split[0]: index for index, split in enumerate(tree.splits)}
    waiting = [0]
    while waiting:
        node = waiting.pop()
        if node not in split_of:
            yield tree.leaves.index(node)
            continue
        index = split_of[node]
        feature, (begin, end) = tree.splits[index][1], tree.ramps[index]
        ramp = begin, end
        variable, line = features[feature], levels[feature]
        yield ramp_condition(variable, None, ramp, line), ramp_condition(variable, ramp, None, line)
        waiting += [2 * index + 2, 2 * index + 1]


def _count(branch: Branch, rule: Rule) -> None:
    branch.support += rule.support
    branch.count += 1


def opened(root: Branch, key: str) -> list[Branch]:
    """Return the branches from the root to the one of `key`, as far as they exist."""
    here, trail = root, [root]
    for step in key.split(".") if key else []:
        if not step.isascii() or not step.isdigit() or int(step) >= len(here.children):
            break
        here = here.children[int(step)]
        trail.append(here)
    return trail


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
        _count_leaves(root)
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


def _count_leaves(branch: Branch) -> int:
    branch.count = sum(map(_count_leaves, branch.children)) or 1
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
