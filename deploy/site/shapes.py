"""SVG of the pictures on pages that explain: boxes, texts, and the sheet around them."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

WIDTH = 800
"""Pixels of a sheet, without its border of one."""


def box(x: float, y: float, width: float, height: float, css: str) -> str:
    """Return a rectangle with round corners; pixels."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" class="{css}"/>'


def text(x: float, y: float, words: str, css: str = "") -> str:
    """Return one line of text; pixels, `y` of the line that the letters stand on."""
    return f'<text x="{x:g}" y="{y:g}" class="{css}">{escape(words)}</text>'


def sheet(title: str, height: float, style: str, shapes: Iterable[str]) -> str:
    """Return the whole picture, on white, `height` pixels high."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 0 {WIDTH + 2} {height:g}" role="img">\n'
        f"<title>{escape(title)}</title><style>text{{font:13px system-ui,sans-serif;fill:#17302e}}{style}</style>\n"
        f'<rect x="-1" width="{WIDTH + 2}" height="{height:g}" fill="#fff"/>\n' + "\n".join(shapes) + "\n</svg>\n"
    )
