"""Pictures as SVG text: no script, no inline style, colours from the style sheet's classes, a text for every picture.

All functions are pure and escape what they are given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

_NEGATIVE = re.compile(r"(?<![\w.)\]-])-(?=\.?\d)")


def number(value: float | str | None, digits: int = 4) -> str:
    """Return a number as people read it; texts as they are.

    >>> number(1234567.0), number(165795.6), number(0.00012345), number(None)
    ('1.235e+06', '165796', '0.0001234', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f")
    if not math.isfinite(value):
        return str(value)
    short, whole = f"{value:.{digits}g}", f"{value:.6g}"
    text = whole if "e" in short and "e" not in whole else short  # as rules write it
    return text.replace("-", "−", 1) if value < 0 else text


def signed(value: float) -> str:
    """Return a number with its sign, to one decimal.

    >>> signed(1.25), signed(-0.04), signed(-3.0)
    ('+1.2', '0.0', '−3.0')
    """
    text = f"{value:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")


def minus(text: str, value: float) -> str:
    """Return the text of a value with the sign that `number` writes; a category's text as it is.

    >>> minus("-0.9375 dB", -0.9375), minus("-1 to 0", 3.0)
    ('−0.9375 dB', '-1 to 0')
    """
    return text.replace("-", "−", 1) if value < 0 and text.startswith("-") else text


def signs(text: str) -> str:
    """Return a sentence with the sign that `number` writes before its negative numbers; names and dates as they are.

    >>> signs("error -3.1% over vehicle-02, 2026-03-01 to 1e-05 (-.5)")
    'error −3.1% over vehicle-02, 2026-03-01 to 1e-05 (−.5)'
    """
    return _NEGATIVE.sub("−", text)


def size(count: float) -> str:
    """Return a number of bytes as people read it.

    >>> size(900), size(25_000)
    ('900 B', '24.4 KiB')
    """
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def cut(text: str, most: int) -> str:
    """Return `text`, shortened with an ellipsis to `most` characters."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def picture(width: float, height: float, title: str, body: Sequence[str], classes: str = "") -> Markup:
    """Return an SVG with a title; `body` is markup already."""
    name = escape(title)
    return Markup(  # noqa: S704  title and body are escaped
        f'<svg class="{escape(classes)}" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{name}"><title>{name}</title>{"".join(body)}</svg>'
    )


def meter(share: float, words: str) -> Markup:
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


KINDS = (("accepted", "in"), ("late", "late"), ("dropped", "dropped"), ("rejected", "rejected"))
"""What becomes of answers, in the order of drawing: field and word."""


def _drawn(row: Mapping[str, Any], name: str) -> int:
    """Return how much of a bar an outcome takes: whoever was dropped and answered later is drawn once, as late."""
    both = set(row.get("dropped_agents", ())) & set(row.get("late_agents", ())) if name == "dropped" else ()
    return int(row[name]) - len(both)


def _with_unasked(name: str, words: str, rounds: Sequence[Mapping[str, Any]]) -> str:
    """Return `words` of an outcome and, of late answers, how many are of vehicles that the round did not ask.

    A vehicle that missed a round is not asked in the next one, but sees the request, and answers it too late as well.
    """
    if name != "late":
        return words
    unasked = sum(len({*row.get("late_agents", ())} - {*row.get("asked_agents", ())}) for row in rounds)
    return f"{words} ({unasked} not asked)" if unasked else words


def answers(row: Mapping[str, Any], width: int = 120) -> Markup:
    """Return one round's answers as a bar: in, late, dropped, rejected."""
    total = max(sum(_drawn(row, name) for name, _ in KINDS), int(row["asked"]), 1)
    told = [f"{row['accepted']} in of {row['asked']} asked"]
    told += [_with_unasked(name, f"{row[name]} {word}", [row]) for name, word in KINDS[1:] if row[name]]
    parts, x = [f'<rect class="track" width="{width}" height="10" rx="2"/>'], 0.0
    for name, _ in KINDS:
        part = width * _drawn(row, name) / total
        if part:
            parts.append(f'<rect class="k-{name}" x="{x:.1f}" width="{max(part, 1.5):.1f}" height="10"/>')
            x += part
    return picture(width, 10, ", ".join(told), parts, "answers")


