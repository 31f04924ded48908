"""The rounds of a run: what became of the answers to each, and how heavy they were."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from glassfleet.explain.text import size
from glassfleet.export.svg.shapes import Svg, picture
from schemas.rounds import count
from schemas.text import counted

KINDS = (("accepted", "in"), ("late", "late"), ("dropped", "dropped"), ("rejected", "rejected"))
"""What becomes of answers, in the order of drawing: field and word."""


def _with_unasked(name: str, words: str, rounds: Sequence[Mapping[str, Any]]) -> str:
    """Return `words` of an outcome and, of late answers, how many are of vehicles that the round did not ask.

    A vehicle that missed a round is not asked in the next one, but sees the request, and answers it too late as well.
    """
    if name != "late":
        return words
    unasked = sum(len({*row.get("late_agents", ())} - {*row.get("asked_agents", ())}) for row in rounds)
    return f"{words} ({unasked} not asked)" if unasked else words


def answers(row: Mapping[str, Any], width: int = 120) -> Svg:
    """Return one round's answers as a bar: in, late, dropped, rejected."""
    total = max(sum(count(row, name) for name, _ in KINDS), int(row["asked"]), 1)
    texts = [f"{row['accepted']} in of {row['asked']} asked"]
    texts += [_with_unasked(name, f"{count(row, name)} {word}", [row]) for name, word in KINDS[1:] if count(row, name)]
    parts, x = [f'<rect class="track" width="{width}" height="10" rx="2"/>'], 0.0
    for name, _ in KINDS:
        part = width * count(row, name) / total
        if part:
            parts.append(f'<rect class="k-{name}" x="{x:.1f}" width="{max(part, 1.5):.1f}" height="10"/>')
            x += part
    return picture(width, 10, ", ".join(texts), parts, "answers")


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
        return sum(count(row, name) for row in self.rounds)

    @property
    def label(self) -> str:
        """Everything in words."""
        first, last = self.rounds[0], self.rounds[-1]
        name = f"{first['phase']} {first['number']}"
        if first is not last:
            name += f" to {last['phase']} {last['number']}"
        elif int(first["attempt"]) > 1:
            name += f", attempt {first['attempt']}"
        text = ", ".join(_with_unasked(kind, f"{self.drawn(kind)} {word}", self.rounds) for kind, word in KINDS)
        took = sum(float(row["seconds"]) for row in self.rounds)
        return f"{name}: {self.total('asked')} asked, {text}; {took:.3g} s, {size(self.total('bytes'))}"

    @property
    def tick(self) -> str:
        """What stands below it."""
        first = self.rounds[0]
        return f"{'d' if first['phase'] == 'domain' else ''}{first['number']}"


def timeline(rounds: Sequence[Mapping[str, Any]], wide: int = 860, most: int = 215) -> Svg:
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
        return Svg()
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
    words = counted(len(rounds), "rounds") + (f", {each} in a column" if each > 1 else "")
    title = f"Answers by round: {words}. The table below has the numbers."
    return picture(width, top + tall + low + 26, title, parts, "timeline")
