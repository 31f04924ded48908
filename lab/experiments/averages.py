"""Averages over the folds and repetitions of an experiment, as its tables and its JSON have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

FoldResult = dict[str, dict[str, Any]]
"""Per setting: ``measure`` (``rmse`` or ``f1``), ``test`` and ``train`` (per client), for a classifier ``test_classes``
and ``train_classes`` (F1 of each class, per client), ``complexity`` (mean over the models; of each one in ``sizes``),
``bytes_up``, ``bytes_down``, ``nullified``, ``rounds``, ``seconds``."""

SHORT = {"local": "LL", "federated": "FL", "central": "CL"}
"""What the papers call the settings."""


def mean_of(results: Sequence[FoldResult]) -> dict[str, dict[str, Any]]:
    """Average over folds, per setting: scores per fold and client and their means, complexity, bytes and the rest."""
    return {setting: _averages([result[setting] for result in results]) for setting in results[0]}


def _averages(folds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    scores: dict[str, Any] = {}
    for kind in ("test", "train"):
        name = f"{kind}_{folds[0]['measure']}"
        scores[name] = _over_folds([fold[kind] for fold in folds])
        if name.endswith("rmse"):  # some papers average the squares, which the averaged roots do not tell
            scores[f"{kind}_mse"] = _over_folds([[error**2 for error in fold[kind]] for fold in folds])
        by_class = [fold.get(f"{kind}_classes", {}) for fold in folds]
        if by_class[0]:
            lines = {label: _over_folds([fold[label] for fold in by_class]) for label in by_class[0]}
            scores[name]["classes"] = {
                label: {**line, "std": _std(line["per_client"])} for label, line in lines.items()
            }
    complexity = {name: fmean(fold["complexity"][name] for fold in folds) for name in folds[0]["complexity"]}
    rest = {
        name: fmean(fold[name] for fold in folds)
        for name in ("bytes_up", "bytes_down", "nullified", "rounds", "seconds")
    }
    return {**scores, "complexity": complexity, **rest}


def _over_folds(lines: Sequence[Sequence[float]]) -> dict[str, Any]:
    per_client = [fmean(column) for column in zip(*lines, strict=True)]
    return {"per_client": per_client, "mean": fmean(per_client), "per_fold": [list(line) for line in lines]}


def _std(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
