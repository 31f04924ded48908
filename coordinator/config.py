"""The coordinator's configuration: one frozen, validated object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Le
from pydantic import Field, field_validator, model_validator

from broker.port import ConnectionSettings
from broker.url import is_loopback
from schemas.settings import Settings
from schemas.text import without_password
from schemas.topics import SHARDS


@dataclass(frozen=True)
class FleetLimits:
    """What a fleet may make the coordinator remember.

    Attributes
    ----------
    max_agents : int
        Most agents that are remembered; one more replaces the one that has been down for longest, or is refused.
        Why: a larger fleet.
    fleet_bytes : int
        Most bytes of memory for all agents with their columns and scores; then likewise. Why: the machine's memory.
    """

    max_agents: Annotated[int, Ge(1), Le(10_000_000)] = 100_000
    fleet_bytes: Annotated[int, Ge(1024 * 1024)] = 256 * 1024 * 1024


@dataclass(frozen=True)
class Http:
    """The HTTP API and the dashboard.

    Attributes
    ----------
    api : bool
        Serve the HTTP API and the dashboard. Why: nobody needs them.
    api_host : str
        Address to bind; anything but loopback needs `api_expose`. Why: a proxy on another machine.
    api_port : int
        0: any free port. The address is written to ``{state_dir}/api-url``. Why: a proxy needs a fixed one.
    api_expose : bool
        Allow an address that other machines can reach. Why: a firewall or proxy protects it.
    dashboard_sign_in : int
        Seconds until an operator must sign in again. Why: a security policy.
    """

    api: bool = True
    api_host: str = "127.0.0.1"
    api_port: Annotated[int, Ge(0), Le(65535)] = 0
    api_expose: bool = False
    dashboard_sign_in: Annotated[int, Ge(1), Le(30 * 24 * 3600)] = 8 * 3600


class CoordinatorConfig(Settings):
    """What a coordinator can be told beyond `Settings`.

    Attributes
    ----------
    broker : str
        ``mqtt[s]://[user[:password]@]host[:port]``; for a cluster, its nodes with commas between. Why: every fleet has
        its own.
    broker_wait : float
        Seconds to wait for the first connection before exit code 4; 0: wait for ever. Why: the broker may come later.
    connection : ConnectionSettings
        How it speaks with the broker.
    journal : str
        SQLAlchemy URL; empty: ``sqlite:///{state_dir}/journal.sqlite``. Why: PostgreSQL, to move between machines.
    journal_wait : float
        Seconds to wait for another process that holds the journal. Why: a backup that takes longer.
    standby : bool
        Wait while another coordinator has the journal, and take over when it ends. Why: a second coordinator.
    records_days : float
        Days for which the events of an ended run, with vehicles' sums, stay in the journal. Its model, scores and
        decisions stay for ever. Why: a small disk, or late audits.
    kept_runs : int
        Most ended runs that are kept; older ones are deleted, with their models except the newest `retained_versions`
        of each name. Why: a small disk, or many short runs.
    retained_versions : int
        Versions of each model that stay on retained topics. Why: a small broker, or vehicles that need old versions.
    queue_bytes : int
        Most bytes of waiting messages; the rest stays at the broker. Why: the machine's memory.
    take_over : bool
        Start although another coordinator of this fleet is up; that one stops (exit code 7). Why: it cannot be stopped
        by hand.
    intake_workers : int
        Processes that receive and verify answers; 1: the coordinator itself does. Why: answers need more than one core.
    fleet_limits : FleetLimits
        What the agents may make it remember.
    http : Http
        The API and the dashboard.
    notify : str
        Apprise addresses, with spaces between, for failed runs, rolled back versions and vehicles that need attention.
        Why: nobody watches the dashboard.
    """

    service: ClassVar = "coordinator"
    shared: ClassVar = None
    top: ClassVar = "strict"
    flags: ClassVar = (
        *("broker", "identity", "journal", "standby", "take_over", "fleet", "state_dir"),
        *("api_host", "api_port", "api_expose", "notify"),
        *("broker_wait", "ca_file", "insecure_plaintext", "log_level", "log_format"),
    )

    broker: str = "mqtt://127.0.0.1:1883"
    broker_wait: Annotated[float, Field(ge=0, le=7 * 24 * 3600)] = 10.0
    connection: ConnectionSettings = ConnectionSettings()
    journal: str = ""
    journal_wait: Annotated[float, Field(ge=0, le=300)] = 5.0
    standby: bool = False
    records_days: Annotated[float, Field(ge=0, le=36500)] = 7.0
    kept_runs: Annotated[int, Field(ge=1)] = 10_000
    retained_versions: Annotated[int, Field(ge=1, le=1000)] = 10
    queue_bytes: Annotated[int, Field(ge=1024 * 1024)] = 64 * 1024 * 1024
    take_over: bool = False
    intake_workers: Annotated[int, Field(ge=1, le=SHARDS)] = 1
    fleet_limits: FleetLimits = FleetLimits()
    http: Http = Http()
    notify: str = Field("", repr=False)

    @field_validator("broker")
    @classmethod
    def _broker_is_url(cls, broker: str) -> str:
        if not broker.startswith(("mqtt://", "mqtts://")):
            raise ValueError(
                f"{without_password(broker)!r} is not a broker address: use mqtt://host:port or mqtts://host:port"
            )
        return broker

    @model_validator(mode="after")
    def _api_is_private(self) -> CoordinatorConfig:
        if self.http.api and not self.http.api_expose and not is_loopback(self.http.api_host):
            raise ValueError(
                f"api_host {self.http.api_host} can be reached from other machines, and the API shows every run to "
                "whoever asks: use 127.0.0.1, or set api_expose if a firewall or proxy guards it"
            )
        return self

    @property
    def journal_url(self) -> str:
        """The journal's URL, with the default filled in."""
        return self.journal or f"sqlite:///{self.state_dir / 'journal.sqlite'}"
