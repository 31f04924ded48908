"""Charts with names beside their lines, of an input's share or a vehicle's scores; and how far off forecasts are.

Each is drawn in two forms, and the style sheet shows one: names at the left, or, on a narrow screen, above their lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple, TypeAlias

import numpy as np

from glassfleet.explain.text import cut, number
from glassfleet.export.svg.shapes import Svg, picture
from glassfleet.model.intervals import BOUNDS
from glassfleet.model.rules import Errors
from schemas.text import counted


class Form(NamedTuple):
    """Where things are in a chart, in pixels.

    Attributes
    ----------
    left, wide : int
        Where the values begin, and how much room they have.
    longest : int
        Characters of a name.
    steps : int
        Numbers below the chart, less one.
    is_narrow : bool
        Names stand above their lines, else at the left of them.
    """

    left: int
    wide: int
    longest: int
    steps: int
    is_narrow: bool = False

    @property
    def row(self) -> int:
        """Height of a line."""
        return 42 if self.is_narrow else 24

    @property
    def base(self) -> int:
        """Where the middle of a line's marks is."""
        return 29 if self.is_narrow else 12


Scored: TypeAlias = tuple[int, float, float, *tuple[float, ...]]
"""A version with its scores, alone and together."""

WIDE = Form(344, 280, 48, 4)
BROAD = Form(176, 700, 26, 6)
REPORT = Form(344, 360, 48, 4)
NARROW = Form(8, 252, 44, 2, is_narrow=True)


