"""Pages for people: a model as one HTML file with its pictures inside, or as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glassfleet.explain.summary import ModelSummary, summary
from glassfleet.export.figures import drawing, main_picture, note_of
from glassfleet.export.sheet import Page, Picture, Section, SheetTable, html_of, markdown_of
from glassfleet.model.protocol import Model, nature
from glassfleet.model.rules import measures_note
from schemas.errors import UsageError

MOST_RULES = 200
"""Rules that a page states in words, the most used first; all of them are in the JSON export."""


def to_html(model: Model, title: str = "") -> str:
    """Return one HTML file about a model: rules, use of inputs, partitions, complexity, with pictures inside.

    Parameters
    ----------
    model : Model
    title : str
        E.g. name and version.
    """
    return html_of(_model_page(model, title, pictures=True))


def to_markdown(model: Model, title: str = "") -> str:
    """Return a model as Markdown: as :func:`to_html`, without pictures."""
    return markdown_of(_model_page(model, title, pictures=False))


def _model_page(model: Model, title: str, *, pictures: bool) -> Page:
    view = summary(model)
    return Page(title or f"A model of scheme {model.scheme}", "", model_sections(model, view, pictures=pictures))


def model_sections(
    model: Model, view: ModelSummary, *, pictures: bool = True, moves: Sequence[Mapping[str, float]] = ()
) -> list[Section]:
    """Return the sections about a model, for its own page and for the report of a run.

    `moves`: how far inputs move the answer over the fleet's rows, and over their ranges; empty: not told.
    """
    unit = f" ({view.unit})" if view.unit else ""
    facts = [
        ("scheme", view.scheme),
        ("digest", view.digest),
        ("forecasts", f"{view.target}{unit}" + (f": {', '.join(view.classes)}" if view.classes else "")),
        *((name.replace("_", " "), f"{value:g}") for name, value in view.complexity.items()),
    ]
    main = main_picture(model)
    wanted = ([main] if main is not None else []) + ["partitions"] * (view.nature == "rules")
    drawn = _drawn(model, wanted) if pictures else []
    sections = [Section("Model", view.notes, facts, pictures=drawn[:1])]
    sections.append(
        Section("Inputs", (), (), [*([_uses(view, moves)] if view.features else []), _ranges(view)], drawn[1:])
    )
    if view.nature == "network":
        return sections
    what = "rules" if view.nature == "rules" else "structures"
    left = view.rule_count - MOST_RULES
    order, fewer = ("most used", "less support") if view.nature == "rules" else ("fittest", "a lower fitness")
    more = [f"The {MOST_RULES} {order} of {view.rule_count} {what}; {left} have {fewer}."] if left > 0 else []
    if view.nature == "structures":
        more = ["The fittest first. Each is the inputs that a tree asks, left before right; a dot is a leaf.", *more]
    if note := measures_note(view.rules):
        more.append(note)
    return [*sections, Section(f"{what.title()} ({view.rule_count})", more, rules=view.rules[:MOST_RULES])]


def _ranges(view: ModelSummary) -> SheetTable:
    words = [
        ", ".join(part.categories or [f"{item.term} ({item.peak:.4g})" for item in part.sets]) or "-"
        for part in view.partitions
    ]
    rows = [
        [
            part.feature,
            "-" if part.categories else f"{part.low:.6g}",
            "-" if part.categories else f"{part.high:.6g}",
            part.unit,
            text,
        ]
        for part, text in zip(view.partitions, words, strict=True)
    ]
    head = ["input", "from", "to", "unit"]
    if all(text == "-" for text in words):
        return SheetTable("Ranges", head, [row[:-1] for row in rows], frozenset({1, 2}))
    named = "terms" if any(part.sets for part in view.partitions) else "categories"
    return SheetTable(f"Ranges and {named}", [*head, named], rows, frozenset({1, 2}))


def _uses(view: ModelSummary, moves: Sequence[Mapping[str, float]]) -> SheetTable:
    unit = f" {view.unit}" if view.unit else " %" if view.classes else ""

    def in_unit(value: float | None) -> str:
        return "-" if value is None else f"{value:.4g}{unit}"

    uses = sorted(view.features, key=lambda use: -moves[0].get(use.feature, 0.0)) if moves else view.features
    words = ("moves the answer by", "over its range by")[: len(moves)]
    rows = [
        [
            use.feature,
            use.unit,
            *(in_unit(each.get(use.feature)) for each in moves),
            str(use.rules),
            f"{use.support:.3f}",
            "-" if use.effect is None else f"{use.effect:.4g}{f' {view.unit}' if view.unit else ''}",
            ", ".join(f"{term} ({count})" for term, count in list(use.terms.items())[:6]),
        ]
        for use in uses
    ]
    head = ["input", "unit", *words, "rules", "share of support", "effect over a rule's region", "terms"]
    return SheetTable("How the inputs are used", head, rows, frozenset(range(2, len(head) - 1)))


_SHOWS = {
    "tree": "The tree: from left to right",
    "rules": "The most used rules: one line each, colours from the lowest to the highest term",
    "partitions": "The fuzzy sets or thresholds of the inputs, the most used first",
}


def _drawn(model: Model, wanted: Sequence[str]) -> list[Picture]:
    """Return the pictures that the model has; those it cannot have are left out."""
    pictures = []
    for what in wanted:
        try:
            svg = drawing(model, what)
        except UsageError:
            continue
        alt = _SHOWS[what]
        if what == "tree" and nature(model) == "structures":
            alt = "The fittest structure: from left to right, which input is asked after which"
        note = note_of(model, what)
        pictures.append(Picture(svg, f"{alt}; {note}" if note else alt))
    return pictures
