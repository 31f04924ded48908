"""The TSK paper: Tables III (errors), IV (tests), V (rules), VI (one rule against all)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from lab.experiments.folds import SHORT
from lab.papers.jobs import Chapter, Found, Jobs, file_of, fold_jobs, present
from lab.papers.page import Blocks, Rows, Table, Text, number, wilcoxon_table

PAPER = "Federated TSK fuzzy rule-based systems (TSK)"

PUBLISHED: Mapping[str, Any] = {
    # dataset: unit of print, its name, (train, test) of LL, FL, CL, rules of LL, FL, CL
    "weather_izmir": (1.0, "", ((1.13, 2.76), (1.32, 1.42), (1.28, 1.38)), (13.96, 27.80, 13.40)),
    "mortgage": (1e-3, "× 0.001", ((1.52, 45.71), (11.52, 14.77), (3.99, 6.36)), (21.60, 46.00, 21.00)),
    "california": (1e9, "× 10^9", ((4.71, 4.88), (4.78, 4.83), (4.78, 4.81)), (8.80, 10.20, 8.60)),
}
UNKNOWN: Any = (1.0, "", ((None, None),) * 3, (None,) * 3)

DATASETS = (*PUBLISHED, "treasury")
"""The table of the last is not known to this program; it is run when its file is there."""

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


def _jobs_of(*variants: str) -> Callable[[Path, bool], Jobs]:
    def jobs(data: Path, full: bool) -> Jobs:  # noqa: ARG001 - the same either way
        made = {}
        for name in present(data, DATASETS):
            seed = {"seed": SEEDS[name]} if name in SEEDS else {}
            for variant in variants:
                settings = ["federated"] if variant in OURS else list(SHORT)
                parameters = dict(VARIANTS[variant])
                made[name, variant] = fold_jobs(name, "tsk", settings=settings, parameters=parameters, **seed)
        return made

    return jobs


def _sets(found: Found) -> Mapping[str, Any]:
    """Return what is printed of the sets that there are."""
    return {name: PUBLISHED.get(name, UNKNOWN) for name, _ in found}


def _squares(folds: Sequence[Any], setting: str, kind: str = "test") -> list[float]:
    """Return the mean squared errors of all folds and clients."""
    return [error**2 for fold in folds for error in fold[setting][kind]]


def _rules(folds: Sequence[Any], setting: str = "federated") -> float:
    return fmean(fold[setting]["complexity"]["rules"] for fold in folds)


def _errors(found: Found) -> Blocks:
    rows: Rows = []
    for name, (unit, words, printed, _) in _sets(found).items():
        line = [
            number(fmean(_squares(found[name, ""], setting, kind)) / unit, value)
            for setting, pair in zip(SHORT, printed, strict=True)
            for kind, value in zip(("train", "test"), pair, strict=True)
        ]
        ours = [number(fmean(_squares(found[name, variant], "federated")) / unit) for variant in OURS]
        rows.append([f"{name} {words}".strip(), *line, *ours])
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


def _tests(found: Found) -> Blocks:
    pairs = {}
    for name in _sets(found):
        federated, local, central = (_squares(found[name, ""], each) for each in ("federated", "local", "central"))
        pairs[f"{name}: FL against LL"] = federated, local
        pairs[f"{name}: FL against CL"] = federated, central
        for variant, title in OURS.items():
            pairs[f"{name}: {title} against FL averaged"] = _squares(found[name, variant], "federated"), federated
    return [wilcoxon_table("Over the 25 test MSEs (client × fold) of a dataset", pairs, "smaller")]


def _sizes(found: Found) -> Blocks:
    rows: Rows = []
    for name, (_, _, _, printed) in _sets(found).items():
        line = [number(_rules(found[name, ""], setting), value) for setting, value in zip(SHORT, printed, strict=True)]
        rows.append([name, *line, *(number(_rules(found[name, variant])) for variant in OURS)])
    return [Table("Means over models", ["dataset", *SHORT.values(), *OURS.values()], rows)]


def _single(found: Found) -> Blocks:
    rows: Rows = []
    pairs = {}
    for name, (unit, words, _, _) in _sets(found).items():
        rows.append([f"{name} {words}".strip()])
        for setting, short in SHORT.items():
            one, every = (_squares(found[name, variant], setting) for variant in ("", "averaged rules"))
            rows[-1] += [number(fmean(one) / unit), number(fmean(every) / unit)]
            pairs[f"{name}, {short}: one rule against all"] = one, every
    header = ["dataset", *(f"{short} {what}" for short in SHORT.values() for what in ("one rule", "all rules"))]
    return [
        Text("The paper's numbers of this table are not known to this program."),
        Table("Test MSE in the unit of print", header, rows),
        wilcoxon_table("Wilcoxon signed-rank tests over the 25 test MSEs", pairs, "smaller"),
    ]


_NEEDS = tuple(map(file_of, DATASETS))
_OF_THREE = _jobs_of("", *OURS)

CHAPTERS = (
    Chapter("tsk-3", PAPER, "Table III: mean squared errors", _OF_THREE, _errors, _NEEDS),
    Chapter("tsk-4", PAPER, "Table IV: Wilcoxon signed-rank tests", _OF_THREE, _tests, _NEEDS),
    Chapter("tsk-5", PAPER, "Table V: number of rules", _OF_THREE, _sizes, _NEEDS),
    Chapter("tsk-6", PAPER, "Table VI: one rule against the average of all that fire", _jobs_of("", "averaged rules"),
            _single, _NEEDS),
)  # fmt: skip
