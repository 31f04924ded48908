"""``glassfleet coordinator``: the cloud service that opens and closes rounds."""

from __future__ import annotations

import click

from console.sections import Sectioned, sections_of
from console.settings import Given, settings_options
from coordinator.config import CoordinatorConfig


@click.command(cls=Sectioned, sections=sections_of(CoordinatorConfig))
@settings_options(CoordinatorConfig)
def coordinator(given: Given[CoordinatorConfig]) -> None:
    """Start the coordinator: it opens and closes rounds, keeps the journal, and publishes models.

    SIGTERM and Ctrl-C end it cleanly; killed and started again, it finishes its runs from the journal.

    \b
    Examples:
      glassfleet coordinator --broker mqtt://127.0.0.1
    """
    config = given.load()
    from coordinator.main import run_coordinator  # a wrong flag is told before all that is loaded

    run_coordinator(config)
