"""SVG files of this package as PNG, painted with matplotlib (the extra ``operator`` or ``experiments``).

It knows the elements and the style that our own pictures are made of, and no more of SVG.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from glassfleet.export.svg.shapes import STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALE: Final = 1.5
"""Pixels of the PNG for one of the SVG."""

_Properties = dict[str, str]
_Style = list[tuple[str, str, frozenset[str], _Properties]]
"""Class of a picture, element, its classes, and what they get."""
_SELECTOR = re.compile(r"(?:svg(?:\.([\w-]+))? ?)?(\w+)?((?:\.[\w-]+)*)$")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def to_png(svg: str) -> bytes:
    """Return a file of `shapes.file_of` as a PNG; the same each time with the same version of matplotlib."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    root = ET.fromstring(svg)  # noqa: S314 - we wrote it
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    figure = Figure(figsize=(width / 72, height / 72))
    _Painter(figure, height, _style()).paint(root, 0.0, 0.0, "")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=72 * SCALE, metadata={"Software": None}, facecolor="white")
    return buffer.getvalue()


def _style() -> _Style:
    """Return the rules of the style sheet."""
    text = STYLE.read_text(encoding="utf-8").partition("@media")[0].partition("*/")[2]
    values = dict(re.findall(r"--([\w-]+): ([^;]+);", text))
    style: _Style = []
    for selectors, body in re.findall(r"([^{}]+){([^}]*)}", text):
        properties = dict(re.findall(r"([\w-]+): ([^;]+);", body))
        filled = {name: re.sub(r"var\(--([\w-]+)\)", lambda m: values[m[1]], text) for name, text in properties.items()}
        for selector in selectors.split(","):
            match = _SELECTOR.match(selector.strip())
            if match is not None and "~" not in selector:
                style.append((match[1] or "", match[2] or "", frozenset(match[3].split(".")) - {""}, filled))
    return style


class _Painter:
    def __init__(
        self, figure: Figure, height: float, style: list[tuple[str, str, frozenset[str], _Properties]]
    ) -> None:
        self._figure = figure
        self._height = height
        self._style = style

    def paint(self, element: ET.Element, x: float, y: float, picture: str) -> None:
        """Paint an element and all in it; `x`, `y`: where its picture begins, from the left and from the top."""
        from matplotlib import patches, path  # noqa: PLC0415 - an extra

        tag, given = element.tag.rpartition("}")[2], element.attrib
        if tag in ("title", "style"):
            return
        if tag in ("svg", "g", "a"):
            if tag == "svg":
                x, y, picture = x + float(given.get("x", 0)), y + float(given.get("y", 0)), given.get("class", "")
            for child in element:
                self.paint(child, x, y, picture)
            return
        look = self._look(tag, given, picture)
        if tag == "text":
            self._text(element, x, y, look)
            return
        points, codes = _outline(tag, given)
        if tag == "circle":
            shape: Any = patches.Circle(self._place(x, y, *points[0]), float(given["r"]))
        elif tag == "rect" and float(given.get("rx", 0)) > 0:
            (left, top), (right, bottom) = points[0], points[2]
            corner = self._place(x, y, left, bottom)
            round_by = min(float(given["rx"]), (right - left) / 2)
            shape = patches.FancyBboxPatch(
                corner, right - left, bottom - top, f"round,pad=0,rounding_size={round_by}", mutation_aspect=1.0
            )
        else:
            shape = patches.PathPatch(path.Path([self._place(x, y, *point) for point in points], codes))
        filled, drawn = look.get("fill", "#000000"), look.get("stroke", "none")
        shape.set(
            facecolor="none" if tag in ("line", "polyline") else filled,
            edgecolor=drawn,
            linewidth=float(look.get("stroke-width", 1)) if drawn != "none" else 0.0,
            alpha=float(look.get("opacity", 1)),
            linestyle=(0, tuple(map(float, look["stroke-dasharray"].split()))) if "stroke-dasharray" in look else "-",
            clip_on=False,
        )
        shape.set_transform(self._pixels())
        self._figure.add_artist(shape)

    def _pixels(self) -> Any:
        from matplotlib.transforms import Affine2D  # noqa: PLC0415 - an extra

        return Affine2D().scale(1 / 72) + self._figure.dpi_scale_trans

    def _place(self, x: float, y: float, right: float, down: float) -> tuple[float, float]:
        return x + right, self._height - y - down

    def _look(self, tag: str, given: Mapping[str, str], picture: str) -> _Properties:
        classes = set(given.get("class", "").split())
        look = {name: given[name] for name in ("fill", "stroke", "stroke-width") if name in given}
        for of, element, needed, properties in self._style:
            if of in ("", *picture.split()) and element in ("", tag) and (needed or element) and needed <= classes:
                look |= properties
        return look

    def _text(self, element: ET.Element, x: float, y: float, look: _Properties) -> None:
        words = "".join([element.text or "", *(child.tail or "" for child in element)])
        size = float((_NUMBER.findall(look.get("font-size", "")) or ["11.5"])[0])
        self._figure.text(
            *self._place(x, y, float(element.attrib["x"]), float(element.attrib["y"])),
            words.replace("$", r"\$"),
            fontsize=0.92 * size,  # the font is wider than those of browsers
            color=look.get("fill", "#000000"),
            fontweight="bold" if look.get("font-weight") == "600" else "normal",
            ha={"middle": "center", "end": "right"}.get(look.get("text-anchor", ""), "left"),
            va="baseline",
            transform=self._pixels(),
        )


def _outline(tag: str, given: Mapping[str, str]) -> tuple[list[tuple[float, float]], list[int] | None]:
    """Return the points of a shape, and matplotlib's codes where they are not joined by lines alone."""
    from matplotlib.path import Path  # noqa: PLC0415 - an extra

    if tag == "line":
        return [(float(given["x1"]), float(given["y1"])), (float(given["x2"]), float(given["y2"]))], None
    if tag == "circle":
        return [(float(given["cx"]), float(given["cy"]))], None
    if tag == "rect":
        left, top = float(given.get("x", 0)), float(given.get("y", 0))
        right, bottom = left + float(given["width"]), top + float(given["height"])
        return [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], None
    numbers = [float(text) for text in _NUMBER.findall(given.get("points") or given["d"])]
    points = list(zip(numbers[::2], numbers[1::2], strict=True))
    if "C" in given.get("d", ""):
        return points, [int(Path.MOVETO), *[int(Path.CURVE4)] * (len(points) - 1)]
    return (points if tag == "polyline" else [*points, points[0]]), None
