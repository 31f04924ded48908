"""Can an answer be true? What sums of rows in [0, 1] always obey, checked before they are added to others'.

The bounds are exact where rounding is monotone (a smaller term is never rounded to a larger integer) and have a small
tolerance elsewhere. They find broken agents and crude lies; they cannot find a plausible lie.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glassfleet.contract.checks import at_most, check_qualities, check_regressions, check_told
from glassfleet.contract.messages import COLUMNS, SUPPORT, Contribution
from glassfleet.errors import ContributionError
from glassfleet.private.columns import CELLS, check_values
from glassfleet.schemes.frt.messages import CELL_SUMS, NODE_SUMS, FrtQuestion


def check_sums(question: FrtQuestion, contribution: Contribution) -> None:
    """Raise :class:`ContributionError` unless the sums can answer `question`."""
    checks = {
        COLUMNS: _check_columns,
        "level": _check_level,
        "leaves": _check_leaves,
        "weights": _check_weights,
        SUPPORT: _check_support,
    }
    checks[question.kind](question, contribution)


def shapes_of(question: FrtQuestion) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer `question`."""
    m, f, t = len(question.nodes), question.n_features, question.parameters.n_sets
    k = question.gram_columns
    if question.kind == COLUMNS:
        return {"rows": (f + 1, CELLS)}
    if question.kind == SUPPORT:
        return {"rows": (m, f, t) if question.common is None else (m * len(question.least_of), 2)}
    if question.kind == "level":
        return {f"cell_{name}": (m, f, t) for name in CELL_SUMS} | {f"node_{name}": (m,) for name in NODE_SUMS}
    if question.kind == "leaves":
        return {"gram_high": (m, k * (k + 1) // 2), "gram_low": (m, k * (k + 1) // 2), "ws": (m,), "count": (m,)}
    return {"ws": (m,), "wq": (m,)}


def _check_columns(_: FrtQuestion, contribution: Contribution) -> None:
    check_values(contribution.sums["rows"], contribution.rows)


def _check_level(question: FrtQuestion, contribution: Contribution) -> None:
    sums, rows = contribution.sums, contribution.rows
    bits = question.parameters.fraction_bits
    # Cells and nodes together: most of the time for a small answer is spent on calls, not on numbers.
    cells, nodes = (np.array([sums[f"{part}_{name}"] for name in NODE_SUMS]) for part in ("cell", "node"))
    count, ws, wls, wss = np.concatenate([cells.reshape(len(NODE_SUMS), -1), nodes], axis=1)
    shape, names = cells.shape[1:], question.domain.names

    def where(place: Sequence[int]) -> str:
        if place[-1] >= cells[0].size:
            return f"node {place[-1] - cells[0].size}"
        node, feature, fuzzy_set = np.unravel_index(place[-1], shape)
        return f"node {node}, input {names[feature]!r}, set {fuzzy_set}"

    at_most(count, rows, "a cell's or node's count exceeds the agent's rows", where)
    at_most(ws, count << bits, "a cell's or node's WS exceeds its count", where)
    at_most(wls, ws, "a cell's or node's WLS exceeds its WS", where)
    at_most(wss, wls, "a cell's or node's WSS exceeds its WLS", where)
    # Cauchy and Schwarz: WLS^2 <= WS WSS, up to half a grid unit per row.
    low = np.maximum(wls - count, 0).astype(np.float64)
    if np.count_nonzero(low * low > (ws + count).astype(np.float64) * (wss + count) * (1.0 + 1e-9)):
        raise ContributionError("a cell's or node's WLS, WS and WSS contradict each other")
    at_most(sums["cell_strong"], cells[0], "a cell's strong count exceeds its count")
    at_most(cells, nodes[:, :, None, None], "a cell's count, WS, WLS or WSS exceeds its node's")
    # A row belongs to one set of a feature or shares itself between two; half a grid unit a row and set is rounding.
    sets, twice = cells.sum(axis=3), 2 * nodes[0]
    at_most(sets[0], twice[:, None], "a feature's sets count a row more than twice")
    at_most(sets[1:], (nodes[1:] + twice)[:, :, None], "the WS, WLS or WSS of a feature's sets exceed their node's")
    if np.count_nonzero(cells[:2, ~question.free]):  # count and WS
        raise ContributionError("statistics of a feature that the path uses already")


def _check_leaves(question: FrtQuestion, contribution: Contribution) -> None:
    parameters = question.parameters
    check_regressions("leaf", contribution, question.gram_columns, parameters.fraction_bits, parameters.gram_bits)


def _check_support(question: FrtQuestion, contribution: Contribution) -> None:
    check_told(contribution, question.most_told)
    if question.common is None and contribution.sums["rows"][~question.free].any():
        raise ContributionError("rows of a feature that the path uses already")


def _check_weights(question: FrtQuestion, contribution: Contribution) -> None:
    check_qualities("leaf", contribution, question.parameters.fraction_bits)
