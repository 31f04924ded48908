"""What all pictures share: the element, the file of its own, several side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

STYLE: Final = Path(__file__).parent / "pictures.css"
"""The classes of all pictures; a page that holds some needs it."""


COLOURS: Final = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
"""From the lowest to the highest: viridis, which colour-blind readers tell apart, too."""


def shade(level: float) -> tuple[str, str]:
    """Return the colour of a place between the lowest and the highest, [0, 1], and the class of text on it."""
    return COLOURS[round(level * (len(COLOURS) - 1))], "white" if level < 0.55 else "dark"


CLASS_COLOURS: Final = (
    "#77aadd",
    "#ee8866",
    "#eedd88",
    "#44bb99",
    "#ffaabb",
    "#bbcc33",
    "#99ddff",
    "#aaaa00",
    "#dddddd",
)
"""Of classes, which have no order: P. Tol's light scheme, for dark text; colour-blind readers tell them apart."""


def class_colour(place: int) -> str:
    """Return the colour of a class by its place among the model's; those from the ninth on share one."""
    return CLASS_COLOURS[min(place, len(CLASS_COLOURS) - 1)]


_SIZE = re.compile(r'width="(\d+)" height="(\d+)"')


class Svg(str):
    """Markup that templates do not escape again."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return the markup, as template engines ask for it."""
        return self

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of a picture, pixels."""
        match = _SIZE.search(self)
        assert match is not None
        return int(match[1]), int(match[2])


def picture(
    width: float, height: float, title: str, body: Sequence[str], classes: str = "", *, role: str = "img"
) -> Svg:
    """Return an SVG with a title; `body` is markup already. A group's parts (links, say) can be reached one by one."""
    name = escape(title)
    mark = f"<title>{name}</title>" if role == "img" else ""
    return Svg(
        f'<svg class="{escape(classes)}" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="{role}" aria-label="{name}">{mark}{"".join(body)}</svg>'
    )


def meter(share: float, words: str) -> Svg:
    """Return a small bar for a share, [0, 1]."""
    filled = 72 * min(max(share, 0.0), 1.0)
    return picture(
        72,
        8,
        words,
        [
            '<rect class="track" width="72" height="8" rx="4"/>',
            f'<rect class="fill" width="{max(filled, 2.0 if share > 0 else 0.0):.1f}" height="8" rx="4"/>',
        ],
        "meter",
    )


def file_of(svg: Svg, title: str = "", note: str = "", margin: int = 14) -> str:
    """Return a picture as an SVG file that looks the same everywhere: on light paper, with its own style."""
    head, foot = 28 * bool(title), 24 * bool(note)
    width = max(svg.size[0], 10 * len(title), 7 * len(note)) + 2 * margin
    height = svg.size[1] + 2 * margin + head + foot
    style = STYLE.read_text(encoding="utf-8").partition("@media")[0]
    heading = f'<text class="head" x="{margin}" y="{margin + 14}">{escape(title)}</text>' if title else ""
    footing = f'<text class="tick" x="{margin}" y="{height - margin}">{escape(note)}</text>' if note else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f'<style>{escape(style)}</style><rect class="paper" width="{width}" height="{height}"/>'
        f"{heading}{_at(svg, margin, margin + head)}{footing}</svg>\n"
    )


def _at(svg: Svg, x: float, y: float) -> str:
    return svg.replace("<svg ", f'<svg x="{x}" y="{y}" ', 1)
