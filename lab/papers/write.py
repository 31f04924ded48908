"""A report as Markdown with its pictures beside it, and as one HTML file with its pictures inside."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from lab.papers.page import Picture, Report, Table, Text
from schemas.errors import StorageError, os_faults_as

TITLE = "The papers' tables and figures, and ours"

INTRODUCTION = (
    "Made by `glassfleet lab papers`. A number with ✓ has the digits that the paper prints; where it does not, the "
    "printed one stands beside it. A number alone has no printed counterpart here: there is none, or this "
    "program does not know it."
)


def write_report(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write ``report.md``, ``pictures/*.png`` and ``report.html`` into `folder`; return the paths of the two pages.

    Raises
    ------
    StorageError
        They cannot be written.
    """
    pages = folder / "report.md", folder / "report.html"
    with os_faults_as(StorageError, f"cannot write the report into {folder}", ". Choose another --out"):
        (folder / "pictures").mkdir(parents=True, exist_ok=True)
        for picture in _pictures(report):
            (folder / "pictures" / f"{picture.name}.png").write_bytes(picture.png)
        pages[0].write_text(as_markdown(report), encoding="utf-8")
        pages[1].write_text(as_html(report), encoding="utf-8")
    return pages


def _pictures(report: Report) -> Iterator[Picture]:
    for _, sections in report.chapters:
        for section in sections:
            yield from (block for block in section.blocks if isinstance(block, Picture))


def _summary(report: Report) -> list[str]:
    same, differing = report.verdicts()
    total = same + len(differing)
    if not total:
        return ["No printed value could be compared."]
    first = f"{same} of {total} printed values come out to the digit"
    return [f"{first}." if not differing else f"{first}; {len(differing)} differ:", *differing]


def as_markdown(report: Report) -> str:
    """Return the report as Markdown; pictures are links into ``pictures/``."""
    first, *rest = _summary(report)
    lines = [f"# {TITLE}", "", INTRODUCTION, "", first, "", *(f"- {line}" for line in rest)]
    lines += ["", *(f"- {note}" for note in report.notes)]
    for chapter, sections in report.chapters:
        lines += ["", f"## {chapter}"]
        for section in sections:
            lines += ["", f"### {section.title}", ""]
            for block in section.blocks:
                lines += [*_markdown_block(block), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _markdown_block(block: Text | Table | Picture) -> list[str]:
    if isinstance(block, Text):
        return [block.words]
    if isinstance(block, Picture):
        return [f"![{block.words}](pictures/{block.name}.png)", "", f"*{block.words}*"]
    header = "| " + " | ".join(block.header) + " |"
    rule = "|---|" + "---:|" * (len(block.header) - 1)
    rows = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in block.rows]
    return [f"**{block.caption}**", "", header, rule, *rows]


def as_html(report: Report) -> str:
    """Return the report as one HTML page that needs no other file."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"marked": _marked, "base64": _base64}
    page = environment.from_string((resources.files("lab.papers") / "report.html").read_text(encoding="utf-8"))
    return page.render(report=report, title=TITLE, introduction=INTRODUCTION, summary=_summary(report)) + "\n"


def _marked(words: str) -> Markup:
    """Escape a text and turn its `code` marks into HTML."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(words))))  # noqa: S704 - escaped first


def _base64(png: bytes) -> str:
    return base64.b64encode(png).decode()
