"""Pages for people: a model, or a whole run with it, as one HTML file with its pictures inside, or as Markdown."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from glassfleet.explain.row import RowExplanation
from glassfleet.explain.summary import ModelSummary, summary
from glassfleet.explain.views import RuleView
from glassfleet.export.figures import main_picture, picture
from schemas.errors import UsageError

if TYPE_CHECKING:
    from glassfleet.domain import Domain
    from glassfleet.explain.counterfactual import Counterfactual
    from glassfleet.scheme import Model

MOST_RULES = 200
"""Rules that a page states in words, the most used first; all of them are in the JSON export."""


@dataclass(frozen=True)
class Picture:
    """A picture inside the page: PNG as base64, and what it shows."""

    data: str
    alt: str


@dataclass(frozen=True)
class Table:
    """Texts in rows; `numbers` are the columns to align right."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Section:
    """A part of a page; each of its members may be empty."""

    title: str
    texts: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    rules: Sequence[RuleView] = field(default_factory=tuple)


@dataclass(frozen=True)
class Page:
    """What a page says, before it is HTML or Markdown."""

    title: str
    subtitle: str
    sections: Sequence[Section]


def to_html(model: Model, title: str = "", *, domain: Domain | None = None) -> str:
    """Return one HTML file about a model: rules, use of inputs, partitions, complexity, with pictures inside.

    Parameters
    ----------
    model : Model
    title : str
        E.g. name and version.
    domain : Domain or None
        Whose terms and units to speak in; None: the model's own.
    """
    return html_of(model_page(model, title, domain=domain))


def to_markdown(model: Model, title: str = "", *, domain: Domain | None = None) -> str:
    """Return a model as Markdown: as :func:`to_html`, without pictures."""
    return markdown_of(model_page(model, title, domain=domain, pictures=False))


def model_page(model: Model, title: str = "", *, domain: Domain | None = None, pictures: bool = True) -> Page:
    """Return what there is to say about a model."""
    told = summary(model, domain)
    return Page(title or f"A model of scheme {model.scheme}", "", model_sections(model, told, pictures=pictures))


def model_sections(model: Model, told: ModelSummary, *, pictures: bool = True) -> list[Section]:
    """Return the sections about a model, for its own page and for the report of a run."""
    unit = f" ({told.unit})" if told.unit else ""
    facts = [
        ("scheme", told.scheme),
        ("digest", told.digest),
        ("forecasts", f"{told.target}{unit}" + (f": {', '.join(told.classes)}" if told.classes else "")),
        *((name.replace("_", " "), f"{value:g}") for name, value in told.complexity.items()),
    ]
    drawn = _drawn(model, (main_picture(model), "partitions")) if pictures else []
    uses = Table(
        "How the inputs are used",
        ["input", "unit", "rules", "share of support", "effect over its range", "terms"],
        [
            [
                use.feature,
                use.unit,
                str(use.rules),
                f"{use.support:.3f}",
                "-" if use.effect is None else f"{use.effect:.4g}{f' {told.unit}' if told.unit else ''}",
                ", ".join(f"{term} ({count})" for term, count in list(use.terms.items())[:6]),
            ]
            for use in told.features
        ],
        frozenset({2, 3, 4}),
    )
    limits = Table(
        "Ranges and terms",
        ["input", "from", "to", "unit", "terms"],
        [
            [
                part.feature,
                f"{part.low:.6g}",
                f"{part.high:.6g}",
                part.unit,
                ", ".join(part.categories or [f"{item.term} ({item.peak:.4g})" for item in part.sets]) or "-",
            ]
            for part in told.partitions
        ],
        frozenset({1, 2}),
    )
    left = told.rule_count - MOST_RULES
    more = [f"The {MOST_RULES} most used of {told.rule_count} rules; {left} have less support."] if left > 0 else []
    return [
        Section("Model", told.notes, facts, pictures=drawn[:1]),
        Section("Inputs", (), (), [uses, limits], drawn[1:]),
        Section(f"Rules ({told.rule_count})", more, rules=told.rules[:MOST_RULES]),
    ]


