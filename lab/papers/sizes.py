"""Accuracy against size: our fuzzy model tree beside the papers' systems and the black boxes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from lab.papers import plots
from lab.papers.jobs import Chapter, Job, Results, file_of, present
from lab.papers.page import Cell, Picture, Section, Table, Text
from lab.protocols.references import REFERENCES

PAPER = "Accuracy against size: what a reader gets for how many rules"
DATASETS = ("weather_izmir", "mortgage", "kinematics", "compactiv", "california")
FOLDS = 5
QOE = "QoE, three real vehicles"

SYSTEMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    # line of the table: scheme, parameters
    "FRT (as published)": ("frt", {"min_rows": 1}),
    "TSK (averaged, as published)": ("tsk", {"consequents": "averaged", "antecedents": "local", "min_rows": 1}),
    "TSK (pooled, ours)": ("tsk", {}),
    "FMT (our default)": ("fmt", {}),
}

RULES = (1, 2, 4, 8, 12, 20, 40)
"""Most rules of the points of FMT's curve; the last is the default."""

LINES = {"mlp": "MLP", "boosting": "gradient boosting"}
"""Drawn as lines."""


def _present(data: Path) -> list[str]:
    return [*present(data, DATASETS), *([QOE] if any((data / "qoe").glob("*.csv.gz")) else [])]


def _folds(name: str) -> range:
    return range(1 if name == QOE else FOLDS)


def _label(name: str, system: str, fold: int) -> str:
    return f"size: {name}, {system}" if name == QOE else f"size: {name}, {system}, fold {fold + 1}"


def _at_most(rules: int) -> str:
    return f"FMT, at most {rules} rules"


def _systems() -> dict[str, tuple[str, Mapping[str, Any]]]:
    return {**SYSTEMS, **{_at_most(rules): ("fmt", {"max_rules": rules}) for rules in RULES[:-1]}}


def _jobs(data: Path, full: bool) -> list[Job]:  # noqa: ARG001 - the same either way
    jobs = []
    for name in _present(data):
        qoe = tuple(f"qoe/{path.name}" for path in sorted((data / "qoe").glob("*.csv.gz")))
        for fold in _folds(name):
            where, files = ({"source": "real"}, qoe) if name == QOE else ({"file": file_of(name), "fold": fold}, ())
            read = files or (file_of(name),)
            for system, (scheme, parameters) in _systems().items():
                arguments = {**where, "scheme": scheme, "parameters": dict(parameters)}
                jobs.append(Job("sized", _label(name, system, fold), arguments, read))
            for reference in REFERENCES:
                arguments = {**where, "reference": reference}
                jobs.append(Job("sized-reference", _label(name, reference, fold), arguments, read))
    return jobs


def _mean(results: Results, name: str, system: str, value: Any) -> float:
    return fmean(value(results[_label(name, system, fold)]) for fold in _folds(name))


def _error(result: Any) -> float:
    return float(result["test"])


def _rules(result: Any) -> float:
    size = result["complexity"]
    return float(size.get("leaves", size.get("rules", 1)))


def _coefficients(result: Any) -> float:
    size = result["complexity"]
    return float(next((size[name] for name in ("parameters", "coefficients") if name in size), 0))


def _sizes(results: Results, data: Path) -> Section:
    names, systems = _present(data), [*SYSTEMS, *map(_at_most, RULES[:-1])]
    errors: list[list[Cell | str]] = []
    for title, key in [*((s, s) for s in systems), *((f"{r.title}, central", n) for n, r in REFERENCES.items())]:
        errors.append([title, *(f"{_mean(results, name, key, _error):.4g}" for name in names)])
    measures = {"rules": _rules, "numbers in the model": _coefficients, "bytes sent by a client": lambda r: r["bytes"]}
    tables = [
        Table(
            f"Mean {what}",
            ["system", *names],
            [[system, *(f"{_mean(results, name, system, pick):,.0f}" for name in names)] for system in systems],
        )
        for what, pick in measures.items()
    ]
    raw = [f"{_mean(results, name, 'ridge', lambda r: r['bytes']):,.0f}" for name in names]
    tables[-1] = Table(tables[-1].caption, tables[-1].header, [*tables[-1].rows, ["the rows themselves", *raw]])
    panels = {}
    for name in names:
        points = [(_mean(results, name, s, _rules), _mean(results, name, s, _error)) for s in map(_at_most, RULES[:-1])]
        whole = "FMT (our default)"
        points.append((_mean(results, name, whole, _rules), _mean(results, name, whole, _error)))
        series = {"FMT": ([x for x, _ in points], [y for _, y in points])}
        for system in list(SYSTEMS)[:-1]:
            series[system] = ([_mean(results, name, system, _rules)], [_mean(results, name, system, _error)])
        panels[name] = (series, {title: _mean(results, name, key, _error) for key, title in LINES.items()})
    words = (
        "Test RMSE against the number of rules (logarithmic axis): FMT's curve, the papers' systems as single marks, "
        "black boxes as lines; further left and lower is better"
    )
    return Section(
        "sizes-rmse",
        "RMSE, rules, numbers and bytes",
        [
            Text(
                "Folds of all rows first, clients inside each fold, as for FRT's tables: TSK's numbers are not those "
                "of its own tables. Federated models; the references learn from pooled rows. `FMT, at most n rules` "
                "is the fuzzy model tree with `max_rules=n`. Bytes: what one client sends in a run; domain "
                "discovery and receipts not counted; for a central learner it would be the rows themselves."
            ),
            Picture("sizes-rmse", words, plots.sizes(panels, "rules", "test RMSE")),
            Table("Test RMSE, mean over folds and clients", ["system", *names], errors),
            *tables,
            Text(_verdict(results, names)),
        ],
    )


def _verdict(results: Results, names: list[str]) -> str:
    """Say in words where the default beats whom, counted from the results."""

    def wins(system: str, other: str) -> int:
        return sum(_mean(results, name, system, _error) < _mean(results, name, other, _error) for name in names)

    default, frt = "FMT (our default)", "FRT (as published)"
    fewer = sum(_mean(results, name, default, _rules) < _mean(results, name, frt, _rules) for name in names)
    counted = ", ".join(
        f"{REFERENCES[name].title} on {wins(default, name)}" for name in ("boosting", "forest", "mlp", "cart", "ridge")
    )
    return (
        f"Of {len(names)} sets FMT errs less than FRT on {wins(default, frt)} and has fewer rules on {fewer}; it errs "
        f"less than the published TSK on {wins(default, 'TSK (averaged, as published)')}; than {counted}."
    )


CHAPTERS = (
    Chapter(
        "sizes-rmse",
        PAPER,
        "RMSE against rules, numbers and bytes",
        _jobs,
        _sizes,
        (*map(file_of, DATASETS), "qoe/vehicle_0.csv.gz"),
        ("accuracy-size", "fmt-sizes"),
    ),
)
