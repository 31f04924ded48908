"""Pictures as SVG text: no script, no inline style, colours from the style sheet's classes, a text for every picture.

All functions are pure and escape what they are given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from coordinator.dashboard.branches import Branch
from glassfleet.explain import Partition

ROW, COLUMN = 42, 256
BOX_WIDTH, BOX_HEIGHT = 212, 34
MAX_BARS = 60
"""Rounds in one timeline; older ones are in the table's other pages."""


def number(value: float | str | None, digits: int = 4) -> str:
    """Return a number as people read it; texts as they are.

    >>> number(1234567.0), number(0.00012345), number(None)
    ('1.235e+06', '0.0001234', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f")
    if not math.isfinite(value):
        return str(value)
    return f"{value:.{digits}g}".replace("-", "−", 1) if value < 0 else f"{value:.{digits}g}"


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


def answers(row: Mapping[str, Any], width: int = 120) -> Markup:
    """Return one round's answers as a bar: in, late, dropped, rejected."""
    total = max(sum(int(row[name]) for name, _ in KINDS), int(row["asked"]), 1)
    words = ", ".join(f"{row[name]} {word}" for name, word in KINDS if row[name] or name == "accepted")
    parts, x = [f'<rect class="track" width="{width}" height="10" rx="2"/>'], 0.0
    for name, _ in KINDS:
        part = width * int(row[name]) / total
        if part:
            parts.append(f'<rect class="k-{name}" x="{x:.1f}" width="{max(part, 1.5):.1f}" height="10"/>')
            x += part
    return picture(width, 10, f"{words} of {row['asked']} asked", parts, "answers")


def timeline(rounds: Sequence[Mapping[str, Any]]) -> Markup:
    """Return the rounds one beside the other: answers as stacked columns, the bytes of each below."""
    shown = rounds[-MAX_BARS:]
    if not shown:
        return Markup("")
    column = min(44.0, max(10.0, 860 / len(shown)))
    width, top, tall, low = 44 + column * len(shown) + 8, 10, 110, 34
    most = max([1, *(max(int(row["asked"]), sum(int(row[name]) for name, _ in KINDS)) for row in shown)])
    heaviest = max([1, *(int(row["bytes"]) for row in shown)])
    parts = [
        f'<line class="axis" x1="40" x2="{width - 4:.0f}" y1="{top + tall}" y2="{top + tall}"/>',
        f'<text class="tick end" x="34" y="{top + 8}">{most}</text>',
        f'<text class="tick end" x="34" y="{top + tall}">0</text>',
        f'<text class="tick end" x="34" y="{top + tall + low + 2}">bytes</text>',
    ]
    every = max(1, math.ceil(28 / column))
    for position, row in enumerate(shown):
        x, y = 44 + position * column, float(top + tall)
        wide = column - (6 if column > 16 else 2)
        label = (
            f"{row['phase']} {row['number']}"
            + (f", attempt {row['attempt']}" if int(row["attempt"]) > 1 else "")
            + f": {row['asked']} asked, "
            + ", ".join(f"{row[name]} {word}" for name, word in KINDS)
            + f"; {float(row['seconds']):.3g} s, {size(row['bytes'])}"
        )
        parts.append(f"<g><title>{escape(label)}</title>")
        asked = tall * int(row["asked"]) / most
        parts.append(f'<rect class="track" x="{x:.1f}" y="{y - asked:.1f}" width="{wide:.1f}" height="{asked:.1f}"/>')
        for name, _ in KINDS:
            part = tall * int(row[name]) / most
            if part:
                y -= part
                parts.append(f'<rect class="k-{name}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{part:.1f}"/>')
        weight = (low - 12) * int(row["bytes"]) / heaviest
        parts.append(
            f'<rect class="quiet" x="{x:.1f}" y="{top + tall + low - weight + 2:.1f}" width="{wide:.1f}" '
            f'height="{max(weight, 1):.1f}"/>'
        )
        if position % every == 0:
            text = f"{'d' if row['phase'] == 'domain' else ''}{row['number']}"
            parts.append(f'<text class="tick mid" x="{x + wide / 2:.1f}" y="{top + tall + low + 18}">{text}</text>')
        parts.append("</g>")
    words = f"{len(rounds)} rounds" + (f", the last {len(shown)} shown" if len(shown) < len(rounds) else "")
    return picture(width, top + tall + low + 26, f"Answers by round: {words}. The table below has the numbers.", parts)


