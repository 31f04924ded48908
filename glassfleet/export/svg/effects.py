"""Curves of how an answer moves with one input: a line for forecasts or each chance, else a lane for each class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, pairwise
from typing import Final

from glassfleet.explain.effects import Effect
from glassfleet.explain.text import cut, number
from glassfleet.export.svg.sets import width
from glassfleet.export.svg.shapes import Svg, class_colour, picture

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
class Scale:
    """What curves that are drawn beside each other have in common.

    Attributes
    ----------
    low, high : float
        The lowest and the highest forecast or chance, low < high; of lanes 0 and how many there are.
    shown : tuple of str
        The classes that have a line, those whose chances get highest, or a lane, those that occur; in the model's
        order; empty for numbers.
    """

    low: float = 0.0
    high: float = 1.0
    shown: tuple[str, ...] = ()

    @classmethod
    def of(cls, effects: Sequence[Effect], classes: Sequence[str]) -> Scale:
        """Return the scale of some curves, at least one, of a model with `classes` (none: it forecasts numbers)."""
        names = tuple(effects[0].chances)
        if classes and not names:
            answered = {str(answer) for each in effects for answer in each.answers}
            shown = tuple(label for label in classes if label in answered)
            return cls(0.0, len(shown), shown)
        highest = {label: max(max(each.chances[label]) for each in effects) for label in names}
        kept = sorted(names, key=lambda label: -highest[label])[:MOST_LINES]
        shown = tuple(label for label in names if label in kept)
        chances = [chance for each in effects for label in shown for chance in each.chances[label]]
        heights = chances or [float(answer) for each in effects for answer in each.answers]
        low, high = min(heights), max(heights)
        return cls(low, high, shown) if low < high else cls(low - 0.5, high + 0.5, shown)

    @property
    def digits(self) -> int:
        """Decimals of forecasts that can be told apart."""
        return 2 - math.floor(math.log10(self.high - self.low))


def effect_curve(effect: Effect, scale: Scale, classes: Sequence[str], unit: str = "") -> Svg:
    """Return the curve of one input.

    Parameters
    ----------
    effect : Effect
    scale : Scale
    classes : sequence of str
        Of the model, for their colours.
    unit : str
        The target's.
    """
    feature, chances = effect.feature, effect.chances
    lanes = () if chances else scale.shown
    left, right = 84 if lanes else 58, WIDTH - (NAMES if len(chances) > 1 else MARGIN)
    inset = 10 * bool(feature.categories)
    plane = Plane(feature.low, feature.high, scale.low, scale.high, left + inset, right - inset)
    if lanes:
        middles = {label: len(lanes) - 0.5 - place for place, label in enumerate(lanes)}
        curves = {"": [middles[str(answer)] for answer in effect.answers]}
        marks = [(middle, cut(label, 12) * (len(lanes) * 11 <= TALL)) for label, middle in middles.items()]
        shares = {label: sum(answer == label for answer in effect.answers) / len(effect.values) for label in lanes}
        words = ", ".join(f"{label} on {100 * share:.0f} %" for label, share in shares.items() if share)
    else:
        unit = "%" if chances else unit
        curves = {label: list(chances[label]) for label in scale.shown} or {"": [float(x) for x in effect.answers]}
        levels = (scale.low, (scale.low + scale.high) / 2, scale.high)
        marks = [(level, number(round(level, scale.digits), 3) + " %" * bool(chances)) for level in levels]
        words = ", ".join(_course(label if len(chances) > 1 else "", curve, unit) for label, curve in curves.items())
        more = len(chances) - len(curves)
        words += f", {more} other classes never more" * (more > 0)
    body = plane.grid(marks, inset)
    lines: list[Line] = [
        (label, classes.index(label) if label else 0, list(zip(effect.values, curve, strict=True)))
        for label, curve in curves.items()
    ]
    if lanes:
        body += _blocks(effect, plane, lines[0][2], classes, inset)
    else:
        body += plane.lines(lines, joined=not feature.categories)
    if effect.value is not None:
        own = effect.value
        here = min(range(len(effect.values)), key=lambda place: abs(effect.values[place] - own))
        mark, size = ("here", 4.5) if len(lines) == 1 else ("held", 6)  # a ring leaves the class's colour
        body += [
            f'<circle class="{mark}" cx="{plane.at(own):.1f}" cy="{plane.up(curve[here]):.1f}" r="{size}"/>'
            for curve in curves.values()
        ]
    first, last = number(feature.low), f"{number(feature.high)} {cut(feature.unit, 20)}".rstrip()
    if feature.categories:
        first, last = cut(feature.categories[0], 16), cut(feature.categories[-1], 16)
    body.append(f'<text class="tick" x="{left}" y="{FLOOR + 16}">{escape(first)}</text>')
    body.append(f'<text class="tick end" x="{right}" y="{FLOOR + 16}">{escape(last)}</text>')
    what = f"Chance of {next(iter(chances))}" if len(chances) == 1 else "Chances" if chances else "Answer"
    return picture(WIDTH, FLOOR + 22, f"{what} as {feature.name} goes over its range: {words}", body, "sets")


def _course(label: str, curve: Sequence[float], unit: str) -> str:
    """Return where a curve begins and ends; of one of several its lowest and its highest."""
    ends, words = ((min(curve), max(curve)), "between {} and {}") if label else ((curve[0], curve[-1]), "from {} to {}")
    return " ".join(filter(None, [label, words.format(*map(number, ends)), unit]))


def _blocks(
    effect: Effect, plane: Plane, points: Sequence[tuple[float, float]], classes: Sequence[str], inset: float
) -> list[str]:
    """Return a block for each stretch with one class."""
    thick = min(16.0, 0.7 * TALL / plane.high)
    half = (plane.right - plane.left) / max(1, len(points) - 1) / 2
    body = []
    for label, run in groupby(range(len(points)), key=lambda place: str(effect.answers[place])):
        places = list(run)
        begin = max(plane.at(points[places[0]][0]) - half, plane.left - inset)
        end = min(plane.at(points[places[-1]][0]) + half, plane.right + inset)
        body.append(
            f'<rect fill="{class_colour(classes.index(label))}" x="{begin:.1f}" '
            f'y="{plane.up(points[places[0]][1]) - thick / 2:.1f}" width="{max(end - begin, 1.0):.1f}" '
            f'height="{thick:.1f}"/>'
        )
    return body


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
