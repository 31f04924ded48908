"""A week of a fleet on one sheet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassfleet.export.sheet import Page, Section, SheetTable
from glassfleet.export.svg.text import size
from schemas.text import counted


def week_page(week: Mapping[str, Any]) -> Page:
    """Return what changed in a week: is it better, what changed, who needs somebody.

    Parameters
    ----------
    week : mapping
        What the coordinator's HTTP API tells of it, see docs/reference/http-api.md.
    """
    better = [f"{model['name']}: {model['headline']}" for model in week["models"]] or ["There is no model yet."]
    ended = ", ".join(f"{count} {outcome}" for outcome, count in week["runs"].items()) or "none"
    each = size(week["to_each"] + week["from_each"])
    facts = [
        ("runs", ended),
        ("bytes", f"{size(week['bytes'])} of answers; {each} for each vehicle, requests and answers"),
        *((f"run {run['run']}", f"failed: {run['reason']}") for run in week["failed"]),
        *(fact for model in week["models"] for fact in _rules(model)),
    ]
    tables = [
        SheetTable(
            f"Versions of {model['name']}",
            ["version", "what became of it", "why", "when"],
            [[str(turn["version"]), turn["what"], turn["why"], turn["when"][:16]] for turn in model["turns"]],
        )
        for model in week["models"]
        if model["turns"]
    ]
    needs = f"{week['up']} vehicles are up, {week['down']} down; {counted(week['needs'], 'vehicles')} to look at."
    left = week["needs"] - len(week["vehicles"])
    vehicles = [(vehicle["agent"], "; ".join(vehicle["causes"])) for vehicle in week["vehicles"]]
    sections = [
        Section("Is it better?", better),
        Section("What changed?", week["drift"], facts, tables),
        Section("Who needs me?", [needs], [*vehicles, *([("and", f"{left} more")] if left else [])]),
    ]
    return Page(f"Fleet {week['fleet']}: the week to {week['end'][:10]}", "", sections)


def _rules(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rules that came, went and changed."""
    change = model["change"] or {}
    words = {"new": "came", "gone": "went", "changed": "says something else now"}
    return [(f"{model['name']}, rule {word}", text) for kind, word in words.items() for text in change.get(kind, ())]
