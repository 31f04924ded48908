"""Statistics that cannot be true, scheme by scheme: each is refused, with the reason that is written beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glassfleet.contract.messages import Contribution
from glassfleet.errors import ContributionError
from tests.fuzz.targets import benches, halves, names, steps

Sums = dict[str, Any]
Lie = Callable[[Sums, int], None]
"""Changes copies of an answer's sums (or values) in place; the number is the agent's rows."""


def put(name: str, value: Callable[[Sums, int], Any], place: Any = 0) -> Lie:
    """Set one element."""

    def lie(sums: Sums, rows: int) -> None:
        sums[name].reshape(-1)[place] = value(sums, rows)

    return lie


def fullest(name: str, change: Callable[[Any, int], Any]) -> Lie:
    """Change the largest element."""

    def lie(sums: Sums, rows: int) -> None:
        flat = sums[name].reshape(-1)
        place = int(np.argmax(flat))
        flat[place] = change(flat[place], rows)

    return lie


def not_semi_definite(columns: int) -> Lie:
    """Let the product of the last input and the target of the first group be larger than Cauchy and Schwarz allow."""

    def lie(sums: Sums, rows: int) -> None:
        i, j = np.triu_indices(columns)
        pair = int(np.flatnonzero((i == columns - 3) & (j == columns - 1))[0])
        ones = int(np.flatnonzero((i == columns - 2) & (j == columns - 2))[0])
        group = int(np.argmax(sums["gram_high"][:, ones]))
        for limb in ("gram_high", "gram_low"):
            sums[limb][group, pair] = sums[limb][group, ones]

    return lie


def every(*lies: Lie) -> Lie:
    def lie(sums: Sums, rows: int) -> None:
        for part in lies:
            part(sums, rows)

    return lie


def doubled(*wanted: str) -> Lie:
    def lie(sums: Sums, rows: int) -> None:
        for name in wanted:
            sums[name] = sums[name] * 2

    return lie


def even(name: str, of: str) -> Lie:
    """Give each set of a feature what the whole node has."""

    def lie(sums: Sums, rows: int) -> None:
        sums[name][:] = sums[of][:, None, None]

    return lie


CASES: list[tuple[str, str, str, Lie, str]] = [
    # scheme, kind of answer, what is wrong, how, the reason
    ("frt", "level", "a negative count", put("cell_count", lambda s, n: -1), "cell_count is negative"),
    ("frt", "level", "more rows than the agent has", put("node_count", lambda s, n: n + 1), "count exceeds the agent"),
    ("frt", "level", "WS above its count", put("node_ws", lambda s, n: (n + 1) << 32), "WS exceeds its count"),
    ("frt", "level", "WLS above WS", put("node_wls", lambda s, n: s["node_ws"][0] + 1), "WLS exceeds its WS"),
    ("frt", "level", "WSS above WLS", put("node_wss", lambda s, n: s["node_wls"][0] + 1), "WSS exceeds its WLS"),
    ("frt", "level", "WSS below WLS^2 / WS", put("node_wss", lambda s, n: 1), "contradict each other"),
    ("frt", "level", "a cell above its node", fullest("cell_ws", lambda v, n: v * 40), "exceeds"),
    ("frt", "level", "sets that count rows thrice", even("cell_count", "node_count"), "more than twice"),
    ("frt", "level", "sets that weigh more than their node", doubled("cell_ws", "cell_wls", "cell_wss"), "exceed"),
    ("frt", "level", "more strong rows than rows", put("cell_strong", lambda s, n: n + 1), "strong count exceeds"),
    ("frt", "leaves", "a negative diagonal", put("gram_high", lambda s, n: -5), "gram_high is negative"),
    ("frt", "leaves", "a limb that is too large", put("gram_low", lambda s, n: 2**50), "low limb"),
    ("frt", "leaves", "a Gram that is not PSD", not_semi_definite(6), "not positive semi-definite"),
    ("frt", "leaves", "a Gram that contradicts WS", doubled("ws"), "exceeds its count|contradicts its WS"),
    ("frt", "leaves", "more rows than the agent has", put("count", lambda s, n: n + 1), "count exceeds the agent"),
    ("frt", "weights", "quality above strength", fullest("wq", lambda v, n: v + (1 << 40)), "quality sum exceeds"),
    ("frt", "weights", "WS above the agent's rows", put("ws", lambda s, n: (n + 1) << 32), "exceeds the agent's rows"),
    ("tsk", "sums", "a negative count", put("count", lambda s, n: -1), "count is negative"),
    ("tsk", "sums", "a Gram that is not PSD", not_semi_definite(6), "not positive semi-definite"),
    ("frbc", "rules", "a negative class count", put("class_rows", lambda s, n: -1), r"must be in \[0"),
    ("frbc", "rules", "classes that exceed the rows", fullest("class_rows", lambda v, n: n), "add up to"),
    ("frbc", "strengths", "a negative strength", put("num_high", lambda s, n: -1), "is negative"),
    ("frbc", "strengths", "a Den above the rows", fullest("den_high", lambda v, n: v * 1000), "above what|exceeds"),
    ("frbc", "strengths", "Num above Den", doubled("num_high", "num_low"), "exceed its Den|above what"),
    ("frbc", "strengths", "Num below its rows", put("num_high", lambda s, n: 0, slice(None)), "below what the rows"),
    ("frbc", "strengths", "no strength where rows are", every(doubled("rows")), "rows|below what"),
    ("tree-regression", "scan", "a negative bin", put("histogram", lambda s, n: -1), "histogram is negative"),
    ("tree-regression", "scan", "more training rows than rows", put("rows", lambda s, n: n + 1), "more rows train"),
    ("tree-classification", "newton", "a class above its leaf", fullest("observed", lambda v, n: v * 4), "exceed"),
    ("tree-classification", "newton", "chances above the rows", fullest("expected", lambda v, n: v * 4), "exceed"),
    ("tree-classification", "newton", "curvature", fullest("squares", lambda v, n: v * 8), "curvature|factors"),
    ("tree-regression", "scan", "bins above the rows", fullest("histogram", lambda v, n: v + n), "counts more rows"),
    ("tree-regression", "bins", "more weight than rows", fullest("scores", lambda v, n: v * 500), "more rows"),
    ("tree-regression", "bins", "means above their sum", fullest("means", lambda v, n: v * 500), "exceeds"),
    ("tree-regression", "scan", "a product above its factor", fullest("gram", lambda v, n: v * 500), "exceeds"),
    ("tree-regression", "ramps", "a product above its factor", fullest("squares", lambda v, n: v * 4), "exceeds"),
    ("dp_tree", "edges", "a bin beyond all noise", put("histogram", lambda s, n: 10**6), "farther from"),
    ("dp_tree", "edges", "a bin below all noise", put("histogram", lambda s, n: -(10**6)), "farther from"),
    ("dp_tree", "level", "a cell beyond all noise", put("cells", lambda s, n: 10**6), "farther from"),
    ("fedga-regression", "depth", "a target sum above its count", put("target", lambda s, n: 2**62, 1), "contradicts"),
    ("fedga-classification", "depth", "a negative class count", put("class_rows", lambda s, n: -1), "one count per"),
    ("fedavg_mlp-regression", "train", "other rows than it says", put("rows", lambda s, n: n + 1), "rows"),
    ("fedavg_mlp-regression", "train", "weights beyond bounds", put("weights", lambda s, n: 2**62), "weight"),
    ("domain", "histogram", "a negative bin", put("counts", lambda s, n: -1), r"must be in \[0"),
    ("domain", "histogram", "bins that do not add up", fullest("counts", lambda v, n: v - 3), "add up to"),
    ("domain", "histogram", "a bin above the rows", put("counts", lambda s, n: n + 1), r"must be in \[0"),
    ("domain", "histogram", "a count that was to be hidden", put("outside", lambda s, n: 1), "below min_count"),
]


@pytest.mark.parametrize(("scheme", "kind", "what", "lie", "reason"), CASES, ids=lambda v: v if type(v) is str else "")
def test_server_refuses_statistics_that_cannot_be_true(scheme, kind, what, lie, reason):
    if scheme not in names():
        pytest.fail(f"{scheme} is not in the catalogue any more: this table must follow")
    step, answers = next(pair for pair in steps(scheme) if pair[0].task.kind == kind)
    server = halves(scheme)[1]
    true = max(answers, key=lambda answer: answer.rows)
    server.check(step.task, true)
    sums = {name: array.copy() for name, array in true.sums.items()}
    lie(sums, true.rows)
    with pytest.raises(ContributionError) as refusal:
        server.check(step.task, replace(true, sums=sums))
    assert re.search(reason, str(refusal.value)), f"{what}: {refusal.value}"


@pytest.mark.parametrize("scheme", names())
def test_server_refuses_rows_that_are_negative_or_too_many(scheme):
    answers = steps(scheme)[0][1]
    for rows in (-1, 2**31, True, 1.5):
        with pytest.raises(ContributionError, match="rows"):
            Contribution.from_value({**answers[0].to_value(), "rows": rows})


def test_table_has_every_scheme():
    assert {case[0].partition("-")[0] for case in CASES} >= {bench.scheme.name for bench in benches().values()}
