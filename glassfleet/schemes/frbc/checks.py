"""Can an answer be true? What rules and sums of rows always obey, checked before they are merged with others'.

They find broken agents and crude lies; they cannot find a plausible lie. Bounds between sums are compared as float64
with a tolerance for the rounding of rows to the grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.checks import check_names, check_told
from glassfleet.contract.messages import SUPPORT, Contribution
from glassfleet.errors import ContributionError, TaskError
from glassfleet.private.union import LIMB_BITS, table_shape
from glassfleet.schemes.frbc.limbs import read
from glassfleet.schemes.frbc.messages import ANTECEDENT_SUMS, CLASS_SUMS, RULE_SUMS, Candidates, FrbcQuestion

_TOLERANCE = 1e-9


def check_answer(question: FrbcQuestion, contribution: Contribution) -> None:
    """Raise :class:`ContributionError`, with the reason, unless `contribution` can be a true answer to `question`."""
    if contribution.nullified:
        raise ContributionError("nullified statistics, but this scheme nullifies none")
    if question.kind == "rules":
        _check_rules(question, contribution)
    elif question.rules is not None and question.kind != SUPPORT:
        _check_sums(question, question.rules, contribution.sums, contribution.rows)
    else:
        _check_counts(question, contribution)


def _check_rules(question: FrbcQuestion, contribution: Contribution) -> None:
    parameters, rows = question.parameters, contribution.rows
    values = contribution.values
    owners = parameters.weights == "owners"
    expected = {"antecedents", "classes", *((*RULE_SUMS, *ANTECEDENT_SUMS) if owners else ())}
    check_names("values", values, expected)
    check_names("sums", contribution.sums, CLASS_SUMS)
    try:
        rules = Candidates.from_value(values, question.n_features, parameters.n_sets, question.n_classes)
    except ValueError as fault:
        raise ContributionError(str(fault)) from fault
    if rules.size > rows:
        raise ContributionError(f"{rules.size} rules from {rows} rows")
    _check_count("class_rows", contribution.sums["class_rows"], (question.n_classes,), rows)
    _check_count("unknown_rows", contribution.sums["unknown_rows"], (1,), rows)
    counted = int(contribution.sums["class_rows"].sum()) + int(contribution.sums["unknown_rows"].sum())
    if counted > rows:
        raise ContributionError(f"the rows per class add up to {counted}, of {rows} rows")
    if owners:
        _check_sums(question, rules, values, rows)


def _check_counts(question: FrbcQuestion, contribution: Contribution) -> None:
    rows, sums = contribution.rows, contribution.sums
    if "rows" in sums:
        check_told(contribution, question.most_told)
    if question.kind == SUPPORT:
        return
    known = int(sums["class_rows"].sum())
    if known + int(sums["unknown_rows"][0]) != rows:
        raise ContributionError(f"the rows per class do not add up to {rows} rows")
    if question.kind == "prefixes":
        return
    times = sums["table"][:, 0]
    if any(int(part.sum()) != known for part in np.split(times, 3)):
        raise ContributionError("a third of the table does not hold every row of a class once")
    if (sums["table"][:, 1:] > times[:, None] << LIMB_BITS).any():
        raise ContributionError("a cell of the table holds more than its rows can")


def shapes_of(question: FrbcQuestion) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer `question`; raises TaskError for an agent's own rules."""
    if question.kind == "union":
        table = table_shape(question.cells, question.n_limbs)
        return {"class_rows": (question.n_classes,), "unknown_rows": (1,), "table": table}
    if question.prefixes is not None:
        counts = len(question.prefixes) * question.parameters.n_sets**question.more
        return {"class_rows": (question.n_classes,), "unknown_rows": (1,), "rows": (counts,)}
    if question.rules is None:
        raise TaskError("an agent's own rules are no sums")
    if question.kind == SUPPORT:
        return {"rows": (question.rules.size + question.rules.first.size,)}
    sizes = {RULE_SUMS: question.rules.size, ANTECEDENT_SUMS: question.rules.first.size}
    return {name: (size,) for names, size in sizes.items() for name in names}


def _check_count(name: str, counts: NDArray[np.int64], shape: tuple[int, ...], rows: int) -> None:
    if counts.shape != shape:
        raise ContributionError(f"{name} has shape {counts.shape}, expected {shape}")
    if ((counts < 0) | (counts > rows)).any():
        raise ContributionError(f"{name} must be in [0, {rows}], the rows of the agent")


def _check_sums(question: FrbcQuestion, rules: Candidates, sums: Mapping[str, Any], rows: int) -> None:
    bits = question.parameters.limb_bits
    for names, size in ((RULE_SUMS, rules.size), (ANTECEDENT_SUMS, rules.first.size)):
        for name in names:
            array = sums[name]
            if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.shape != (size,):
                raise ContributionError(f"{name} must be an int64 array of shape ({size},)")
            if name != "rows" and ((array < 0) | (array > rows << bits)).any():
                raise ContributionError(f"{name} is negative or above what {rows} rows can add up to")
    _check_count("rows", sums["rows"], (rules.size,), rows)
    if int(sums["rows"].sum()) > rows:
        raise ContributionError(f"the rows of the rules add up to more than the {rows} rows of the agent")
    if not rules.size:
        return
    num = read(sums["num_high"], sums["num_low"], bits)
    den = read(sums["den_high"], sums["den_low"], bits)
    unit = 0.5**question.parameters.fraction_bits
    slack = rows * unit
    if (den > rows * (1.0 + _TOLERANCE) + slack).any():
        raise ContributionError("a Den exceeds the agent's rows")
    if (np.add.reduceat(num, rules.first) > den * (1.0 + _TOLERANCE) + slack).any():
        raise ContributionError("the Num of an antecedent's rules exceed its Den")
    # A row belongs to the strongest of two sets of every input, so its strength is at least 0.5^F.
    least = sums["rows"] * 0.5**question.n_features
    if (num < least * (1.0 - _TOLERANCE) - slack).any():
        raise ContributionError("a rule's Num is below what the rows that found it must add up to")
