"""How many rows attacks read from what a run sent: by what protected them, and by what the attacker sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from glassfleet.export.svg.charts import NARROW, REPORT, Form, both
from glassfleet.export.svg.shapes import Svg, picture
from glassfleet.export.svg.text import cut

_FIGURE = 130
"""Room beside a bar for its share and the attack."""


def rows_read(lines: Sequence[Mapping[str, Any]]) -> Svg:
    """Return a bar for each protection and each thing that an attacker may see: the attack that read most rows whole.

    Parameters
    ----------
    lines : sequence of mapping
        As ``Line.to_document`` has them.
    """
    best: dict[tuple[str, str], Mapping[str, Any]] = {}
    for line in lines:
        key = str(line["protection"]), str(line["seen"])
        if key not in best or _share(line) > _share(best[key]):
            best[key] = line
    return both(*(_chart(form, list(best.values())) for form in (REPORT, NARROW)))


def _share(line: Mapping[str, Any]) -> float:
    share: float = line["read"] / max(1, line["rows"])
    return share


def _chart(form: Form, lines: Sequence[Mapping[str, Any]]) -> Svg:
    body, wide = [], form.wide - _FIGURE
    for place, line in enumerate(lines):
        top, share = 4 + place * form.row, _share(line)
        name = cut(f"{line['protection']}: {line['seen']}", form.longest)
        figure = f"{share:.1%} by {line['attack']}" if line["read"] else "0"
        body += [
            f'<text class="tick{form.anchor}" x="{form.name_x}" y="{top + form.name_y}">{escape(name)}</text>',
            f'<rect class="track" x="{form.left}" y="{top + form.base - 5}" width="{wide}" height="10"/>',
            f'<rect class="down" x="{form.left}" y="{top + form.base - 5}" width="{wide * share:.1f}" height="10"/>',
            f'<text class="tick" x="{form.left + wide + 6}" y="{top + form.base + 4}">{escape(figure)}</text>',
        ]
    most = max(map(_share, lines), default=0.0)
    title = f"Rows read whole by the best attack, of {len(lines)} ways to look: at most {most:.1%}"
    return picture(form.left + form.wide + 8, 8 + len(lines) * form.row, title, body)
