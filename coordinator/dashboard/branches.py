"""A rule base as a tree that can be opened: rules that begin with the same conditions share a branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from glassfleet.explain import Condition, Rule


@dataclass
class Branch:
    """A condition with everything that comes after it.

    Attributes
    ----------
    path : tuple of int
        Position among the siblings, from the root down; the root has ().
    condition : Condition or None
        None at the root.
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

    For a tree learner it is the learned tree; for a rule base, whose rules name their inputs in the same order, it is
    the tree that reads the inputs one after the other.
    """
    root = Branch()
    seen: dict[tuple[int, ...], dict[tuple[str, str], Branch]] = {}
    for rule in rules:
        here = root
        _count(here, rule)
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
