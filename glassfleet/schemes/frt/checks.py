"""Can an answer be true? What sums of rows in [0, 1] always obey, checked before they are added to others'.

The bounds are exact where rounding is monotone (a smaller term is never rounded to a larger integer) and have a small
tolerance elsewhere. They find broken agents and crude lies; they cannot find a plausible lie.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from glassfleet.errors import ContributionError
from glassfleet.scheme import Contribution
from glassfleet.schemes.frt.messages import CELL_SUMS, NODE_SUMS, Question
from glassfleet.untrusted import at_most, check_qualities, check_regressions, check_shapes


def check_sums(question: Question, contribution: Contribution) -> None:
    """Raise :class:`ContributionError` unless the sums can answer `question`."""
    m, f, t = len(question.nodes), question.n_features, question.parameters.n_sets
    k = question.gram_columns
    shapes: dict[str, tuple[int, ...]] = {}
    if question.kind == "level":
        shapes |= {f"cell_{name}": (m, f, t) for name in CELL_SUMS} | {f"node_{name}": (m,) for name in NODE_SUMS}
    elif question.kind == "leaves":
        shapes |= {"gram_high": (m, k * (k + 1) // 2), "gram_low": (m, k * (k + 1) // 2), "ws": (m,), "count": (m,)}
    else:
        shapes |= {"ws": (m,), "wq": (m,)}
    sums = contribution.sums
    check_shapes(sums, shapes)
    bits, rows = question.parameters.fraction_bits, contribution.rows
    if question.kind == "level":
        _check_level(question, sums, rows)
    elif question.kind == "leaves":
        check_regressions("leaf", sums, k, rows, bits, question.parameters.gram_bits)
    else:
        check_qualities("leaf", sums, rows, bits)


def _check_level(question: Question, sums: Mapping[str, NDArray[np.int64]], rows: int) -> None:
    bits = question.parameters.fraction_bits
    for kind in ("cell", "node"):
        count, ws, wls, wss = (sums[f"{kind}_{name}"] for name in NODE_SUMS)
        at_most(count, rows, f"a {kind}'s count exceeds the agent's rows")
        at_most(ws, count << bits, f"a {kind}'s WS exceeds its count")
        at_most(wls, ws, f"a {kind}'s WLS exceeds its WS")
        at_most(wss, wls, f"a {kind}'s WSS exceeds its WLS")
        # Cauchy and Schwarz: WLS^2 <= WS WSS, up to half a grid unit per row.
        slack = count.astype(np.float64)
        low = np.maximum(wls - slack, 0.0)
        if (low * low > (ws + slack) * (wss + slack) * (1.0 + 1e-9)).any():
            raise ContributionError(f"a {kind}'s WLS, WS and WSS contradict each other")
    at_most(sums["cell_strong"], sums["cell_count"], "a cell's strong count exceeds its count")
    for name in NODE_SUMS:
        at_most(sums[f"cell_{name}"], sums[f"node_{name}"][:, None, None], f"a cell's {name} exceeds its node's")
    # A row belongs to one set of a feature or shares itself between two; half a grid unit a row and set is rounding.
    at_most(
        sums["cell_count"].sum(axis=2), 2 * sums["node_count"][:, None], "a feature's sets count a row more than twice"
    )
    for name in ("ws", "wls", "wss"):
        whole = (sums[f"node_{name}"] + 2 * sums["node_count"])[:, None]
        at_most(sums[f"cell_{name}"].sum(axis=2), whole, f"the {name} of a feature's sets exceed their node's")
    if sums["cell_count"][~question.free].any() or sums["cell_ws"][~question.free].any():
        raise ContributionError("statistics of a feature that the path uses already")
