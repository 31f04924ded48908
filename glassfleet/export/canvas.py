"""What all pictures share: ink, canvas, and how long names become short."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from glassfleet.fuzzy.consequent import bare_sum

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from glassfleet.scheme import Model

INK, PALE, LINE, FILL, MARK = "#1b2733", "#5b6b7a", "#9aa8b5", "#eef3f7", "#c2410c"

LONGEST_NAME: Final = 28
"""Signs of an input's name that a picture shows; both of its ends stay, as names differ there."""


def figure_of(width: float, height: float, title: str) -> tuple[Figure, Axes]:
    """Return a canvas, in inches, with one plot."""
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - an extra

    figure = Canvas(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    if title:
        axes.set_title(title, fontsize=11, color=INK, loc="left")
    return figure, axes


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


def consequent(output: str, model: Model) -> str:
    """Return a consequent in few words: a class, a number, or a polynomial's constant and strongest slope."""
    _, equals, right = output.partition(" = ")
    if not equals:
        return output.partition(" is ")[2] or output
    unit = model.domain.target.unit if model.domain.target is not None else ""
    parts = bare_sum(right, unit).replace(" - ", " + -").split(" + ")
    if len(parts) == 1:
        return right
    width = {variable.name: variable.high - variable.low for variable in model.domain.features}

    def strength(part: str) -> float:
        number, _, name = part.partition(" ")
        return abs(float(number)) * width.get(name, 0.0)

    def told(part: str) -> str:
        number, _, name = part.partition(" ")
        return f"{'-' if number.startswith('-') else '+'} {number.lstrip('-')} {name_of(name)}"

    slopes = sorted(parts[1:], key=strength, reverse=True)
    return f"{parts[0]} {told(slopes[0])}{' …' if len(slopes) > 1 else ''}"
