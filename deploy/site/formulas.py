r"""Formulas as inline SVG, drawn by matplotlib while the site is built: readers load no script and no font for them.

Markdown's ``$...$`` becomes ``<span class="arithmatex">\(...\)</span>`` (pymdownx.arithmatex); that becomes a path.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape, unescape

from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath

_SIZE = 100
_MARKED = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_REPLACED = {r"\\big([\[\]])": r"\1", r"\\text\{": r"\\mathrm{", r"\\ ": r"\\;", r"\\le(?![a-z])": r"\\leq"}
"""What mathtext writes in another way: patterns."""


def replace(html: str) -> str:
    """Return a page with its formulas drawn; raises ValueError, naming the formula, for one that cannot be drawn."""
    return _MARKED.sub(lambda match: _element(unescape(match[3]), block=match[2] == "["), html)


def _element(formula: str, *, block: bool) -> str:
    # A displayed formula is several, side by side while there is room and one below the other on a phone.
    parts = re.split(r"\\qquad", formula) if block else [formula]
    drawn = "".join(_draw(part.strip().rstrip("\\").strip()) for part in parts if part.strip())
    return f'<div class="gf-formulas">{drawn}</div>' if block else drawn


@cache
def _draw(formula: str) -> str:
    text = formula.replace("\n", " ")
    for ours, theirs in _REPLACED.items():
        text = re.sub(ours, theirs, text)
    font = FontProperties(family="serif", math_fontfamily="stix", size=_SIZE)
    try:
        width, height, depth, _, _ = MathTextParser("path").parse(f"${text}$", dpi=72, prop=font)
        outline = TextPath((0, 0), f"${text}$", prop=font)
    except ValueError as fault:
        raise ValueError(f"the formula {formula!r} cannot be drawn: {fault}") from fault
    em = 1.1 / _SIZE
    return (
        f'<svg class="gf-formula" role="img" aria-label="{escape(formula)}" viewBox="0 {-height:.1f} {width:.1f} '
        f'{height + depth:.1f}" style="width:{width * em:.2f}em;height:{(height + depth) * em:.2f}em;'
        f'vertical-align:{-depth * em:.2f}em"><path d="{_path(outline)}"/></svg>'
    )


_COMMANDS = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CURVE4: "C"}


def _path(outline: Outline) -> str:
    """Return an outline in SVG's words; its y axis points down."""
    words = [
        "Z"
        if code == Outline.CLOSEPOLY
        else _COMMANDS[code] + " ".join(f"{x:.1f} {-y:.1f}" for x, y in points.reshape(-1, 2))
        for points, code in outline.iter_segments(curves=True, simplify=False)
    ]
    return "".join(words)
