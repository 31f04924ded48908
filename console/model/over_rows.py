"""Many forecasts explained at once, for ``glassfleet model explain --summary``: what moves them, over a file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from click.core import ParameterSource

from console.common import print_json, table_lines
from console.model.inputs import inputs_of
from console.model.words import OTHERWISE, wrapped
from console.progress import progress
from glassfleet.explain import summary as whole
from glassfleet.nature import nature, readable_rules
from schemas.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from glassfleet.data.domain import Domain
    from glassfleet.scheme import Model

FORMAT = 1
"""Version of the JSON form; it grows when a field changes its meaning or goes."""

SHOWN = 10
"""Rules that are told in words."""


ABOUT_ONE = ("row", "goal", "fixed", "only", "max_inputs")
"""Options that are about one row."""


def refuse_mixed(*, summary: bool) -> None:
    """Raise UsageError when the running command was told of one row and of all."""
    context = click.get_current_context()

    def is_given(name: str) -> bool:
        return context.get_parameter_source(name) not in {None, ParameterSource.DEFAULT}

    if not summary and is_given("most"):
        raise UsageError("--rows is for --summary, which explains many; --row N names the one row to explain")
    for name in ABOUT_ONE if summary else ():
        if is_given(name):
            raise UsageError(f"--{name.replace('_', '-')} is about one row, and --summary about all: leave out one")


def explain_rows(model: Model, data: Path, most: int, *, as_json: bool) -> None:
    """Explain the rows of a file together, and print it; see `over_rows`."""
    X = inputs_of(data, model)
    with progress("explaining", min(len(X), most)) as work:
        told = over_rows(model, X, most, work)
    if as_json:
        print_json(told)
    else:
        click.echo("\n".join(over_rows_lines(told)))


def over_rows(
    model: Model, X: NDArray[np.float64], most: int, step: Callable[[], object] = lambda: None
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
    measure = ""
    for index in chosen:
        told = model.explain(X[index])
        answers.append(told.prediction if isinstance(told.prediction, str) else float(told.prediction))
        if told.fired.rule.measured:
            fired[told.fired.rule.index] += 1
            fallback += told.fallback or told.fired.rule.otherwise
        clipped += told.clipped_from is not None
        if told.shares:
            measure = told.measure
            shares.append([float(told.shares.get(name, 0.0)) for name in names])
            bases.append(float(told.base))
        step()
    return {
        "format": FORMAT,
        "scheme": model.scheme,
        "nature": nature(model),
        "target": domain.target_name,
        "unit": domain.target.unit if domain.target is not None else "",
        "rows": len(X),
        "explained": len(chosen),
        "with_shares": len(shares),
        "measure": measure,
        "mean_base": math.fsum(bases) / len(bases) if bases else None,
        "inputs": _inputs(domain, shares),
        "rules": _rules(model, fired, len(chosen)),
        "fallback": int(fallback),
        "clipped": int(clipped),
        "outside": _outside(domain, X[chosen]),
        "forecasts": _forecasts(answers),
        "notes": list(whole(model, top=0).notes),
    }


def _inputs(domain: Domain, shares: list[list[float]]) -> list[dict[str, Any]]:
    if not shares:
        return []
    table = np.array(shares)
    absolute, mean = np.abs(table).mean(axis=0), table.mean(axis=0)
    total = float(absolute.sum())
    found = [
        {
            "feature": name,
            "mean_absolute_share": float(absolute[index]),
            "mean_share": float(mean[index]),
            "part": float(absolute[index]) / total if total > 0 else 0.0,
        }
        for index, name in enumerate(domain.names)
    ]
    return sorted(found, key=lambda each: (-each["mean_absolute_share"], each["feature"]))


def _rules(model: Model, fired: Counter[int], explained: int) -> list[dict[str, Any]]:
    texts = {rule.index: rule for rule in readable_rules(model)} if fired else {}
    return [
        {"rule": index, "rows": count, "share": count / explained, "text": str(texts[index])}
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


def over_rows_lines(told: dict[str, Any]) -> list[str]:
    """Return what `over_rows` found as lines of text."""
    explained, rules = told["explained"], told["nature"] == "rules"
    of = "" if explained == told["rows"] else f", spread evenly over {told['rows']}"
    lines = [f"{told['target']}: {_many(explained, 'row')} explained{of}", *_forecast_lines(told)]
    for note in told["notes"]:
        lines += wrapped(f"note: {note}", "")
    lines += ["", *_input_lines(told)] if told["nature"] != "structures" else []
    lines += ["", *_rule_lines(told)] if told["rules"] else []
    fell = f"no rule's conditions were met ({OTHERWISE}, or the heaviest rule): {_many(told['fallback'], 'row')}"
    by_input = ", ".join(f"{name} {count}" for name, count in told["outside"]["inputs"].items())
    outside = _many(told["outside"]["rows"], "row") + (f" ({by_input})" if by_input else "")
    return [
        *lines,
        "",
        *([fell] if rules else []),
        f"clipped to the target's limits: {_many(told['clipped'], 'row')}",
        f"with an input outside the model's range: {outside}",
    ]


def _forecast_lines(told: dict[str, Any]) -> list[str]:
    forecasts, unit = told["forecasts"], f" {told['unit']}" if told["unit"] else ""
    if not forecasts:
        return []
    if all(isinstance(each, int) for each in forecasts.values()):
        return wrapped("forecasts: " + ", ".join(f"{count} {name}" for name, count in forecasts.items()), "")
    low, high, mean = (f"{forecasts[name]:.6g}" for name in ("low", "high", "mean"))
    return [f"forecasts from {low} to {high}, mean {mean}{unit}"]


def _input_lines(told: dict[str, Any]) -> list[str]:
    if not told["inputs"]:
        return ["there are no shares of inputs to tell for these rows"]
    what = f"the {told['measure']}" if told["measure"] else "the forecast"
    if told["unit"] and not told["measure"]:
        what += f", in {told['unit']}"
    rows = [["input", "mean |share|", "mean share", "part of all"]]
    for each in told["inputs"]:
        numbers = f"{each['mean_absolute_share']:.4f}", f"{each['mean_share']:+.4f}", f"{each['part']:.1%}"
        rows.append([each["feature"], *numbers])
    lines = [*wrapped(f"what moves it: shares of {what}", ""), *(f"  {line}" for line in table_lines(rows))]
    without = told["explained"] - told["with_shares"]
    return [*lines, f"  ({_many(without, 'row')} had nothing to share out)"] if without else lines


def _rule_lines(told: dict[str, Any]) -> list[str]:
    lines = [f"which rules decided, or weighed most ({len(told['rules'])} of them):"]
    for each in told["rules"][:SHOWN]:
        lines += wrapped(f"{each['rows']:>6} {each['share']:>6.1%}  rule {each['rule']}: {each['text']}", "")
    rest = told["rules"][SHOWN:]
    return (
        [*lines, f"{sum(each['rows'] for each in rest):>6}         {_many(len(rest), 'other rule')}"] if rest else lines
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
