"""The questions before growth: levels of categories, and, in a run with `support`, which inputs may be columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from glassfleet.contract.messages import COLUMNS, Contribution, Next
from glassfleet.contract.sums import Memory, ask
from glassfleet.data.domain import Domain
from glassfleet.fuzzy.category_sums import category_shapes, category_sums, check_category_sums
from glassfleet.fuzzy.levels import first_levels, has_categories
from glassfleet.numerics.grids import cells_of
from glassfleet.private.columns import check_classes, check_values, columns_of, count_values, decide_columns
from glassfleet.private.support import noted, read_noted
from glassfleet.schemes.tree.bins import CELLS
from glassfleet.schemes.tree.messages import TreeQuestion
from glassfleet.schemes.tree.params import TreeParameters
from glassfleet.schemes.tree.rows import TrainingRows, class_values
from schemas.codec import Value
from schemas.errors import RunFailedError


def first(parameters: TreeParameters, domain: Domain, seed: int) -> Next:  # noqa: ARG001 - nothing is random
    """Ask for the sums of categories; where there are none, for histograms and the root's sums.

    With `support` first on how many rows it rests that an input has different values; of categories later.
    """
    question = TreeQuestion("scan", parameters, domain, levels=() if has_categories(domain) else first_levels(domain))
    if question.support or has_categories(domain):
        question = replace(question, kind=COLUMNS if question.support else "levels")
    return ask(question, {"sums_digest": ""})


def first_shapes(question: TreeQuestion) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer a question before the scan."""
    return {"rows": (question.n_inputs + 1, CELLS)} if question.kind == COLUMNS else category_shapes(question.domain)


def first_answer(question: TreeQuestion, rows: TrainingRows) -> Contribution:
    """Return a vehicle's answer to a question before the scan."""
    if question.kind == COLUMNS:
        own = np.flatnonzero(rows.different[: rows.training])
        return Contribution(COLUMNS, rows.count, {"rows": count_values(rows.every[:, own], rows.target[own], CELLS)})
    every = np.arange(rows.count)
    if rows.times is not None:
        every = every.repeat(rows.times.astype(int))
    sums = category_sums(question.domain, rows.completed[every], rows.y[every])
    return Contribution("levels", rows.total, sums)


def check_first(question: TreeQuestion, contribution: Contribution) -> None:
    """Raise ContributionError unless sums can answer a question before the scan."""
    sums, rows = contribution.sums, contribution.rows
    if question.kind == COLUMNS:
        check_values(sums["rows"], rows)
    else:
        check_category_sums(question.domain, sums, rows)


def decided(question: TreeQuestion, memory: Memory, contributions: Sequence[Contribution]) -> Next:
    """Ask for the products of the inputs that may be columns."""
    domain, task, support = question.domain, question.to_task(), question.support
    texts = [place for place, variable in enumerate(domain.inputs) if variable.categories]
    # What empty cells are taken for.
    filled = domain.scale_inputs(domain.completed(np.full((1, len(domain.features)), np.nan)))[0]
    known = tuple((place, int(cells_of(filled[place], CELLS))) for place in domain.gaps)
    if domain.classes:
        cells = cells_of(class_values(domain), CELLS)
        check_classes(contributions, task, support, dict(zip(domain.classes, cells.tolist(), strict=True)))
    decision = decide_columns(contributions, task, support, texts, known)
    memory |= {"withheld": [noted(decision)], "values": decision}
    return ask(replace(question, kind="scan", varied=columns_of(decision)), memory)


def of_support(question: TreeQuestion, memory: Mapping[str, Any]) -> dict[str, Value]:
    """Return what the summary of a run with `support` says: the record, and inputs that are no columns of products."""
    columns = columns_of(read_noted(memory["withheld"][0]))
    names = [each.name for place, each in enumerate(question.domain.inputs) if place not in columns]
    return {"withheld": memory["withheld"], "without_slopes": names}


def check_trained(rows: int, root: int) -> None:
    """Raise RunFailedError unless there are rows to train on, and they have weight: the root's first sum."""
    if rows == 0 or root == 0:
        raise RunFailedError("no agent has enough rows to train on; lower holdout, or wait for more rows")
