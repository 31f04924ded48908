"""``glassfleet coordinator``: the cloud service that opens and closes rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from console.broker_discovery import awaited_broker
from console.sections import Sectioned, sections_of
from console.settings import fill_in, settings_options
from coordinator.config import CoordinatorConfig, load_config


@click.command(cls=Sectioned, sections=sections_of(CoordinatorConfig))
@settings_options(CoordinatorConfig)
def coordinator(config_file: Path | None, **flags: Any) -> None:
    """Start the coordinator: it opens and closes rounds, keeps the journal, and publishes models.

    SIGTERM and Ctrl-C end it cleanly; killed and started again, it finishes its runs from the journal.

    \b
    Examples:
      glassfleet coordinator --broker mqtt://127.0.0.1
    """
    is_named = fill_in(flags, config_file, "coordinator")
    config = load_config(config_file, **flags)
    if not is_named:
        config = config.model_copy(update={"broker": awaited_broker(config.state_dir, config.broker_wait)})
    from coordinator.main import run_coordinator  # a wrong flag is told before all that is loaded

    run_coordinator(config)
