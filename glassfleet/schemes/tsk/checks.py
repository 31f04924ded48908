"""Can an answer be true? What rules and sums of rows in [0, 1] always obey, checked before they are merged.

Bounds are exact where rounding is monotone (a smaller term is never rounded to a larger integer) and have a small
tolerance elsewhere. They find broken agents and crude lies; they cannot find a plausible lie.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.checks import (
    at_most,
    check_names,
    check_qualities,
    check_regressions,
    check_told,
)
from glassfleet.contract.messages import COLUMNS, SUPPORT, Contribution
from glassfleet.contract.tasks import check_array
from glassfleet.errors import ContributionError, TaskError
from glassfleet.fuzzy.consequent import WEIGHTS
from glassfleet.private.columns import CELLS, check_values
from glassfleet.schemes.tsk.clusters import CHANGE_BITS, HALF_BITS, SQUARE_BITS, grid_bits
from glassfleet.schemes.tsk.messages import (
    CLUSTER_SUMS,
    GRAM_SUMS,
    POWERS,
    WEIGHT_SUMS,
    TskQuestion,
    check_antecedents,
    check_coefficients,
)
from glassfleet.schemes.tsk.rules import TskRuleBase

Sums = Mapping[str, NDArray[np.int64]]


def check_answer(question: TskQuestion, contribution: Contribution) -> None:
    """Raise :class:`ContributionError`, with the reason, unless `contribution` can be a true answer to `question`."""
    parameters = question.parameters
    if contribution.nullified:
        raise ContributionError("nullified statistics, but this scheme nullifies none")
    if question.kind == "rules":
        check_names("sums", contribution.sums, ())
        read_rules(question, contribution)
        return
    bits = parameters.fraction_bits
    if question.kind == "clusters":
        _check_clusters(question, contribution.sums, contribution.rows)
    elif question.kind == COLUMNS:
        check_values(contribution.sums["rows"], contribution.rows)
    elif question.kind == "strengths":
        check_told(contribution, 1, "present")
    elif question.kind == SUPPORT:
        check_told(contribution, question.most_told)
    elif question.kind == "sums":
        check_regressions("rule", contribution, question.gram_columns, bits, parameters.gram_bits)
    else:
        check_qualities("rule", contribution, bits)


def shapes_of(question: TskQuestion) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer `question`; raises TaskError for a vehicle's own rules."""
    if question.kind == "clusters":
        shape = (question.parameters.n_clusters, question.n_features + 2)
        return dict(zip(CLUSTER_SUMS, (shape, shape, (1,)), strict=True))
    if question.kind == COLUMNS:
        return {"rows": (question.n_features + 1, CELLS)}
    if question.antecedents is None:
        raise TaskError("a vehicle's own rules are no sums")
    r, k = len(question.antecedents), question.gram_columns
    if question.kind == SUPPORT:
        return {"rows": (r * len(question.least_of), 2)}
    if question.kind == "strengths":
        return {"present": (r, POWERS)}
    if question.kind == "sums":
        triangle = (r, k * (k + 1) // 2)
        return dict(zip(GRAM_SUMS, (triangle, triangle, (r,), (r,)), strict=True))
    return dict.fromkeys(WEIGHT_SUMS, (r,))


def read_rules(question: TskQuestion, contribution: Contribution) -> TskRuleBase:
    """Return an agent's rules (with zeros for what pooled consequents leave out); raises ContributionError."""
    parameters, values, width = question.parameters, contribution.values, question.n_features
    averaged = parameters.consequents == "averaged"
    check_names("values", values, ("antecedents", *(("coefficients", *WEIGHTS) if averaged else ())))
    most = parameters.n_clusters if contribution.rows else 0
    try:
        antecedents = check_antecedents(values["antecedents"], width, parameters.n_sets, most)
        size = len(antecedents)
        coefficients = np.zeros((size, width + 1))
        shares = [np.zeros(size) for _ in WEIGHTS]
        if averaged:
            coefficients = check_coefficients(values["coefficients"], coefficients.shape)
            shares = [_check_share(name, values[name], size) for name in WEIGHTS]
    except ValueError as fault:
        raise ContributionError(str(fault)) from fault
    return TskRuleBase(antecedents, coefficients, *shares)


def _check_share(name: str, share: object, size: int) -> NDArray[np.float64]:
    checked = check_array(name, share, np.float64, (size,))
    if not ((checked >= 0.0) & (checked <= 1.0)).all():
        raise ValueError(f"{name} is not in [0, 1]")
    return checked


def _check_clusters(question: TskQuestion, sums: Sums, rows: int) -> None:
    assert question.centres is not None
    bits = grid_bits(question.n_features + 1)
    for name in ("moment_high", "moment_low"):
        limb = sums[name]
        at_most(limb[:, -1], rows << HALF_BITS, f"a cluster's mass in {name} exceeds the agent's rows")
        at_most(limb[:, :-1], limb[:, -1:] << bits, f"a cluster's {name} exceeds its mass")
    mass = int(sums["moment_high"][:, -1].sum() << HALF_BITS) + int(sums["moment_low"][:, -1].sum())
    # Squares of memberships that add up to one do so to one at most; each is rounded by half a unit.
    if mass > rows * ((1 << SQUARE_BITS) + question.parameters.n_clusters):
        raise ContributionError("the clusters' masses add up to more than the agent's rows")
    most = rows * ((2 << CHANGE_BITS) + 1) if len(question.centres) > 1 else 0
    if int(sums["change"][0]) > most:
        raise ContributionError("the change of memberships exceeds what the agent's rows can change")
