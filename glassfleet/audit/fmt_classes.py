"""Rows from the Newton rounds of fmt_classes, beside the sums of its growing tree.

A Newton round tells two things of each node and class: the products over [1, x] with the weights w p (1 - p), and [1,
x] of the rows of that class with the weights w. Here p is the chance of the class by the scores so far. As in `sums`,
two groups that share one row meet in it; which class the row has, the second sums then tell (`sums.completed`).

Not attacked: the products of all hinges that there could be, which one question asks about. Of fewer rows than columns
they tell the rows' span, and a row's hinges follow from its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from glassfleet.audit.sums import MOST_GROUPS, Part, Rows, completed, placed
from glassfleet.audit.transcript import View
from glassfleet.audit.tree_sums import tree_triangles
from glassfleet.numerics.statistics import unpack_symmetric
from glassfleet.schemes.fmt.growth import GrowthQuestion
from glassfleet.schemes.fmt.params import GRID_BITS
from glassfleet.schemes.fmt_classes.messages import read_task

Array = NDArray[np.float64]

_SCALE = 2.0 ** (-2 * GRID_BITS)


def newton(*seen: View) -> Rows:
    """Return the row of each group of one row, and of each two groups of few rows whose spans meet in one line."""
    return completed((part for view in seen for part in _parts(view)), MOST_GROUPS * len(seen))


def _parts(view: View) -> Iterator[Part]:
    """Yield the groups that Newton rounds are about, then those of the growing tree, in which they share rows."""
    for task, answer in view:
        question = read_task(task)
        if question.kind == "newton":
            grams = unpack_symmetric(answer["squares"].astype(np.float64) * _SCALE, len(question.columns) + 1)
            for of_node, rights in zip(grams, answer["observed"].astype(np.float64) * _SCALE, strict=True):
                for score in range(len(rights)):
                    yield _part(question, of_node[score], rights)
    grown: list[tuple[GrowthQuestion, list[Array]]] = []
    for asked, triangles, _, label in tree_triangles(view):
        if label in {None, 0}:
            grown.append((asked, []))
        grown[-1][1].append(unpack_symmetric(triangles.astype(np.float64) * _SCALE, len(asked.columns) + 2))
    for asked, classes in grown:
        for of_classes in zip(*classes, strict=True):
            yield _part(asked, of_classes[0][:-1, :-1], np.stack([each[:-1, -1] for each in of_classes]))


def _part(question: GrowthQuestion, gram: Array, rights: Array) -> Part:
    """Return sums of products of [1, x], and [1, x] of each class's rows, shape (C, k); of two classes the second's.

    The latter have the same weights or larger ones.
    """

    def complete(rows: Array, directions: Array) -> Rows:
        products, weight = directions @ rights.T, ((directions @ gram) * directions).sum(axis=1)
        number = products[:, 0] > 0.5 * weight if len(rights) == 1 else products.argmax(axis=1)
        return placed(np.column_stack([rows[:, 1:], number]), question.columns, question.n_inputs)

    return Part(gram, len(gram) * 2.0**-GRID_BITS, complete)
