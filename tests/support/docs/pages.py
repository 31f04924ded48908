"""The pages that people read, and what stands in them: code blocks, code in lines, links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CODE = ("schemas", "glassfleet", "broker", "coordinator", "edge_agent", "console", "lab", "tests", "deploy")

_FENCE = re.compile(
    r"^(?:<!-- (?P<mark>run|file|says|from|is): (?P<name>\S+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}.*\n(?:\n(?= {4}))?)+")
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes
    ----------
    mark : str
        What the tests do with it. ``run``: execute it, together with all others of its `name` on the page, in order.
        ``file``: write it to the file `name` at this place of the execution. ``says``: find it in what the block of the
        group `name` that was run before it printed; ``...`` stands for anything. ``is``: read it with the reader
        `name`. ``from``: find it, word for word, in the file `name` of the repository. Empty: none of these.
    name, language, text : str
    """

    mark: str
    name: str
    language: str
    text: str

    @property
    def begins(self) -> str:
        """Its first line."""
        return self.text.partition("\n")[0]


@dataclass(frozen=True)
class Page:
    """A Markdown file."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        """Path in the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def blocks(self) -> list[Block]:
        """Fenced blocks, then indented ones, in the page's order."""
        fenced = [
            Block(each["mark"] or "", each["name"] or "", each["language"], each["text"])
            for each in _FENCE.finditer(self.text)
        ]
        without = _FENCE.sub("", self.text)
        return fenced + [Block("", "", "", re.sub(r"(?m)^ {4}", "", text)) for text in _INDENTED.findall(without)]

    @property
    def inline(self) -> list[str]:
        """Code within lines of text."""
        return _INLINE.findall(_INDENTED.sub("", _FENCE.sub("", self.text)))

    @property
    def links(self) -> list[str]:
        """Targets of links and pictures."""
        text = _INLINE.sub("", _INDENTED.sub("", _FENCE.sub("", self.text)))
        return _LINK.findall(text)

    def groups(self) -> dict[str, list[Block]]:
        """Blocks to execute, and what they print, by group; files belong to the group of the block before them.

        Files before the first block belong to the first group.
        """
        result: dict[str, list[Block]] = {}
        marked = [block for block in self.blocks if block.mark in {"run", "file", "says"}]
        group = next((block.name for block in marked if block.mark == "run"), "")
        for block in marked:
            if block.mark != "file":
                group = block.name
            result.setdefault(group, []).append(block)
        return result


def pages() -> list[Page]:
    """All pages: the documentation, what stands at the top of the repository, and the schemes' own."""
    paths = [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "glassfleet" / "schemes").glob("*/README.md"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
    ]
    return [Page(path, path.read_text(encoding="utf-8")) for path in sorted(paths)]
