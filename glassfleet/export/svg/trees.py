"""Trees as pictures from left to right, and, for narrow screens, as lists that say the same."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Final, Generic, TypeVar

from glassfleet.explain.branches import Branch
from glassfleet.explain.text import cut, cut_middle, plain
from glassfleet.export.svg.shapes import COLOURS, Svg, class_colour, picture, shade
from glassfleet.model.rules import Condition

Node = TypeVar("Node")
COLUMN, BOX_WIDTH = 262, 224
LINE, GAP = 13, 8
"""Height of a line of a box, and between two boxes."""
NAME, NOTE = 27, 38
"""Characters that a box has room for; the whole text is its title, and in the list."""

MOST_LEAVES: Final = 40
"""Leaves of a tree that is drawn as a whole; smaller branches are told by their number of rules."""

OPEN_LEAVES: Final = 12
"""Leaves of a tree that opens: as many as a person takes in at once."""


class TreeLayout(Generic[Node]):
    """Places boxes: children below each other at the right of their parent, the parent at the middle of them.

    Parameters
    ----------
    children : callable
        The children of a node that are drawn.
    link : callable
        Attributes of the line to a child.
    box : callable
        Draws a node: the node above, its left edge and its middle.
    notes : int
        Lines of a box below its name.
    """

    def __init__(
        self,
        children: Callable[[Node], Sequence[Node]],
        link: Callable[[Node], str],
        box: Callable[[Node, Node | None, int, float], str],
        notes: int = 1,
    ) -> None:
        self._row = box_height(notes) + GAP
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
        own = (spots[0][0] + spots[-1][0]) / 2 if spots else top + self._row / 2
        for middle, child in spots:
            x1, x2 = depth * COLUMN + BOX_WIDTH + 2, (depth + 1) * COLUMN + 2
            bend = (x1 + x2) / 2
            self.lines.append(
                f"<path {self._link(child)} "
                f'd="M{x1} {own:.1f} C{bend:g} {own:.1f} {bend:g} {middle:.1f} {x2} {middle:.1f}"/>'
            )
        self.boxes.append(self._box(node, above, depth * COLUMN + 2, own))
        return own, max(below, top + self._row)

    @property
    def width(self) -> int:
        """Of the picture."""
        return self.deepest * COLUMN + BOX_WIDTH + 6


def box_height(notes: int) -> int:
    """Return the height of a box with so many lines below its name."""
    return 21 + LINE * notes


def titled(words: str, shape: str, node: str = "") -> str:
    """Return a shape that says `words` where a pointer rests on it; `node` is its key for the page's script."""
    key = f' data-node="{escape(node)}"' if node else ""
    return f"<g{key}><title>{escape(words)}</title>{shape}</g>"


def box(  # noqa: PLR0917  a box, where it stands, and its colour
    kind: str, name: str, notes: Sequence[str], x: float, middle: float, colours: tuple[str, str] | None = None
) -> str:
    """Return a box with its name and notes below that, all cut to what it has room for.

    `colours` are its own and the class of text on it.
    """
    height = box_height(len(notes))
    y = middle - height / 2
    look, ink = f'class="box {kind}"', ""
    if colours is not None:
        colour, ink = colours
        look = f'class="told {kind}" fill="{colour}"'
    lines = [
        f'<text class="note {ink}" x="{x + 9}" y="{y + 27.5 + LINE * number:.1f}">{escape(cut(note, NOTE))}</text>'
        for number, note in enumerate(notes)
    ]
    return (
        f'<rect {look} x="{x}" y="{y:.1f}" width="{BOX_WIDTH}" height="{height}" rx="6"/>'
        f'<text class="name {ink}" x="{x + 9}" y="{y + 14.5:.1f}">{escape(name)}</text>{"".join(lines)}'
    )


