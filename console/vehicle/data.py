"""``glassfleet data``: make a table of a vehicle's files, and keep a window over a live stream."""

from __future__ import annotations

import click

from console.vehicle.collect import collect
from console.vehicle.importing import import_


class _Data(click.Group):
    """The group, whose help lists the kinds of sources."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from edge_agent.sources.readers import READERS  # numpy comes with it

        super().format_help_text(ctx, formatter)
        with formatter.section("SOURCE"):
            names = (", ".join((*each.endings, *(f"{scheme}://" for scheme in each.schemes))) for each in READERS)
            formatter.write_dl([(name, each.help) for name, each in zip(names, READERS, strict=True)])


@click.group(cls=_Data)
def data() -> None:
    """Make a table of a vehicle's files, and collect a live stream into a window that an agent can learn from.

    \b
    Examples:
      glassfleet data import export.csv --out drive.parquet
      glassfleet data collect --source mqtt://127.0.0.1/vehicle/samples --store drive.window
    """


data.add_command(collect)
data.add_command(import_)
