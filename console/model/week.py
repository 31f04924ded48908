"""``glassfleet model week``: what changed in the fleet this week, asked of the coordinator over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.common import json_option, print_json, tell
from console.model.export import write
from console.run.connection import coordinator_options
from console.tables import printable
from schemas.text import counted

if TYPE_CHECKING:
    from console.client import CoordinatorClient


@click.command()
@coordinator_options
@click.option(
    "--out", "-o", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write the page of the week there, as one HTML file. Default: text on stdout.",
)  # fmt: skip
@json_option
def week(api: CoordinatorClient, out: Path | None, *, as_json: bool) -> None:
    """Say what changed in the last seven days: is it better, what changed, who needs me.

    \b
    Examples:
      glassfleet model week
      glassfleet model week --out week.html
    """
    if out is not None:
        data = api.page("/week/report")
        write(out, data)
        tell(f"{out}: the last week", as_json=as_json, file=str(out), bytes=len(data))
        return
    known = api.get("/api/week")
    if as_json:
        print_json(known)
    else:
        click.echo("\n".join(map(printable, _lines(known))))


def _lines(week: Mapping[str, Any]) -> Iterator[str]:
    from glassfleet.explain.text import size  # numpy comes with it

    yield f"Fleet {week['fleet']}: the week to {week['end'][:10]}"
    yield "Is it better?"
    yield from (f"  {model['name']}: {model['headline']}" for model in week["models"])
    yield from () if week["models"] else ("  There is no model yet.",)
    yield "What changed?"
    yield f"  runs: {', '.join(f'{count} {outcome}' for outcome, count in week['runs'].items()) or 'none'}"
    each = size(week["to_each"] + week["from_each"])
    yield f"  bytes: {size(week['bytes'])} of answers; {each} for each vehicle, requests and answers"
    yield from (f"  run {run['run']} failed: {run['reason']}" for run in week["failed"])
    yield from (f"  {sentence}" for sentence in week["drift"])
    for model in week["models"]:
        for turn in model["turns"]:
            why = f": {turn['why']}" if turn["why"] else ""
            yield f"  {turn['when'][:16]}  {model['name']} version {turn['version']} {turn['what']}{why}"
        change = model["change"] or {}
        if change:
            name = model["name"]
            yield f"  {name}: glassfleet model diff {name}@{model['before']} {name}@{model['now']}"
        for kind, word in (("new", "came"), ("gone", "went"), ("changed", "says something else now")):
            yield from (f"  {model['name']}, rule {word}: {text}" for text in change.get(kind, ()))
    yield "Who needs me?"
    needs = counted(week["needs"], "vehicles") if week["needs"] else "none is known"
    yield f"  {week['up']} vehicles are up, {week['down']} down; {needs} to look at."
    yield from (f"  {vehicle['agent']}: {'; '.join(vehicle['causes'])}" for vehicle in week["vehicles"])
    left = week["needs"] - len(week["vehicles"])
    yield from (f"  and {left} more",) if left else ()
