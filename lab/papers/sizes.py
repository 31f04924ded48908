"""Accuracy against size: our model trees beside the papers' systems, other projects' and the black boxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from lab.papers import plots
from lab.papers.jobs import Chapter, Job, Results, file_of, present
from lab.papers.page import Blocks, Cell, Picture, Table, Text
from lab.protocols.references import ANCHORS, REFERENCES, SIZES, Anchor

PAPER = "Accuracy against size: what a reader gets for how many rules"
DATASETS = ("weather_izmir", "mortgage", "kinematics", "compactiv", "california")
FOLDS = 5
QOE = "QoE, three real vehicles"

ROWS_AS_THEY_ARE = {"min_rows": 1}
"""For what is compared with learners that read the rows themselves; runs condense rows by default."""

SYSTEMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    # line of the table: scheme, parameters
    "FRT (as published)": ("frt", {"min_rows": 1}),
    "TSK (averaged, as published)": ("tsk", {"consequents": "averaged", "antecedents": "local", "min_rows": 1}),
    "TSK (pooled, ours)": ("tsk", {}),
    "tree, from condensed rows (our default)": ("tree", {}),
    "tree": ("tree", ROWS_AS_THEY_ARE),
}

RULES = SIZES
"""Most rules of the points of a curve; the last is the default."""

TREE = "tree"
"""Our curve."""

CURVES = {"Cubist": "cubist", "CART": "cart"}
"""Anchors that are drawn as curves, by title: the name of each without its most rules."""

MARKS = ("cubist-5-committees", "linear-leaves")
"""Anchors that are drawn as single marks."""

LINES = {"boosting": "gradient boosting", "forest": "random forest", "ebm": "EBM"}
"""Drawn as lines."""


def sets(data: Path) -> list[str]:
    """Return the sets that are there."""
    return [*present(data, DATASETS), *([QOE] if any((data / "qoe").glob("*.csv.gz")) else [])]


def rows_of(name: str, fold: int, data: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the arguments of a job that say a set's rows, and the files that it reads."""
    if name == QOE:
        return {"source": "real"}, tuple(f"qoe/{path.name}" for path in sorted((data / "qoe").glob("*.csv.gz")))
    return {"file": file_of(name), "fold": fold}, (file_of(name),)


def _folds(name: str) -> range:
    return range(1 if name == QOE else FOLDS)


def _label(name: str, system: str, fold: int) -> str:
    return f"size: {name}, {system}" if name == QOE else f"size: {name}, {system}, fold {fold + 1}"


def _at_most(rules: int) -> str:
    return TREE if rules == RULES[-1] else f"{TREE}, at most {rules} rules"


def _systems() -> dict[str, tuple[str, Mapping[str, Any]]]:
    points = {_at_most(rules): ("tree", {**ROWS_AS_THEY_ARE, "max_rules": rules}) for rules in RULES[:-1]}
    return {**SYSTEMS, **points}


def _anchors(results: Results, names: list[str]) -> dict[str, Anchor]:
    """Return the anchors that have results."""
    return {key: anchor for key, anchor in ANCHORS.items() if all(_label(name, key, 0) in results for name in names)}


def _jobs(data: Path, full: bool) -> list[Job]:
    jobs = []
    anchors = [key for key, anchor in ANCHORS.items() if anchor.installed and (full or not anchor.slow)]
    for name in sets(data):
        for fold in _folds(name):
            where, read = rows_of(name, fold, data)
            for system, (scheme, parameters) in _systems().items():
                arguments = {**where, "scheme": scheme, "parameters": dict(parameters)}
                jobs.append(Job("sized", _label(name, system, fold), arguments, read))
            for reference in REFERENCES:
                arguments = {**where, "reference": reference}
                jobs.append(Job("sized-reference", _label(name, reference, fold), arguments, read))
            jobs += [
                Job("sized-anchor", _label(name, anchor, fold), {**where, "anchor": anchor}, read) for anchor in anchors
            ]
    return jobs


def _mean(results: Results, name: str, system: str, value: Any) -> float:
    return fmean(value(results[_label(name, system, fold)]) for fold in _folds(name))


def _error(result: Any) -> float:
    return float(result["test"])


def _rules(result: Any) -> float:
    size = result["complexity"]
    return float(size.get("leaves", size.get("rules", 1)))


def _milliseconds(result: Any) -> float:
    return 1000.0 * float(result["seconds"])


def _coefficients(result: Any) -> float:
    size = result["complexity"]
    return float(next((size[name] for name in ("parameters", "coefficients") if name in size), 0))


