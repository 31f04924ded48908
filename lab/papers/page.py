"""What a report is made of - texts, tables, pictures; printed values beside ours - and its pages.

One is Markdown with its pictures beside it, the other one HTML file with its pictures inside.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import stats

from schemas.errors import StorageError, os_faults_as

TITLE = "The papers' tables and figures, and ours"

INTRODUCTION = (
    "Made by `glassfleet lab papers`. A number with ✓ has the digits that the paper prints; where it does not, the "
    "printed one stands beside it. A number alone has no printed counterpart here: there is none, or this "
    "program does not know it."
)


@dataclass(frozen=True)
class Cell:
    """A number of ours, and the printed one when there is one.

    Attributes
    ----------
    ours : str
        As printed: with the same number of digits.
    printed : str
        Empty: the paper's number is not known here.
    """

    ours: str
    printed: str = ""

    @property
    def verdict(self) -> Literal["same", "differs", "none"]:
        """Whether the digits are the printed ones."""
        if not self.printed:
            return "none"
        return "same" if self.ours == self.printed else "differs"

    def __str__(self) -> str:
        if self.verdict == "none":
            return self.ours
        return f"{self.ours} ✓" if self.verdict == "same" else f"{self.ours} (printed {self.printed})"


def number(ours: float, printed: float | None = None, digits: int = 2) -> Cell:
    """Return a cell of `digits` decimals."""
    return Cell(f"{ours:.{digits}f}", "" if printed is None else f"{printed:.{digits}f}")


Rows = list[list[Cell | str]]


@dataclass(frozen=True)
class Text:
    """A paragraph; `code` marks are kept."""

    words: str


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first column is on the left, the others on the right.

    Attributes
    ----------
    caption : str
    header : sequence of str
    rows : sequence of sequence of Cell or str
    counted : bool
        Whether its printed values count in the summary. False: the paper measured on other rows, hence other numbers
        are expected.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    counted: bool = True


@dataclass(frozen=True)
class Picture:
    """A PNG.

    Attributes
    ----------
    name : str
        Of its file, without ending.
    words : str
        What it shows, for those who cannot see it too.
    png : bytes
    """

    name: str
    words: str
    png: bytes


Blocks = Sequence[Text | Table | Picture]


@dataclass(frozen=True)
class Section:
    """One table or figure of a paper; `key` is what the command line calls it."""

    key: str
    title: str
    blocks: Blocks

    def compared(self) -> Iterator[tuple[Cell, str]]:
        """Yield the cells that have a printed value that counts, each with a line that says how they differ."""
        for block in self.blocks:
            if isinstance(block, Table) and block.counted:
                for row in block.rows:
                    for name, cell in zip(block.header, row, strict=True):
                        if isinstance(cell, Cell) and cell.printed:
                            words = f"{cell.ours} here, {cell.printed} printed"
                            yield cell, f"{self.title}: {row[0]}, {name}: {words}"


@dataclass(frozen=True)
class Report:
    """All sections, by chapter."""

    chapters: Mapping[str, Sequence[Section]]
    notes: Sequence[str] = field(default_factory=tuple)

    def verdicts(self) -> tuple[int, list[str]]:
        """Return how many printed values come out to the digit, and a line for each that does not."""
        cells = [each for sections in self.chapters.values() for section in sections for each in section.compared()]
        differing = [line for cell, line in cells if cell.verdict == "differs"]
        return len(cells) - len(differing), differing

    def summary(self) -> list[str]:
        """Return the verdicts in lines."""
        same, differing = self.verdicts()
        total = same + len(differing)
        if not total:
            return ["No printed value could be compared."]
        first = f"{same} of {total} printed values come out to the digit"
        return [f"{first}." if not differing else f"{first}; {len(differing)} differ:", *differing]


# --- the tests of significance that the papers use --------------------------------------------------------------------

LEVEL = 0.05


def wilcoxon(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """Test whether `first` and `second`, in pairs, come from the same distribution; equal pairs are left out.

    Returns
    -------
    float, float, float
        The sums of the ranks of positive and of negative differences, and p: two-sided; 1 when no pair differs.
    """
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    difference = difference[difference != 0]
    if not len(difference):
        return 0.0, 0.0, 1.0
    ranks = stats.rankdata(np.abs(difference))
    test: Any = stats.wilcoxon(difference)
    return float(ranks[difference > 0].sum()), float(ranks[difference < 0].sum()), float(test.pvalue)


def wilcoxon_table(caption: str, pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]], better: str) -> Table:
    """Return a table of tests: name -> (first, second).

    Parameters
    ----------
    better : {"smaller", "larger"}
        Which of two scores is the better one.
    """
    rows = []
    for name, (first, second) in pairs.items():
        plus, minus, p = wilcoxon(first, second)
        words = "no difference shown"
        if p < LEVEL:
            favoured = minus > plus if better == "smaller" else plus > minus
            words = f"{'first' if favoured else 'second'} better"
        shown = f"{p:.4f}" if p >= 0.0001 else f"{p:.1e}"
        rows.append([name, str(len(first)), f"{plus:.0f}", f"{minus:.0f}", shown, words])
    return Table(caption, ["first against second", "pairs", "R+", "R-", "p", f"at {LEVEL:g}"], rows)


# --- its pages --------------------------------------------------------------------------------------------------------


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
        for section in (each for sections in report.chapters.values() for each in sections):
            for block in section.blocks:
                if isinstance(block, Picture):
                    (folder / "pictures" / f"{block.name}.png").write_bytes(block.png)
        pages[0].write_text(as_markdown(report), encoding="utf-8")
        pages[1].write_text(as_html(report), encoding="utf-8")
    return pages


def as_markdown(report: Report) -> str:
    """Return the report as Markdown; pictures are links into ``pictures/``."""
    first, *rest = report.summary()
    lines = [f"# {TITLE}", "", INTRODUCTION, "", first, "", *(f"- {line}" for line in rest)]
    lines += ["", *(f"- {note}" for note in report.notes)]
    for chapter, sections in report.chapters.items():
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
    from jinja2 import Environment, StrictUndefined  # an extra
    from markupsafe import Markup, escape

    def marked(words: str) -> Markup:
        """Escape a text and turn its `code` marks into HTML."""
        return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(words))))  # noqa: S704 - escaped first

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"marked": marked, "base64": _base64}
    page = environment.from_string((resources.files("lab.papers") / "report.html").read_text(encoding="utf-8"))
    return page.render(report=report, title=TITLE, introduction=INTRODUCTION, summary=report.summary()) + "\n"


def _base64(png: bytes) -> str:
    return base64.b64encode(png).decode()
