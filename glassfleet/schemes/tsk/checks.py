"""Can an answer be true? What rules and sums of rows in [0, 1] always obey, checked before they are merged.

Bounds are exact where rounding is monotone (a smaller term is never rounded to a larger integer) and have a small
tolerance elsewhere. They find broken agents and crude lies; they cannot find a plausible lie.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from glassfleet.errors import ContributionError, TaskError
from glassfleet.numerics.statistics import gram_value, limb_bits, unpack_symmetric
from glassfleet.scheme import Contribution
from glassfleet.schemes.tsk.clusters import CHANGE_BITS, HALF_BITS, SQUARE_BITS, grid_bits
from glassfleet.schemes.tsk.messages import (
    CLUSTER_SUMS,
    GRAM_SUMS,
    WEIGHT_SUMS,
    Question,
    check_antecedents,
    check_coefficients,
)
from glassfleet.schemes.tsk.rules import RuleBase
from glassfleet.untrusted import check_names, check_shapes

Sums = Mapping[str, NDArray[np.int64]]

SHARES = ("weight", "support", "confidence")


def check_answer(question: Question, contribution: Contribution) -> None:
    """Raise :class:`ContributionError`, with the reason, unless `contribution` can be a true answer to `question`."""
    parameters = question.parameters
    if contribution.kind != question.kind:
        raise ContributionError(f"the answer is about {contribution.kind!r}, the question was {question.kind!r}")
    if contribution.rows > parameters.max_rows:
        raise ContributionError(f"{contribution.rows} rows, the grid is good for {parameters.max_rows}")
    if contribution.nullified:
        raise ContributionError("nullified statistics, but this scheme nullifies none")
    if question.kind == "rules":
        check_names("sums", contribution.sums, ())
        read_rules(question, contribution)
        return
    check_names("values", contribution.values, ())
    check_shapes(contribution.sums, shapes_of(question))
    if question.kind == "clusters":
        _check_clusters(question, contribution.sums, contribution.rows)
    elif question.kind == "sums":
        _check_sums(question, contribution)
    else:
        _check_weights(question, contribution.sums, contribution.rows)


def shapes_of(question: Question) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer `question`; raises TaskError for a vehicle's own rules."""
    if question.kind == "clusters":
        shape = (question.parameters.n_clusters, question.n_features + 2)
        return dict(zip(CLUSTER_SUMS, (shape, shape, (1,)), strict=True))
    if question.antecedents is None:
        raise TaskError("a vehicle's own rules are no sums")
    r, k = len(question.antecedents), question.gram_columns
    if question.kind == "sums":
        triangle = (r, k * (k + 1) // 2)
        return dict(zip(GRAM_SUMS, (triangle, triangle, (r,), (r,)), strict=True))
    return dict.fromkeys(WEIGHT_SUMS, (r,))


def read_rules(question: Question, contribution: Contribution) -> RuleBase:
    """Return an agent's rules (with zeros for what pooled consequents leave out); raises ContributionError."""
    parameters, values, width = question.parameters, contribution.values, question.n_features
    averaged = parameters.consequents == "averaged"
    check_names("values", values, ("antecedents", *(("coefficients", *SHARES) if averaged else ())))
    most = parameters.n_clusters if contribution.rows else 0
    try:
        antecedents = check_antecedents(values["antecedents"], width, parameters.n_sets, most)
        size = len(antecedents)
        coefficients = np.zeros((size, width + 1))
        shares = [np.zeros(size) for _ in SHARES]
        if averaged:
            coefficients = check_coefficients(values["coefficients"], coefficients.shape)
            shares = [_check_share(name, values[name], size) for name in SHARES]
    except ValueError as fault:
        raise ContributionError(str(fault)) from fault
    return RuleBase(antecedents, coefficients, *shares)


def _check_share(name: str, share: object, size: int) -> NDArray[np.float64]:
    if not isinstance(share, np.ndarray) or share.dtype != np.float64 or share.shape != (size,):
        raise ValueError(f"{name} must be a float64 array of shape ({size},)")
    if not ((share >= 0.0) & (share <= 1.0)).all():
        raise ValueError(f"{name} is not in [0, 1]")
    return share


def _at_most(left: NDArray[np.int64], right: NDArray[np.int64] | int, what: str) -> None:
    if (left > right).any():
        raise ContributionError(what)


def _check_clusters(question: Question, sums: Sums, rows: int) -> None:
    assert question.centres is not None
    bits = grid_bits(question.n_features + 1)
    for name in ("moment_high", "moment_low"):
        limb = sums[name]
        _at_most(limb[:, -1], rows << HALF_BITS, f"a cluster's mass in {name} exceeds the agent's rows")
        _at_most(limb[:, :-1], limb[:, -1:] << bits, f"a cluster's {name} exceeds its mass")
    mass = int(sums["moment_high"][:, -1].sum() << HALF_BITS) + int(sums["moment_low"][:, -1].sum())
    # Squares of memberships that add up to one do so to one at most; each is rounded by half a unit.
    if mass > rows * ((1 << SQUARE_BITS) + question.parameters.n_clusters):
        raise ContributionError("the clusters' masses add up to more than the agent's rows")
    most = rows * ((2 << CHANGE_BITS) + 1) if len(question.centres) > 1 else 0
    if int(sums["change"][0]) > most:
        raise ContributionError("the change of memberships exceeds what the agent's rows can change")


def _check_sums(question: Question, contribution: Contribution) -> None:
    assert question.antecedents is not None
    sums, rows = contribution.sums, contribution.rows
    r, k = len(question.antecedents), question.gram_columns
    bits, gram_bits = question.parameters.fraction_bits, question.parameters.gram_bits
    count, ws = sums["count"], sums["ws"]
    _at_most(count, rows, "a rule's count exceeds the agent's rows")
    _at_most(ws, count << bits, "a rule's WS exceeds its count")
    # Each vehicle carries its own limbs; those of a group's sum are not carried yet.
    if (sums["gram_low"] >> limb_bits(gram_bits) >= max(1, contribution.vehicles or 1)).any():
        raise ContributionError("a low limb of a Gram matrix is too large")
    gram = unpack_symmetric(gram_value(sums["gram_high"], sums["gram_low"], bits=gram_bits), k)
    diagonal = np.diagonal(gram, axis1=1, axis2=2)
    ones = diagonal[:, -2]  # the intercept's column: sqrt(w), the largest entry of each row
    if (gram > ones[:, None, None]).any():
        raise ContributionError("a Gram entry exceeds the intercept's")
    # The sum of rounded sqrt(w) squared is WS up to (sqrt(w) + 1 / 4) grid units per row, and WS up to half a unit.
    expected = ws.astype(np.float64) * 2.0 ** (2 * gram_bits - bits)
    tolerance = count.astype(np.float64) * (2.0**gram_bits + 1.0 + 2.0 ** (2 * gram_bits - bits)) + 1e-9 * expected
    if (np.abs(ones - expected) > tolerance).any():
        raise ContributionError("a rule's Gram matrix contradicts its WS")
    if r and (np.linalg.eigvalsh(gram)[:, 0] < -1e-9 * diagonal.sum(axis=1)).any():
        raise ContributionError("a rule's Gram matrix is not positive semi-definite")


def _check_weights(question: Question, sums: Sums, rows: int) -> None:
    _at_most(sums["ws"], rows << question.parameters.fraction_bits, "a rule's WS exceeds the agent's rows")
    _at_most(sums["wq"], sums["ws"], "a rule's quality sum exceeds its WS")
