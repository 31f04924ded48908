"""Linear algebra on one vehicle's transcript: three ways to compute whole rows from sums.

An attacker sees every question and this vehicle's answers, as the coordinator and the broker do. Each attack returns
candidate rows, scaled, shape (m, F + 1); it does not know which are right.

- bands: sums of two neighbouring cuts differ by the rows between them. One row left is the row itself, by its products.
- remainders: what a node holds less its cells of one input is the cell that was not told.
- spans: the products of fewer rows than there are columns span just these rows. Two groups that share one row have
  spans that meet in one line, which is that row.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.numerics.statistics import gram_value, unpack_symmetric
from glassfleet.schemes.fmt.messages import Question as FmtQuestion
from glassfleet.schemes.fmt.messages import read_task as read_fmt
from glassfleet.schemes.fmt.params import GRID_BITS
from glassfleet.schemes.frt.messages import read_task as read_frt
from glassfleet.schemes.tsk.messages import read_task as read_tsk
from tests.privacy.transcripts import Rows, Transcript

Ints = NDArray[np.int64]

_MOST_SPANS = 120
"""Spans that are compared with each other: pairs grow with the square."""


# --- fmt ------------------------------------------------------------------------------------------------------------


def fmt_groups(transcript: Transcript) -> Iterator[Ints]:
    """Yield the product sums of every group of rows that differences tell apart, packed triangles over [1, x, y].

    Nodes and their siblings (the parent less the node), bands between neighbouring cuts in both, and in the end the
    rows of a leaf that were held out while it grew.
    """
    nodes: dict[int, tuple[Ints, dict[tuple[int, int], Ints]]] = {}
    for task, answer in transcript:
        question = read_fmt(task)
        if question.kind == "grow":
            if question.nodes == (0,):
                nodes = {}
            start = 0
            for line, node in enumerate(question.nodes):
                places = question.cuts_of[node]
                told = dict(zip(places, answer.sums["lower"][start : start + len(places)], strict=True))
                start += len(places)
                nodes[node] = answer.sums["whole"][line], _all_cuts(question, node, answer.sums["whole"][line], told)
                for seen in (node, *_derive_sibling(question, node, nodes)):
                    yield nodes[seen][0]
                    yield from _bands(*nodes[seen])
        elif question.kind == "leaves":
            for leaf, sums in zip(question.tree.leaves, answer.sums["gram"], strict=True):
                yield sums
                if leaf in nodes and len(nodes[leaf][0]) == len(sums):
                    yield sums - nodes[leaf][0]


def _all_cuts(question: FmtQuestion, node: int, whole: Ints, told: dict[int, Ints]) -> dict[tuple[int, int], Ints]:
    span = question.tree.span(node, question.n_sets)
    outside = {
        place: whole if feature in span and cut >= span[feature][1] else np.zeros_like(whole)
        for place, (feature, cut) in enumerate(question.cuts)
    }
    return {cut: told.get(place, outside[place]) for place, cut in enumerate(question.cuts)}


def _derive_sibling(question: FmtQuestion, node: int, nodes: dict[int, Any]) -> tuple[int, ...]:
    if node == 0:
        return ()
    sibling = node + 1 if node % 2 else node - 1
    above, cuts = nodes[question.tree.parent(node)]
    whole, own = nodes[node]
    nodes[sibling] = above - whole, {cut: cuts[cut] - sums for cut, sums in own.items() if cut in cuts}
    return (sibling,)


def _bands(whole: Ints, cuts: dict[tuple[int, int], Ints]) -> Iterator[Ints]:
    for _, line in itertools.groupby(sorted(cuts), key=lambda cut: cut[0]):
        before = np.zeros_like(whole)
        for cut in line:
            yield cuts[cut] - before
            before = cuts[cut]
        yield whole - before


def single_rows(groups: Iterator[Ints]) -> Rows:
    """Return the row behind each sum that is a weight times the products of one row on the grid."""
    found = []
    for triangle in groups:
        matrix = unpack_symmetric(triangle[None], _width(triangle))[0]
        weight, rest = divmod(int(matrix[0, 0]), 1 << GRID_BITS)
        if weight <= 0 or rest or (matrix % weight).any():
            continue
        products = matrix // weight
        row = products[0] / 2.0**GRID_BITS
        outer = np.outer(row, row) * 2.0**GRID_BITS  # a product is rounded by half a step, those of line 0 once more
        if (row >= 0.0).all() and (row <= 1.0).all() and np.abs(products - outer).max() < 1.6:
            found.append(row[1:])
    return _rows(found)


def _width(triangle: Ints) -> int:
    return int((np.sqrt(8 * len(triangle) + 1) - 1) / 2)


def fmt_spans(transcript: Transcript) -> list[NDArray[np.float64]]:
    """Return the spans of groups of few rows, columns [x, 1, y], of all nodes and bands of the first trees."""
    spans: list[NDArray[np.float64]] = []
    for triangle in fmt_groups(transcript):
        width = _width(triangle)
        gram = unpack_symmetric(triangle[None].astype(np.float64), width)[0] / 2.0 ** (2 * GRID_BITS)
        order = [*range(1, width - 1), 0, width - 1]
        _keep_span(spans, gram[np.ix_(order, order)], floor=width * 2.0**-GRID_BITS)
    return spans


# --- frt and tsk ----------------------------------------------------------------------------------------------------


def gram_spans(transcript: Transcript, scheme: str) -> list[NDArray[np.float64]]:
    """Return the spans of the leaves (frt) or rules (tsk) that few rows reach, columns [x, 1, y]."""
    spans: list[NDArray[np.float64]] = []
    for task, answer in transcript:
        question: Any = (read_frt if scheme == "frt" else read_tsk)(task)
        if "gram_high" not in answer.sums:
            continue
        bits = question.parameters.gram_bits
        value = gram_value(answer.sums["gram_high"], answer.sums["gram_low"], bits=bits)
        for gram in unpack_symmetric(value, question.gram_columns) / 2.0 ** (2 * bits):
            _keep_span(spans, gram, floor=1e-11)
    return spans


def remainders(transcript: Transcript) -> NDArray[np.float64]:
    """Return the targets, scaled, of the cells of one row that a node's other cells leave (frt)."""
    found = []
    for task, answer in transcript:
        question = read_frt(task)
        if question.kind != "level":
            continue
        for line in range(len(question.nodes)):
            count = int(answer.sums["node_count"][line])
            noise = count * (question.parameters.n_sets + 1)
            for feature in np.flatnonzero(question.free[line]):
                ws, wls, wss = (
                    int(answer.sums[f"node_{name}"][line]) - int(answer.sums[f"cell_{name}"][line, feature].sum())
                    for name in ("ws", "wls", "wss")
                )
                if ws > max(64 * noise, 1 << 12) and abs(wss - wls / ws * wls) <= 8 * noise + 1e-9 * ws:
                    found.append(wls / ws)
    return np.array(found)


