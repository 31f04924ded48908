"""A rule base as a tree that can be opened: rules that begin with the same conditions share a branch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from glassfleet.crisp.words import interval_condition
from glassfleet.data.domain import Variable
from glassfleet.rules import Condition, Rule


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

    @property
    def feature(self) -> str:
        """What the children are told apart by; empty when that differs, or there are none."""
        names = {child.condition.feature for child in self.children if child.condition is not None}
        return names.pop() if len(names) == 1 else ""


def grow(rules: Sequence[Rule]) -> Branch:
    """Return the tree of all rules.

    For a fuzzy tree learner it is the learned tree; for a rule base, whose rules name their inputs in the same order,
    it is the tree that reads the inputs one after the other. OTHERWISE comes last. Crisp trees: see `grow_splits`.
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


def grow_splits(nodes: Sequence[Mapping[str, Any]], rules: Sequence[Rule], features: Sequence[Variable]) -> Branch:
    """Return a crisp tree as it was learned: its rules join the conditions on an input, which hides the splits.

    Parameters
    ----------
    nodes : sequence of mapping
        Of the model's document: in pre-order, splits with ``feature`` and ``threshold``.
    rules : sequence of Rule
        One for each leaf, in the same order.
    features : sequence of Variable
    """
    root = Branch()
    waiting = [root]
    leaves = iter(rules)
    inner: list[Branch] = []
    for node in nodes:
        branch = waiting.pop()
        if node.get("threshold") is None:
            branch.rules = [next(leaves)]
            _count(branch, branch.rules[0])
            continue
        variable, threshold = features[node["feature"]], float(node["threshold"])
        sides = (interval_condition(variable, -math.inf, threshold), interval_condition(variable, threshold, math.inf))
        branch.children = [Branch((*branch.path, side), condition) for side, condition in enumerate(sides)]
        waiting += branch.children[::-1]
        inner.append(branch)
    for branch in reversed(inner):  # what is below a branch comes after it
        branch.support = sum(child.support for child in branch.children)
        branch.count = sum(child.count for child in branch.children)
    return root


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


def most_used(root: Branch, depth: int = 2) -> list[Branch]:
    """Return the branches from the root down where most rows go: what is open at first."""
    here, trail = root, [root]
    while here.children and len(trail) <= depth:
        here = max((child for child in here.children if child.children), key=lambda child: child.support, default=here)
        if here is trail[-1]:
            break
        trail.append(here)
    return trail
