"""``glassfleet coordinator``: the cloud service that opens and closes rounds."""

from __future__ import annotations

import click

from console.services.journal import journal
from console.settings import Given, settings_options
from coordinator.config import CoordinatorConfig


@click.group(invoke_without_command=True)
@settings_options(CoordinatorConfig)
@click.pass_context
def coordinator(context: click.Context, given: Given[CoordinatorConfig]) -> None:
    """Start the coordinator: it opens and closes rounds, keeps the journal, and publishes models.

    SIGTERM and Ctrl-C end it cleanly; killed and started again, it finishes its runs from the journal.

    \b
    Examples:
      glassfleet coordinator --broker mqtt://127.0.0.1
    """
    if context.invoked_subcommand is not None:
        return
    config = given.load()
    from coordinator.main import run_coordinator  # a wrong flag is told before all that is loaded

    run_coordinator(config)


coordinator.add_command(journal)
