"""What a page is made of, and the page as one HTML file with its pictures inside, or as Markdown without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources

from glassfleet.explain.views import RuleView
from glassfleet.export.svg.shapes import STYLE, Svg, beside


@dataclass(frozen=True)
class Picture:
    """A picture inside the page, and what it shows."""

    svg: Svg
    alt: str


@dataclass(frozen=True)
class SheetTable:
    """Texts in rows; `numbers` are the columns to align right; a `folded` one is opened by who wants to read it."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a page; each of its members may be empty."""

    title: str
    texts: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[SheetTable] = ()
    pictures: Sequence[Picture] = ()
    rules: Sequence[RuleView] = field(default_factory=tuple)


@dataclass(frozen=True)
class Page:
    """What a page says, before it is HTML or Markdown."""

    title: str
    subtitle: str
    sections: Sequence[Section]


def called(rule: RuleView) -> str:
    """Return what stands before a rule's text: its number, or the fact that it is none."""
    if rule.fitness is not None:
        return ""
    return "no rule" if rule.support is None else f"rule {rule.index}"


def html_of(page: Page) -> str:
    """Return a page as one HTML file; every text is escaped, nothing is loaded from elsewhere."""
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - an extra

    text = (resources.files("glassfleet.export") / "templates" / "report.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    style = Svg(STYLE.read_text(encoding="utf-8"))
    parts = {"called": called, "beside": beside}
    return environment.from_string(text).render(page=page, style=style, **parts) + "\n"


def markdown_of(page: Page) -> str:
    """Return a page as Markdown."""
    lines = [f"# {_escaped(page.title)}", ""]
    if page.subtitle:
        lines += [_escaped(page.subtitle), ""]
    for section in page.sections:
        lines += [f"## {_escaped(section.title)}", ""]
        for text in section.texts:
            lines += [_escaped(text), ""]
        lines += [f"- {_escaped(name)}: {_escaped(value)}" for name, value in section.facts]
        lines += [""] * bool(section.facts)
        for table in section.tables:
            lines += [f"{_escaped(table.caption)}:", ""]
            lines.append(f"| {' | '.join(map(_escaped, table.head))} |")
            marks = ["--:" if index in table.numbers else "---" for index in range(len(table.head))]
            lines.append(f"| {' | '.join(marks)} |")
            lines += [f"| {' | '.join(map(_escaped, row))} |" for row in table.rows] + [""]
        for rule in section.rules:
            name, measures = called(rule), _escaped(rule.measures)
            head = f"**{name}**{f' ({measures})' * bool(measures)}: " if name else ""
            lines.append(f"- {head}{_escaped(rule.text)}")
        lines += [""] * bool(section.rules)
    return "\n".join(lines).rstrip() + "\n"


def _escaped(text: str) -> str:
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")
