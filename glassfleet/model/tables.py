"""A finished model as plain tables: when its rules fire, what they say, and how an answer comes of it.

A scheme states its models so (``Scheme.tables``); code for small devices, FML and pictures are written from the
tables and know no scheme. Inputs are scaled to [0, 1] by the domain's limits, and so is the target. After the features
come indicators of those that may have empty cells: 1 where the cell is empty, else 0 (``Domain.inputs``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Line = tuple[float, ...]
Numbers = tuple[int, ...]


@dataclass(frozen=True)
class RuleList:
    """Rules that name one set of a uniform strong partition for each input; strength: the product of memberships.

    Attributes
    ----------
    n_sets : int
        Of each input; their peaks are at j / (n_sets - 1).
    sets : tuple, shape (r, F)
        Set numbers, from 0. A line of `n_sets` never fires (OTHERWISE); one without numbers always does.
    """

    n_sets: int
    sets: tuple[Numbers, ...]

    @property
    def otherwise(self) -> bool:
        """Whether the last rule is OTHERWISE, which has no conditions and answers when no other fires."""
        return bool(self.sets[-1]) and self.sets[-1][0] == self.n_sets


@dataclass(frozen=True)
class SetTree:
    """A tree whose splits have one child for each set of a uniform strong partition; strength: the path's product.

    Attributes
    ----------
    n_sets : int
        Of each input.
    feature : tuple of int
        The input that a node splits on; -1 at leaves.
    child : tuple, shape (nodes, n_sets)
        Node numbers; -1 where there is none.
    rule : tuple of int
        The rule of a leaf; -1 at splits.
    """

    n_sets: int
    feature: Numbers
    child: tuple[Numbers, ...]
    rule: Numbers


@dataclass(frozen=True)
class RampTree:
    """A binary tree of ramps; strength: the product of the degrees of the sides taken on the path.

    Attributes
    ----------
    splits : tuple, shape (n, 2)
        Node and input: split i sends the lower side to node 2 i + 1, the upper to node 2 i + 2.
    ramps : tuple, shape (n, 2)
        Where the lower side's degree begins to fall from one, and where it is zero, over the scaled input.
    leaves : tuple of int
        Each rule's node.
    """

    splits: tuple[Numbers, ...]
    ramps: tuple[Line, ...]
    leaves: Numbers


@dataclass(frozen=True)
class SplitTree:
    """A binary tree of thresholds, in pre-order; one leaf fires, with strength 1.

    Attributes
    ----------
    feature : tuple of int
        The input that a node splits on; -1 at leaves.
    threshold : tuple of float
        In the input's own unit; at most that goes to the next node, more to `right`.
    right : tuple of int
    rule : tuple of int
        The rule of a leaf; -1 at splits.
    """

    feature: Numbers
    threshold: Line
    right: Numbers
    rule: Numbers


Conditions = RuleList | SetTree | RampTree | SplitTree


def knots_of(conditions: RuleList | SetTree, n_features: int) -> Sequence[Sequence[float]]:
    """Return the peaks of each input's sets, over its scaled range."""
    return [[j / (conditions.n_sets - 1) for j in range(conditions.n_sets)]] * n_features


@dataclass(frozen=True)
class RuleTables:
    """Rules, and how they answer together.

    Attributes
    ----------
    evaluator : {"weighted_mean", "maximum_matching", "class_vote", "highest_score"}
        The mean of what the rules say, weighted by strength; what the strongest rule says; its class; the class whose
        score is highest in the rules' mean. Of two classes the second alone has a score, and the first one's is zero.
    conditions : Conditions
        When which rule fires, and how strongly.
    weights : tuple of float
        Of the rules. Of equal ones the highest weight wins, then the first rule.
    constants : tuple of float
        What each rule says, as the scaled target, where all scaled inputs are 0; empty for votes. Of scores the s of
        the first rule, then those of the next.
    slopes : tuple, shape (r, F), (r, 0) or (r s, F)
        What each scaled input adds to that.
    votes : tuple of int
        Each rule's class, by its number in the domain; empty for numbers.
    divisors, factors : tuple of float
        By which strengths are divided or multiplied before the strongest is looked for; empty: by nothing.
    relative : bool
        In a mean the strengths are divided by the highest first: products of many memberships are tiny.
    partition : bool
        The strengths add up to one: a mean is not divided by their sum.
    clipped : bool
        The link: what the rules say is kept within the target's limits.
    default : int or None
        The rule that answers when none fires; None: the one that wins among equal ones.
    levels : tuple, shape (F, 0 or number of categories + 1)
        Of each input of text: what stands for it in place of its scaled value, first for unknown texts, then for each
        category; empty for numbers. Empty: there are numbers alone.
    """

    evaluator: Literal["weighted_mean", "maximum_matching", "class_vote", "highest_score"]
    conditions: Conditions
    weights: Line
    constants: Line = ()
    slopes: tuple[Line, ...] = ()
    votes: Numbers = ()
    divisors: Line = ()
    factors: Line = ()
    relative: bool = False
    partition: bool = False
    clipped: bool = False
    default: int | None = None
    levels: tuple[Line, ...] = ()

    @property
    def rank(self) -> Numbers:
        """Each rule's place, from 0, in the order in which equally strong ones win."""
        place = [0] * len(self.weights)
        for at, rule in enumerate(sorted(range(len(place)), key=lambda rule: (-self.weights[rule], rule))):
            place[rule] = at
        return tuple(place)


@dataclass(frozen=True)
class NetworkTables:
    """A perceptron of rectified units over the inputs scaled to [-1, 1]: the evaluator "network".

    Attributes
    ----------
    units : tuple of int
        Of each layer, the inputs first. The last has one for the scaled target, or one for each class.
    parameters : tuple of float
        Layer by layer: its weights, line by line of the units above, then its biases.
    """

    units: Numbers
    parameters: Line

    evaluator: Literal["network"] = "network"


Tables = RuleTables | NetworkTables


def lines(rows: Sequence[Sequence[float]]) -> tuple[Line, ...]:
    """Return lines of numbers as tuples of floats."""
    return tuple(tuple(float(value) for value in row) for row in rows)