def tree(trail: Sequence[Branch], address: str, labels: Sequence[str] = ()) -> Markup:
    """Return the opened part of a rule tree, from left to right; every box is a link that opens it.

    Parameters
    ----------
    trail : sequence of Branch
        From the root to the branch that is open.
    address : str
        Of the page; ``?branch=KEY`` is put behind it.
    labels : sequence of str
        By rule: what it forecasts, or what moves that most, in a few words.
    """
    open_keys = {branch.path for branch in trail}
    lines: list[str] = []
    boxes: list[str] = []
    deepest = 0
    most = max(trail[0].support, 1e-12)

    def place(branch: Branch, depth: int, top: float, above: Branch | None = None) -> tuple[float, float]:
        """Draw a branch with its opened children; return the middle of its box, and where the next may begin."""
        nonlocal deepest
        deepest = max(deepest, depth)
        below = top
        spots: list[tuple[float, Branch]] = []
        if branch.path in open_keys:
            for child in branch.children:
                middle, below = place(child, depth + 1, below, branch)
                spots.append((middle, child))
        own = (spots[0][0] + spots[-1][0]) / 2 if spots else top + ROW / 2
        for middle, child in spots:
            x1, x2 = depth * COLUMN + BOX_WIDTH + 2, (depth + 1) * COLUMN + 2
            bend = (x1 + x2) / 2
            thick = 1 + 5 * math.sqrt(max(child.support, 0.0) / most)
            on = " on" if child.path in open_keys else ""
            lines.append(
                f'<path class="link{on}" d="M{x1} {own:.1f} C{bend} {own:.1f} {bend} {middle:.1f} {x2} {middle:.1f}" '
                f'stroke-width="{thick:.1f}"/>'
            )
        boxes.append(_box(branch, above, depth, own, address, labels=labels, is_open=branch.path in open_keys))
        return own, max(below, top + ROW)

    _, height = place(trail[0], 0, 4.0)
    width = deepest * COLUMN + BOX_WIDTH + 6
    name = f"Tree of {trail[0].count} rules, opened at {_words(trail[-1])}"
    body = "".join([*lines, *boxes])
    # A group, not an image: the boxes are links, and a picture has no parts for those who listen.
    return Markup(  # noqa: S704  every text in it is escaped
        f'<svg class="tree" viewBox="0 0 {width} {height + 4:.0f}" width="{width}" height="{height + 4:.0f}" '
        f'role="group" aria-label="{escape(name)}">{body}</svg>'
    )


def _box(
    branch: Branch,
    above: Branch | None,
    depth: int,
    middle: float,
    address: str,
    *,
    labels: Sequence[str],
    is_open: bool,
) -> str:
    x, y = depth * COLUMN + 2, middle - BOX_HEIGHT / 2
    term = _words(branch)
    # The box above has named the input already, where all its branches ask for the same one.
    name = term if branch.condition is None or above is None or not above.feature else branch.condition.term
    if branch.children:
        rest = branch.feature and f" by {branch.feature}"
        detail = f"{branch.count} {'rule' if branch.count == 1 else 'rules'}{rest}"
    else:
        index = branch.rules[0].index
        told = labels[index] if index < len(labels) else cut(branch.rules[0].output, 60)
        detail = f"→ {told}"
    kind = "leaf" if not branch.children else "open" if is_open else "shut"
    target = branch.key if not is_open else branch.key.rpartition(".")[0]
    where = f"{address}?branch={target}#tree" if branch.children else f"#rule-{branch.rules[0].index}"
    says = f"{term}: {detail}; support {branch.support:.3f}" + (
        "" if not branch.children else "; close" if is_open and depth else "" if is_open else "; open"
    )
    text = [
        f'<rect class="box {kind}" x="{x}" y="{y:.1f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>',
        f'<text class="name" x="{x + 9}" y="{y + 14.5:.1f}">{escape(cut(name, 27))}</text>',
        f'<text class="note" x="{x + 9}" y="{y + 27.5:.1f}">{escape(cut(detail, 34))}</text>',
    ]
    title = f"<title>{escape(says)}</title>"
    swap = f' data-swap="tree" data-branch="{branch.key}"' if branch.children else ""
    return f'<a href="{escape(where)}"{swap} aria-label="{escape(cut(says, 300))}">{title}{"".join(text)}</a>'


