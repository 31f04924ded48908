"""What grows in a run: a tree, or lines; from what every scheme says (`glassfleet.contract.scheme.Server.progress`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

from glassfleet.explain.text import cut
from glassfleet.export.svg.shapes import Svg, picture
from glassfleet.export.svg.trees import NAME, TreeLayout, box, titled
from schemas.text import counted

MOST_LINES = 200
ALL_LEAVES = 40
"""A tree with more leaves than that has its quiet siblings drawn as one box."""


@dataclass
class GrowthNode:
    """A node of a tree that grows, or several that share a box.

    Attributes
    ----------
    feature, term : str
        What leads to it: the input that the node above splits on, and e.g. ``"Low"``; of the root empty.
    asked : str
        What is said of it when the vehicles are asked about it now, so that it may still grow; empty: they are not.
    key : str
        Its place, which stays while the tree grows.
    together : tuple of GrowthNode
        Those that share its box.
    """

    feature: str = ""
    term: str = ""
    asked: str = ""
    key: str = "0"
    children: list[GrowthNode] = field(default_factory=list)
    together: tuple[GrowthNode, ...] = ()

    @property
    def text(self) -> str:
        """What leads to it, in words."""
        if self.together:
            return counted(len(self.together), "nodes" if self.asked else "leaves")
        return f"{self.feature} is {self.term}" if self.feature or self.term else "everything"

    @property
    def is_alive(self) -> bool:
        """Whether it, or anything below it, may still grow."""
        return bool(self.asked) or any(child.is_alive for child in self.children)

    @property
    def split_by(self) -> str:
        """What the children are told apart by, e.g. ``"speed"``; empty when that differs, or there are none."""
        names = {child.feature for child in self.children}
        return names.pop() if len(names) == 1 else ""

    @property
    def note(self) -> str:
        """What a box says below its name."""
        if self.together:
            apart = len({each.feature for each in self.together}) > 1
            names = ", ".join(each.text if apart else each.term for each in self.together)
            return f"{names}{f', {self.asked}' if self.asked else ''}"
        if self.children:
            many = "branch" if len(self.children) == 1 else "branches"
            return f"{len(self.children)} {many}{f' by {self.split_by}' if self.split_by else ''}"
        return self.asked or "leaf"

    @property
    def counts(self) -> tuple[int, int, int]:
        """Nodes below this one (schemes do not count the root), those that may still grow, levels below this one."""
        below = [child.counts for child in self.children]
        return (
            sum(1 + each[0] for each in below),
            bool(self.asked) + sum(each[1] for each in below),
            max((1 + each[2] for each in below), default=0),
        )

    @property
    def leaves(self) -> int:
        """Nodes below, or this one, that have no children."""
        return sum(child.leaves for child in self.children) or 1

    def boxes(self) -> list[GrowthNode]:
        """Return the children as a large tree has them: two or more that are alike, and have no children, as one."""
        alike: dict[str, list[GrowthNode]] = {}
        for child in self.children:
            if not child.children:
                alike.setdefault(child.asked, []).append(child)
        boxes = [child for child in self.children if child.children]
        for asked, some in alike.items():
            shared = GrowthNode(asked=asked, key=some[0].key, together=tuple(some))
            boxes.append(some[0] if len(some) == 1 else shared)
        return sorted(boxes, key=lambda each: [int(step) for step in each.key.split(".")])


class Grown(NamedTuple):
    """What a run has grown: a tree, or lines for rule bases; what is left out, and what is said of open nodes."""

    tree: GrowthNode | None
    lines: list[str]
    rest: str = ""
    asked: str = "may still grow"


def grown(progress: Mapping[str, Any], *, ended: bool = False) -> Grown:
    """Read a scheme's drawing, of a run that has `ended` or goes on; nothing that is in it can fail this."""
    outline, lines, more = progress.get("outline"), progress.get("lines"), progress.get("more")
    nodes = [node for node in outline[:MOST_LINES] if isinstance(node, Mapping)] if isinstance(outline, list) else []
    if not nodes:
        return Grown(None, [str(line) for line in lines[:MOST_LINES]] if isinstance(lines, list) else [])
    asked = "was asked about last" if ended else "may still grow"
    return Grown(_tree(nodes, asked), [], f"{more} more" if more else "", asked)


def _tree(nodes: Sequence[Mapping[str, Any]], asked: str) -> GrowthNode:
    """Return the tree of an outline, which is depth first."""
    path: list[GrowthNode] = []
    for entry in nodes:
        depth = entry.get("depth")
        del path[max(1, depth if isinstance(depth, int) else 1) :]
        node = GrowthNode(asked=asked if entry.get("open") else "")
        if path:
            node.feature, node.term = str(entry.get("feature", "")), str(entry.get("term", ""))
            node.key = f"{path[-1].key}.{len(path[-1].children)}"
            path[-1].children.append(node)
        path.append(node)
    return path[0]


def growing(root: GrowthNode, rest: str = "", asked: str = "may still grow") -> Svg:
    """Return the picture of a tree that grows: what is asked about now stands out, quiet siblings share a box.

    Parameters
    ----------
    rest : str
        What is not in it, in words; empty: nothing.
    asked : str
        What is said of the open nodes.
    """
    is_large = root.leaves > ALL_LEAVES
    layout = TreeLayout(
        lambda node: node.boxes() if is_large else node.children,
        lambda child: f'class="link{" on" if child.is_alive else ""}" stroke-width="{2 if child.is_alive else 1}"',
        _growth_box,
    )
    _, height = layout.place(root, 0, 4.0)
    count, is_open, depth = root.counts
    words = f"The tree as it stands: {counted(count, 'nodes')} below the root{f' and {rest}' if rest else ''}"
    words += f", {counted(depth, 'levels')}{f'; {is_open} {asked}' if is_open else ''}. The list says it in words."
    return picture(layout.width, height + 4, words, [*layout.lines, *layout.boxes], "tree")


def _growth_box(node: GrowthNode, above: GrowthNode | None, x: int, middle: float) -> str:
    name = node.term if above is not None and above.split_by and len(above.children) > 1 and node.term else node.text
    kind = "grows" if node.asked else "open" if node.children else "leaf"
    shape = box(kind, cut(name, NAME), [node.note], x, middle)
    return titled(f"{node.text}: {node.note}", shape, node.key)


def growing_list(root: GrowthNode) -> Svg:
    """Return the same tree as lists in lists, one node a line."""
    return Svg(f'<ul class="branches">{_line(root)}</ul>')


def _line(node: GrowthNode) -> str:
    inner = "".join(map(_line, node.children))
    state = f' <span class="quiet">{escape(node.asked)}</span>' if node.asked else ""
    grows = ' class="grows"' if node.asked else ""
    return f"<li{grows}>{escape(node.text)}{state}{f'<ul>{inner}</ul>' if inner else ''}</li>"
