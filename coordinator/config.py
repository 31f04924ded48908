"""The coordinator's configuration: one frozen, validated object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Le
from pydantic import Field, field_validator, model_validator

from broker.port import RETIRED, ConnectionSettings
from broker.url import is_loopback
from schemas.settings import Settings
from schemas.text import without_password


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


class CoordinatorConfig(Settings):
    """What a coordinator can be told beyond `Settings`.

    Attributes
    ----------
    broker : str
        ``mqtt://[user[:password]@]host[:port]`` or ``mqtts://...``; of a cluster one for each node, with commas
        between. Why: every fleet has its own.
    broker_wait : float
        Seconds to wait for the first connection before giving up with exit code 4; 0: wait for ever. Why: a service
        that starts with its broker waits for ever.
    connection : ConnectionSettings
        How it speaks with the broker.
    journal : str
        SQLAlchemy URL; empty: ``sqlite:///{state_dir}/journal.sqlite``. Why: PostgreSQL, for a coordinator that may
        move between machines.
    journal_wait : float
        Seconds to wait for another process that holds the journal. Why: a backup that takes longer.
    standby : bool
        While another coordinator has the journal, wait, and lead when that one ends, however it ends. Why: a second
        coordinator that takes over by itself.
    records_days : float
        So many days the events of a run stay in the journal when it has ended: vehicles' sums, for audits. Its model,
        document, scores and decisions stay. Why: a small disk, or audits that come late.
    kept_runs : int
        So many ended runs are remembered; older ones are forgotten, with their models but for the newest
        `retained_versions` of each name. Why: a small disk, or many short runs.
    retained_versions : int
        So many versions of each model stay on retained topics. Why: a broker with little room, or vehicles that need
        old versions.
    queue_bytes : int
        Most bytes of messages that wait to be handled; while there are as many nothing more is read, and the broker
        keeps what comes. Why: the memory of the machine.
    take_over : bool
        Start although another coordinator of this fleet is up and answers; that one then stops (exit code 7). Why: a
        coordinator that cannot be stopped by hand.
    fleet_limits : FleetLimits
        What the agents may make it remember.
    http : Http
        The API and the dashboard.
    notify : str
        Where to tell of runs that failed, versions that were rolled back and vehicles that need somebody: addresses as
        Apprise has them, with spaces between. Why: nobody looks at the dashboard all day.
    traces : str
        OpenTelemetry spans of runs and rounds: ``off``, or the name of an installed exporter (``console``, ``otlp``).
        Why: to see where a round spends its time.
    """

    service: ClassVar = "coordinator"
    shared: ClassVar = None
    top: ClassVar = "strict"
    first: ClassVar = (
        *("broker", "identity", "journal", "standby"),
        *("fleet", "state_dir", "api_host", "api_port", "api_expose"),
    )
    retired: ClassVar = {
        **RETIRED,
        "bad_seals_burst": "broker.signed.BAD_BURST",
        "bad_seals_per_second": "broker.signed.BAD_PER_SECOND",
        "bad_seals_agents": "broker.signed.BAD_AGENTS",
        "queue_messages": "coordinator.process.service.QUEUE_MESSAGES",
        "batch_messages": "coordinator.process.service.BATCH_MESSAGES",
        "stop_wait": "coordinator.process.service.STOP_WAIT",
        "call_wait": "coordinator.process.service.CALL_WAIT",
        "broker_missed": "coordinator.process.service.BROKER_MISSED",
        "rival_wait": "coordinator.process.service.LEADER_WAIT",
        "rival_settle": "coordinator.process.service.LEADER_SETTLE",
        "rival_sightings": "coordinator.fleet.leadership.SIGHTINGS",
        "rival_apart": "coordinator.fleet.leadership.APART",
        "rival_quiet": "coordinator.fleet.leadership.QUIET",
        "birth_pause": "coordinator.fleet.leadership.PAUSE",
        "newcomer_pause": "coordinator.fleet.rebroadcast.PAUSE",
        "births_burst": "coordinator.fleet.directory.BIRTHS_BURST",
        "births_per_minute": "coordinator.fleet.directory.BIRTHS_PER_MINUTE",
        "longest_up": "coordinator.fleet.directory.LONGEST_UP",
        "kept_evaluations": "coordinator.fleet.directory.KEPT_EVALUATIONS",
        "parts_bytes": "coordinator.messages.PARTS_BYTES",
        "parts_per_agent": "coordinator.messages.PARTS_PER_AGENT",
        "rollout_settle": "coordinator.models.rollout.shell.SETTLE",
        "refused_runs": "coordinator.telemetry.refusals.RUNS",
        "refused_reasons": "coordinator.telemetry.refusals.REASONS",
        "refused_agents": "coordinator.telemetry.refusals.AGENTS",
        "api_stop_wait": "coordinator.http.api.STOP_WAIT",
        "dashboard_watchers": "coordinator.http.dashboard.live.WATCHERS",
        "dashboard_heartbeat": "coordinator.http.dashboard.live.HEARTBEAT",
        "dashboard_reconnect": "coordinator.http.dashboard.live.RECONNECT",
        "dashboard_fleet_period": "coordinator.http.dashboard.live.FLEET_PERIOD",
        "dashboard_run_period": "coordinator.http.dashboard.live.RUN_PERIOD",
        "dashboard_operators": "coordinator.http.dashboard.security.OPERATORS",
        "dashboard_form_bytes": "coordinator.http.access.FORM_BYTES",
        "dashboard_row_chars": "coordinator.http.dashboard.model_pages.ROW_CHARS",
        "dashboard_models": "coordinator.http.dashboard.library.MODELS",
        "explain_at_once": "coordinator.http.access.EXPLAIN_AT_ONCE",
        "explain_wait": "coordinator.http.access.EXPLAIN_WAIT",
        "summary_rules": "coordinator.http.dashboard.explain_api.SUMMARY_RULES",
    }

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
    fleet_limits: FleetLimits = FleetLimits()
    http: Http = Http()
    notify: str = Field("", repr=False)
    traces: str = "off"

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
