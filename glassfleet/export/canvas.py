"""What all pictures share: ink, canvas, and how long names become short."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from glassfleet.scheme import Model

INK, PALE, LINE, FILL, MARK = "#1b2733", "#5b6b7a", "#9aa8b5", "#eef3f7", "#c2410c"

Kind = Literal["png", "svg"]

DPI: Final = 144
"""Dots per inch of a PNG; a browser shows 96 of them to the inch."""

LONGEST_NAME: Final = 28
"""Signs of an input's name that a picture shows; both of its ends stay, as names differ there."""


MOVES_MOST: Final = "the input that moves the forecast most, and by how much over its range (…: others, too)"
"""What the consequents of polynomials are in pictures."""


def figure_of(width: float, height: float, title: str) -> tuple[Figure, Axes]:
    """Return a canvas, in inches, with one plot."""
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - an extra

    figure = Canvas(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    if title:
        axes.set_title(title, fontsize=11, color=INK, loc="left")
    return figure, axes


def figure_bytes(figure: Figure, kind: Kind) -> bytes:
    """Return a picture as the bytes of a file, the same each time."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    buffer = io.BytesIO()
    # Text stays text in SVG: it can be searched and read aloud. Ids and dates that change would change the bytes.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "glassfleet"}):
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata, facecolor="white")
    return buffer.getvalue()


def colours() -> Any:
    """Return the colours of terms, from the lowest (0) to the highest (1)."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    return mpl.colormaps["viridis"]


def inches(text: str, points: float) -> float:
    """Return about how wide a text is."""
    return 0.62 * points * len(text) / 72.0


def short(text: str, most: int) -> str:
    """Return a text cut at its end."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def name_of(text: str, most: int = LONGEST_NAME) -> str:
    """Return a name cut in its middle."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[head + 1 - most :]}"


def wrapped(text: str, width: int, most: int = 3) -> str:
    """Return a text in at most `most` lines of at most `width` signs; ``VeryHigh`` breaks as two words do."""
    lines = [""]
    for word in text.split():
        for number, part in enumerate(re.split(r"(?<=[a-z])(?=[A-Z])", word)):
            joined = f"{lines[-1]}{'' if number or not lines[-1] else ' '}{part}"
            if len(joined) <= width:
                lines[-1] = joined
            else:
                lines.append(short(part, width))
    lines = [line for line in lines if line]
    if len(lines) > most:
        lines = [*lines[: most - 1], f"{lines[most - 1][: width - 1]}…"]
    return "\n".join(lines)


def plain(text: str) -> str:
    """Return a text with its numbers below ten millions written out: 8.138e+04 becomes 81380."""
    return re.sub(r"(?<![\w.])\d(?:\.\d+)?e\+0[0-6](?!\w)", lambda found: f"{float(found[0]):.0f}", text)


def consequents(model: Model) -> list[str]:
    """Return the consequent of each rule in few words, in the order of the model's rules.

    A class, a number; or, for a polynomial, the input that moves it most and by how much over the input's whole range:
    no single number would be true for its rows. Dots stand for the other inputs.
    """
    told = []
    for rule in model.rules():
        said = rule.consequent
        if not said.slopes:
            told.append(plain(said.answer()))
            continue
        most = max(said.slopes, key=lambda slope: abs(slope.over_range))
        more = " …" if len(said.slopes) > 1 else ""
        unit = f" {said.unit}" if said.unit else ""
        told.append(f"{name_of(most.feature)} {plain(f'{most.over_range:+.3g}')}{unit}{more}")
    return told
