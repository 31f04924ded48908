"""The TSK paper: Tables III (errors), IV (tests), V (rules), VI (one rule against all)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from lab.experiments.folds import SHORT
from lab.papers.jobs import Arguments, Chapter, Job, Results, file_of, fold_job, fold_label, present
from lab.papers.page import Blocks, Cell, Table, Text, number, wilcoxon_table

PAPER = "Federated TSK fuzzy rule-based systems (TSK)"
FOLDS = 5

PUBLISHED: Mapping[str, Any] = {
    # dataset: unit of print, its name, (train, test) of LL, FL, CL, rules of LL, FL, CL
    "weather_izmir": (1.0, "", ((1.13, 2.76), (1.32, 1.42), (1.28, 1.38)), (13.96, 27.80, 13.40)),
    "mortgage": (1e-3, "× 0.001", ((1.52, 45.71), (11.52, 14.77), (3.99, 6.36)), (21.60, 46.00, 21.00)),
    "california": (1e9, "× 10^9", ((4.71, 4.88), (4.78, 4.83), (4.78, 4.81)), (8.80, 10.20, 8.60)),
}

UNPRINTED = ("treasury",)
"""Sets of the paper whose table this program does not know; run when their files are there."""

SEEDS = {"weather_izmir": 19}
"""Of the clients' parts, where it is not the protocol's 42."""

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "averaged rules": {"inference": "weighted_average"},
    "pooled": {"consequents": "pooled"},
    "together": {"consequents": "pooled", "antecedents": "federated"},
}

OURS = {"pooled": "FL pooled", "together": "FL together"}
"""Variants of FL that the paper does not have, and their columns."""

DATASETS = (*PUBLISHED, *UNPRINTED)


def _arguments(name: str, variant: str) -> Arguments:
    settings = ["federated"] if variant in OURS else list(SHORT)
    seed: Arguments = {"seed": SEEDS[name]} if name in SEEDS else {}
    return {"scheme": "tsk", "settings": settings, "parameters": dict(VARIANTS[variant]), **seed}


def _jobs_of(*variants: str) -> Any:
    def jobs(data: Path, full: bool) -> list[Job]:  # noqa: ARG001 - the same either way
        return [
            fold_job("TSK", name, fold, variant, _arguments(name, variant))
            for name in present(data, DATASETS)
            for variant in variants
            for fold in range(FOLDS)
        ]

    return jobs


def _mse(results: Results, name: str, setting: str, kind: str, variant: str = "") -> list[float]:
    """Return the mean squared errors of all folds and clients."""
    lines = [results[fold_label("TSK", name, fold, variant)][setting][kind] for fold in range(FOLDS)]
    return [error**2 for line in lines for error in line]


def _rules(results: Results, name: str, setting: str, variant: str = "") -> float:
    return fmean(
        results[fold_label("TSK", name, fold, variant)][setting]["complexity"]["rules"] for fold in range(FOLDS)
    )


def _errors(results: Results, data: Path) -> Blocks:
    rows: list[list[Cell | str]] = []
    for name in present(data, DATASETS):
        unit, words, printed, _ = PUBLISHED.get(name, (1.0, "", ((None, None),) * 3, None))
        line: list[Cell | str] = [f"{name} {words}".strip()]
        for setting, pair in zip(SHORT, printed, strict=True):
            for kind, value in zip(("train", "test"), pair, strict=True):
                line.append(number(fmean(_mse(results, name, setting, kind)) / unit, value))
        ours = [fmean(_mse(results, name, "federated", "test", variant)) for variant in OURS]
        rows.append([*line, *(number(value / unit) for value in ours)])
    header = ["dataset", *(f"{short} {kind}" for short in SHORT.values() for kind in ("train", "test"))]
    return [
        Text(
            "Clients first, folds inside each client; means over clients and folds. The last columns are not "
            "in the paper: consequents from pooled exact sums (`consequents=pooled`), of the antecedents that the "
            "clients find alone, and of those that they find by clustering together (`antecedents=federated`, our "
            "default: equal to the central model, bit for bit). Both have the rule OTHERWISE for rows that no "
            "other rule covers."
        ),
        Table(
            "MSE in the target's own unit squared, in the unit of print",
            [*header, *(f"{title} test" for title in OURS.values())],
            rows,
        ),
    ]


def _tests(results: Results, data: Path) -> Blocks:
    pairs = {}
    for name in present(data, DATASETS):
        federated = _mse(results, name, "federated", "test")
        pairs[f"{name}: FL against LL"] = federated, _mse(results, name, "local", "test")
        pairs[f"{name}: FL against CL"] = federated, _mse(results, name, "central", "test")
        for variant, title in OURS.items():
            pairs[f"{name}: {title} against FL averaged"] = _mse(results, name, "federated", "test", variant), federated
    return [wilcoxon_table("Over the 25 test MSEs (client × fold) of a dataset", pairs, "smaller")]


def _sizes(results: Results, data: Path) -> Blocks:
    rows: list[list[Cell | str]] = []
    for name in present(data, DATASETS):
        printed = PUBLISHED[name][3] if name in PUBLISHED else (None,) * 3
        line = [number(_rules(results, name, s), value) for s, value in zip(SHORT, printed, strict=True)]
        rows.append([name, *line, *(number(_rules(results, name, "federated", variant)) for variant in OURS)])
    return [Table("Means over models", ["dataset", *SHORT.values(), *OURS.values()], rows)]


def _single(results: Results, data: Path) -> Blocks:
    rows: list[list[Cell | str]] = []
    pairs = {}
    for name in present(data, DATASETS):
        unit, words = PUBLISHED[name][:2] if name in PUBLISHED else (1.0, "")
        line: list[Cell | str] = [f"{name} {words}".strip()]
        for setting, short in SHORT.items():
            one, all_ = (_mse(results, name, setting, "test", variant) for variant in ("", "averaged rules"))
            line += [number(fmean(one) / unit), number(fmean(all_) / unit)]
            pairs[f"{name}, {short}: one rule against all"] = one, all_
        rows.append(line)
    header = ["dataset", *(f"{short} {what}" for short in SHORT.values() for what in ("one rule", "all rules"))]
    return [
        Text("The paper's numbers of this table are not known to this program."),
        Table("Test MSE in the unit of print", header, rows),
        wilcoxon_table("Wilcoxon signed-rank tests over the 25 test MSEs", pairs, "smaller"),
    ]


_NEEDS = tuple(map(file_of, DATASETS))

CHAPTERS = (
    Chapter("tsk-3", PAPER, "Table III: mean squared errors", _jobs_of("", *OURS), _errors, _NEEDS),
    Chapter("tsk-4", PAPER, "Table IV: Wilcoxon signed-rank tests", _jobs_of("", *OURS), _tests, _NEEDS),
    Chapter("tsk-5", PAPER, "Table V: number of rules", _jobs_of("", *OURS), _sizes, _NEEDS),
    Chapter(
        "tsk-6",
        PAPER,
        "Table VI: one rule against the average of all that fire",
        _jobs_of("", "averaged rules"),
        _single,
        _NEEDS,
    ),
)
