"""Many forecasts explained at once, for ``glassfleet model explain --summary``: what moves them, over a file."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from console.common import print_json, table_lines
from console.model.inputs import inputs_of
from console.model.words import OTHERWISE, wrapped
from console.progress import progress
from glassfleet.explain import over_rows
from glassfleet.model.baseline import ReferenceRow
from glassfleet.model.protocol import Model
from schemas.errors import UsageError
from schemas.text import counted

SHOWN = 10
"""Rules that are told in words."""


ABOUT_ONE = ("row", "against", "goal", "fixed", "only", "max_inputs")
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


def explain_rows(model: Model, data: str, most: int, reference: ReferenceRow | None, *, as_json: bool) -> None:
    """Explain the rows of a file together, and print it; see `over_rows`."""
    X = inputs_of(data, model)
    with progress("explaining", min(len(X), most)) as work:
        report = over_rows(model, X, most, work, reference)
    if as_json:
        print_json(report)
    else:
        click.echo("\n".join(over_rows_lines(report)))


def over_rows_lines(report: dict[str, Any]) -> list[str]:
    """Return what `over_rows` found as lines of text."""
    explained, rules = report["explained"], report["nature"] == "rules"
    of = "" if explained == report["rows"] else f", spread evenly over {report['rows']}"
    lines = [f"{report['target']}: {counted(explained, 'rows')} explained{of}", *_forecast_lines(report)]
    for note in report["notes"]:
        lines += wrapped(f"note: {note}", "")
    lines += ["", *_input_lines(report)] if report["nature"] != "structures" else []
    lines += ["", *_rule_lines(report)] if report["rules"] else []
    fell = f"no rule's conditions were met ({OTHERWISE}, or the heaviest rule): {counted(report['fallback'], 'rows')}"
    by_input = ", ".join(f"{name} {count}" for name, count in report["outside"]["inputs"].items())
    outside = counted(report["outside"]["rows"], "rows") + (f" ({by_input})" if by_input else "")
    return [
        *lines,
        "",
        *([fell] if rules else []),
        f"clipped to the target's limits: {counted(report['clipped'], 'rows')}",
        f"with an input outside the model's range: {outside}",
    ]


def _forecast_lines(report: dict[str, Any]) -> list[str]:
    forecasts, unit = report["forecasts"], f" {report['unit']}" if report["unit"] else ""
    if not forecasts:
        return []
    if all(isinstance(each, int) for each in forecasts.values()):
        return wrapped("forecasts: " + ", ".join(f"{count} {name}" for name, count in forecasts.items()), "")
    low, high, mean = (f"{forecasts[name]:.6g}" for name in ("low", "high", "mean"))
    return [f"forecasts from {low} to {high}, mean {mean}{unit}"]


def _input_lines(report: dict[str, Any]) -> list[str]:
    if not report["inputs"]:
        return ["there are no shares of inputs to tell for these rows"]
    what = f"the {report['measure']}" if report["measure"] else "the forecast"
    if report["unit"] and not report["measure"]:
        what += f", in {report['unit']}"
    rows = [["input", "mean |share|", "mean share", "part of all"]]
    for each in report["inputs"]:
        numbers = f"{each['mean_absolute_share']:.4f}", f"{each['mean_share']:+.4f}", f"{each['part']:.1%}"
        rows.append([each["feature"], *numbers])
    base = f" (base: {report['base_text']})" if report["base_text"] else ""
    lines = [*wrapped(f"what moves it: shares of {what}{base}", ""), *(f"  {line}" for line in table_lines(rows))]
    without = report["explained"] - report["with_shares"]
    return [*lines, f"  ({counted(without, 'rows')} had nothing to share out)"] if without else lines


def _rule_lines(report: dict[str, Any]) -> list[str]:
    lines = [f"which rules decided, or weighed most ({len(report['rules'])} of them):"]
    for each in report["rules"][:SHOWN]:
        lines += wrapped(f"{each['rows']:>6} {each['share']:>6.1%}  rule {each['rule']}: {each['brief']}", "")
    rest = report["rules"][SHOWN:]
    return (
        [*lines, f"{sum(each['rows'] for each in rest):>6}         {counted(len(rest), 'other rules')}"]
        if rest
        else lines
    )
