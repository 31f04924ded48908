"""Curves of how an answer moves with one input: a line for forecasts, a lane for each class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from glassfleet.explain.effects import Effect
from glassfleet.export.svg.shapes import Svg, class_colour, picture
from glassfleet.export.svg.text import cut, number

WIDTH, TALL, TOP, RIGHT = 340, 96, 8, 10


@dataclass(frozen=True)
class Scale:
    """What curves that are drawn beside each other have in common.

    Attributes
    ----------
    low, high : float
        The lowest and the highest forecast or chance, low < high.
    lanes : tuple of str
        The classes that occur, in the model's order; empty for numbers.
    """

    low: float = 0.0
    high: float = 1.0
    lanes: tuple[str, ...] = ()

    @classmethod
    def of(cls, effects: Sequence[Effect], classes: Sequence[str]) -> Scale:
        """Return the scale of some curves, at least one, of a model with `classes` (none: it forecasts numbers)."""
        if isinstance(effects[0].answers[0], str):
            answered = {str(answer) for each in effects for answer in each.answers}
            return cls(lanes=tuple(label for label in classes if label in answered))
        answers = [float(answer) for each in effects for answer in each.answers]
        low, high = min(answers), max(answers)
        return cls(low, high) if low < high else cls(low - 0.5, high + 0.5)

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
    feature, floor = effect.feature, TOP + TALL
    left = 84 if scale.lanes else 58
    width, inset = (feature.high - feature.low) or 1.0, 10 * bool(feature.categories)

    def at(value: float) -> float:
        return left + inset + (WIDTH - left - RIGHT - 2 * inset) * (value - feature.low) / width

    def up(answer: float | str) -> float:
        if isinstance(answer, str):
            return TOP + TALL * (scale.lanes.index(answer) + 0.5) / len(scale.lanes)
        return floor - TALL * (answer - scale.low) / (scale.high - scale.low)

    marks: tuple[float | str, ...] = scale.lanes or (scale.low, (scale.low + scale.high) / 2, scale.high)
    body = []
    for mark in marks:
        name = cut(mark, 12) if isinstance(mark, str) else number(round(mark, scale.digits), 3)
        name += " %" * bool(effect.chance_of)
        body.append(f'<line class="grid" x1="{left}" x2="{WIDTH - RIGHT}" y1="{up(mark):.1f}" y2="{up(mark):.1f}"/>')
        if len(marks) * 11 <= TALL:
            body.append(f'<text class="tick end" x="{left - 6}" y="{up(mark) + 4:.1f}">{escape(name)}</text>')
    points = [(at(value), up(answer)) for value, answer in zip(effect.values, effect.answers, strict=True)]
    if scale.lanes:
        body += _blocks(effect, points, classes, left, min(16.0, 0.7 * TALL / len(scale.lanes)))
        shares = {label: sum(answer == label for answer in effect.answers) / len(points) for label in scale.lanes}
        words = ", ".join(f"{label} on {100 * share:.0f} %" for label, share in shares.items() if share)
    else:
        body += _line(effect, points)
        first, *_, last = (float(answer) for answer in effect.answers)
        unit = "%" if effect.chance_of else unit
        words = f"from {number(first)} to {number(last)}{f' {unit}' if unit else ''}"
    if effect.value is not None:
        own = effect.value
        here = min(range(len(points)), key=lambda place: abs(effect.values[place] - own))
        body.append(f'<circle class="here" cx="{at(own):.1f}" cy="{points[here][1]:.1f}" r="4.5"/>')
    first_name, last_name = number(feature.low), f"{number(feature.high)} {cut(feature.unit, 20)}".rstrip()
    if feature.categories:
        first_name, last_name = cut(feature.categories[0], 16), cut(feature.categories[-1], 16)
    body.append(f'<text class="tick" x="{left}" y="{floor + 16}">{escape(first_name)}</text>')
    body.append(f'<text class="tick end" x="{WIDTH - RIGHT}" y="{floor + 16}">{escape(last_name)}</text>')
    what = f"Chance of {effect.chance_of}" if effect.chance_of else "Answer"
    return picture(WIDTH, floor + 22, f"{what} as {feature.name} goes over its range: {words}", body, "sets")


def _line(effect: Effect, points: Sequence[tuple[float, float]]) -> list[str]:
    if effect.feature.categories:
        return [f'<circle class="together" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [f'<polyline class="line together" points="{path}"/>']


def _blocks(
    effect: Effect, points: Sequence[tuple[float, float]], classes: Sequence[str], left: float, thick: float
) -> list[str]:
    """Return a block for each stretch with one class."""
    half = (points[-1][0] - points[0][0]) / max(1, len(points) - 1) / 2
    body = []
    for label, run in groupby(range(len(points)), key=lambda place: str(effect.answers[place])):
        places = list(run)
        begin, end = max(points[places[0]][0] - half, left), min(points[places[-1]][0] + half, WIDTH - RIGHT)
        body.append(
            f'<rect fill="{class_colour(classes.index(label))}" x="{begin:.1f}" '
            f'y="{points[places[0]][1] - thick / 2:.1f}" width="{max(end - begin, 1.0):.1f}" height="{thick:.1f}"/>'
        )
    return body
