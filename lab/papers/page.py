"""What a report is made of: sections of texts, tables and pictures; printed values beside ours; significance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy import stats


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


@dataclass(frozen=True)
class Report:
    """All sections, by chapter."""

    chapters: Sequence[tuple[str, Sequence[Section]]]
    notes: Sequence[str] = field(default_factory=tuple)

    def verdicts(self) -> tuple[int, list[str]]:
        """Return how many printed values come out to the digit, and a line for each that does not."""
        same, differing = 0, []
        for _, sections in self.chapters:
            for section in sections:
                for block in section.blocks:
                    if not isinstance(block, Table) or not block.counted:
                        continue
                    for row in block.rows:
                        for name, cell in zip(block.header[1:], row[1:], strict=True):
                            if isinstance(cell, Cell) and cell.verdict == "same":
                                same += 1
                            elif isinstance(cell, Cell) and cell.verdict == "differs":
                                differing.append(
                                    f"{section.title}: {row[0]}, {name}: {cell.ours} here, {cell.printed} printed"
                                )
        return same, differing


# --- the tests of significance that the papers use --------------------------------------------------------------------


LEVEL = 0.05


@dataclass(frozen=True)
class Signed:
    """A Wilcoxon signed-rank test over pairs.

    Attributes
    ----------
    pairs : int
    plus, minus : float
        Sums of the ranks of positive and negative differences.
    p : float
        Two-sided; 1 when no pair differs.
    """

    pairs: int
    plus: float
    minus: float
    p: float


def wilcoxon(first: Sequence[float], second: Sequence[float]) -> Signed:
    """Test whether `first` and `second`, in pairs, come from the same distribution; equal pairs are left out."""
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    difference = difference[difference != 0]
    if not len(difference):
        return Signed(len(first), 0.0, 0.0, 1.0)
    ranks = stats.rankdata(np.abs(difference))
    test: Any = stats.wilcoxon(difference)
    return Signed(
        len(first), float(ranks[difference > 0].sum()), float(ranks[difference < 0].sum()), float(test.pvalue)
    )


def wilcoxon_table(caption: str, pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]], better: str) -> Table:
    """Return a table of tests: name -> (first, second).

    Parameters
    ----------
    better : {"smaller", "larger"}
        Which of two scores is the better one.
    """
    rows = []
    for name, (first, second) in pairs.items():
        test = wilcoxon(first, second)
        favoured = test.minus > test.plus if better == "smaller" else test.plus > test.minus
        words = "no difference shown"
        if test.p < LEVEL:
            words = f"{'first' if favoured else 'second'} better"
        rows.append([name, str(test.pairs), f"{test.plus:.0f}", f"{test.minus:.0f}", _p(test.p), words])
    return Table(caption, ["first against second", "pairs", "R+", "R-", "p", f"at {LEVEL:g}"], rows)


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.1e}"
