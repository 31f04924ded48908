"""Pictures of fuzzy sets: the partition of an input, a row's value over it, and what a rule asks of it.

Names never lie upon each other: those that have no room beside more telling ones are left out.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from functools import partial
from html import escape

from glassfleet.explain import Partition
from glassfleet.explain.text import cut, number, signs
from glassfleet.export.svg.shapes import Svg, picture

WIDTH, TALL, LEFT = 340, 74, 8
FLOOR = 16 + TALL
MOST_EDGES = 40
"""Thresholds of an input that are drawn, and those of the rule."""
GAP = 4
"""Pixels between names."""


def degrees(partition: Partition, value: float) -> str:
    """Return the sets that a value belongs to, with its degrees, in words."""
    inside = min(max(value, partition.low), partition.high)
    degrees = [(each.term, each.degree(inside)) for each in partition.sets]
    return " and ".join(f"{term} {degree:.2f}" for term, degree in degrees if degree > 0) or "no set"


def memberships(partition: Partition, value: float | None, used: Sequence[str] = ()) -> Svg:
    """Return the fuzzy sets of an input with a row's value over them.

    Parameters
    ----------
    partition : Partition
    value : float or None
        In the input's own unit; outside the domain it is drawn at its edge.
    used : sequence of str
        The terms that a condition is made of: neighbours. Their common outline stands out, behind it all sets stay
        visible.
    """
    at = partial(_at, partition)
    used_sets = [each for each in partition.sets if each.term in used]
    floor = FLOOR

    def up(degree: float) -> float:
        return floor - degree * (TALL - 8)

    def line(points: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{x:.1f},{up(degree):.1f}" for x, degree in points)

    def asked(raw: float) -> float:
        # A condition may span several sets: its degree is their sum.
        return min(sum(each.degree(raw) for each in used_sets), 1.0)

    parts = [f'<line class="axis" x1="{LEFT}" x2="{WIDTH - LEFT}" y1="{floor}" y2="{floor}"/>']
    knots = sorted({x for each in used_sets for x in (each.low, each.peak, each.high)})
    outline = [(at(x), asked(x)) for x in knots]
    if used_sets:
        area = f"{outline[0][0]:.1f},{floor} {line(outline)} {outline[-1][0]:.1f},{floor}"
        parts.append(f'<polygon class="area on" points="{area}"/>')
    for each in partition.sets:
        points = [(at(each.low), 0.0 if each.low < each.peak else 1.0), (at(each.peak), 1.0)]
        points.append((at(each.high), 0.0 if each.high > each.peak else 1.0))
        parts.append(f'<polyline class="set" points="{line(points)}"/>')
    if used_sets:
        parts.append(f'<polyline class="set on" points="{line(outline)}"/>')
    parts += _names([(each.term, at(each.peak), each in used_sets) for each in partition.sets], 15)
    if value is not None:
        x, inside = at(value), min(max(value, partition.low), partition.high)
        parts += _here(x, up(1) - 6, floor)
        reached = [degree for each in partition.sets if (degree := each.degree(inside)) > 0]
        parts += [f'<circle class="here" cx="{x:.1f}" cy="{up(degree):.1f}" r="3"/>' for degree in reached]
        if used_sets:
            parts.append(f'<circle class="held" cx="{x:.1f}" cy="{up(asked(inside)):.1f}" r="5.5"/>')
    ends, height = _ends(partition, floor)
    parts += ends
    unit = f" {cut(partition.unit, 24)}" if partition.unit else ""
    words = "" if value is None else f", at {number(value)}{unit}: {degrees(partition, value)}"
    return picture(WIDTH, height, f"Fuzzy sets of {partition.feature}{words}", parts, "sets")


def _at(partition: Partition, value: float) -> float:
    """Return where a value is, pixels from the left; at the edge where it is outside the domain."""
    span = (partition.high - partition.low) or 1.0
    return LEFT + (WIDTH - 2 * LEFT) * min(max((value - partition.low) / span, 0.0), 1.0)


def _here(x: float, top: float, floor: float) -> list[str]:
    """Return the mark of a row's value."""
    return [
        f'<line class="here" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{floor}"/>',
        f'<circle class="here" cx="{x:.1f}" cy="{floor}" r="4"/>',
    ]


def _ends(partition: Partition, floor: float) -> tuple[list[str], float]:
    """Return what stands below a picture, the limits of an input or its categories, and the height of it all."""
    names = partition.categories
    if names:
        return _names([(text, _at(partition, code), False) for code, text in enumerate(names)], floor + 16), floor + 22
    unit = f" {cut(partition.unit, 24)}" if partition.unit else ""
    first, last = number(partition.low), number(partition.high) + unit
    return [
        f'<text class="tick" x="{LEFT}" y="{floor + 16}">{escape(first)}</text>',
        f'<text class="tick end" x="{WIDTH - LEFT}" y="{floor + 16}">{escape(last)}</text>',
    ], floor + 22


