"""Groups of the coordinator's settings; apart, since fleet and HTTP need no more of its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le


@dataclass(frozen=True)
class FleetLimits:
    """What a fleet may make the coordinator remember.

    Attributes
    ----------
    max_agents : int
        Most agents that are remembered; a newcomer beyond it takes the place of the one that has been down for longest,
        or is not taken in. Why: a fleet of more vehicles, or a bound for one of few.
    fleet_bytes : int
        Most bytes of memory for all agents together, with their columns and scores, likewise: as Python's objects take
        it, not as they travel. Why: the memory of the machine.
    """

    max_agents: Annotated[int, Ge(1), Le(10_000_000)] = 100_000
    fleet_bytes: Annotated[int, Ge(1024 * 1024)] = 256 * 1024 * 1024


@dataclass(frozen=True)
class Http:
    """The HTTP API and the dashboard.

    Attributes
    ----------
    api : bool
        Whether to serve the HTTP API and the dashboard. Why: nobody asks this coordinator over HTTP.
    api_host : str
        Address to bind; anything but loopback needs `api_expose`. Why: a proxy on another machine.
    api_port : int
        0: any free port. The address is written to ``{state_dir}/api-url``. Why: others must know it beforehand.
    api_expose : bool
        Allow an address that other machines can reach. Why: a firewall or proxy guards it.
    dashboard_sign_in : int
        Seconds until an operator must sign in again. Why: rules about how long anybody stays signed in.
    """

    api: bool = True
    api_host: str = "127.0.0.1"
    api_port: Annotated[int, Ge(0), Le(65535)] = 0
    api_expose: bool = False
    dashboard_sign_in: Annotated[int, Ge(1), Le(30 * 24 * 3600)] = 8 * 3600
