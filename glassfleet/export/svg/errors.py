"""How often a model is how far off: a bar chart of its errors on test rows."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from glassfleet.explain.text import number
from glassfleet.export.svg.charts import both
from glassfleet.export.svg.shapes import Svg, picture
from glassfleet.model.intervals import BOUNDS
from glassfleet.model.rules import Errors

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