def value_of(partition: Partition, value: float) -> str:
    """Return a value with its unit, or its category."""
    if partition.categories and value == round(value) and 0 <= value < len(partition.categories):
        return partition.categories[round(value)]
    return f"{number(value)} {partition.unit}".rstrip()


def cuts(partition: Partition, value: float | None, span: tuple[float, float] | None = None) -> Svg:
    """Return where a crisp tree splits an input, with a row's value, and what a rule asks of it.

    Parameters
    ----------
    partition : Partition
        With thresholds.
    value : float or None
        In the input's own unit; outside the domain it is drawn at its edge.
    span : (float, float) or None
        Where the rule's condition holds: it is shaded, and its limits bear their numbers. None: it has none; the
        thresholds next to the value bear theirs; without a value, the outer ones.
    """
    at = partial(_at, partition)
    edges = partition.thresholds
    if span is not None:
        marked = [edge for edge in edges if edge in span]
    elif value is not None:
        marked = [*[edge for edge in edges if edge < value][-1:], *[edge for edge in edges if edge >= value][:1]]
    else:
        marked = list(edges if len(edges) <= 4 else (edges[0], edges[-1]))
    top = 22
    floor = top + TALL // 2
    parts = [f'<line class="axis" x1="{LEFT}" x2="{WIDTH - LEFT}" y1="{floor}" y2="{floor}"/>']
    if span is not None:
        x1, x2 = at(span[0]), at(span[1])
        parts.append(
            f'<rect class="area on" x="{x1:.1f}" y="{top}" width="{max(x2 - x1, 1.0):.1f}" height="{floor - top}"/>'
        )
    shown = dict.fromkeys([*edges[:MOST_EDGES], *marked])
    parts += [
        f'<line class="set{" on" if span is not None and edge in marked else ""}" x1="{at(edge):.1f}" '
        f'x2="{at(edge):.1f}" y1="{top}" y2="{floor}"/>'
        for edge in shown
    ]
    parts += _names([(_plain(partition, edge), at(edge), span is not None) for edge in marked], 15)
    words = f"Thresholds of {partition.feature}"
    if value is not None:
        parts += _here(at(value), top - 4, floor)
        words += f", at {cut(value_of(partition, value), 60)}"
    ends, height = _ends(partition, floor)
    parts += ends
    if marked and span is not None:
        words += f"; the rule's limits: {' and '.join(_plain(partition, edge) for edge in marked)}"
    return picture(WIDTH, height, words, parts, "sets")


def _plain(partition: Partition, edge: float) -> str:
    """Return a threshold with the digits that rules write; between two categories, those at its sides."""
    names = partition.categories
    if names:
        below = min(max(math.floor(edge), 0), len(names) - 1)
        return f"{cut(names[below], 14)} | {cut(names[min(below + 1, len(names) - 1)], 14)}"
    return signs(f"{edge:.6g}")


def _names(names: Sequence[tuple[str, float, bool]], y: float) -> list[str]:
    """Return names over their places in a line, pixels: those that are used, those at the ends, and what has room."""
    ends, taken, drawn = (0, len(names) - 1), list[tuple[float, float]](), []
    for index in sorted(range(len(names)), key=lambda index: (not names[index][2], index not in ends, index)):
        name, x, is_used = names[index]
        shown = cut(name, 24)
        half = width(shown) / 2
        middle = min(max(x, LEFT + half), WIDTH - LEFT - half)
        if all(middle + half + GAP <= begin or end + GAP <= middle - half for begin, end in taken):
            taken.append((middle - half, middle + half))
            whole = "" if shown == name else f"<title>{escape(name)}</title>"
            strong = " strong" * is_used
            drawn.append(f'<text class="tick mid{strong}" x="{middle:.1f}" y="{y}">{whole}{escape(shown)}</text>')
    return drawn


def width(text: str) -> float:
    """Return about how many pixels a text takes in the pictures' 11.5 px, rather too many: readers' fonts differ.

    >>> round(width("Low")), round(width("VeryHigh")), round(width("高い"))
    (29, 57, 30)
    """
    return 11.5 * sum(map(_em, unicodedata.normalize("NFC", text)))


def _em(sign: str) -> float:
    """Return a sign's width in DejaVu Sans, the widest of the fonts that the style sheet names, in ems."""
    if unicodedata.east_asian_width(sign) in "WF":
        return 1.3
    if sign in "mwMW@%" or not unicodedata.normalize("NFD", sign)[0].isascii():
        return 1.05
    return 0.42 if sign in "fijlrtI.,:;!|()[]'/- " else 0.8 if sign.isupper() or sign in "+<=>#&~^" else 0.64
