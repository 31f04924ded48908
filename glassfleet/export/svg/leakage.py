"""How many rows attacks read from what a run sent: one bar for each line of a leakage report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from glassfleet.export.svg.charts import NARROW, REPORT, Form, both
from glassfleet.export.svg.shapes import Svg, picture
from glassfleet.export.svg.text import cut


def rows_read(lines: Sequence[Mapping[str, Any]]) -> Svg:
    """Return the share of rows that each attack read whole, from 0 to 100 %; lines as ``Line.to_document`` has them."""
    return both(*(_chart(form, lines) for form in (REPORT, NARROW)))


def _chart(form: Form, lines: Sequence[Mapping[str, Any]]) -> Svg:
    body, wide = [], form.wide - 60
    for place, line in enumerate(lines):
        top = 4 + place * form.row
        name = cut(f"{line['protection']}, {line['seen']}: {line['attack']}", form.longest)
        share = line["read"] / max(1, line["rows"])
        body += [
            f'<text class="tick{form.anchor}" x="{form.name_x}" y="{top + form.name_y}">{escape(name)}</text>',
            f'<rect class="track" x="{form.left}" y="{top + form.base - 5}" width="{wide}" height="10"/>',
            f'<rect class="down" x="{form.left}" y="{top + form.base - 5}" width="{wide * share:.1f}" height="10"/>',
            f'<text class="tick" x="{form.left + wide + 6}" y="{top + form.base + 4}">{share:.1%}</text>',
        ]
    most = max((line["read"] / max(1, line["rows"]) for line in lines), default=0.0)
    title = f"Rows read whole, of {len(lines)} attacks: at most {most:.1%}"
    return picture(form.left + form.wide + 8, 8 + len(lines) * form.row, title, body)