def both(wide: Svg, narrow: Svg) -> Svg:
    """Return two forms of one chart; whoever looks or listens meets one of them."""
    return Svg(f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>')


def _around(values: Sequence[float], share: float) -> tuple[float, float]:
    """Return limits with room beside the values: so much of their range at each end."""
    low, high = min(values), max(values)
    room = share * ((high - low) or 1.0)
    return low - room, high + room


def _name(form: Form, top: float, name: str) -> str:
    shown = cut(name, form.longest)
    whole = "" if shown == name else f"<title>{escape(name)}</title>"
    place = f'class="tick" x="8" y="{top + 15:.0f}"'
    if not form.is_narrow:
        place = f'class="tick end" x="{form.left - 10}" y="{top + 16:.0f}"'
    return f"<text {place}>{whole}{escape(shown)}</text>"


def shares(base: float, parts: Sequence[tuple[str, float]], total: float, unit: str, called: str = "forecast") -> Svg:
    """Return how base and shares add up to the total: a waterfall, one input a line.

    Parameters
    ----------
    base : float
    parts : sequence of (str, float)
        Names and shares.
    total : float
    unit : str
    called : str
        What the total is: of a class the forecast is no number.
    """
    return both(*(waterfall(form, base, parts, total, unit, called) for form in (WIDE, NARROW)))


def waterfall(  # noqa: PLR0917
    form: Form, base: float, parts: Sequence[tuple[str, float]], total: float, unit: str, called: str
) -> Svg:
    """Return one form of `shares`."""
    steps: list[tuple[str, float, float]] = []
    here = base
    for name, share in parts:
        steps.append((name, here, here + share))
        here += share
    low, high = _around([base, total, *(end for _, _, end in steps)], 0.06)

    def at(raw: float) -> float:
        return form.left + form.wide * (raw - low) / (high - low)

    body: list[str] = []
    lines: list[tuple[str, str, float, float, str]] = [("start", "base", base, base, number(base))]
    lines += [
        ("up" if end >= start else "down", name, start, end, f"{'+' if end >= start else '−'}{abs(end - start):.3g}")
        for name, start, end in steps
    ]
    lines.append(("start", called, total, total, number(total)))
    for position, (kind, name, start, end, text) in enumerate(lines):
        top = 4 + position * form.row
        y = top + form.base
        x1, x2 = sorted((at(start), at(end)))
        body.append(_name(form, top, name))
        if kind == "start":
            body.append(f'<rect class="mark" x="{x1 - 1.5:.1f}" y="{y - 9}" width="3" height="18" rx="1"/>')
        else:
            wide_bar = max(x2 - x1, 1.5)
            body.append(f'<rect class="{kind}" x="{x1:.1f}" y="{y - 8}" width="{wide_bar:.1f}" height="16"/>')
        # Between lines stand names, in the narrow form.
        if position < len(lines) - 1 and not form.is_narrow:
            x = at(end)
            body.append(f'<line class="thread" x1="{x:.1f}" x2="{x:.1f}" y1="{y + 8}" y2="{y + form.row - 8}"/>')
        body.append(f'<text class="tick" x="{x2 + 8:.1f}" y="{y + 4}">{escape(text)}</text>')
    words = f"Base {number(base)}, then " + ", ".join(f"{name} {share:+.3g}" for name, share in parts)
    words += f", together {number(total)}{f' {unit}' if unit else ''}"
    return picture(form.left + form.wide + 76, 8 + form.row * len(lines), words, body, "shares")


def scores(
    rows: Sequence[tuple[str, float, float, float | None]],
    metric: str,
    names: tuple[str, str] = ("alone", "together"),
    unit: str = "",
) -> Svg:
    """Return two scores of each vehicle, such as alone (LL) and together (FL), and the central (CL) where it is known.

    Parameters
    ----------
    rows : sequence of (str, float, float, float or None)
        Vehicle, both scores, CL.
    metric : str
        ``rmse`` (less is better) or ``f1``.
    names : tuple of (str, str)
        What the two are.
    unit : str
        The target's; F1 has none.
    """
    return both(*(_scores(form, rows, metric, names, _axis(metric, unit)) for form in (BROAD, NARROW)))


def _axis(metric: str, unit: str) -> str:
    less = metric == "rmse"
    return f"{metric.upper()}{f' in {cut(unit, 24)}' if unit and less else ''}, {'less' if less else 'more'} is better"


def _scores(
    form: Form,
    rows: Sequence[tuple[str, float, float, float | None]],
    metric: str,
    names: tuple[str, str],
    axis: str,
) -> Svg:
    low, high = _around([value for _, *values in rows for value in values if value is not None], 0.06)
    wide = form.wide + 40

    def at(raw: float) -> float:
        return form.left + wide * (raw - low) / (high - low)

    bottom = 8 + form.row * len(rows)
    body = []
    for step in range(form.steps + 1):
        value = low + (high - low) * step / form.steps
        anchor = "" if step == 0 and form.is_narrow else " mid" if step < form.steps or not form.is_narrow else " end"
        body.append(f'<line class="grid" x1="{at(value):.1f}" x2="{at(value):.1f}" y1="4" y2="{bottom}"/>')
        body.append(f'<text class="tick{anchor}" x="{at(value):.1f}" y="{bottom + 16}">{number(value, 3)}</text>')
    x, anchor = (form.left, "") if form.is_narrow else (form.left + wide / 2, " mid")
    body.append(f'<text class="tick{anchor}" x="{x:.1f}" y="{bottom + 34}">{escape(axis)}</text>')
    for position, (agent, alone, together, central) in enumerate(rows):
        top = 4 + position * form.row
        y = top + form.base
        better = together < alone if metric == "rmse" else together > alone
        text = f"{metric} {names[0]} {alone:.4g}, {names[1]} {together:.4g}"
        text += "" if central is None else f", central {central:.4g}"
        diamond = "" if central is None else _diamond(at(central), y)
        body.append(
            f"<g><title>{escape(agent)}: {text}</title>{_name(form, top, agent)}"
            f'<line class="{"up" if better else "down"} span" x1="{at(alone):.1f}" x2="{at(together):.1f}" '
            f'y1="{y}" y2="{y}"/><circle class="alone" cx="{at(alone):.1f}" cy="{y}" r="4.5"/>'
            f'<circle class="together" cx="{at(together):.1f}" cy="{y}" r="4.5"/>{diamond}</g>'
        )
    gained = sum(1 for _, alone, together, _ in rows if (together < alone if metric == "rmse" else together > alone))
    words = f"{axis}, of {counted(len(rows), 'vehicles')}; better {names[1]} than {names[0]}: {gained}."
    words += " The table has the numbers."
    return picture(form.left + wide + 24, bottom + 42, words, body, "scores")


def versions(
    points: Sequence[Scored], metric: str, here: int, unit: str = "", names: tuple[str, str] = ("alone", "together")
) -> Svg:
    """Return the scores of a model's versions, alone (LL) and together (FL), as two lines.

    Parameters
    ----------
    points : sequence of Scored
        Version, LL, FL, and what is not drawn; in the versions' order.
    metric : str
        ``rmse`` (less is better) or ``f1``.
    here : int
        The version that is shown, drawn with a mark of its own.
    unit : str
        The target's; F1 has none.
    names : tuple of str
        What the two scores are called; those of a central reference are no fleet's.
    """
    return both(*(_versions(width, points, metric, here, unit, names) for width in (760, 330)))


def _versions(  # noqa: PLR0917
    width: int, points: Sequence[Scored], metric: str, here: int, unit: str, names: tuple[str, str]
) -> Svg:
    left, right, top, bottom = 58, width - 22, 12, 132
    low, high = _around([value for point in points for value in point[1:3]], 0.12)

    def at(position: int) -> float:
        return left + (right - left) * position / max(len(points) - 1, 1)

    def height(value: float) -> float:
        return bottom - (bottom - top) * (value - low) / (high - low)

    body = []
    for step in range(3):
        value = low + (high - low) * step / 2
        y = height(value)
        body.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        body.append(f'<text class="tick end" x="{left - 8}" y="{y + 4:.1f}">{number(value, 3)}</text>')
    for kind, column in (("alone", 1), ("together", 2)):
        line = " ".join(f"{at(place):.1f},{height(point[column]):.1f}" for place, point in enumerate(points))
        body.append(f'<polyline class="line {kind}" points="{line}"/>')
    every = -(-len(points) // (20 if width > NARROW.wide * 2 else 8))
    for place, (version, alone, together, *_) in enumerate(points):
        x = at(place)
        text = f"version {version}: {metric} {names[1]} {together:.4g}, {names[0]} {alone:.4g}"
        mark = f'<circle class="held" cx="{x:.1f}" cy="{height(together):.1f}" r="8"/>' if version == here else ""
        body.append(
            f'<g><title>{text}</title>{mark}<circle class="alone" cx="{x:.1f}" cy="{height(alone):.1f}" r="4"/>'
            f'<circle class="together" cx="{x:.1f}" cy="{height(together):.1f}" r="4.5"/></g>'
        )
        if (len(points) - 1 - place) % every == 0:
            strong = " strong" if version == here else ""
            body.append(f'<text class="tick mid{strong}" x="{x:.1f}" y="{bottom + 18}">v{version}</text>')
    axis = _axis(metric, unit)
    body.append(f'<text class="tick" x="{left}" y="{bottom + 38}">{escape(axis)}</text>')
    first, last = points[0], points[-1]
    words = f"{axis}: {names[1]} {first[2]:.4g} with version {first[0]}, {last[2]:.4g} with version {last[0]}."
    words += " The table of versions has the numbers."
    return picture(width, bottom + 46, words, body, "curve")


def _diamond(x: float, y: float) -> str:
    return f'<path class="central" d="M{x - 5.5:.1f} {y}L{x:.1f} {y - 5.5}L{x + 5.5:.1f} {y}L{x:.1f} {y + 5.5}Z"/>'


BARS, TALL, MARGIN = 41, 120, 24


def error_bars(counts: Sequence[int], known: Errors, width: float, unit: str = "") -> Svg:
    """Return bars over errors, true less forecast; those of the nine of ten are filled.

    Parameters
    ----------
    counts : sequence of int
        By bin of :data:`glassfleet.model.intervals.BOUNDS`.
    known : Errors
        Of all these rows.
    width : float
        The target's range, > 0.
    unit : str
        The target's.
    """
    return both(*(_drawn(wide, counts, known, width, unit) for wide in (700, 300)))


def _drawn(wide: int, counts: Sequence[int], known: Errors, width: float, unit: str) -> Svg:
    reach = np.concatenate([[0], np.cumsum(counts)]) / max(1, sum(counts))
    end = 1.6 * max(-known.low, known.high) or width
    edges = np.linspace(-end, end, BARS + 1)
    # Within a bin errors are spread evenly, as in the quantiles.
    shares = np.diff(np.interp(edges, BOUNDS * width, reach))
    most = float(shares.max()) or 1.0

    def at(error: float) -> float:
        return MARGIN + (wide - 2 * MARGIN) * (error + end) / (2 * end)

    body = []
    for low, high, share in zip(edges[:-1].tolist(), edges[1:].tolist(), shares.tolist(), strict=True):
        kind = "together" if known.low <= (low + high) / 2 <= known.high else "quiet"
        top, right = TALL * (1.0 - share / most), at(high) - 1
        text = f"{100 * share:.1f} % from {number(low, 3)} to {number(high, 3)}"
        body.append(
            f'<rect class="{kind}" x="{at(low):.1f}" y="{8 + top:.1f}" width="{right - at(low):.1f}" '
            f'height="{TALL - top:.1f}"><title>{text}</title></rect>'
        )
    body.append(f'<line class="axis" x1="{MARGIN}" x2="{wide - MARGIN}" y1="{8 + TALL}" y2="{8 + TALL}"/>')
    for error in (known.low, 0.0, known.high):
        body.append(f'<line class="here" x1="{at(error):.1f}" x2="{at(error):.1f}" y1="{8 + TALL}" y2="{13 + TALL}"/>')
        body.append(f'<text class="tick mid" x="{at(error):.1f}" y="{26 + TALL}">{number(error, 3)}</text>')
    axis = f"true value less forecast{f', in {unit}' if unit else ''}"
    body.append(f'<text class="tick mid" x="{wide / 2}" y="{44 + TALL}">{escape(axis)}</text>')
    words = f"Errors on {known.rows} test rows: nine of ten between {number(known.low, 3)} and {number(known.high, 3)}"
    return picture(wide, 52 + TALL, words, body, "errors")
