"""What grows in a run, as its scheme says (`glassfleet.contract.scheme.Server.progress`): a tree, or lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

from glassfleet.export.svg.shapes import Svg, picture
from glassfleet.export.svg.text import cut
from glassfleet.export.svg.trees import NAME, TreeLayout, box, titled

MOST_LINES = 200
ALL_LEAVES = 40
"""A tree with more leaves than that has its quiet siblings drawn as one box."""


@dataclass
class GrowthNode:
    """A node of a tree that grows.

    Attributes
    ----------
    text : str
        What leads to it, e.g. ``"speed is Low"``.
    term, split_by : str
        Its two halves: ``"Low"``, and the input that the node above splits on.
    is_open : bool
        The vehicles are asked about it now: it may still grow.
    key : str
        Its place, which stays while the tree grows.
    stands_for : int
        Nodes that share this box.
    by : str
        See `feature`; of a box that stands for several, what leads to them.
    asked : str
        What is said of an open node.
    """

    text: str
    term: str = ""
    split_by: str = ""
    is_open: bool = False
    key: str = ""
    children: list[GrowthNode] = field(default_factory=list)
    stands_for: int = 1
    by: str = ""
    asked: str = "may still grow"

    @property
    def is_alive(self) -> bool:
        """Whether it, or anything below it, may still grow."""
        return self.is_open or any(child.is_alive for child in self.children)

    @property
    def feature(self) -> str:
        """What the children are told apart by, e.g. ``"speed"``; empty when that differs, or there are none."""
        names = {child.split_by for child in self.children}
        told_apart = names.pop() if len(names) == 1 and len(self.children) > 1 else ""
        return self.by if self.children and self.by else told_apart

    @property
    def note(self) -> str:
        """What a box says below its name."""
        if self.children:
            rest = f" by {self.feature}" if self.feature else ""
            count = sum(child.stands_for for child in self.children)
            return f"{count} {'branch' if count == 1 else 'branches'}{rest}"
        if self.stands_for > 1:
            return f"{self.by}{f', {self.asked}' * self.is_open}"
        return self.asked if self.is_open else "leaf"

    @property
    def counts(self) -> tuple[int, int, int]:
        """Nodes below this one (schemes do not count the root), those that may still grow, levels below this one."""
        below = [child.counts for child in self.children]
        return (
            sum(1 + each[0] for each in below),
            self.is_open + sum(each[1] for each in below),
            max((1 + each[2] for each in below), default=0),
        )

    @property
    def leaves(self) -> int:
        """Nodes below, or this one, that have no children."""
        return sum(child.leaves for child in self.children) or 1


@dataclass(frozen=True)
class Grown:
    """What a run has grown.

    Attributes
    ----------
    tree : GrowthNode or None
        None: it is no tree, see `lines`.
    lines : list of str
        For rule bases and the like.
    rest : str
        What the scheme has left out, in words; empty: nothing.
    """

    tree: GrowthNode | None
    lines: list[str]
    rest: str = ""


def grown(progress: Mapping[str, Any], *, ended: bool = False) -> Grown:
    """Read a scheme's drawing, of a run that has `ended` or goes on; nothing that is in it can fail this."""
    outline, lines, more = progress.get("outline"), progress.get("lines"), progress.get("more")
    nodes = [node for node in outline[:MOST_LINES] if isinstance(node, Mapping)] if isinstance(outline, list) else []
    if not nodes:
        return Grown(None, [str(line) for line in lines[:MOST_LINES]] if isinstance(lines, list) else [])
    return Grown(
        _tree(nodes, "was asked about last" if ended else "may still grow"), [], f"{more} more" if more else ""
    )


def _tree(nodes: Sequence[Mapping[str, Any]], asked: str) -> GrowthNode:
    """Return the tree of an outline, which is depth first."""
    path: list[GrowthNode] = []
    for entry in nodes:
        feature, term = str(entry.get("feature", "")), str(entry.get("term", ""))
        depth = entry.get("depth")
        del path[max(1, depth if isinstance(depth, int) else 1) :]
        node = GrowthNode("everything", is_open=bool(entry.get("open")), key="0", asked=asked)
        if path:
            node.text, node.term, node.split_by = f"{feature} is {term}", term, feature
            node.key = f"{path[-1].key}.{len(path[-1].children)}"
            path[-1].children.append(node)
        path.append(node)
    return path[0]


def together(root: GrowthNode) -> GrowthNode:
    """Return the tree as it is drawn: in a large one, siblings without children share one box."""
    return _together(root) if root.leaves > ALL_LEAVES else root


def _together(node: GrowthNode) -> GrowthNode:
    kept: list[GrowthNode] = []
    quiet: dict[bool, list[GrowthNode]] = {}
    for child in node.children:
        if child.children:
            kept.append(_together(child))
        else:
            quiet.setdefault(child.is_open, []).append(child)
    for is_open, children in quiet.items():
        first, names = children[0], ", ".join(child.term if node.feature else child.text for child in children)
        text = first.text if len(children) == 1 else f"{len(children)} {'nodes' if is_open else 'leaves'}"
        kept.append(replace(first, text=text, stands_for=len(children), by=names))
    kept.sort(key=lambda child: [int(step) for step in child.key.split(".")])
    return replace(node, children=kept, by=node.feature)


def growing(root: GrowthNode, rest: str = "") -> Svg:
    """Return the picture of a tree that grows: what is asked about now stands out, quiet siblings share a box.

    Parameters
    ----------
    rest : str
        What is not in it, in words; empty: nothing.
    """
    shown = together(root)
    layout = TreeLayout(
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
    name = node.term if above is not None and above.feature and node.stands_for == 1 else node.text
    kind = "grows" if node.is_open else "open" if node.children else "leaf"
    shape = box(kind, cut(name, NAME), [node.note], x, middle)
    return titled(f"{node.text}: {node.note}", shape, node.key)


def growing_list(root: GrowthNode) -> Svg:
    """Return the same tree as lists in lists, one node a line."""
    return Svg(f'<ul class="branches">{_line(root)}</ul>')


def _line(node: GrowthNode) -> str:
    inner = "".join(map(_line, node.children))
    state = f' <span class="quiet">{escape(node.asked)}</span>' if node.is_open else ""
    grows = ' class="grows"' if node.is_open else ""
    return f"<li{grows}>{escape(node.text)}{state}{f'<ul>{inner}</ul>' if inner else ''}</li>"
