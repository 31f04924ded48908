"""Trees as pictures from left to right, and, for narrow screens, as lists that say the same."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Sequence
from html import escape
from typing import Final, Generic, TypeVar

from glassfleet.export.svg.branches import Branch
from glassfleet.export.svg.shapes import Svg, picture
from glassfleet.export.svg.text import cut, plain

Node = TypeVar("Node")
ROW, COLUMN = 42, 256
BOX_WIDTH, BOX_HEIGHT = 212, 34
NAME, NOTE = 27, 34
"""Characters that a box has room for; the whole text is its title, and in the list."""

MOST_LEAVES: Final = 40
"""Leaves of a tree that is drawn as a whole; smaller branches are told by their number of rules."""


class Layout(Generic[Node]):
    """Places boxes: children below each other at the right of their parent, the parent at the middle of them.

    Parameters
    ----------
    children : callable
        The children of a node that are drawn.
    link : callable
        Attributes of the line to a child.
    box : callable
        Draws a node: the node above, its left edge and its middle.
    """

    def __init__(
        self,
        children: Callable[[Node], Sequence[Node]],
        link: Callable[[Node], str],
        box: Callable[[Node, Node | None, int, float], str],
    ) -> None:
        self._children, self._link, self._box = children, link, box
        self.lines: list[str] = []
        self.boxes: list[str] = []
        self.deepest = 0

    def place(self, node: Node, depth: int, top: float, above: Node | None = None) -> tuple[float, float]:
        """Draw a node and all below it; return the middle of its box, and where the next may begin."""
        self.deepest = max(self.deepest, depth)
        below = top
        spots: list[tuple[float, Node]] = []
        for child in self._children(node):
            middle, below = self.place(child, depth + 1, below, node)
            spots.append((middle, child))
        own = (spots[0][0] + spots[-1][0]) / 2 if spots else top + ROW / 2
        for middle, child in spots:
            x1, x2 = depth * COLUMN + BOX_WIDTH + 2, (depth + 1) * COLUMN + 2
            bend = (x1 + x2) / 2
            self.lines.append(
                f"<path {self._link(child)} "
                f'd="M{x1} {own:.1f} C{bend:g} {own:.1f} {bend:g} {middle:.1f} {x2} {middle:.1f}"/>'
            )
        self.boxes.append(self._box(node, above, depth * COLUMN + 2, own))
        return own, max(below, top + ROW)

    @property
    def width(self) -> int:
        """Of the picture."""
        return self.deepest * COLUMN + BOX_WIDTH + 6


def box(kind: str, name: str, note: str, x: float, middle: float) -> str:
    """Return a box with its name and a note below that, both cut to what it has room for."""
    y = middle - BOX_HEIGHT / 2
    return (
        f'<rect class="box {kind}" x="{x}" y="{y:.1f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>'
        f'<text class="name" x="{x + 9}" y="{y + 14.5:.1f}">{escape(cut(name, NAME))}</text>'
        f'<text class="note" x="{x + 9}" y="{y + 27.5:.1f}">{escape(cut(note, NOTE))}</text>'
    )


class RuleTree:
    """A rule tree as far as it is open.

    Parameters
    ----------
    trail : sequence of Branch
        The branches that are open, the root first. The last one is named as the one that was opened.
    address : str
        Of a page: every box, and every line of the list, is a link that opens its branch; ``branch=KEY`` is put behind
        the address. Empty: there are no links.
    labels : sequence of str
        By rule: what it forecasts, or what moves that most, in a few words.
    """

    def __init__(self, trail: Collection[Branch], address: str = "", labels: Sequence[str] = ()) -> None:
        self.trail = list(trail)
        self._open = {branch.path for branch in trail}
        self._address = address
        self._labels = labels

    def picture(self) -> Svg:
        """Return the tree from left to right."""
        root = self.trail[0]
        most = max(root.support, 1e-12)

        def link(child: Branch) -> str:
            thick = 1 + 5 * math.sqrt(max(child.support, 0.0) / most)
            on = " on" if self._address and child.path in self._open else ""
            return f'class="link{on}" stroke-width="{thick:.1f}"'

        layout = Layout(self._shown, link, self._box)
        _, height = layout.place(root, 0, 4.0)
        name = f"Tree of {self._counted(root)}"
        if self._address:
            name += f", opened at {_words(self.trail[-1])}"
        # A group, not an image, where the boxes are links: an image has no parts for those who listen.
        role = "group" if self._address else "img"
        return picture(layout.width, height + 4, name, [*layout.lines, *layout.boxes], "tree", role=role)

    def list(self) -> Svg:
        """Return the same as lists in lists."""
        return Svg(f'<ul class="branches">{self._item(self.trail[0], None)}</ul>')

    def _item(self, branch: Branch, above: Branch | None) -> str:
        inner = "".join(self._item(child, branch) for child in self._shown(branch))
        name, detail = escape(self._name(branch, above)), escape(self._detail(branch))
        words = f'<b>{name}</b> <span class="quiet">{detail}</span>'
        target = self._target(branch)
        link = f'<a href="{escape(target)}"{self._swap(branch)}>{words}</a>' if target else words
        return f"<li>{link}{f'<ul>{inner}</ul>' if inner else ''}</li>"

    def _shown(self, branch: Branch) -> Sequence[Branch]:
        return branch.children if branch.path in self._open else ()

    def _name(self, branch: Branch, above: Branch | None) -> str:
        # The box above has named the input already, where all its branches ask for the same one.
        if branch.condition is None or above is None or not above.feature:
            return _words(branch)
        return plain(branch.condition.term)

    def _detail(self, branch: Branch) -> str:
        if branch.children:
            return self._counted(branch) + (branch.feature and f" by {branch.feature}")
        share = "" if self._address else self._share(branch)
        return f"{share}→ {self._leaf(branch)}"

    def _counted(self, branch: Branch) -> str:
        """Return how much is below a branch, in words."""
        return f"{branch.count} {'rule' if branch.count == 1 else 'rules'}"

    def _leaf(self, branch: Branch) -> str:
        """Return what a branch without branches ends with, in words."""
        index = branch.rules[0].index
        return self._labels[index] if index < len(self._labels) else cut(branch.rules[0].output, 60)

    def _target(self, branch: Branch) -> str:
        """Return where the link of a branch leads; empty: it is none."""
        if not self._address:
            return ""
        if not branch.children:
            return f"#rule-{branch.rules[0].index}" if branch.rules else ""
        target = branch.key if branch.path not in self._open else branch.key.rpartition(".")[0]
        return f"{self._address}{'&' if '?' in self._address else '?'}branch={target}#tree"

    def _weight(self, branch: Branch) -> str:
        """Return how many rows go through a branch, in words; empty: nobody knows."""
        return f"; support {branch.support:.3f}"

    def _share(self, branch: Branch) -> str:
        """Return the same for a picture in which nothing can be pointed at."""
        return f"{100 * branch.support:.3g} % "

    def _swap(self, branch: Branch) -> str:
        return f' data-swap="tree" data-branch="{branch.key}"' if branch.children else ""

    def _box(self, branch: Branch, above: Branch | None, x: int, middle: float) -> str:
        is_open = branch.path in self._open
        detail = self._detail(branch)
        kind = "leaf" if not branch.children else "open" if is_open else "shut"
        says = f"{_words(branch)}: {detail}{self._weight(branch)}"
        if self._address and branch.children:
            says += "; open" if not is_open else "; close" if branch.path else ""
        text = f"<title>{escape(says)}</title>{box(kind, self._name(branch, above), detail, x, middle)}"
        target = self._target(branch)
        if not target:
            return f"<g>{text}</g>"
        return f'<a href="{escape(target)}"{self._swap(branch)} aria-label="{escape(cut(says, 300))}">{text}</a>'


def whole(root: Branch, most: int = MOST_LEAVES) -> list[Branch]:
    """Return the branches to open for a tree of at most `most` leaves: those with the least support stay shut."""
    inner = {branch.path: branch for branch in root.all() if branch.children}
    open_below = {path: sum(bool(child.children) for child in branch.children) for path, branch in inner.items()}
    outer = [(branch.support, path) for path, branch in inner.items() if path and not open_below[path]]
    heapq.heapify(outer)
    leaves = sum(not branch.children for branch in root.all())
    while leaves > most and outer:
        _, path = heapq.heappop(outer)
        leaves -= len(inner.pop(path).children) - 1
        above = path[:-1]
        open_below[above] -= 1
        if above and not open_below[above]:
            heapq.heappush(outer, (inner[above].support, above))
    return list(inner.values())


def _words(branch: Branch) -> str:
    if branch.condition is None:
        return "OTHERWISE" if branch.path else "all rows"
    return f"{branch.condition.feature} is {plain(branch.condition.term)}"