def run_page(
    status: Mapping[str, Any],
    model: Model | None,
    record: Mapping[str, Any] | None = None,
    scores: Sequence[Mapping[str, Any]] = (),
    about_scores: Sequence[str] = (),
    *,
    pictures: bool = True,
) -> Page:
    """Return what there is to say about a run: fleet, rounds, who dropped, scores, and the model with its rules.

    Parameters
    ----------
    status : mapping
        The run as the coordinator's HTTP API shows it.
    model : Model or None
        None: the run made none.
    record : mapping or None
        The model record.
    scores : sequence of mapping
        One per vehicle: ``{vehicle, metric, rows, local, federated, central}``; numbers or None.
    about_scores : sequence of str
        What is to be said about them: how the central ones are known, or why there are none at all.
    """
    name = f"Run {status.get('run', '')}"
    outcome = status.get("outcome") or status.get("state") or "?"
    reason = f": {status['reason']}" if status.get("reason") else ""
    subtitle = f"{outcome}{reason}. {_time(status.get('started'), '?')} to {_time(status.get('ended'), 'now')}"
    sections = [_fleet(status, record), _rounds(status)]
    if scores or about_scores:
        sections.append(_scores(scores, about_scores))
    if model is not None:
        sections += model_sections(model, summary(model), pictures=pictures)
    return Page(name, subtitle, sections)


def _time(text: object, without: str) -> str:
    """Return a moment as people write it: no T, no parts of a second."""
    return str(text)[:19].replace("T", " ") + " UTC" * str(text).endswith("+00:00") if text else without


def _fleet(status: Mapping[str, Any], record: Mapping[str, Any] | None) -> Section:
    training = (record or {}).get("training", {})
    made = status.get("model")
    facts = [
        ("scheme", str(status.get("scheme", ""))),
        ("participation", str(status.get("participation", ""))),
        ("cohort", ", ".join(status.get("cohort") or []) or "-"),
        ("domain found by", ", ".join(status.get("domain_contributors") or []) or "declared"),
        ("statistics withheld by vehicles", str(status.get("nullified", 0))),
        ("replays after losing vehicles", str(status.get("restarts", 0))),
    ]
    if training:
        facts.append(("training rows", str(training.get("rows", ""))))
    if made:
        facts.append(("model", f"{made.get('name')} v{made.get('version')}"))
    agents = status.get("agents") or {}
    table = Table(
        "The vehicles at the end of the run",
        ["vehicle", "what became of it", "reason"],
        [[agent, str(item.get("status", "")), str(item.get("reason", ""))] for agent, item in sorted(agents.items())],
    )
    return Section("Fleet", (), facts, [table] if agents else [])


def _rounds(status: Mapping[str, Any]) -> Section:
    rows, total = [], 0
    for item in status.get("rounds") or []:
        dropped = item.get("dropped_agents") or {}
        late = dict.fromkeys(item.get("late_agents") or (), "too late")
        why = "; ".join(f"{agent}: {reason}" for agent, reason in sorted({**dropped, **late}.items()))
        total += int(item.get("bytes", 0))
        counts = [str(item.get(key, 0)) for key in ("attempt", "asked", "accepted", "late", "rejected", "dropped")]
        rows.append(
            [
                str(item.get("number", "")),
                f"{item.get('phase', '')} {item.get('kind', '')}",
                *counts,
                f"{float(item.get('seconds', 0.0)):.2f}",
                f"{int(item.get('bytes', 0)):,}",
                why,
            ]
        )
    head = [
        "round",
        "asks for",
        "attempt",
        "asked",
        "in",
        "late",
        "rejected",
        "dropped",
        "seconds",
        "bytes",
        "who dropped",
    ]
    table = Table(f"{len(rows)} rounds, {total:,} bytes of accepted answers", head, rows, frozenset({0, *range(2, 10)}))
    return Section("Rounds", [] if rows else ["No round was closed."], (), [table] if rows else [])


