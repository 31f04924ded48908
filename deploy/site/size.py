"""Counts the house: ``python -m deploy.site.size`` prints a table; a test holds its numbers as upper bounds.

A line of code is one that is neither blank nor a comment, nor part of a docstring or an import: what has to be read to
know what happens. Words of documentation are those of all Markdown pages, generated ones among them.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PARTS = {
    "product": ("schemas", "glassfleet", "broker", "coordinator", "edge_agent", "console", "deploy"),
    "lab": ("lab",),
    "tests": ("tests",),
}
"""Folders of each part."""


def modules(part: str) -> list[Path]:
    """Return the modules of a part, sorted."""
    return [path for folder in PARTS[part] for path in sorted((ROOT / folder).rglob("*.py"))]


def lines_of_code(text: str) -> int:
    """Return how many lines of a module are code.

    >>> lines_of_code('"A docstring."\\nimport os\\n\\nx = (  # one\\n    1\\n)\\n')
    3
    """
    left_out, texts = set[int](), set[int]()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(ast.Constant(str())):
                left_out.update(_lines(node))
            case ast.Constant(str() | bytes()) | ast.JoinedStr():
                texts.update(_lines(node))
    filled = {n for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")}
    return len((filled | texts) - left_out)


def _lines(node: ast.expr | ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def doubled_classes() -> list[str]:
    """Return the names that more than one class of the product has, sorted."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in modules("product"))
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    return sorted(name for name, count in names.items() if count > 1)


def words(*patterns: str) -> int:
    """Return the words of the pages that match."""
    return sum(len(path.read_text(encoding="utf-8").split()) for each in patterns for path in ROOT.glob(each))


def sizes() -> dict[str, int]:
    """Return all numbers, by what they count."""
    counted: dict[str, int] = {}
    for part in PARTS:
        paths = modules(part)
        counted[f"{part}: lines of code"] = sum(lines_of_code(path.read_text(encoding="utf-8")) for path in paths)
        counted[f"{part}: modules"] = len(paths)
    counted["product: class names with two meanings"] = len(doubled_classes())
    counted["documentation: words"] = words("*.md", "docs/**/*.md", "glassfleet/**/*.md")
    counted["README: words"] = words("README.md")
    glossary = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    counted["glossary: entries"] = glossary.count("\n| ") - 1
    return counted


def table() -> Iterator[str]:
    """Yield the lines of the table."""
    counted = sizes()
    wide = max(map(len, counted))
    yield from (f"{what:<{wide}}  {number:>7,}" for what, number in counted.items())


if __name__ == "__main__":
    print("\n".join(table()))
