"""Can an answer be true? What sums of rows in [0, 1] always obey, checked before they are added to others'.

The bounds are exact where rounding is monotone (a smaller term is never rounded to a larger integer) and have a small
tolerance elsewhere. They find broken agents and crude lies; they cannot find a plausible lie.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.errors import ContributionError
from glassfleet.numerics.statistics import gram_value, limb_bits, unpack_symmetric
from glassfleet.scheme import SUPPORT, Contribution
from glassfleet.schemes.frt.messages import CELL_SUMS, NODE_SUMS, Question
from glassfleet.untrusted import check_shapes


def check_sums(question: Question, contribution: Contribution) -> None:
    """Raise :class:`ContributionError` unless the sums can answer `question`."""
    check_shapes(contribution.sums, shapes_of(question))
    checks = {"level": _check_level, "leaves": _check_leaves, "weights": _check_weights, SUPPORT: _check_support}
    checks[question.kind](question, contribution)


def shapes_of(question: Question) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer `question`."""
    m, f, t = len(question.nodes), question.n_features, question.parameters.n_sets
    k = question.gram_columns
    if question.kind == SUPPORT:
        return {"rows": (m, f, t)}
    if question.kind == "level":
        return {f"cell_{name}": (m, f, t) for name in CELL_SUMS} | {f"node_{name}": (m,) for name in NODE_SUMS}
    if question.kind == "leaves":
        return {"gram_high": (m, k * (k + 1) // 2), "gram_low": (m, k * (k + 1) // 2), "ws": (m,), "count": (m,)}
    return {"ws": (m,), "wq": (m,)}


def _at_most(left: NDArray[np.int64], right: NDArray[np.int64] | int, what: str) -> None:
    if (left > right).any():
        raise ContributionError(what)


def _check_level(question: Question, contribution: Contribution) -> None:
    sums, rows = contribution.sums, contribution.rows
    bits = question.parameters.fraction_bits
    for kind in ("cell", "node"):
        count, ws, wls, wss = (sums[f"{kind}_{name}"] for name in NODE_SUMS)
        _at_most(count, rows, f"a {kind}'s count exceeds the agent's rows")
        _at_most(ws, count << bits, f"a {kind}'s WS exceeds its count")
        _at_most(wls, ws, f"a {kind}'s WLS exceeds its WS")
        _at_most(wss, wls, f"a {kind}'s WSS exceeds its WLS")
        # Cauchy and Schwarz: WLS^2 <= WS WSS, up to half a grid unit per row.
        slack = count.astype(np.float64)
        low = np.maximum(wls - slack, 0.0)
        if (low * low > (ws + slack) * (wss + slack) * (1.0 + 1e-9)).any():
            raise ContributionError(f"a {kind}'s WLS, WS and WSS contradict each other")
    _at_most(sums["cell_strong"], sums["cell_count"], "a cell's strong count exceeds its count")
    for name in NODE_SUMS:
        _at_most(sums[f"cell_{name}"], sums[f"node_{name}"][:, None, None], f"a cell's {name} exceeds its node's")
    # A row belongs to one set of a feature or shares itself between two; half a grid unit a row and set is rounding.
    _at_most(
        sums["cell_count"].sum(axis=2), 2 * sums["node_count"][:, None], "a feature's sets count a row more than twice"
    )
    for name in ("ws", "wls", "wss"):
        whole = (sums[f"node_{name}"] + 2 * sums["node_count"])[:, None]
        _at_most(sums[f"cell_{name}"].sum(axis=2), whole, f"the {name} of a feature's sets exceed their node's")
    if sums["cell_count"][~question.free].any() or sums["cell_ws"][~question.free].any():
        raise ContributionError("statistics of a feature that the path uses already")


def _check_leaves(question: Question, contribution: Contribution) -> None:
    sums, rows = contribution.sums, contribution.rows
    bits, gram_bits = question.parameters.fraction_bits, question.parameters.gram_bits
    count, ws = sums["count"], sums["ws"]
    _at_most(count, rows, "a leaf's count exceeds the agent's rows")
    _at_most(ws, count << bits, "a leaf's WS exceeds its count")
    # Each vehicle carries its own limbs; those of a group's sum are not carried yet.
    if (sums["gram_low"] >> limb_bits(gram_bits) >= max(1, contribution.vehicles or 1)).any():
        raise ContributionError("a low limb of a Gram matrix is too large")
    value = gram_value(sums["gram_high"], sums["gram_low"], bits=gram_bits)
    gram = unpack_symmetric(value, question.gram_columns)
    diagonal = np.diagonal(gram, axis1=1, axis2=2)
    ones = diagonal[:, -2]  # the intercept's column: sqrt(w), the largest entry of each row
    if (gram > ones[:, None, None]).any():
        raise ContributionError("a Gram entry exceeds the intercept's")
    # The sum of rounded sqrt(w) squared is WS up to (sqrt(w) + 1 / 4) grid units per row, and WS up to half a unit.
    expected = ws.astype(np.float64) * 2.0 ** (2 * gram_bits - bits)
    tolerance = count.astype(np.float64) * (2.0**gram_bits + 1.0 + 2.0 ** (2 * gram_bits - bits)) + 1e-9 * expected
    if (np.abs(ones - expected) > tolerance).any():
        raise ContributionError("a leaf's Gram matrix contradicts its WS")
    trace = diagonal.sum(axis=1)
    if (np.linalg.eigvalsh(gram)[:, 0] < -1e-9 * trace).any():
        raise ContributionError("a leaf's Gram matrix is not positive semi-definite")


def _check_support(question: Question, contribution: Contribution) -> None:
    counts, vehicles = contribution.sums["rows"], contribution.vehicles
    most = min(contribution.rows, question.least_rows * max(1, 1 if vehicles is None else vehicles))
    _at_most(counts, most, "a cell holds more rows than can be told")
    if counts[~question.free].any():
        raise ContributionError("rows of a feature that the path uses already")


def _check_weights(question: Question, contribution: Contribution) -> None:
    sums, rows = contribution.sums, contribution.rows
    _at_most(sums["ws"], rows << question.parameters.fraction_bits, "a leaf's WS exceeds the agent's rows")
    _at_most(sums["wq"], sums["ws"], "a leaf's quality sum exceeds its WS")
