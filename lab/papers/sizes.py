"""Accuracy against size: our model trees beside the papers' systems, other projects' and the black boxes; intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from lab.papers import plots
from lab.papers.jobs import FOLDS, Chapter, Found, Job, Jobs, file_of, present, vehicles_of
from lab.papers.page import Blocks, Picture, Rows, Table, Text
from lab.protocols.references import ANCHORS, REFERENCES, SIZES

PAPER = "Accuracy against size: what a reader gets for how many rules"
DATASETS = ("weather_izmir", "mortgage", "kinematics", "compactiv", "california")
QOE = "QoE, three real vehicles"

ROWS_AS_THEY_ARE = {"min_rows": 1}
"""For what is compared with learners that read the rows themselves; runs condense rows by default."""

SYSTEMS: dict[str, tuple[str, Mapping[str, Any]]] = {
    # line of the table: scheme, parameters
    "FRT (as published)": ("frt", {"min_rows": 1}),
    "TSK (averaged, as published)": ("tsk", {"consequents": "averaged", "antecedents": "local", "min_rows": 1}),
    "TSK (pooled, ours)": ("tsk", {}),
    "tree, from condensed rows (our default)": ("tree", {}),
    "tree": ("tree", ROWS_AS_THEY_ARE),
}

TREE = "tree"
"""Our curve; without more words the default, of at most as many rules as the last of its points."""

POINTS = {f"{TREE}, at most {rules} rules": rules for rules in SIZES[:-1]}
SYSTEMS |= {name: ("tree", {**ROWS_AS_THEY_ARE, "max_rules": rules}) for name, rules in POINTS.items()}

CURVES = {
    TREE: [*POINTS, TREE],
    "Cubist": [f"cubist-{rules}" for rules in SIZES],
    "CART": [f"cart-{rules}" for rules in SIZES],
}
"""What is drawn as a curve, by title."""

MARKS = ("cubist-5-committees", "linear-leaves", "FRT (as published)")
"""What is drawn as a single mark."""

LINES = {"boosting": "gradient boosting", "forest": "random forest", "ebm": "EBM"}
"""Drawn as lines."""


TITLES = {name: name for name in SYSTEMS} | {key: anchor.title for key, anchor in ANCHORS.items()}
TITLES |= {key: f"{reference.title}, central" for key, reference in REFERENCES.items()}


def _sets(data: Path) -> list[str]:
    return [*present(data, DATASETS), *([QOE] if vehicles_of(data) else [])]


def _rows(name: str, fold: int) -> dict[str, Any]:
    """Return the arguments of a job that say a set's rows."""
    return {"source": "real"} if name == QOE else {"file": file_of(name), "fold": fold}


def _jobs(data: Path, full: bool) -> Jobs:
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        name: ("fleet", {"scheme": scheme, "parameters": dict(parameters)})
        for name, (scheme, parameters) in SYSTEMS.items()
    }
    kinds |= {name: ("reference", {"reference": name, "limits": "tree"}) for name in REFERENCES}
    chosen = [name for name, anchor in ANCHORS.items() if anchor.installed and (full or not anchor.slow)]
    kinds |= {name: ("anchor", {"anchor": name}) for name in chosen}
    return {
        (name, system): [Job(kind, {**_rows(name, fold), **more}) for fold in range(1 if name == QOE else FOLDS)]
        for name in _sets(data)
        for system, (kind, more) in kinds.items()
    }


Pick = Callable[[Any], float]


def _error(result: Any) -> float:
    return fmean(result["test"])


def _rules(result: Any) -> float:
    size = result["complexity"]
    return float(size.get("leaves", size.get("rules", 1)))


def _coefficients(result: Any) -> float:
    size = result["complexity"]
    return float(next((size[name] for name in ("parameters", "coefficients") if name in size), 0))


def _sent(result: Any) -> float:
    return float(result["bytes_up"]) / len(result["test"])


def _mean(results: Sequence[Any], pick: Pick) -> float:
    return fmean(map(pick, results))


