"""The pages about models: all of them, one version, its difference from another, forecasts explained."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import RedirectResponse, Response

from coordinator.http.access import PAGE, PAGE_OF_A_MODEL, READER_AT_ONCE
from coordinator.http.dashboard import comparison, scores, show, tables
from coordinator.http.dashboard.explain_api import goal_of
from coordinator.http.dashboard.library import LoadedModel
from coordinator.http.dashboard.live import RUN_PERIOD, PageState, Same
from coordinator.http.dashboard.standing import NameStanding, standing
from coordinator.journal.port import StoredModel
from coordinator.models.registry import moved_since
from glassfleet.data.domain import Domain, Variable
from glassfleet.explain import Difference, Partition, RowExplanation, as_row, counterfactual, difference, explain_row
from glassfleet.explain.branches import Branch, opened, uses
from glassfleet.explain.difference import Part
from glassfleet.explain.summary import FeatureUse
from glassfleet.explain.text import cut, number
from glassfleet.export.formats import FORMATS, export, holding
from glassfleet.export.svg.trees import MOST_LEAVES, OPEN_LEAVES, RuleTree, StructureTree
from glassfleet.model.rules import Condition, Rule
from schemas.errors import DataError, GlassfleetError, UsageError

if TYPE_CHECKING:
    from coordinator.core import Coordinator
    from coordinator.http.dashboard.pages import Dashboard

ROW_CHARS = 20_000
"""Longest row that is pasted into the page of forecasts, as an address can be; the rest is not read."""

RULES_PER_PAGE = 25
SCORED_PER_PAGE = 25
IN_REPORT = 1000
"""Rules, structures and vehicles that a report has room for."""
CHOICES = 200
"""So many versions, the newest, can be chosen to be compared."""
MOST_SHARES = 14
"""Inputs with a line of their own in the picture of shares; the others are added up."""


def add_model_pages(app: FastAPI, dashboard: Dashboard) -> None:
    """Give an application the pages about models."""
    coordinator = dashboard.coordinator
    registry = coordinator.registry

    @app.get("/models", dependencies=[PAGE], include_in_schema=False)
    def _models(request: Request, q: str = "", sort: str = "model", page: int = 1) -> Response:
        lines = tables.models(coordinator, dashboard.library)
        models = show.ListPage.of(tables.chosen(lines, text=q[:200], sort=sort), page)
        standings = {each.name: standing(coordinator, each.name) for each in models.items}
        return dashboard.page(
            request, "models.html", models=models, standings=standings, total=len(lines), q=q[:200], sort=sort[:20]
        )

    @app.get("/events/models/{name}", dependencies=[READER_AT_ONCE], include_in_schema=False)
    async def _events(request: Request, name: str) -> Response:
        registry.heads(name)
        look, paint = partial(_look, coordinator, name), partial(_paint, coordinator, name)
        return await dashboard.live(request, f"model/{name}", look, paint, RUN_PERIOD)

    @app.get("/models/{name}", dependencies=[PAGE], include_in_schema=False)
    @app.get("/models/{name}/{version:int}", dependencies=[PAGE], include_in_schema=False)
    def _model(  # noqa: PLR0917  what the address says, by name
        request: Request,
        name: str,
        version: int | None = None,
        branch: str | None = None,
        q: str = "",
        page: int = 1,
        s: int = 1,
        structure: int | None = None,
    ) -> Response:
        loaded = dashboard.library.get(name, version)
        asked = ModelPageQuery(branch or "", q[:200], page, s, structure)
        return dashboard.page(request, "model.html", **model_values(dashboard, loaded, asked, request))

    @app.get("/models/{name}/compare", dependencies=[PAGE], include_in_schema=False)
    def _choose(name: str, after: int, before: int) -> Response:
        return RedirectResponse(f"/models/{name}/{after}/against/{before}", 303)

    @app.get("/models/{name}/{version:int}/against/{other:int}", dependencies=[PAGE], include_in_schema=False)
    def _compare(request: Request, name: str, version: int, other: int, s: int = 1) -> Response:
        after, before = dashboard.library.get(name, version), dashboard.library.get(name, other)
        compared = comparison.versions(coordinator, before, after)
        lines = show.ListPage.of(compared.lines if compared else [], s, SCORED_PER_PAGE)
        change = difference((before.record, before.model), (after.record, after.model))
        return dashboard.page(
            request,
            "compare.html",
            before=before,
            after=after,
            difference=change,
            folded=_folded(change),
            compared=compared,
            verdict=comparison.against(compared, f"version {other}") if compared else "",
            lines=lines,
            rows=[(line.agent, line.before, line.after, None) for line in lines.items],
            numbers=_numbers(registry.heads(name)),
        )

    @app.get("/models/{name}/{version:int}/download", dependencies=[PAGE_OF_A_MODEL], include_in_schema=False)
    def _download(name: str, version: int, kind: Annotated[str, Query(alias="format")]) -> Response:
        loaded = dashboard.library.get(name, version)
        if kind not in holding(loaded.model):
            raise UsageError(f"format must be one of {', '.join(holding(loaded.model))}, got {kind[:40]!r}")
        data = export(loaded.model, kind, title=f"{name} v{version}")
        file = f"{name}-v{version}{FORMATS[kind].suffix}"
        headers = {"Content-Disposition": f'attachment; filename="{file}"'}
        return Response(data, media_type=f"{FORMATS[kind].media_type}; charset=utf-8", headers=headers)

    @app.get("/models/{name}/{version:int}/forecast", dependencies=[PAGE_OF_A_MODEL], include_in_schema=False)
    def _forecast(request: Request, name: str, version: int) -> Response:
        loaded = dashboard.library.get(name, version)
        return dashboard.page(request, "forecast.html", **_answered(loaded, dict(request.query_params)))


@dataclass(frozen=True)
class ModelPageQuery:
    """What the address of a model's page asks for: an open branch, words of rules, pages, a structure's number."""

    branch: str = ""
    q: str = ""
    page: int = 1
    s: int = 1
    structure: int | None = None


def model_values(
    dashboard: Dashboard, loaded: LoadedModel, asked: ModelPageQuery, request: Request | None = None
) -> dict[str, Any]:
    """Return what the page of a model is drawn from; without a `request` all of it, for a report."""
    coordinator, name = dashboard.coordinator, loaded.name
    per_page = RULES_PER_PAGE if request is not None else IN_REPORT
    known, stands, versions = (
        scores.scores(coordinator, loaded),
        standing(coordinator, name),
        coordinator.registry.heads(name),
    )
    address = f"/models/{name}/{loaded.version}" if request is not None else ""
    scored = show.ListPage.of(known.lines, asked.s, per_page)
    return {
        "loaded": loaded,
        "record": loaded.record,
        "domain": loaded.model.domain,
        "summary": loaded.summary,
        "address": address,
        "tree": _tree(loaded, asked.branch, address),
        **_population(loaded, asked, address, per_page),
        "not_in": show.not_in(coordinator, loaded.record),
        "stands": stands,
        "standing": dashboard.standing(request, stands, loaded.version, loaded.nature),
        "rules": show.ListPage.of(_matching(loaded.rules, asked.q), asked.page, per_page),
        "q": asked.q,
        "scores": known,
        **_better(dashboard, loaded, known, stands, versions),
        "s": asked.s,
        "scored": scored,
        "scored_rows": [
            # Where it is the same by promise, a mark of its own would only hide the other.
            (line.agent, line.alone, line.together, line.central if known.source == "reference" else None)
            for line in scored.items
        ],
        "moved": moved_since(coordinator.registry, loaded.record),
        "unequal": scores.why_not_equal(loaded),
        "is_condensed": scores.is_condensed(loaded),
        "inputs": _inputs(loaded),
        "downloads": holding(loaded.model),
        "versions": [(each.version, each.digest, each.run, each.is_damaged) for each in versions[::-1][:20]],
        "count": len(versions),
        "numbers": _numbers(versions),
    }


def _inputs(loaded: LoadedModel) -> list[tuple[Any, FeatureUse | None, float, float | None]]:
    """Return the inputs that are listed: limits, use in rules, importance, reach; those that count most first."""
    uses, spans = {use.feature: use for use in loaded.summary.features}, loaded.reach
    return [
        (loaded.model.domain.variable(name), uses.get(name), moved, spans.get(name))
        for name, moved in loaded.importance.items()
    ]


def _better(
    dashboard: Dashboard,
    loaded: LoadedModel,
    known: scores.FleetScores,
    stands: NameStanding,
    versions: list[StoredModel],
) -> dict[str, Any]:
    """Return what says whether a version is better: than another one, than each alone, and over the versions."""
    coordinator = dashboard.coordinator
    other = comparison.other_version(stands, loaded, versions)
    result = None
    with suppress(GlassfleetError):  # there is none, or this software cannot read it
        result = comparison.versions(coordinator, dashboard.library.get(loaded.name, other), loaded)
    metric = known.beside_alone.metric if known.beside_alone else ""
    curve = comparison.curve(coordinator, loaded.name, versions, metric) if metric else []
    compared = [(result, f"version {other}"), (known.beside_alone, "what each vehicle learns alone")]
    return {
        "other": other,
        "beside_other": result,
        "before": {} if result is None else {line.agent: line.before for line in result.lines},
        "verdict": [comparison.against(each, words) for each, words in compared if each is not None],
        "metric": metric,
        "curve": curve,
        "points": {point.version: point for point in curve},
    }


def _folded(change: Difference) -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """Return what differs besides the rules: title, what each line is of, and the lines: name, before, after."""
    parts: list[tuple[str, str, tuple[Part, ...]]] = [
        ("Limits that moved", "Variable", ("limits", "domain")),
        ("Names of the sets", "Variable", ("terms",)),
        ("Parameters of the scheme", "Parameter", ("parameters",)),
        ("Training", "What", ("training",)),
    ]
    lines = [(title, what, [(x.name, x.before, x.after) for x in change.in_words(*of)]) for title, what, of in parts]
    size = [(name.replace("_", " "), number(was), number(now)) for name, (was, now) in change.size.items()]
    return [each for each in (*lines, ("Size", "Measure", size)) if each[2]]


def _numbers(versions: list[StoredModel]) -> list[int]:
    """Return the versions to choose from, the newest first."""
    return [each.version for each in versions[::-1] if not each.is_damaged][:CHOICES]


def _look(coordinator: Coordinator, name: str) -> Hashable:
    aliases = coordinator.aliases
    pointers = (aliases.current.get(name), aliases.candidate.get(name))
    return Same(coordinator.rollouts.live(name)), *(each and each.sequence for each in pointers)


def _paint(coordinator: Coordinator, name: str) -> PageState:
    stands = standing(coordinator, name)
    return PageState({"standing": None}, stands.announcement, is_last=stands.live is None)


def _tree(loaded: LoadedModel, key: str, address: str) -> RuleTree | None:
    """Return the tree as far as it is open, without an address whole; None without rules."""
    labels = [rule_summary.label for rule_summary in loaded.rule_summaries]
    trail, most = _trail(loaded.root, key), OPEN_LEAVES if address else MOST_LEAVES
    return RuleTree(trail, address, labels, loaded.model.domain.classes, most) if trail else None


def _population(loaded: LoadedModel, asked: ModelPageQuery, address: str, per_page: int) -> dict[str, Any]:
    """Return what is shown of a population: the structure that is drawn (at first the fittest), all, the inputs."""
    structures, wanted = loaded.structures, asked.structure
    drawn = next((each for each in structures if each.number == wanted), structures[0] if structures else None)
    tree = None
    if drawn is not None and drawn.root.children:
        there = f"{address}?structure={drawn.number}&page={asked.page}" if address else ""
        tree = StructureTree(_trail(drawn.root, asked.branch), there)
    return {
        "structures": show.ListPage.of(structures, asked.page, per_page),
        "drawn": drawn,
        "structure_tree": tree,
        "uses": uses(structures, loaded.model.domain),
    }


def _trail(root: Branch, key: str) -> list[Branch]:
    """Return the way to the branch that the address names, at first the root; nothing without rules."""
    return opened(root, key[:400]) if root.children else []


def _matching(rules: tuple[Rule, ...], text: str) -> list[Rule]:
    """Return the rules that have every word of `text`, the most used first."""
    words = text[:200].lower().split()
    chosen = [rule for rule in rules if not words or all(word in str(rule).lower() for word in words)]
    return sorted(chosen, key=lambda rule: (-rule.support, rule.index))


def _answered(loaded: LoadedModel, query: dict[str, str]) -> dict[str, Any]:
    """Return what the forecast page shows for the fields that were filled in."""
    domain = loaded.model.domain
    values: dict[str, Any] = {
        "loaded": loaded,
        "domain": domain,
        "address": f"/models/{loaded.name}/{loaded.version}",
        "goal": query.get("goal", "")[:200],
        "is_example": False,
        "wrong": "",
        "told": None,
        "otherwise": None,
        "otherwise_wrong": "",
    }
    try:
        row = _row(loaded, query)
        values["row"] = row
        answer = explain_row(loaded.model, row, loaded.reference)
        values |= {"told": answer, "parts": answer.parts(MOST_SHARES), "partitions": _partitions(loaded, answer)}
        values["is_example"] = not any(name in query for name in ("x0", "row"))
    except (DataError, ValueError) as fault:
        values["row"] = {name: query.get(f"x{index}", "") for index, name in enumerate(domain.names)}
        values["wrong"] = cut(str(fault), 400)
        return values
    if answer.nature == "structures":  # every row gets the same answer
        return values
    try:
        values["otherwise"] = counterfactual(loaded.model, row, goal_of(values["goal"], domain))
    except GlassfleetError as fault:
        values["otherwise_wrong"] = str(fault)
    return values


def _row(loaded: LoadedModel, query: dict[str, str]) -> dict[str, Any]:
    """Return the row that was typed, or pasted; what is missing is taken from an example that suits the model."""
    domain = loaded.model.domain
    if query.get("row", "").strip():
        given = _read(domain, query["row"][:ROW_CHARS])
    else:
        typed = {name: query[f"x{index}"] for index, name in enumerate(domain.names) if f"x{index}" in query}
        given = _shown(domain, loaded.example) | typed
    cells = {each.name: _cell(each, given[each.name]) for each in domain.features if each.name in given}
    return _shown(domain, as_row(domain, cells))


def _shown(domain: Domain, row: Iterable[float]) -> dict[str, Any]:
    """Return a row as a form has it: categories by their texts, an empty cell as no text."""
    return {
        each.name: each.categories[round(value)] if each.categories else "" if math.isnan(value) else value
        for each, value in zip(domain.features, map(float, row), strict=True)
    }


def _cell(variable: Variable, value: Any) -> Any:
    if variable.categories:
        return str(value)
    # A minus sign as our pages write it may come back from there.
    return value.replace("−", "-") if isinstance(value, str) else value


def _read(domain: Domain, text: str) -> dict[str, Any]:
    """Read a pasted row: a JSON object, a header line and a line of values, or values alone in the model's order."""
    stripped = text.strip()
    if stripped.startswith("{"):
        try:
            return dict(json.loads(stripped))
        except ValueError as fault:
            raise DataError(f"this is not a JSON object: {fault}") from fault
    lines = [line for line in csv.reader(io.StringIO(stripped)) if line]
    header = list(domain.names) if len(lines) == 1 else [name.strip() for name in lines[0]]
    cells = lines[-1] if len(lines) == 1 else lines[1]
    if len(header) != len(cells):
        raise DataError(f"there are {len(cells)} values for {len(header)} columns: {', '.join(header)[:200]}")
    return dict(zip(header, (cell.strip() for cell in cells), strict=True))