def _sizes(results: Results, data: Path) -> Blocks:
    names = sets(data)
    anchors = _anchors(results, names)
    sized = {system: system for system in _systems()} | {anchor.title: key for key, anchor in anchors.items()}
    titles = {**sized, **{f"{reference.title}, central": key for key, reference in REFERENCES.items()}}
    errors: list[list[Cell | str]] = [
        [title, *(f"{_mean(results, name, key, _error):.4g}" for name in names)] for title, key in titles.items()
    ]
    tables = [
        Table(
            f"Mean {what}",
            ["system", *names],
            [[title, *(f"{_mean(results, name, key, pick):,.0f}" for name in names)] for title, key in lines.items()],
        )
        for what, pick, lines in (
            ("rules", _rules, sized),
            ("numbers in the model", _coefficients, sized),
            ("bytes sent by a client", lambda r: r["bytes"], {**{s: s for s in _systems()}, "the rows": "ridge"}),
            ("milliseconds of one core to learn, of vehicles and coordinator together", _milliseconds, titles),
            ("MB of memory at the peak, beyond the rows", lambda r: r["megabytes"], titles),
        )
    ]
    missing = ", ".join(anchor.title for key, anchor in ANCHORS.items() if key not in anchors)
    pictures = [
        Picture(
            f"sizes-{name}",
            f"Test RMSE against the number of {what} (logarithmic axis): curves of the tree, Cubist and CART, other "
            "rule models as single marks, black boxes as lines; further left and lower is better",
            plots.sizes(_panels(results, names, size), what, "test RMSE"),
        )
        for name, what, size in (("rmse", "rules", _rules), ("numbers", "numbers to read", _coefficients))
    ]
    return [
        Text(
            "Folds of all rows first, clients inside each fold, as for FRT's tables: TSK's numbers are not those "
            "of its own tables. Federated models; references and other projects' learners learn from pooled rows: "
            "these not scaled, those between the limits of our trees. `tree, at most n rules` has `max_rules=n`. "
            "Curves are from rows as they are (`min_rows=1`). The rules of an EBM are its terms. Bytes: what a client "
            "sends in a run; domain discovery and receipts not counted; for a central learner it would be the rows "
            "themselves. Time and memory were measured while other learners ran beside."
        ),
        *([Text(f"Not computed here: {missing} (extra `anchors`; EBM with `--full` only).")] if missing else []),
        *pictures,
        Table("Test RMSE, mean over folds and clients", ["system", *names], errors),
        *tables,
        Text(_verdict(results, names)),
    ]


def _panels(results: Results, names: list[str], size: Callable[[Any], float]) -> dict[str, Any]:
    """Return what is drawn of each set: curves and marks by title, against the `size` of a result, and lines."""
    anchors, panels = _anchors(results, names), {}
    for name in names:

        def point(key: str, name: str = name) -> tuple[float, float]:
            return _mean(results, name, key, size), _mean(results, name, key, _error)

        series = {}
        curves = {TREE: [_at_most(rules) for rules in RULES]}
        curves |= {title: [f"{kind}-{rules}" for rules in RULES] for title, kind in CURVES.items()}
        for title, keys in curves.items():
            points = [point(key) for key in keys if key in {*_systems(), *anchors}]
            if points:
                series[title] = ([x for x, _ in points], [y for _, y in points])
        marks = {anchors[key].title: key for key in MARKS if key in anchors} | {
            "FRT (as published)": "FRT (as published)"
        }
        for title, key in marks.items():
            x, y = point(key)
            series[title] = ([x], [y])
        lines = {
            title: _mean(results, name, key, _error) for key, title in LINES.items() if key in {*REFERENCES, *anchors}
        }
        panels[name] = (series, lines)
    return panels


def _verdict(results: Results, names: list[str]) -> str:
    """Say in words on how many sets our tree errs less than whom, counted from the results."""
    others = {title: title for title in ("FRT (as published)", "TSK (averaged, as published)")}
    others |= {anchor.title: key for key, anchor in _anchors(results, names).items()}
    others |= {reference.title: key for key, reference in REFERENCES.items()}

    def wins(system: str, other: str) -> int:
        return sum(_mean(results, name, system, _error) < _mean(results, name, other, _error) for name in names)

    listed = ", ".join(f"{title} on {wins(TREE, key)}" for title, key in others.items())
    return f"Of {len(names)} sets {TREE} errs less than {listed}."


CHAPTERS = (
    Chapter(
        "sizes-rmse",
        PAPER,
        "RMSE, rules, numbers and bytes",
        _jobs,
        _sizes,
        (*map(file_of, DATASETS), "qoe/vehicle_0.csv.gz"),
        ("accuracy-size", "tree-sizes"),
    ),
)