@dataclass(frozen=True)
class Bar:
    """One column of a timeline: a round, or, in a long run, some rounds that follow each other."""

    rounds: Sequence[Mapping[str, Any]]

    def total(self, name: str) -> int:
        """Of a field over the rounds."""
        return sum(int(row[name]) for row in self.rounds)

    @property
    def tall(self) -> int:
        """What the column must have room for."""
        return max(self.total("asked"), sum(self.drawn(name) for name, _ in KINDS))

    def drawn(self, name: str) -> int:
        """Of an outcome, as much as the column shows."""
        return sum(_drawn(row, name) for row in self.rounds)

    @property
    def label(self) -> str:
        """Everything in words."""
        first, last = self.rounds[0], self.rounds[-1]
        name = f"{first['phase']} {first['number']}"
        if first is not last:
            name += f" to {last['phase']} {last['number']}"
        elif int(first["attempt"]) > 1:
            name += f", attempt {first['attempt']}"
        told = ", ".join(_with_unasked(kind, f"{self.total(kind)} {word}", self.rounds) for kind, word in KINDS)
        took = sum(float(row["seconds"]) for row in self.rounds)
        return f"{name}: {self.total('asked')} asked, {told}; {took:.3g} s, {size(self.total('bytes'))}"

    @property
    def tick(self) -> str:
        """What stands below it."""
        first = self.rounds[0]
        return f"{'d' if first['phase'] == 'domain' else ''}{first['number']}"


def timeline(rounds: Sequence[Mapping[str, Any]], wide: int = 860, most: int = 215) -> Markup:
    """Return all rounds one beside the other: answers as stacked columns, the bytes of each below.

    Parameters
    ----------
    rounds : sequence of mapping
        As in a run's document.
    wide : int
        Room for the columns, pixels.
    most : int
        Columns; in a run of more rounds each stands for some.
    """
    if not rounds:
        return Markup("")
    each = math.ceil(len(rounds) / most)
    bars = [Bar(rounds[start : start + each]) for start in range(0, len(rounds), each)]
    column = min(44.0, wide / len(bars))
    width, top, tall, low = 44 + column * len(bars) + 8, 10, 110, 34
    highest = max([1, *(bar.tall for bar in bars)])
    heaviest = max([1, *(bar.total("bytes") for bar in bars)])
    parts = [
        f'<line class="axis" x1="40" x2="{width - 4:.0f}" y1="{top + tall}" y2="{top + tall}"/>',
        f'<text class="tick end" x="34" y="{top + 8}">{highest}</text>',
        f'<text class="tick end" x="34" y="{top + tall}">0</text>',
        f'<text class="tick end" x="34" y="{top + tall + low + 2}">bytes</text>',
    ]
    every = max(1, math.ceil(34 / column))
    for position, bar in enumerate(bars):
        x, y = 44 + position * column, float(top + tall)
        gap = 6 if column > 16 else 2 if column > 6 else 1
        across = f'x="{x:.1f}" width="{column - gap:.1f}"'
        parts.append(f"<g><title>{escape(bar.label)}</title>")
        asked = tall * bar.total("asked") / highest
        parts.append(f'<rect class="track" {across} y="{y - asked:.1f}" height="{asked:.1f}"/>')
        for name, _ in KINDS:
            part = tall * bar.drawn(name) / highest
            if part:
                y -= part
                parts.append(f'<rect class="k-{name}" {across} y="{y:.1f}" height="{part:.1f}"/>')
        weight = max((low - 12) * bar.total("bytes") / heaviest, 1.0)
        parts.append(f'<rect class="quiet" {across} y="{top + tall + low - weight + 2:.1f}" height="{weight:.1f}"/>')
        if position % every == 0:
            middle = x + (column - gap) / 2
            parts.append(f'<text class="tick mid" x="{middle:.1f}" y="{top + tall + low + 18}">{bar.tick}</text>')
        parts.append("</g>")
    words = f"{len(rounds)} rounds" + (f", {each} in a column" if each > 1 else "")
    title = f"Answers by round: {words}. The table below has the numbers."
    return picture(width, top + tall + low + 26, title, parts, "timeline")