def _scores(scores: Sequence[Mapping[str, Any]], about: Sequence[str]) -> Section:
    def cell(value: Any) -> str:
        return "-" if value is None else f"{float(value):.4f}"

    if not scores:
        return Section("Scores", about)
    metric = {"rmse": "RMSE", "f1": "F1 (macro)"}.get(
        str(scores[0].get("metric", "")), str(scores[0].get("metric", ""))
    )
    settings = ("local", "federated", "central")
    rows = [
        [str(item.get("vehicle", "")), str(item.get("rows", "")), *(cell(item.get(key)) for key in settings)]
        for item in scores
    ]
    means = []
    for key in settings:
        known = [float(item[key]) for item in scores if item.get(key) is not None]
        means.append(cell(sum(known) / len(known)) if known else "-")
    head = ["vehicle", "test rows", "local (LL)", "federated (FL)", "central (CL)"]
    table = Table(
        f"{metric} on each vehicle's own test rows", head, [*rows, ["mean", "", *means]], frozenset({1, 2, 3, 4})
    )
    return Section("Scores", about, (), [table])


def forecast_page(
    model: Model, told: RowExplanation, other: Counterfactual | None, title: str = "", *, pictures: bool = True
) -> Page:
    """Return what there is to say about one forecast: its rule, shares, memberships, and the way to another outcome."""
    row = {part.feature: part.value for part in told.inputs}
    drawn = _drawn(model, ("shares", "partitions"), row) if pictures else []
    rules = [told.fired.rule, *(item.rule for item in told.runners_up)]
    table = Table(
        "The inputs, the largest share first",
        ["input", "value", "share", "memberships"],
        [
            [
                part.feature,
                part.text,
                "-" if part.share is None else f"{part.share:+.4g}",
                ", ".join(f"{degree.term} {degree.degree:.2f}" for degree in part.memberships),
            ]
            for part in told.inputs
        ],
        frozenset({2}),
    )
    sections = [
        Section("Forecast", [told.text, *told.notes], (), [table], drawn),
        Section("The rule that answered, and its rivals", rules=rules),
    ]
    if other is not None:
        sections.append(
            Section("Another outcome", [f"Wanted: {other.goal}.", f"{other.text[:1].upper()}{other.text[1:]}."])
        )
    return Page(title or "A forecast", "", sections)


def html_of(page: Page) -> str:
    """Return a page as one HTML file; every text is escaped, nothing is loaded from elsewhere."""
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - an extra

    text = (resources.files("glassfleet.export") / "templates" / "report.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(text).render(title=page.title, subtitle=page.subtitle, sections=page.sections) + "\n"


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
        for item in section.pictures:
            lines += [f"![{_escaped(item.alt)}](data:image/png;base64,{item.data})", ""]
        for rule in section.rules:
            lines.append(
                f"- **rule {rule.index}** (support {rule.support:.3f}, confidence {rule.confidence:.3f}): "
                f"{_escaped(rule.text)}"
            )
        lines += [""] * bool(section.rules)
    return "\n".join(lines).rstrip() + "\n"


def _escaped(text: str) -> str:
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")


_SHOWS = {
    "tree": "The tree: from left to right; line width and per cent are the share of training rows",
    "rules": "The most used rules: one line each, colours from the lowest to the highest term",
    "partitions": "The fuzzy sets or thresholds of the inputs, the most used first",
    "shares": "How base and shares of the inputs add up",
}


def _drawn(model: Model, wanted: Sequence[str], row: Mapping[str, Any] | None = None) -> list[Picture]:
    """Return the pictures that the model has; those it cannot have are left out."""
    found = []
    for what in wanted:
        try:
            data = picture(model, what, "png", row=row)
        except UsageError:
            continue
        found.append(Picture(base64.b64encode(data).decode("ascii"), _SHOWS[what]))
    return found
