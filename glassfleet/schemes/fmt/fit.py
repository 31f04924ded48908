"""Fitting nodes from their sums: shrunk towards the node above, or sparse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassfleet.numerics.sparse import select
from glassfleet.schemes.fmt.grow import UNIT, moments, refine
from glassfleet.schemes.fmt.tree import Tree

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Variant:
    """One way to fit the nodes.

    Attributes
    ----------
    ridge : float
        Pull towards the coefficients of the node above, in rows.
    slopes : int
        Most slopes of a node; as many as there are regressors: dense.
    """

    ridge: float
    slopes: int


def fit_nodes(tree: Tree, whole: Ints, regressors: int, variants: Sequence[Variant]) -> Array:
    """Return the coefficients of every node in every way, shape (V, nodes, R + 1).

    Parameters
    ----------
    tree : Tree
        The splits.
    whole : ndarray of int64, shape (nodes, p)
        The nodes' sums.
    regressors : int
        Inputs of the polynomials, R.
    variants : sequence of Variant
        The ways.
    """
    result = np.zeros((len(variants), tree.size, regressors + 1))
    for ridge in dict.fromkeys(variant.ridge for variant in variants):  # the dense fits differ by it alone
        dense = np.zeros((tree.size, regressors + 1))
        for node in range(tree.size):
            above = dense[tree.parent(node)] if node else np.zeros(regressors + 1)
            dense[node], error = refine(whole[node], above, ridge, regressors + 2)
            for place, variant in enumerate(variants):
                if variant.ridge == ridge:
                    few = variant.slopes < regressors
                    result[place, node] = sparse(whole[node], above, error, variant) if few else dense[node]
    return result


def sparse(whole: Ints, above: Array, error: float, variant: Variant) -> Array:
    """Select at most `variant.slopes` regressors, forward and backward, and fit them.

    The objective is that of the dense fit, ``E(g) + ridge |g - above|^2``, with all slopes but the selected ones zero:
    a quadratic, so its sums are those of the node and of `ridge` made-up rows per regressor.

    Parameters
    ----------
    whole : ndarray of int64, shape (p,)
        The node's sums.
    above : ndarray of float64, shape (R + 1,)
        The coefficients that the dense fit is pulled towards.
    error : float
        The dense fit's squared error.
    variant : Variant
        Pull and number of slopes.
    """
    k = len(above) + 1
    weight = float(whole[0]) / UNIT
    if weight <= 0.0:
        return np.zeros(k - 1)
    matrix = moments(whole[None], k)[:, :, 0]
    for j in range(1, k - 1):
        pulled = variant.ridge * float(above[j])
        matrix[j, j] += variant.ridge
        matrix[j, k - 1] += pulled
        matrix[k - 1, j] += pulled
        matrix[k - 1, k - 1] += pulled * float(above[j])
    return select(matrix, variant.slopes, error / weight, variant.ridge)
