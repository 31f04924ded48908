"""A report as Markdown with its pictures beside it, and as one HTML file with its pictures inside."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator
from pathlib import Path

from lab.papers.page import Cell, Picture, Report, Section, Table, Text
from schemas.errors import StorageError

TITLE = "The papers' tables and figures, and ours"

INTRODUCTION = (
    "Made by `glassfleet papers`. A number with ✓ has the digits that the paper prints; where it does not, the printed "
    "one stands beside it. A number alone has no printed counterpart here: this program does not know the paper's, or "
    "there is none."
)

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1d2733; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 3rem; border-bottom: 2px solid #d5dde5; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 14px; display: block; overflow-x: auto; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #d5dde5; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } thead th { border-bottom: 2px solid #8796a5; }
.same { color: #12653a; } .differs { color: #9a3412; font-weight: 600; } .differs small { color: #5b6773; }
img { max-width: 100%; height: auto; } figure { margin: 1.5rem 0; } figcaption { color: #5b6773; font-size: 14px; }
code { background: #eef2f6; padding: 0 .25rem; border-radius: 3px; } nav li { margin: .1rem 0; }
"""


def write_report(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write ``report.md``, ``pictures/*.png`` and ``report.html`` into `folder`; return the paths of the two pages.

    Raises
    ------
    StorageError
        They cannot be written.
    """
    pages = folder / "report.md", folder / "report.html"
    try:
        (folder / "pictures").mkdir(parents=True, exist_ok=True)
        for picture in _pictures(report):
            (folder / "pictures" / f"{picture.name}.png").write_bytes(picture.png)
        pages[0].write_text(as_markdown(report), encoding="utf-8")
        pages[1].write_text(as_html(report), encoding="utf-8")
    except OSError as fault:
        raise StorageError(f"cannot write the report into {folder}: {fault.strerror}. Choose another --out") from fault
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
    first, *rest = _summary(report)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(TITLE)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{html.escape(TITLE)}</h1><p>{_marked(INTRODUCTION)}</p><p><strong>{_marked(first)}</strong></p>",
        _list(rest),
        _list(report.notes),
        "<nav><ul>",
        *(
            f'<li><a href="#{section.key}">{html.escape(chapter)}: {html.escape(section.title)}</a></li>'
            for chapter, sections in report.chapters
            for section in sections
        ),
        "</ul></nav>",
    ]
    for chapter, sections in report.chapters:
        parts.append(f"<h2>{html.escape(chapter)}</h2>")
        for section in sections:
            parts += [f'<h3 id="{section.key}">{html.escape(section.title)}</h3>', *_html_blocks(section)]
    return "\n".join([*parts, "</body></html>", ""])


def _list(lines: object) -> str:
    items = [f"<li>{_marked(str(line))}</li>" for line in lines] if isinstance(lines, list | tuple) else []
    return f"<ul>{''.join(items)}</ul>" if items else ""


def _html_blocks(section: Section) -> Iterator[str]:
    for block in section.blocks:
        if isinstance(block, Text):
            yield f"<p>{_marked(block.words)}</p>"
        elif isinstance(block, Picture):
            data = base64.b64encode(block.png).decode()
            words = html.escape(block.words)
            image = f'<img alt="{words}" src="data:image/png;base64,{data}">'
            yield f"<figure>{image}<figcaption>{words}</figcaption></figure>"
        else:
            head = "".join(f"<th>{html.escape(name)}</th>" for name in block.header)
            body = "".join(f"<tr>{''.join(_html_cell(cell) for cell in row)}</tr>" for row in block.rows)
            yield (
                f"<table><caption>{_marked(block.caption)}</caption><thead><tr>{head}</tr></thead>"
                f"<tbody>{body}</tbody></table>"
            )


def _html_cell(cell: Cell | str) -> str:
    if isinstance(cell, str) or cell.verdict == "none":
        return f"<td>{html.escape(str(cell))}</td>"
    if cell.verdict == "same":
        return f'<td class="same">{html.escape(cell.ours)} ✓</td>'
    return f'<td class="differs">{html.escape(cell.ours)} <small>printed {html.escape(cell.printed)}</small></td>'


def _marked(words: str) -> str:
    """Escape a text and turn its `code` marks into HTML."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(words))
