"""Mermaid's sequence and state diagrams as inline SVG: the site loads no script for them, so it works offline.

Only what our pages use is read; anything else raises, and the build fails. Colours are the page's, light and dark.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from html import escape

FIRST = "[*]"
_LINE = 16
"""Pixels between two lines of text."""


class DiagramError(ValueError):
    """A diagram that this file cannot draw; the text says which line."""


def draw(source: str) -> str:
    """Return a diagram as one ``figure`` element; raises DiagramError."""
    kind, *lines = [line.strip() for line in source.strip().splitlines() if line.strip()]
    if kind == "sequenceDiagram":
        title, width, height, shapes = _sequence(lines)
    elif kind == "stateDiagram-v2":
        title, width, height, shapes = _states(lines)
    else:
        raise DiagramError(f"{kind!r}: only sequenceDiagram and stateDiagram-v2 can be drawn")
    arrow = (
        '<defs><marker id="gf-tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" class="gf-tip"/></marker></defs>'
    )
    # Readers who do not see the picture get its source, which reads as sentences.
    return (
        f'<figure class="gf-diagram"><div tabindex="0" role="region" aria-label="{escape(title)}">'
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{escape(title)}">'
        f"{arrow}{''.join(shapes)}</svg></div>"
        f"<details><summary>The same as text</summary><pre>{escape(chr(10).join(lines))}</pre></details></figure>"
    )


def _wrapped(words: str, width: int) -> list[str]:
    return textwrap.wrap(words, width, break_on_hyphens=False)


def _text(x: float, y: float, words: str, *, css: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{css}">{escape(words)}</text>'


def _arrow(path: str) -> str:
    return f'<path d="{path}" class="gf-line" marker-end="url(#gf-tip)"/>'


def _box(x: float, y: float, width: float, height: float) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" class="gf-box"/>'


# -- sequences ---------------------------------------------------------------------------------------------------------

_GAP = 222
"""Pixels between two participants."""


def _sequence(lines: list[str]) -> tuple[str, int, int, list[str]]:
    names: dict[str, str] = {}
    messages: list[tuple[str, str, str]] = []
    for line in lines:
        if match := re.fullmatch(r"participant (\w+) as (.+)", line):
            names[match[1]] = match[2]
        elif match := re.fullmatch(r"(\w+)->>(\w+): (.+)", line):
            messages.append((match[1], match[2], match[3]))
        elif match := re.fullmatch(r"Note over (\w+): (.+)", line):
            messages.append((match[1], match[1], match[2]))
        else:
            raise DiagramError(f"cannot draw {line!r}")
    at = {name: 100 + _GAP * index for index, name in enumerate(names)}
    width = 200 + _GAP * (len(names) - 1)
    y = 64
    shapes: list[str] = []
    for start, end, words in messages:
        wrapped = _wrapped(words, 27 if start == end else 31)
        middle = (at[start] + at[end]) / 2
        if start == end:
            shapes.append(_box(middle - 98, y - 18, 196, _LINE * len(wrapped) + 14))
        for line in wrapped:
            shapes.append(_text(middle, y, line, anchor="middle"))
            y += _LINE
        if start == end:
            y += 20
        else:
            shapes.append(_arrow(f"M{at[start]} {y - 8}H{at[end]}"))
            y += 18
    lives = [f'<path d="M{x} 40V{y}" class="gf-life"/>' for x in at.values()]
    heads = [
        _box(at[name] - 92, 8, 184, 30) + _text(at[name], 28, words, css="gf-name", anchor="middle")
        for name, words in names.items()
    ]
    title = "Who says what to whom: " + ", ".join(names.values())
    return title, width, y + 8, lives + heads + shapes


# -- states ------------------------------------------------------------------------------------------------------------


@dataclass
class _Graph:
    chain: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    moves: dict[tuple[str, str], str] = field(default_factory=dict)


def _read_states(lines: list[str]) -> _Graph:
    graph = _Graph()
    order: list[str] = []
    for line in lines:
        match = re.fullmatch(r"(\[\*\]|\w+) --> (\[\*\]|\w+)(?:: (.+))?", line)
        if match is None:
            raise DiagramError(f"cannot draw {line!r}")
        if match[2] != FIRST:
            graph.moves[match[1], match[2]] = match[3] or ""
        order += [name for name in match.group(1, 2) if name != FIRST and name not in order]
    leaving = {start for start, end in graph.moves if start != end}
    graph.chain = [name for name in order if name in leaving]
    graph.ends = [name for name in order if name not in leaving]
    # A state is drawn below those that lead to it; there are no cycles but those of a state with itself.
    depth = dict.fromkeys(graph.chain, 0)
    for _ in graph.chain:
        for start, end in graph.moves:
            if start in depth and end in depth and start != end:
                depth[end] = max(depth[end], depth[start] + 1)
    graph.chain.sort(key=lambda name: depth[name])
    return graph


_LEFT, _WIDE, _FIRST_END, _END_GAP = 112, 168, 490, 86
_CAUSES = 29
"""Characters of causes between a state and the first end."""


def _states(lines: list[str]) -> tuple[str, int, int, list[str]]:
    graph = _read_states(lines)
    top: dict[str, float] = {}
    height: dict[str, float] = {}
    y = 50.0
    for name in graph.chain:
        causes = _wrapped(graph.moves.get((name, graph.ends[0]), ""), _CAUSES)
        height[name] = max(52, _LINE * len(causes) + 34)
        top[name] = y
        y += height[name] + 42
    bottom = y - 30
    shapes = [f'<circle cx="{_LEFT + _WIDE / 2}" cy="14" r="6" class="gf-tip"/>']
    first = _LEFT + _WIDE / 2
    shapes.append(_arrow(f"M{first} 20V{top[graph.chain[0]]}"))
    shapes.append(_text(first + 8, 38, graph.moves.get((FIRST, graph.chain[0]), "")))
    column = {name: _FIRST_END + _END_GAP * index for index, name in enumerate(graph.ends)}
    skips = 0
    for (start, end), causes_text in graph.moves.items():
        if start == FIRST:
            continue
        if end in column:
            row = graph.ends.index(end)
            wrapped = _wrapped(causes_text, _CAUSES) if row == 0 else []
            line_y = top[start] + (_LINE * len(wrapped) + 6 if row == 0 else height[start] - 8)
            shapes += [
                _text(_LEFT + _WIDE + 10, top[start] + 12 + _LINE * index, line) for index, line in enumerate(wrapped)
            ]
            shapes.append(_arrow(f"M{_LEFT + _WIDE} {line_y}H{column[end]}"))
        elif start != end and graph.chain.index(end) == graph.chain.index(start) + 1:
            shapes.append(_arrow(f"M{first} {top[start] + height[start]}V{top[end]}"))
            shapes.append(_text(first + 8, top[start] + height[start] + 25, causes_text))
        elif start != end:
            out = 8 + 34 * skips
            skips += 1
            shapes.append(_arrow(f"M{_LEFT} {top[start] + 20}H{out}V{top[end] + 12}H{_LEFT}"))
            middle = (top[start] + top[end]) / 2 + 16
            turned = f'<g transform="translate({out + 12} {middle:g}) rotate(-90)">'
            shapes.append(turned + _text(0, 0, causes_text, css="gf-small", anchor="middle") + "</g>")
    for name in graph.chain:
        shapes.append(_box(_LEFT, top[name], _WIDE, height[name]))
        shapes.append(_text(first, top[name] + 22, name, css="gf-name", anchor="middle"))
        for index, line in enumerate(_wrapped(graph.moves.get((name, name), ""), 26)):
            again = f"\u21bb {line}" if index == 0 else line
            shapes.append(_text(first, top[name] + 40 + 14 * index, again, css="gf-small", anchor="middle"))
    for name, x in column.items():
        shapes.append(_box(x, top[graph.chain[0]], 78, bottom - top[graph.chain[0]]))
        shapes.append(_text(x + 39, top[graph.chain[0]] + 22, name, css="gf-name", anchor="middle"))
    title = "States and what moves between them: " + ", ".join(graph.chain + graph.ends)
    return title, _FIRST_END + _END_GAP * len(graph.ends), int(bottom) + 12, shapes