def _partitions(loaded: LoadedModel, explanation: RowExplanation) -> list[tuple[Any, float | None, list[str], bool]]:
    """Return the inputs' partitions with the row's value and the fired rule's terms; the rule's own inputs first."""
    named = {part.feature: part for part in explanation.fired.rule.conditions}
    value = {part.feature: part.value for part in explanation.inputs}
    lines = [
        (each, value[each.feature], _terms(each, named.get(each.feature)), each.feature in named)
        for each in loaded.partitions
        if each.sets or each.thresholds
    ]
    return sorted(lines, key=lambda item: not item[3])


def _terms(partition: Partition, part: Condition | None) -> list[str]:
    """Return the sets that a condition stands for: one, or a run of neighbours ("at least Medium")."""
    sets = partition.sets
    if part is None or not sets:
        return []
    if any(each.term == part.term for each in sets):
        return [part.term]

    def distance(first: int, last: int) -> float:
        low, high = sets[first].low, sets[last].high
        middle = (sets[first].peak + sets[last].peak) / 2
        return abs(low - part.low) + abs(high - part.high) + abs(middle - part.peak)

    runs = [(first, last) for first in range(len(sets)) for last in range(first, len(sets))]
    first, last = min(runs, key=lambda run: distance(*run))
    return [each.term for each in sets[first : last + 1]]
