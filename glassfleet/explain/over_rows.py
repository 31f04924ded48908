"""Many forecasts explained at once: what moves them, over all rows of a file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.explain.summary import summary
from glassfleet.explain.views import FORMAT
from glassfleet.model.baseline import ReferenceRow, explained
from glassfleet.model.intervals import far_outside
from glassfleet.model.protocol import Model, nature, readable_rules


def over_rows(
    model: Model,
    X: NDArray[np.float64],
    most: int,
    step: Callable[[], object] = lambda: None,
    reference: ReferenceRow | None = None,
) -> dict[str, Any]:
    """Explain rows, and return what their explanations have in common, as JSON values.

    Parameters
    ----------
    model : Model
    X : ndarray of float64, shape (n, F)
    most : int
        Explain at most so many: of more rows, such as are spread evenly over them, the first and the last included.
    step : callable
        Called after each row.
    reference : Reference or None
        What the rows are compared with.

    Returns
    -------
    dict
        ``rows``, ``explained``, ``with_shares``: how many. ``inputs``: mean absolute share, mean share, and the part
        that an input has of all absolute shares, the largest first; the means are over the rows that have shares.
        ``rules``: how often each rule decided, the most frequent first. ``fallback``: rows that met no rule's
        conditions. ``clipped``: rows whose forecast was kept within the target's limits. ``outside``: rows with an
        input outside the model's range, and by input.
    """
    chosen = (
        np.unique(np.linspace(0, len(X) - 1, min(most, len(X))).round().astype(int)) if len(X) else np.array([], int)
    )
    domain, names = model.domain, model.domain.names
    shares: list[list[float]] = []
    bases: list[float] = []
    fired: Counter[int] = Counter()
    answers: list[float | str] = []
    fallback = clipped = 0
    measure = base_text = ""
    for index in chosen:
        answer = explained(model, X[index], reference)
        answers.append(answer.prediction if isinstance(answer.prediction, str) else float(answer.prediction))
        if answer.fired.rule.measured:
            fired[answer.fired.rule.index] += 1
            fallback += answer.fallback or answer.fired.rule.otherwise
        clipped += answer.clipped_from is not None
        if answer.shares:
            measure, base_text = answer.measure, answer.base_text
            shares.append([float(answer.shares.get(name, 0.0)) for name in names])
            bases.append(float(answer.base))
        step()
    far = far_outside(domain, answers)
    return {
        "format": FORMAT,
        "scheme": model.scheme,
        "nature": nature(model),
        "target": domain.target_name,
        "unit": domain.target_unit,
        "rows": len(X),
        "explained": len(chosen),
        "with_shares": len(shares),
        "measure": measure,
        "mean_base": math.fsum(bases) / len(bases) if bases else None,
        "base_text": base_text,
        "inputs": _inputs(domain, shares),
        "rules": _rules(model, fired, len(chosen)),
        "fallback": int(fallback),
        "clipped": int(clipped),
        "outside": _outside(domain, X[chosen]),
        "forecasts": _forecasts(answers),
        "notes": [*summary(model, top=0).notes, *([far] if far else [])],
    }


def _inputs(domain: Domain, shares: list[list[float]]) -> list[dict[str, Any]]:
    if not shares:
        return []
    table = np.array(shares)
    absolute, mean = np.abs(table).mean(axis=0), table.mean(axis=0)
    total = float(absolute.sum())
    inputs = [
        {
            "feature": name,
            "mean_absolute_share": float(absolute[index]),
            "mean_share": float(mean[index]),
            "part": float(absolute[index]) / total if total > 0 else 0.0,
        }
        for index, name in enumerate(domain.names)
    ]
    return sorted(inputs, key=lambda each: (-each["mean_absolute_share"], each["feature"]))


def _rules(model: Model, fired: Counter[int], explained: int) -> list[dict[str, Any]]:
    texts = {rule.index: rule for rule in readable_rules(model)} if fired else {}
    return [
        {
            "rule": index,
            "rows": count,
            "share": count / explained,
            "text": str(texts[index]),
            "brief": texts[index].summary[0],
        }
        for index, count in sorted(fired.items(), key=lambda item: (-item[1], item[0]))
    ]


def _outside(domain: Domain, X: NDArray[np.float64]) -> dict[str, Any]:
    beyond = np.zeros(X.shape, dtype=bool)
    for index, variable in enumerate(domain.features):
        if not variable.categories:
            beyond[:, index] = (X[:, index] < variable.low) | (X[:, index] > variable.high)
    counts = dict(zip(domain.names, beyond.sum(axis=0).tolist(), strict=True))
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    return {"rows": int(beyond.any(axis=1).sum()), "inputs": {name: count for name, count in ranked if count}}


def _forecasts(answers: list[float | str]) -> dict[str, Any]:
    numbers = [answer for answer in answers if not isinstance(answer, str)]
    if len(numbers) == len(answers):
        if not numbers:
            return {}
        return {"mean": math.fsum(numbers) / len(numbers), "low": min(numbers), "high": max(numbers)}
    return dict(Counter(map(str, answers)).most_common())