def lone_rows(group: Rows) -> Rows:
    """Return, for each column of a group and each of its limits, the row that is alone away from the limit, if one is.

    Of a column that is 0 in all rows but one, the products with the other columns, divided by its sum, are that row.
    """
    away = np.concatenate([group, 1.0 - group], axis=1)
    sums, products = away.sum(axis=0), away.T @ group
    found: Rows = products[sums > 1e-9] / sums[sums > 1e-9, None]
    return found


# --- spans ----------------------------------------------------------------------------------------------------------


def _keep_span(spans: list[NDArray[np.float64]], gram: NDArray[np.float64], *, floor: float) -> None:
    if len(spans) < _MOST_SPANS:
        values, vectors = np.linalg.eigh(gram)
        kept = values > max(floor, 1e-9 * values[-1])
        if 0 < kept.sum() < len(values) - 1:
            spans.append(vectors[:, kept])


def meeting_rows(spans: list[NDArray[np.float64]]) -> Rows:
    """Return the row of each two spans that meet in one line; the last columns of a span are 1 and y."""
    found = []
    for first, second in itertools.combinations(spans, 2):
        if first.shape[1] + second.shape[1] > len(first):
            continue
        left, cosines, _ = np.linalg.svd(first.T @ second)
        if cosines[0] > 1 - 1e-8 and (len(cosines) == 1 or cosines[1] < 1 - 1e-5):
            line = first @ left[:, 0]
            if abs(line[-2]) > 1e-6:
                row = np.delete(line / line[-2], -2)
                if (row > -1e-4).all() and (row < 1 + 1e-4).all():
                    found.append(row)
    return _rows(found)


def _rows(found: list[NDArray[np.float64]]) -> Rows:
    return np.unique(np.array(found), axis=0) if found else np.empty((0, 0))
