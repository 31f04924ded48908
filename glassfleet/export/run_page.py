"""The report of a run: fleet, rounds, who dropped, scores, and the model with its rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from glassfleet.explain.effects import importance, reach
from glassfleet.explain.summary import summary
from glassfleet.export.figures import MOST_INPUTS
from glassfleet.export.page import model_sections
from glassfleet.export.sheet import Page, Picture, Section, SheetTable
from glassfleet.export.svg.leakage import rows_read
from glassfleet.export.svg.rounds import timeline
from glassfleet.model.baseline import reference_of
from glassfleet.model.protocol import Model
from glassfleet.private.words import WHY_NO_VEHICLES, figures, protection
from schemas.rounds import bytes_each, count, missed
from schemas.text import counted

MOST_ROUNDS: Final = 24
"""Of more rounds than these the report tells those of a kind together; the table of all is folded."""


def run_page(
    status: Mapping[str, Any],
    model: Model | None,
    record: Mapping[str, Any] | None = None,
    scores: Sequence[Mapping[str, Any]] = (),
    about_scores: Sequence[str] = (),
    *,
    leakage: Mapping[str, Any] | None = None,
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
    leakage : mapping or None
        What ``glassfleet lab audit leakage --json`` printed of the run; None: it was not measured.
    """
    name = f"Run {status.get('run', '')}"
    outcome = status.get("outcome") or status.get("state") or "?"
    reason = f": {status['reason']}" if status.get("reason") else ""
    subtitle = f"{outcome}{reason}. {_time(status.get('started'), '?')} to {_time(status.get('ended'), 'now')}"
    sections = [_fleet(status, record), _rounds(status, pictures=pictures)]
    if scores or about_scores:
        sections.append(_scores(scores, about_scores))
    if leakage is not None:
        sections.append(_leakage(leakage, pictures=pictures))
    if model is not None:
        view = summary(model)
        reference = reference_of((record or {}).get("parameters", {}), model.domain)
        inputs = [use.feature for use in view.features][:MOST_INPUTS]
        moves = [each(model, reference, inputs) for each in (importance, reach)]
        sections += model_sections(model, view, pictures=pictures, moves=moves)
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
        (
            "rows of a vehicle that count",
            f"at most {status['max_rows_each']}" if status.get("max_rows_each") else "all",
        ),
        ("left out", ", ".join((status.get("spec") or {}).get("without") or []) or "nobody"),
        ("statistics withheld by vehicles", str(status.get("nullified", 0))),
        ("replays after losing vehicles", str(status.get("restarts", 0))),
    ]
    terms = status.get("private") or (status.get("spec") or {}).get("private") or {}
    if terms:
        facts.append(("protection", protection(terms)))
    if status.get("scores"):
        facts.append(("scores of the fleet", f"{figures(status['scores'])} ({WHY_NO_VEHICLES})"))
    if training:
        facts.append(("training rows", str(training.get("rows", ""))))
    if made:
        facts.append(("model", f"{made.get('name')} v{made.get('version')}"))
    agents = status.get("agents") or {}
    table = SheetTable(
        "The vehicles at the end of the run",
        ["vehicle", "what became of it", "reason"],
        [[agent, str(item.get("status", "")), str(item.get("reason", ""))] for agent, item in sorted(agents.items())],
    )
    return Section("Fleet", tuple(status.get("notes") or ()), facts, [table] if agents else [])


def _scores(scores: Sequence[Mapping[str, Any]], about: Sequence[str]) -> Section:
    def cell(value: Any) -> str:
        return "-" if value is None else f"{float(value):.4f}"

    if not scores:
        return Section("Scores", about)
    metric = {"rmse": "RMSE", "f1": "F1 (macro)"}.get(
        str(scores[0].get("metric", "")), str(scores[0].get("metric", ""))
    )
    settings = ("local", "federated", "central")

    def name(item: Mapping[str, Any]) -> str:
        only = f" (all rows are {item['only']}: F1 means little)" if item.get("only") else ""
        return f"{item.get('vehicle', '')}{only}"

    rows = [[name(item), str(item.get("rows", "")), *(cell(item.get(key)) for key in settings)] for item in scores]
    means = []
    for key in settings:
        known = [float(item[key]) for item in scores if item.get(key) is not None]
        means.append(cell(sum(known) / len(known)) if known else "-")
    head = ["vehicle", "test rows", "local (LL)", "federated (FL)", "central (CL)"]
    table = SheetTable(
        f"{metric} on each vehicle's own test rows", head, [*rows, ["mean", "", *means]], frozenset({1, 2, 3, 4})
    )
    return Section("Scores", about, (), [table])


