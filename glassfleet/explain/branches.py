"""A model's rules as a tree that can be opened: rules that begin with the same conditions share a branch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from glassfleet.contract import catalogue
from glassfleet.crisp.tree import interval_condition
from glassfleet.data.domain import Variable
from glassfleet.explain.partitions import levels_of
from glassfleet.fuzzy.ramps import ramp_condition
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
