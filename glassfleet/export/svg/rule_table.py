"""A rule base as a table of coloured terms: a line for each rule, a column for each input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from glassfleet.export.svg.shapes import Svg, picture, shade
from glassfleet.export.svg.text import cut, number, plain
from glassfleet.model.rules import Condition, Rule
from schemas.text import counted

MOST_COLUMNS: Final = 16
COLUMN, ROW, LEFT, TOP = 112, 24, 132, 26


def rule_table(
    rules: Sequence[Rule], labels: Sequence[str], columns: Sequence[str], terms: Mapping[str, Sequence[str]], left: int
) -> Svg:
    """Return rules as a table.

    Parameters
    ----------
    rules : sequence of Rule
        In the order of drawing.
    labels : sequence of str
        By rule index: its consequent in a few words.
    columns : sequence of str
        Inputs; at most `MOST_COLUMNS` are drawn.
    terms : mapping of str to sequence of str
        The terms of an input, the lowest first.
    left : int
        How many rules are left out.
    """
    shown = columns[:MOST_COLUMNS]
    body = [
        f'<text class="name" x="{LEFT + COLUMN * place}" y="16">{_cut(name, 16)}</text>'
        for place, name in enumerate(shown)
    ]
    then = LEFT + COLUMN * len(shown) + 8
    widest = 0
    for line, rule in enumerate(rules):
        y = TOP + ROW * line
        name = f"rule {rule.index} ({number(100 * rule.support, 3)} %)"
        body.append(f'<text class="tick" x="4" y="{y + 15}">{escape(name)}</text>')
        given = {part.feature: part for part in rule.conditions}
        for place, feature in enumerate(shown):
            if feature in given:
                body.append(_cell(LEFT + COLUMN * place, y, given[feature], terms.get(feature, ())))
        label = ("otherwise: " if rule.otherwise else "") + labels[rule.index]
        widest = max(widest, min(len(label), 60))
        body.append(f'<text x="{then}" y="{y + 15}">{_cut(label, 60)}</text>')
    height = TOP + ROW * len(rules)
    if left > 0:
        words = f"and {counted(left, 'rules')} with less support"
        body.append(f'<text class="tick" x="4" y="{height + 16}">{words}</text>')
        height += 22
    title = f"{counted(len(rules), 'rules')}: what each asks of the inputs, and its consequent"
    return picture(then + 8 * widest + 12, height, title, body, "tree")


def _cell(x: int, y: int, part: Condition, names: Sequence[str]) -> str:
    level = names.index(part.term) / max(len(names) - 1, 1) if part.term in names else 0.5
    (colour, ink), words = shade(level), plain(part.short or part.term)
    return (
        f'<rect x="{x}" y="{y}" width="{COLUMN - 4}" height="{ROW - 4}" '
        f'fill="{colour}"/>'
        f'<text class="small mid {ink}" x="{x + COLUMN // 2 - 2}" y="{y + 14}">{_cut(words, 18)}</text>'
    )


def _cut(text: str, most: int) -> str:
    """Return a text as markup, cut to its room; the whole is its title then."""
    shown = cut(text, most)
    return escape(shown) if shown == text else f"<title>{escape(text)}</title>{escape(shown)}"