def _leakage(audit: Mapping[str, Any], *, pictures: bool) -> Section:
    lines, head = audit["lines"], ["how rows were protected", "attacker sees", "attack", "rows read", "share", "wrong"]
    rows = [
        [
            *(str(line[key]) for key in ("protection", "seen", "attack", "read")),
            f"{line['read'] / max(1, line['rows']):.1%}",
            str(line["false"]),
        ]
        for line in lines
    ]
    checked = (
        f"Attacks on the sums that {audit['vehicles']} vehicles sent, checked against their {audit['rows']:,} rows."
    )
    texts = [
        f"{checked} A row is read when every input and the target are within a thousandth of their ranges.",
        "" if lines else "No attack that was tried is about the sums of this scheme.",
        *(
            f"The model alone: membership AUC {each['auc']:.3f}; 0.5 is nothing."
            for each in audit["models"]
            if each["auc"] is not None
        ),
    ]
    drawn = (
        [
            Picture(
                rows_read(lines),
                "Rows read whole by the attack that read most, for each thing that an attacker may see",
            )
        ]
        if pictures and lines
        else []
    )
    tables = [SheetTable("Rows read by attacks", head, rows, frozenset({3, 4, 5}))] if lines else []
    return Section("Leakage", [text for text in texts if text], (), tables, drawn)


def _rounds(status: Mapping[str, Any], *, pictures: bool) -> Section:
    rounds = list(status.get("rounds") or [])
    if not rounds:
        return Section("Rounds", ["No round was closed."])
    total = sum(int(item.get("bytes", 0)) for item in rounds)
    to_each, from_each = bytes_each(rounds)
    each = f"; {to_each:,} bytes of requests to each vehicle, {from_each:,} of answers from it" if to_each else ""
    caption = f"{counted(len(rounds), 'rounds')}, {total:,} bytes of accepted answers{each}"
    drawn = (
        [Picture(timeline(rounds, legend=True), f"{caption}: what became of the answers, round by round")]
        if pictures
        else []
    )
    tables = [_each_round(rounds, caption)]
    if len(rounds) > MOST_ROUNDS:
        tables = [_kinds_of_rounds(rounds, caption), _each_round(rounds, "Every round by itself", folded=True)]
    return Section("Rounds", (), (), tables, drawn)


_COUNTS = ("asked", "accepted", "late", "rejected", "dropped")
_COUNTED = ("asked", "in", "late", "rejected", "dropped", "seconds", "bytes", "who dropped")


def _each_round(rounds: Sequence[Mapping[str, Any]], caption: str, *, folded: bool = False) -> SheetTable:
    rows = []
    for item in rounds:
        counts = [str(count(item, key)) for key in ("attempt", *_COUNTS)]
        why = "; ".join(f"{agent}: {reason}" for agent, reason in sorted(missed(item).items()))
        rows.append([str(item.get("number", "")), _asks_for(item), *counts, *_cost([item]), why])
    head = ["round", "asks for", "attempt", *_COUNTED]
    return SheetTable(caption, head, rows, frozenset({0, *range(2, 10)}), folded)


def _kinds_of_rounds(rounds: Sequence[Mapping[str, Any]], caption: str) -> SheetTable:
    """Return one line for all rounds that follow each other and ask for the same."""
    rows = []
    for asks_for, group in groupby(rounds, _asks_for):
        some = list(group)
        first, last = some[0].get("number", ""), some[-1].get("number", "")
        counts = [f"{sum(count(item, key) for item in some):,}" for key in _COUNTS]
        why_not: dict[tuple[str, str], int] = {}
        for item in some:
            for agent, reason in missed(item).items():
                why_not[agent, reason] = why_not.get((agent, reason), 0) + 1
        why = "; ".join(
            f"{agent}: {reason}{f' ({times} rounds)' if times > 1 else ''}"
            for (agent, reason), times in sorted(why_not.items())
        )
        named = str(first) if first == last else f"{first} to {last}"
        rows.append([named, asks_for, str(len(some)), *counts, *_cost(some), why])
    head = ["rounds", "asks for", "how many", *_COUNTED]
    return SheetTable(f"{caption}; rounds that ask for the same are told together", head, rows, frozenset(range(2, 10)))


def _asks_for(item: Mapping[str, Any]) -> str:
    return f"{item.get('phase', '')} {item.get('kind', '')}".strip()


def _cost(some: Sequence[Mapping[str, Any]]) -> list[str]:
    seconds = sum(float(item.get("seconds", 0.0)) for item in some)
    return [f"{seconds:.2f}", f"{sum(int(item.get('bytes', 0)) for item in some):,}"]
