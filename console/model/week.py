"""``glassfleet model week``: what changed in the fleet this week, asked of the coordinator over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from console.common import print_json, result_options, tell
from console.model.export import write
from console.run.connection import coordinator_options

if TYPE_CHECKING:
    from console.client import CoordinatorClient


@click.command()
@coordinator_options
@click.option(
    "--out", "-o", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write one sheet there: HTML, or Markdown if its name ends so (.md). Default: Markdown on stdout.",
)  # fmt: skip
@result_options
def week(api: CoordinatorClient, out: Path | None, *, as_json: bool) -> None:
    """Say what changed in the last seven days: is it better, what changed, who needs me.

    \b
    Examples:
      glassfleet model week
      glassfleet model week --out week.html
    """
    from glassfleet.export.sheet import html_of, markdown_of
    from glassfleet.export.week_page import week_page

    known = api.get("/api/week")
    if out is None:
        if as_json:
            print_json(known)
        else:
            click.echo(markdown_of(week_page(known)), nl=False)
        return
    text = (markdown_of if out.suffix == ".md" else html_of)(week_page(known)).encode("utf-8")
    write(out, text)
    tell(f"{out}: the week to {known['end'][:10]}", as_json=as_json, file=str(out), bytes=len(text))
