"""Pictures of fuzzy sets: the partition of an input, a row's value over it, and what a rule asks of it.

Names never lie upon each other: where they have no room side by side they stand in two lines, then they are cut.
"""

from __future__ import annotations

import itertools
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from html import escape

from glassfleet.explain import FuzzySet, Partition
from glassfleet.export.svg.shapes import Svg, picture
from glassfleet.export.svg.text import cut, number, signs

WIDTH, TALL, LEFT = 340, 74, 8
MOST_NAMED = 9
"""Of more sets than that, only those at the ends of a condition (else of the partition) are named."""
MOST_CATEGORIES = 12
"""Of more categories only the first and the last are named."""
MOST_EDGES = 40
"""Thresholds of an input that are drawn, and those of the rule."""
GAP, LINE = 5, 14
"""Pixels between names, and from a line of names to the next."""
_EMS = {
    sign: em
    for em, signs in (
        (0.30, "'ijlIJ"),
        (0.34, " ,./:;\\|"),
        (0.42, "!()-[]frt"),
        (0.58, '"*?_`FLcksz'),
        (0.64, "$0123456789{}EPSTYabdeghnopquvxy"),
        (0.70, "ABCKRVXZ"),
        (0.79, "&DGHNOQU"),
        (0.84, "#+<=>^w~"),
        (1.00, "%@MWm"),
    )
    for sign in signs
}
"""Widths, in ems, of DejaVu Sans, the widest of the fonts that the style sheet names; other signs count as wider."""
SHORTEST = 4
"""A name that would have to be cut to less is left out."""


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
    names = _placed(
        [Name(each.term, at(each.peak), is_used=each in used_sets) for each in _named(partition, used_sets)]
    )
    lines = 1 + max((name.line for name in names), default=0)
    floor = 16 + TALL + LINE * (lines - 1)

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
    parts += [name.drawn(15 + LINE * (lines - 1 - name.line)) for name in names]
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
    if names and len(names) <= MOST_CATEGORIES:
        placed = _placed([Name(text, _at(partition, code), is_used=False) for code, text in enumerate(names)])
        lines = 1 + max(name.line for name in placed)
        return [name.drawn(floor + 16 + LINE * name.line) for name in placed], floor + 8 + LINE * lines
    unit = f" {cut(partition.unit, 24)}" if partition.unit else ""
    first, last = number(partition.low), number(partition.high) + unit
    if names:
        first, last = cut(names[0], 20), cut(names[-1], 20)
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
    names = _placed([Name(_plain(partition, edge), at(edge), is_used=span is not None) for edge in marked])
    lines = 1 + max((name.line for name in names), default=0)
    top = 8 + LINE * lines
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
    parts += [name.drawn(15 + LINE * (lines - 1 - name.line)) for name in names]
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


def _named(partition: Partition, used: Sequence[FuzzySet]) -> list[FuzzySet]:
    sets = partition.sets
    if len(sets) <= MOST_NAMED:
        return list(sets)
    ends = used or sets
    return list(dict.fromkeys((ends[0], ends[-1])))


@dataclass
class Name:
    """A set's name over its peak.

    Attributes
    ----------
    term : str
    peak : float
        Pixels.
    is_used : bool
        A condition is made of it.
    line : int
        0: beside the picture; 1: above that.
    most : int
        Characters that are shown.
    """

    term: str
    peak: float
    is_used: bool
    line: int = 0
    most: int = 60

    @property
    def shown(self) -> str:
        """As much of the name as is drawn."""
        return cut(self.term, self.most)

    @property
    def place(self) -> tuple[str, float, float, float]:
        """Anchor, its place, and where the name begins and ends: over the peak, but never over the picture's edge."""
        wide, right = width(self.shown), WIDTH - LEFT
        if self.peak - wide / 2 < LEFT:
            return "", LEFT, LEFT, LEFT + wide
        if self.peak + wide / 2 > right:
            return "end", right, right - wide, right
        return "mid", self.peak, self.peak - wide / 2, self.peak + wide / 2

    def drawn(self, y: float) -> str:
        """Return it as SVG."""
        anchor, x, _, _ = self.place
        whole = "" if self.shown == self.term else f"<title>{escape(self.term)}</title>"
        classes = " ".join(filter(None, ("tick", anchor, "strong" if self.is_used else "")))
        return f'<text class="{classes}" x="{x:.1f}" y="{y}">{whole}{escape(self.shown)}</text>'


def _placed(names: list[Name]) -> list[Name]:
    """Return the names where they do not touch: in one line, else in two by turns, cut as far as they must be."""
    if _touching(names) is None:
        return names
    for position, name in enumerate(names):
        name.line = position % 2
    left = list(names)
    while (pair := _touching(left)) is not None:
        longer = max(pair, key=lambda name: width(name.shown))
        if len(longer.shown) > SHORTEST:
            longer.most = len(longer.shown) - 1
        else:
            left.remove(min(pair, key=lambda name: name.is_used))
    return left


def _touching(names: Sequence[Name]) -> tuple[Name, Name] | None:
    for line in (0, 1):
        for first, second in itertools.pairwise(name for name in names if name.line == line):
            if first.place[3] + GAP > second.place[2]:
                return first, second
    return None


def width(text: str) -> float:
    """Return about how many pixels a text takes in the pictures' 11.5 px, rather too many: readers' fonts differ.

    >>> round(width("Low")), round(width("VeryHigh")), round(width("高い"))
    (24, 55, 30)
    """
    return 11.5 * sum(_em(sign) for sign in unicodedata.normalize("NFC", text))


def _em(sign: str) -> float:
    plain = unicodedata.normalize("NFD", sign)[0]
    if plain in _EMS:
        return _EMS[plain]
    return 1.3 if unicodedata.east_asian_width(sign) in "WF" else 1.1