def _sizes(found: Found) -> Blocks:
    names, systems = (list(dict.fromkeys(keys)) for keys in zip(*found, strict=True))
    anchors = [system for system in systems if system in ANCHORS]
    sized = [*SYSTEMS, *anchors]

    def table(caption: str, some: Iterable[str], pick: Pick, digits: str) -> Table:
        rows: Rows = []
        for system in some:
            title = "the rows" if system == "ridge" and "bytes" in caption else TITLES[system]
            rows.append([title, *(format(_mean(found[name, system], pick), digits) for name in names)])
        return Table(caption, ["system", *names], rows)

    every, short = [*sized, *REFERENCES], ",.0f"
    missing = ", ".join(anchor.title for key, anchor in ANCHORS.items() if key not in anchors)
    pictures = [
        Picture(
            f"sizes-{name}",
            f"Test RMSE against the number of {what} (logarithmic axis): curves of the tree, Cubist and CART, other "
            "rule models as single marks, black boxes as lines; further left and lower is better",
            plots.sizes({each: _panel(found, each, size) for each in names}, what, "test RMSE"),
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
        table("Test RMSE, mean over folds and clients", every, _error, ".4g"),
        table("Mean rules", sized, _rules, short),
        table("Mean numbers in the model", sized, _coefficients, short),
        table("Mean bytes sent by a client", [*SYSTEMS, "ridge"], _sent, short),
        table(
            "Mean milliseconds of one core to learn, of vehicles and coordinator together", every,
            lambda each: 1000.0 * each["seconds"], short,
        ),
        table("Mean MB of memory at the peak, beyond the rows", every, lambda each: each["megabytes"], short),
        Text(_verdict(found, names, anchors)),
    ]  # fmt: skip


def _panel(found: Found, name: str, size: Pick) -> tuple[dict[str, Any], dict[str, float]]:
    """Return what is drawn of a set: curves and marks by title, against the `size` of a result, and lines."""
    series = {}
    for title, keys in (CURVES | {TITLES[key]: [key] for key in MARKS}).items():
        if there := [found[name, key] for key in keys if (name, key) in found]:
            series[title] = ([_mean(each, size) for each in there], [_mean(each, _error) for each in there])
    lines = {title: _mean(found[name, key], _error) for key, title in LINES.items() if (name, key) in found}
    return series, lines


def _verdict(found: Found, names: Sequence[str], anchors: Sequence[str]) -> str:
    """Say in words on how many sets our tree errs less than whom, counted from the results."""
    listed = []
    for other in ("FRT (as published)", "TSK (averaged, as published)", *anchors, *REFERENCES):
        pairs = [[_mean(found[name, key], _error) for key in (TREE, other)] for name in names]
        title = REFERENCES[other].title if other in REFERENCES else TITLES[other]
        listed.append(f"{title} on {sum(own < theirs for own, theirs in pairs)}")
    return f"Of {len(names)} sets {TREE} errs less than {', '.join(listed)}."


# --- how often intervals hold: nine of ten, on clients that were left out ---------------------------------------------


VEHICLES = 3
"""Real ones; each is left out once."""

MUCH_USED = 1_000
"""Test rows of a rule from which on it is looked at by itself."""


def _interval_jobs(data: Path, full: bool) -> Jobs:  # noqa: ARG001 - the same either way
    return {
        (name, scheme): [
            Job("covered", {**_rows(name, left), "scheme": scheme, "parameters": {}, "left": left})
            for left in range(VEHICLES if name == QOE else FOLDS)
        ]
        for name in _sets(data)
        for scheme in ("tree", "frt")
    }


def _intervals(found: Found) -> Blocks:
    lines: Rows = []
    for (name, scheme), results in found.items():
        rows, counted, within = (sum(each[key] for each in results) for key in ("rows", "counted", "within"))
        tried = [hit / new for each in results for own, new, hit in each["rules"] if min(own, new) >= MUCH_USED]
        lines.append(
            [
                f"{name}, {scheme}",
                f"{counted:,}",
                f"{rows:,}",
                f"{100 * within / rows:.1f} %",
                f"{200 * (0.09 / rows + 0.09 / counted) ** 0.5:.1f}",
                f"{fmean(each['width'] / each['rmse'] for each in results):.2f}",
                f"{100 * min(tried):.1f} to {100 * max(tried):.1f} % ({len(tried)})" if tried else "-",
            ]
        )
    header = ["set, scheme", "rows counted", "rows tried", "within", "two standard errors", "width / RMSE", "by rule"]
    return [
        Text(
            "Each time one client is left out. The others learn from their training rows with the default "
            "parameters, and count their errors on their test rows; then all rows of the client that was left out "
            "are forecast. Nine of ten true values shall be within. Two standard errors count the rows on both "
            "sides; vehicles on the road differ from each other by more than chance. Widths are medians, beside "
            f"the root mean squared error there. Rules: those with at least {MUCH_USED:,} rows on both sides, and "
            "how many they are."
        ),
        Table("Intervals on clients that were left out", header, lines, counted=False),
    ]


CHAPTERS = (
    Chapter("sizes-rmse", PAPER, "RMSE, rules, numbers and bytes", _jobs, _sizes,
            (*map(file_of, DATASETS), "qoe/vehicle_0.csv.gz"), ("accuracy-size", "tree-sizes")),
    Chapter("intervals", PAPER, "How often the true value is within the interval", _interval_jobs, _intervals),
)  # fmt: skip