def _words(branch: Branch) -> str:
    return "all rows" if branch.condition is None else f"{branch.condition.feature} is {branch.condition.term}"


def memberships(partition: Partition, value: float | None, used: Sequence[str] = ()) -> Markup:
    """Return the fuzzy sets of an input with a row's value over them; `used` terms stand out."""
    width, tall, left = 340, 74, 8
    wide = width - 2 * left
    low, high = partition.low, partition.high
    span = (high - low) or 1.0

    def at(raw: float) -> float:
        return left + wide * min(max((raw - low) / span, 0.0), 1.0)

    parts = [f'<line class="axis" x1="{left}" x2="{width - left}" y1="{tall + 16}" y2="{tall + 16}"/>']
    said: list[str] = []
    for each in partition.sets:
        on = " on" if each.term in used else ""
        points = [(at(each.low), 0.0 if each.low < each.peak else 1.0), (at(each.peak), 1.0)]
        points.append((at(each.high), 0.0 if each.high > each.peak else 1.0))
        line = " ".join(f"{x:.1f},{16 + tall - degree * (tall - 8):.1f}" for x, degree in points)
        floor = f"{at(each.low):.1f},{16 + tall} {line} {at(each.high):.1f},{16 + tall}"
        parts.append(f'<polygon class="area{on}" points="{floor}"/><polyline class="set{on}" points="{line}"/>')
        if value is not None and (degree := each.degree(min(max(value, low), high))) > 0:
            said.append(f"{each.term} {degree:.2f}")
    parts += [
        f'<line class="set" x1="{at(edge):.1f}" x2="{at(edge):.1f}" y1="24" y2="{16 + tall}"/>'
        for edge in partition.thresholds[:40]
    ]
    for position, each in enumerate(partition.sets):
        anchor = "mid" if 0 < position < len(partition.sets) - 1 else "" if position == 0 else "end"
        if len(partition.sets) <= 5 or each.term in used:
            room = max(4, 44 // max(len(partition.sets), 1))
            parts.append(
                f'<text class="tick {anchor}" x="{at(each.peak):.1f}" y="15">{escape(cut(each.term, room))}</text>'
            )
    if value is not None:
        x = at(value)
        parts.append(f'<line class="here" x1="{x:.1f}" x2="{x:.1f}" y1="18" y2="{16 + tall}"/>')
        parts.append(f'<circle class="here" cx="{x:.1f}" cy="{16 + tall}" r="4"/>')
        for each in partition.sets:
            degree = each.degree(min(max(value, low), high))
            if degree > 0:
                parts.append(f'<circle class="here" cx="{x:.1f}" cy="{16 + tall - degree * (tall - 8):.1f}" r="3"/>')
    unit = f" {partition.unit}" if partition.unit else ""
    parts.append(f'<text class="tick" x="{left}" y="{tall + 32}">{escape(number(low))}</text>')
    parts.append(f'<text class="tick end" x="{width - left}" y="{tall + 32}">{escape(number(high) + unit)}</text>')
    told = "" if value is None else f", at {number(value)}{unit}: {' and '.join(said) or 'no set'}"
    return picture(width, tall + 38, f"Fuzzy sets of {partition.feature}{told}", parts, "sets")


def shares(base: float, parts: Sequence[tuple[str, float]], total: float, unit: str) -> Markup:
    """Return how base and shares add up to the total: a waterfall, one input a line."""
    left, wide, row = 176, 380, 24
    steps: list[tuple[str, float, float]] = []
    here = base
    for name, share in parts:
        steps.append((name, here, here + share))
        here += share
    values = [base, total, *(end for _, _, end in steps)]
    low, high = min(values), max(values)
    pad = 0.06 * ((high - low) or 1.0)
    low, high = low - pad, high + pad

    def at(raw: float) -> float:
        return left + wide * (raw - low) / (high - low)

    body: list[str] = []
    lines: list[tuple[str, str, float, float, str]] = [("start", "base", base, base, number(base))]
    lines += [
        ("up" if end >= start else "down", name, start, end, f"{'+' if end >= start else '−'}{abs(end - start):.3g}")
        for name, start, end in steps
    ]
    lines.append(("start", "forecast", total, total, number(total)))
    for position, (kind, name, start, end, text) in enumerate(lines):
        y = 4 + position * row
        x1, x2 = sorted((at(start), at(end)))
        body.append(f'<text class="tick end" x="{left - 10}" y="{y + 14}">{escape(cut(name, 26))}</text>')
        if kind == "start":
            body.append(f'<rect class="mark" x="{x1 - 1.5:.1f}" y="{y + 2}" width="3" height="{row - 6}" rx="1"/>')
        else:
            wide_bar = max(x2 - x1, 1.5)
            body.append(f'<rect class="{kind}" x="{x1:.1f}" y="{y + 3}" width="{wide_bar:.1f}" height="{row - 8}"/>')
        if position < len(lines) - 1:
            body.append(
                f'<line class="thread" x1="{at(end):.1f}" x2="{at(end):.1f}" y1="{y + row - 5}" y2="{y + row + 5}"/>'
            )
        body.append(f'<text class="tick" x="{x2 + 8:.1f}" y="{y + 14}">{escape(text)}</text>')
    words = f"Base {number(base)}, then " + ", ".join(f"{name} {share:+.3g}" for name, share in parts)
    words += f", together {number(total)}{f' {unit}' if unit else ''}"
    return picture(left + wide + 76, 8 + row * len(lines), words, body, "shares")


def scores(rows: Sequence[tuple[str, float, float]], metric: str) -> Markup:
    """Return each vehicle's score learned alone (LL) and together (FL): two dots a line, joined."""
    left, wide, row = 176, 420, 22
    values = [value for _, alone, together in rows for value in (alone, together)]
    low, high = min(values), max(values)
    pad = 0.06 * ((high - low) or 1.0)
    low, high = low - pad, high + pad

    def at(raw: float) -> float:
        return left + wide * (raw - low) / (high - low)

    bottom = 8 + row * len(rows)
    body = []
    for step in range(5):
        value = low + (high - low) * step / 4
        body.append(f'<line class="grid" x1="{at(value):.1f}" x2="{at(value):.1f}" y1="4" y2="{bottom}"/>')
        body.append(f'<text class="tick mid" x="{at(value):.1f}" y="{bottom + 16}">{number(value, 3)}</text>')
    for position, (agent, alone, together) in enumerate(rows):
        y = 4 + position * row + row / 2
        better = together < alone if metric == "rmse" else together > alone
        body.append(
            f"<g><title>{escape(agent)}: {metric} alone {alone:.4g}, together {together:.4g}</title>"
            f'<text class="tick end" x="{left - 10}" y="{y + 4:.1f}">{escape(cut(agent, 26))}</text>'
            f'<line class="{"up" if better else "down"} span" x1="{at(alone):.1f}" x2="{at(together):.1f}" '
            f'y1="{y:.1f}" y2="{y:.1f}"/><circle class="alone" cx="{at(alone):.1f}" cy="{y:.1f}" r="4.5"/>'
            f'<circle class="together" cx="{at(together):.1f}" cy="{y:.1f}" r="4.5"/></g>'
        )
    gained = sum(1 for _, alone, together in rows if (together < alone if metric == "rmse" else together > alone))
    words = (
        f"{metric.upper()} of {len(rows)} vehicles; {gained} are better together than alone. The table has the numbers."
    )
    return picture(left + wide + 24, bottom + 24, words, body, "scores")
