"""Lines that bend: how a rule's consequent moves with an input over the rule's region."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from glassfleet.export.svg.plane import FLOOR, MARGIN, MOST_LINES, NAMES, TOP, WIDTH, Plane
from glassfleet.export.svg.sets import GAP, width
from glassfleet.export.svg.shapes import Svg, picture
from glassfleet.export.svg.text import cut, number, plain, signs
from glassfleet.rules import BentInput

Points = Sequence[tuple[float, float]]


def bent_lines(bent: Sequence[BentInput]) -> list[tuple[str, Svg]]:
    """Return a picture for each bent input of a rule, to one scale of heights, with its heading: name and unit.

    Of more than :data:`MOST_LINES` lines to an input those that move most are drawn.
    """
    heights = [height for each in bent for _, points in each.lines for _, height in points]
    return [
        (f"{each.feature} ({cut(each.unit, 20)})" if each.unit else each.feature, _lines(each, heights))
        for each in bent
    ]


def _lines(bent: BentInput, heights: Sequence[float]) -> Svg:
    numbered = [(name.removeprefix("score of "), place, points) for place, (name, points) in enumerate(bent.lines)]
    kept = sorted(numbered, key=lambda line: -_move(line[2]))[:MOST_LINES]
    lines = [line for line in numbered if line in kept]
    low, high = min(heights), max(heights)  # a line begins at 0
    first, last = bent.lines[0][1][0][0], bent.lines[0][1][-1][0]
    plane = Plane(first, last, low, high, right=WIDTH - (NAMES if len(lines) > 1 else MARGIN))
    near = [height for height in {low, high} if 0.0 < abs(plane.up(height) - plane.up(0.0)) < GAP + 8]
    body = plane.grid([(height, "" if height in near else number(height, 3)) for height in sorted({low, 0.0, high})])
    knots = sorted({value for _, _, points in lines for value, _ in points[1:-1]})
    body += [
        f'<line class="grid" x1="{plane.at(knot):.1f}" x2="{plane.at(knot):.1f}" y1="{TOP}" y2="{FLOOR}"/>'
        for knot in knots
    ]
    end = f"{_value(last)} {cut(bent.unit, 20)}".rstrip()
    body.append(f'<text class="tick" x="{plane.left}" y="{FLOOR + 16}">{_value(first)}</text>')
    body.append(f'<text class="tick end" x="{plane.right}" y="{FLOOR + 16}">{escape(end)}</text>')
    body += _knots(plane, knots, plane.left + width(_value(first)), plane.right - width(end))
    body += plane.lines(lines)
    words = "; ".join(f"{bent.lines[place][0]} {_words(points, bent.unit)}" for _, place, points in lines)
    words += f"; {len(numbered) - len(lines)} more move less" * (len(lines) < len(numbered))
    return picture(
        WIDTH, FLOOR + 36, f"With {bent.feature}, from where the rule's region begins: {words}", body, "sets"
    )


def _move(points: Points) -> float:
    heights = [height for _, height in points]
    return max(heights) - min(heights)


def _words(points: Points, unit: str) -> str:
    steps = [f"{number(height, 3)} at {_value(value)}" for value, height in points]
    return f"{', '.join(steps)} {unit}".rstrip()


def _value(value: float) -> str:
    """Return a value of the input as the rule's words have it."""
    return signs(plain(f"{value:.4g}"))


def _knots(plane: Plane, knots: Sequence[float], begin: float, stop: float) -> list[str]:
    """Return the values where lines bend: between the limits, or a line below; one that has no room is left out."""
    body, taken, stops = [], [begin, 0.0], (stop, WIDTH)
    for knot in knots:
        x, half = plane.at(knot), width(_value(knot)) / 2
        for line in (0, 1):
            if taken[line] + GAP <= x - half and x + half + GAP <= stops[line]:
                taken[line] = x + half
                y = FLOOR + 16 + 14 * line
                body.append(f'<text class="tick mid" x="{x:.1f}" y="{y}">{_value(knot)}</text>')
                break
    return body
