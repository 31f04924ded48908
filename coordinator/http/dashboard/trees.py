"""Trees as pictures from left to right, and, for narrow screens, as lists that say the same.

Two kinds: the rules of a finished model, whose boxes are links that open branches, and what grows in a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from markupsafe import Markup, escape

from coordinator.http.dashboard.branches import Branch
from coordinator.http.dashboard.draw import cut, picture
from coordinator.http.dashboard.growth import GrowthNode, together

Node = TypeVar("Node")
ROW, COLUMN = 42, 256
BOX_WIDTH, BOX_HEIGHT = 212, 34
NAME, NOTE = 27, 34
"""Characters that a box has room for; the whole text is its title, and in the list."""


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


def _box(kind: str, name: str, note: str, x: float, middle: float) -> str:
    y = middle - BOX_HEIGHT / 2
    return (
        f'<rect class="box {kind}" x="{x}" y="{y:.1f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>'
        f'<text class="name" x="{x + 9}" y="{y + 14.5:.1f}">{escape(cut(name, NAME))}</text>'
        f'<text class="note" x="{x + 9}" y="{y + 27.5:.1f}">{escape(cut(note, NOTE))}</text>'
    )


class RuleTree:
    """The opened part of a rule tree; every box, and every line of the list, is a link that opens it.

    Parameters
    ----------
    trail : sequence of Branch
        From the root to the branch that is open.
    address : str
        Of the page; ``branch=KEY`` is put behind it.
    labels : sequence of str
        By rule: what it forecasts, or what moves that most, in a few words.
    """

    def __init__(self, trail: Sequence[Branch], address: str, labels: Sequence[str] = ()) -> None:
        self.trail = trail
        self._open = {branch.path for branch in trail}
        self._address = address
        self._labels = labels

    def picture(self) -> Markup:
        """Return the tree from left to right."""
        root = self.trail[0]
        most = max(root.support, 1e-12)

        def link(child: Branch) -> str:
            thick = 1 + 5 * math.sqrt(max(child.support, 0.0) / most)
            on = " on" if child.path in self._open else ""
            return f'class="link{on}" stroke-width="{thick:.1f}"'

        layout = Layout(self._shown, link, self._box)
        _, height = layout.place(root, 0, 4.0)
        name = f"Tree of {self._counted(root)}, opened at {_words(self.trail[-1])}"
        body = "".join([*layout.lines, *layout.boxes])
        width, tall = layout.width, height + 4
        # A group, not an image: the boxes are links, and a picture has no parts for those who listen.
        return Markup(  # noqa: S704  every text in it is escaped
            f'<svg class="tree" viewBox="0 0 {width} {tall:.0f}" width="{width}" height="{tall:.0f}" '
            f'role="group" aria-label="{escape(name)}">{body}</svg>'
        )

    def list(self) -> Markup:
        """Return the same as lists in lists."""
        return Markup('<ul class="branches">{}</ul>').format(self._item(self.trail[0], None))

    def _item(self, branch: Branch, above: Branch | None) -> Markup:
        inner = Markup("").join(self._item(child, branch) for child in self._shown(branch))
        nested = Markup("<ul>{}</ul>").format(inner) if inner else ""
        words = Markup('<b>{}</b> <span class="quiet">{}</span>').format(
            self._name(branch, above), self._detail(branch)
        )
        target = self._target(branch)
        link = Markup('<a href="{}"{}>{}</a>').format(target, self._swap(branch), words) if target else words
        return Markup("<li>{}{}</li>").format(link, nested)

    def _shown(self, branch: Branch) -> Sequence[Branch]:
        return branch.children if branch.path in self._open else ()

    def _name(self, branch: Branch, above: Branch | None) -> str:
        # The box above has named the input already, where all its branches ask for the same one.
        if branch.condition is None or above is None or not above.feature:
            return _words(branch)
        return branch.condition.term

    def _detail(self, branch: Branch) -> str:
        if branch.children:
            return self._counted(branch) + (branch.feature and f" by {branch.feature}")
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
        if not branch.children:
            return f"#rule-{branch.rules[0].index}" if branch.rules else ""
        target = branch.key if branch.path not in self._open else branch.key.rpartition(".")[0]
        return f"{self._address}{'&' if '?' in self._address else '?'}branch={target}#tree"

    def _weight(self, branch: Branch) -> str:
        """Return how many rows go through a branch, in words; empty: nobody knows."""
        return f"; support {branch.support:.3f}"

    def _swap(self, branch: Branch) -> Markup:
        return Markup(' data-swap="tree" data-branch="{}"').format(branch.key) if branch.children else Markup("")

    def _box(self, branch: Branch, above: Branch | None, x: int, middle: float) -> str:
        is_open = branch.path in self._open
        detail = self._detail(branch)
        kind = "leaf" if not branch.children else "open" if is_open else "shut"
        says = f"{_words(branch)}: {detail}{self._weight(branch)}" + (
            "" if not branch.children else "; close" if is_open and branch.path else "" if is_open else "; open"
        )
        text = f"<title>{escape(says)}</title>{_box(kind, self._name(branch, above), detail, x, middle)}"
        target = self._target(branch)
        if not target:
            return f"<g>{text}</g>"
        return f'<a href="{escape(target)}"{self._swap(branch)} aria-label="{escape(cut(says, 300))}">{text}</a>'


def _words(branch: Branch) -> str:
    if branch.condition is None:
        return "OTHERWISE" if branch.path else "all rows"
    return f"{branch.condition.feature} is {branch.condition.term}"


def growing(root: GrowthNode, rest: str = "") -> Markup:
    """Return the picture of a tree that grows: what is asked about now stands out, quiet siblings share a box.

    Parameters
    ----------
    root : GrowthNode
    rest : str
        What is not in it, in words; empty: nothing.
    """
    shown = together(root)
    layout = Layout(
        lambda node: node.children,
        lambda child: f'class="link{" on" if child.is_alive else ""}" stroke-width="{2 if child.is_alive else 1}"',
        _growth_box,
    )
    _, height = layout.place(shown, 0, 4.0)
    count, asked, depth = root.counts
    words = f"The tree as it stands: {count} {'node' if count == 1 else 'nodes'} below the root" + (
        (f" and {rest}" if rest else "")
        + f", {depth} {'level' if depth == 1 else 'levels'}"
        + (f"; {asked} {root.asked}" if asked else "")
    )
    body = [*layout.lines, *layout.boxes]
    return picture(layout.width, height + 4, f"{words}. The list says it in words.", body, "tree")


def _growth_box(node: GrowthNode, above: GrowthNode | None, x: int, middle: float) -> str:
    name = node.text
    if above is not None and above.feature and name.startswith(f"{above.feature} "):
        name = name.removeprefix(f"{above.feature} ").removeprefix("is ")
    kind = "grows" if node.is_open else "open" if node.children else "leaf"
    title = f"<title>{escape(node.text)}: {escape(node.note)}</title>"
    return f'<g data-node="{escape(node.key)}">{title}{_box(kind, name, node.note, x, middle)}</g>'


def growing_list(root: GrowthNode) -> Markup:
    """Return the same tree as lists in lists, one node a line."""
    return Markup('<ul class="branches">{}</ul>').format(_line(root))


def _line(node: GrowthNode) -> Markup:
    inner = Markup("").join(map(_line, node.children))
    nested = Markup("<ul>{}</ul>").format(inner) if inner else ""
    state = Markup(' <span class="quiet">{}</span>').format(node.asked) if node.is_open else ""
    grows = Markup(' class="grows"') if node.is_open else ""
    return Markup("<li{}>{}{}{}</li>").format(grows, node.text, state, nested)
