"""``glassfleet agent``: the process on a vehicle. Imports the core packages only (promise 6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from console.settings import fill_in, settings_options
from edge_agent.config import AgentConfig, load_config


@click.command()
@settings_options(AgentConfig)
def agent(config_file: Path | None, **flags: Any) -> None:
    """Start the agent of one vehicle: it answers rounds, and its rows never leave it.

    SIGTERM and Ctrl-C end it cleanly; killed and started again, it goes on where it was.

    Example: glassfleet agent --id vehicle-07 --broker mqtt://127.0.0.1 --data vehicle-07.csv.gz
    """
    fill_in(flags, config_file, "agent")
    config = load_config(config_file, **flags)
    from edge_agent.runner import run_agent  # noqa: PLC0415 - a wrong flag is told without loading numpy first

    run_agent(config)
