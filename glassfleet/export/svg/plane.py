"""The plane of all curves over an input: its values to the right, heights upwards, names at the ends of lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final

from glassfleet.export.svg.sets import width
from glassfleet.export.svg.shapes import class_colour
from glassfleet.export.svg.text import cut

WIDTH, TALL, TOP = 340, 96, 8
FLOOR: Final = TOP + TALL
MARGIN = 10
NAMES: Final = 92
"""Pixels for the names of lines, at their ends."""
MOST_LINES: Final = 8
"""Lines whose names have room below each other."""
LINE: Final = 12
"""Pixels from one name to the next."""

Line = tuple[str, int, Sequence[tuple[float, float]]]
"""A name, its place among the names (for its colour), and points: a value of the input, and a height."""


@dataclass(frozen=True)
class Plane:
    """Where values and heights are, in pixels.

    Attributes
    ----------
    first, last : float
        Limits of the values.
    low, high : float
        Limits of the heights, low < high.
    left, right : float
        Where the first and the last value are.
    """

    first: float
    last: float
    low: float
    high: float
    left: float = 58
    right: float = WIDTH - MARGIN

    def at(self, value: float) -> float:
        """Return where a value is."""
        return self.left + (self.right - self.left) * (value - self.first) / ((self.last - self.first) or 1.0)

    def up(self, height: float) -> float:
        """Return where a height is."""
        return FLOOR - TALL * (height - self.low) / (self.high - self.low)

    def grid(self, marks: Sequence[tuple[float, str]], margin: float = 0.0) -> list[str]:
        """Return a line for each height, with its name on the left; `margin` pixels longer at both ends."""
        body = []
        for height, name in marks:
            left, y = self.left - margin, self.up(height)
            body.append(f'<line class="grid" x1="{left}" x2="{self.right + margin}" y1="{y:.1f}" y2="{y:.1f}"/>')
            body += [f'<text class="tick end" x="{left - 6}" y="{y + 4:.1f}">{escape(name)}</text>'] if name else []
        return body

    def lines(self, lines: Sequence[Line], *, joined: bool = True) -> list[str]:
        """Return lines, or dots that are not `joined`; several have names at their ends, and colours of classes."""
        body, alone = [], len(lines) == 1
        for _, place, points in lines:
            dots = [(f"{self.at(value):.1f}", f"{self.up(height):.1f}") for value, height in points]
            colour, path = class_colour(place), " ".join(map(",".join, dots))
            if not joined:
                look = 'class="together"' if alone else f'class="axis" fill="{colour}"'
                body += [f'<circle {look} cx="{x}" cy="{y}" r="3.5"/>' for x, y in dots]
                continue
            # Light colours need an edge on light paper.
            looks = ['class="line together"']
            if not alone:
                looks = ['class="line edge"', f'class="line inner" stroke="{colour}"']
            body += [f'<polyline {look} points="{path}"/>' for look in looks]
        return body + ([] if alone else self._names(lines))

    def _names(self, lines: Sequence[Line]) -> list[str]:
        ends = [(self.at(points[-1][0]), self.up(points[-1][1])) for _, _, points in lines]
        body = []
        for (name, _, _), (x, y), place in zip(lines, ends, _apart([y for _, y in ends]), strict=True):
            shown = next(each for most in range(24, 0, -1) if width(each := cut(name, most)) <= NAMES - 15)
            whole = "" if shown == name else f"<title>{escape(name)}</title>"
            body.append(f'<line class="axis" x1="{x + 3:.1f}" x2="{x + 12:.1f}" y1="{y:.1f}" y2="{place:.1f}"/>')
            body.append(f'<text class="tick" x="{x + 15:.1f}" y="{place + 4:.1f}">{whole}{escape(shown)}</text>')
        return body


def _apart(places: Sequence[float]) -> list[float]:
    """Return places that are a line apart, none below the floor, as near to the given ones as they can be found."""
    order, result = sorted(range(len(places)), key=places.__getitem__), list(places)
    for before, after in pairwise(order):
        result[after] = max(result[after], result[before] + LINE)
    below = float(FLOOR)
    for at in reversed(order):
        result[at] = min(result[at], below)
        below = result[at] - LINE
    return result