class RuleTree:
    """A rule tree as far as it is open: a branch, the way to it, and below it the parts where most rows go.

    Parameters
    ----------
    trail : sequence of Branch
        From the root to the branch that is shown.
    address : str
        Of a page: every box, and every line of the list, is a link that opens its branch; ``branch=KEY`` is put behind
        the address. Empty: there are no links.
    labels : sequence of str
        By rule: what it forecasts, or what moves that most, in a few words.
    classes : sequence of str
        Of the model; empty where it forecasts numbers.
    most : int
        Leaves that are drawn.
    """

    def __init__(
        self,
        trail: Sequence[Branch],
        address: str = "",
        labels: Sequence[str] = (),
        classes: Sequence[str] = (),
        most: int = OPEN_LEAVES,
    ) -> None:
        self.trail = list(trail)
        self._open = {branch.path for branch in (*trail, *whole(trail[-1], most))}
        means = [mean for each in trail[0].all() if each.rules and (mean := each.forecast) is not None]
        self._lowest, self._highest = (min(means), max(means)) if means else (0.0, 0.0)
        self._address = address
        self._labels = labels
        self._classes = classes

    def picture(self) -> Svg:
        """Return the tree from left to right."""
        root = self.trail[0]
        most = max(root.support, 1e-12)

        def link(child: Branch) -> str:
            thick = 1 + 5 * math.sqrt(max(child.support, 0.0) / most)
            on = " on" if self._address and child.path in self._open else ""
            return f'class="link{on}" stroke-width="{thick:.1f}"'

        layout = TreeLayout(self._shown, link, self._box, notes=2)
        _, height = layout.place(root, 0, 4.0)
        legend, wide = self._legend(height + 4)
        name = f"Tree of {self._counted(root)}"
        if self._address:
            name += f", opened at {_words(self.trail[-1])}"
        # A group, not an image, where the boxes are links: an image has no parts for those who listen.
        role = "group" if self._address else "img"
        body = [*layout.lines, *layout.boxes, *legend]
        tall = height + 4 + 26 * bool(legend)
        return picture(max(layout.width, wide), tall, name, body, "tree", role=role)

    def _colours(self, branch: Branch) -> tuple[str, str] | None:
        """Return the colour of what most rows below a branch get, and the class of text on it; None: it has none."""
        if branch.path in self._open and branch.children:
            return None
        if self._classes:
            label = branch.usual
            return None if label is None else (class_colour(self._classes.index(label)), "dark")
        mean, width = branch.forecast, self._highest - self._lowest
        return None if mean is None or width <= 0.0 else shade((mean - self._lowest) / width)

    def _legend(self, top: float) -> tuple[list[str], int]:
        """Return the scale of the colours, or the classes that have some, and its width; nothing without colours."""
        if self._classes:
            return self._named_classes(top)
        if self._highest <= self._lowest:
            return [], 0
        low, high = (plain(f"{mean:.4g}") for mean in (self._lowest, self._highest))
        ends = (f"mean forecast {low}", high)
        left = 10 + 7 * len(ends[0])
        end = left + 18 * len(COLOURS) + 6
        return [
            f'<text class="tick" x="4" y="{top + 13:.1f}">{ends[0]}</text>',
            *(
                f'<rect class="told" fill="{colour}" x="{left + 18 * place}" y="{top + 3:.1f}" width="18" height="12"/>'
                for place, colour in enumerate(COLOURS)
            ),
            f'<text class="tick" x="{end}" y="{top + 13:.1f}">{ends[1]}</text>',
        ], end + 7 * len(high)

    def _named_classes(self, top: float) -> tuple[list[str], int]:
        """Return the classes that rules say, each with its colour, and how wide that is."""
        named = {branch.usual for branch in self.trail[0].all() if branch.rules}
        body: list[str] = []
        left = 4
        for place, label in enumerate(self._classes):
            if label in named:
                name = cut(label, 20)
                body.append(
                    f'<rect class="told" fill="{class_colour(place)}" x="{left}" y="{top + 3:.1f}" width="12" '
                    f'height="12"/><text class="tick" x="{left + 18}" y="{top + 13:.1f}">{escape(name)}</text>'
                )
                left += 34 + 7 * len(name)
        return body, left

    def list(self) -> Svg:
        """Return the same as lists in lists."""
        return Svg(f'<ul class="branches">{self._item(self.trail[0])}</ul>')

    def _item(self, branch: Branch) -> str:
        inner = "".join(map(self._item, self._shown(branch)))
        name, detail = escape(_words(branch)), escape(self._detail(branch))
        words = f'<b>{name}</b> <span class="quiet">{detail}</span>'
        target = self._target(branch)
        link = f'<a href="{escape(target)}"{self._swap(branch)}>{words}</a>' if target else words
        return f"<li>{link}{f'<ul>{inner}</ul>' if inner else ''}</li>"

    def _shown(self, branch: Branch) -> Sequence[Branch]:
        return branch.children if branch.path in self._open else ()

    def _detail(self, branch: Branch, most: int = 200) -> str:
        """Return what is below a branch, with so many characters of an input's name."""
        if branch.children:
            by = branch.feature and f" by {cut_middle(branch.feature, most)}"
            usual = branch.usual if self._classes and branch.path not in self._open else None
            return f"{self._counted(branch)}{by}{f', mostly {cut(usual, most)}' if usual else ''}"
        return f"→ {self._leaf(branch)}"

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
        # The branch that is shown closes: the one above it is shown then.
        target = branch.key if branch is not self.trail[-1] else branch.key.rpartition(".")[0]
        return f"{self._address}{'&' if '?' in self._address else '?'}branch={target}#tree"

    def _weight(self, branch: Branch) -> str:
        """Return how many rows go through a branch, in words; empty: nobody knows."""
        return f"; support {branch.support:.3f}"

    def _share(self, branch: Branch) -> str:
        """Return the same for a picture in which nothing can be pointed at."""
        forecast = branch.rules[0].forecast if branch.rules else None
        return f" · {100 * (branch.support if forecast is None else forecast.rows):.3g} %"

    def _swap(self, branch: Branch) -> str:
        return f' data-swap="tree" data-branch="{branch.key}"' if branch.children else ""

    def _box(self, branch: Branch, above: Branch | None, x: int, middle: float) -> str:  # noqa: ARG002
        is_open = branch.path in self._open
        detail = self._detail(branch)
        kind = "leaf" if not branch.children else "open" if is_open else "shut"
        says = f"{_words(branch)}: {detail}{self._weight(branch)}"
        if self._address and branch.children:
            says += "; close" if branch is self.trail[-1] and branch.path else "" if not branch.path else "; show it"
        share = "" if branch.children else self._share(branch)
        part = branch.condition
        name = (_words(branch) if part is None else cut_middle(part.feature, NAME - len(share))) + share
        short = self._detail(branch, 20)
        notes = [short] if part is None else [_term(part), short]
        shape = box(kind, name, notes, x, middle, self._colours(branch))
        target = self._target(branch)
        if not target:
            return titled(says, shape)
        text = f"<title>{escape(says)}</title>{shape}"
        return f'<a href="{escape(target)}"{self._swap(branch)} aria-label="{escape(cut(says, 300))}">{text}</a>'


class StructureTree(RuleTree):
    """The opened part of a structure; lines are thicker where more leaves are."""

    def _counted(self, branch: Branch) -> str:
        return f"{branch.count} {'leaf' if branch.count == 1 else 'leaves'}"

    def _leaf(self, branch: Branch) -> str:  # noqa: ARG002  all are alike
        return "the vehicle's own answer"

    def _weight(self, branch: Branch) -> str:  # noqa: ARG002  a structure has seen no rows
        return ""

    def _share(self, branch: Branch) -> str:  # noqa: ARG002
        return ""


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


def _term(part: Condition) -> str:
    """Return a condition's term with its limits in numbers."""
    return f"{plain(part.term)}: {plain(part.limits)}" if part.limits else plain(part.term)


def _words(branch: Branch) -> str:
    if branch.condition is None:
        return "OTHERWISE" if branch.path else "all rows"
    return f"{branch.condition.feature} is {_term(branch.condition)}"
