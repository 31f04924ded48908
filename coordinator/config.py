"""The coordinator's configuration: one frozen, validated object.

Precedence: flags, then environment (``GLASSFLEET_COORDINATOR_`` or ``GLASSFLEET_`` and the setting's name in capitals),
then the TOML file, then the defaults here.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.sources import InitSettingsSource

from coordinator.limits import DashboardLimits, RefusalLimits
from schemas import limits
from schemas.errors import UsageError
from schemas.topics import DEFAULT_FLEET, check_id


def _state_home() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "glassfleet"


class CoordinatorConfig(BaseSettings):
    """Everything that can be set.

    Attributes
    ----------
    broker : str
        ``mqtt://[user[:password]@]host[:port]`` or ``mqtts://...``.
    identity : Path or None
        Folder with ``key.pem``, ``cert.pem`` and ``ca.pem`` for ``mqtts``, made by ``glassfleet ca issue``.
    ca_file : Path or None
        Certificate authority for ``mqtts``, in place of the identity's.
    insecure_plaintext : bool
        Allow ``mqtt`` to another machine, where everybody on the way can read and change what is said.
    protocol : str
        ``auto`` (MQTT 5, then 3.1.1), ``5`` or ``3.1.1``.
    keepalive : int
        Seconds between signs of life to the broker.
    session_expiry : int
        Seconds for which the broker keeps subscriptions and messages while the coordinator is away.
    connect_timeout : float
        Seconds that a connection attempt may take.
    reconnect_first : float
        Seconds before the first reconnect; each wait is twice the one before, and drawn between half of it and all.
    reconnect_longest : float
        Longest wait between two reconnects, seconds.
    broker_wait : float
        Seconds to wait for the first connection before giving up with exit code 4; 0: wait for ever.
    fleet : str
        Fleet id: all topics start with ``gf/1/{fleet}/``.
    state_dir : Path
        Where journal, ``api-token`` and ``api-url`` are. Default: ``$XDG_STATE_HOME/glassfleet``, or
        ``~/.local/state/glassfleet``.
    journal : str
        SQLAlchemy URL; empty: ``sqlite:///{state_dir}/journal.sqlite``.
    keep_records : bool
        Keep the events of ended runs in the journal; False bounds its size.
    kept_runs : int
        So many ended runs are remembered; older ones are forgotten, with their models but for the newest
        `retained_versions` of each name.
    api : bool
        Whether to serve the HTTP API.
    api_host : str
        Address to bind; anything but loopback needs `api_expose`.
    api_port : int
        0: any free port. The address is written to ``{state_dir}/api-url``.
    api_expose : bool
        Allow an address that other machines can reach.
    log_level : str
        ``debug``, ``info``, ``warning`` or ``error``.
    log_format : str
        ``console`` or ``json``.
    traces : str
        OpenTelemetry spans of runs and rounds: ``off``, or the name of an installed exporter (``console``, ``otlp``).
    max_message_bytes : int
        Larger messages travel in parts.
    retained_versions : int
        So many versions of each model stay on retained topics.
    queue_messages : int
        Most messages from the broker that wait to be handled; more are dropped, counted, and sent again by the agents.
    queue_bytes : int
        The same in bytes.
    batch_messages : int
        Most messages that share one journal transaction.
    take_over : bool
        Start although another coordinator of this fleet is up and answers; that one then stops (exit code 7).
    rival_wait : float
        Seconds at the start for another coordinator to answer, when the broker says that one is up.
    rival_settle : float
        Seconds at the start for which the broker may still say so, when it has said nothing.
    rival_sightings : int
        So often another coordinator must be seen to have taken over before this one stops.
    rival_apart : float
        Seconds between two such sightings at least; what comes closer together is one.
    rival_quiet : float
        Seconds after which another one that was not seen again is forgotten.
    birth_pause : float
        Seconds between two birth certificates that are published again, at least.
    newcomer_pause : float
        Seconds between two repetitions of open requests and model pointers for agents that came up, with brokers that
        keep what is retained from subscriptions with wildcards (RabbitMQ).
    max_agents : int
        Agents that are remembered; a newcomer beyond it takes the place of the one that has been down for longest, or
        is not taken in.
    fleet_bytes : int
        Most bytes of memory that all of them take together, with their columns and scores, likewise.
    births_burst : int
        Changes (up, down, another incarnation or offer) of one agent that are taken as they come, ...
    births_per_minute : float
        ... and so many a minute after that; of what comes faster, the latest is taken when its time has come.
    longest_up : float
        Seconds that an agent may say it has been up when the coordinator meets it; more is taken for a clock that was
        not set when it began.
    kept_evaluations : int
        Scores that are remembered of each agent.
    parts_bytes : int
        Most bytes of answers in parts that are not whole yet, of all agents together.
    parts_per_agent : int
        Most such answers of one agent.
    max_inflight : int
        Published messages that may wait for the broker's acknowledgement at once; less when the broker says so.
    oversize_tries : int
        So many connections in a row must end over one message, larger than any that the broker ever took, before it
        is given up as too large and the limit halved (MQTT 3.1.1 tells no limit).
    close_wait : float
        Seconds that a clean disconnect may take.
    stop_wait : float
        Seconds that the goodbye may wait for the broker's acknowledgement when the process ends.
    call_wait : float
        Seconds that a request to the HTTP API may wait for the coordinator's thread.
    broker_missed : float
        Seconds without a broker, at the start, after which such a request is refused instead of kept waiting.
    journal_wait : float
        Seconds to wait for another process that holds the SQLite journal's file (a backup, say).
    verdict_tries : int
        Tries to read what the broker said of our certificate before it closed the connection.
    kept_certificates : int
        Agents' certificates that are remembered as verified; others are verified again with each message.
    identity_look : float
        Seconds between two looks whether the files of `identity` changed, at least.
    clock_leeway : float
        Seconds by which a certificate may seem too young: clocks differ.
    refused_told_every : float
        Seconds between two log lines about refused messages of one kind, at least; all are counted.
    bad_seals_burst : float
        Messages with bad seals of one agent that are verified as they come, ...
    bad_seals_per_second : float
        ... and so many a second after that; others of this agent are refused unread.
    bad_seals_agents : int
        Agents whose bad seals are counted at once.
    rollout_settle : float
        Seconds after a connection before a rollout asks who is up: births come one by one.
    refused_runs : int
        Runs whose refused answers are told apart for operators; the first gives way.
    refused_reasons : int
        Reasons that are told apart for each of them.
    refused_agents : int
        Agents that are named with each reason.
    api_stop_wait : int
        Seconds that open requests have to end when the coordinator does.
    dashboard_watchers : int
        Live pages at once, over all browsers; others are told to come again.
    dashboard_heartbeat : float
        Seconds after which a silent live page gets a sign of life, so that proxies keep it and dead ones are noticed.
    dashboard_reconnect : float
        Seconds that a browser waits before it connects a live page again.
    dashboard_fleet_period : float
        Seconds between two looks at what the live page of the fleet shows.
    dashboard_run_period : float
        The same for the page of a run.
    dashboard_sign_in : int
        Seconds until an operator must sign in again.
    dashboard_operators : int
        Operators who are signed in at once; the first gives way.
    dashboard_form_bytes : int
        Longest form that is read.
    dashboard_row_chars : int
        Longest row that is pasted into the page of forecasts; the rest is not read.
    dashboard_models : int
        Models that are kept decoded for the dashboard; the one used least recently gives way.
    explain_at_once : int
        Explanations that are computed at a time; the others wait, for the coordinator needs the processor too.
    explain_wait : float
        Seconds that an explanation may wait for its turn, before it is told to come again.
    summary_rules : int
        Most rules that a summary of a model lists.
    """

    model_config = SettingsConfigDict(env_prefix="GLASSFLEET_", frozen=True, extra="forbid")

    broker: str = "mqtt://127.0.0.1:1883"
    identity: Path | None = None
    ca_file: Path | None = None
    insecure_plaintext: bool = False
    protocol: Literal["auto", "5", "3.1.1"] = "auto"
    keepalive: Annotated[int, Field(ge=2, le=3600)] = 30
    session_expiry: Annotated[int, Field(ge=0, le=7 * 24 * 3600)] = 3600
    connect_timeout: Annotated[float, Field(gt=0, le=300)] = 5.0
    reconnect_first: Annotated[float, Field(gt=0, le=3600)] = 0.25
    reconnect_longest: Annotated[float, Field(gt=0, le=24 * 3600)] = 10.0
    broker_wait: Annotated[float, Field(ge=0, le=7 * 24 * 3600)] = 10.0
    fleet: str = DEFAULT_FLEET
    state_dir: Path = Field(default_factory=_state_home)
    journal: str = ""
    keep_records: bool = True
    kept_runs: Annotated[int, Field(ge=1)] = 10_000
    api: bool = True
    api_host: str = "127.0.0.1"
    api_port: Annotated[int, Field(ge=0, le=65535)] = 0
    api_expose: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"
    traces: str = "off"
    max_message_bytes: Annotated[int, Field(ge=limits.MIN_MESSAGE_BYTES, le=256 * 1024 * 1024)] = (
        limits.MAX_MESSAGE_BYTES
    )
    retained_versions: Annotated[int, Field(ge=1, le=1000)] = 10
    queue_messages: Annotated[int, Field(ge=100, le=10_000_000)] = 100_000
    queue_bytes: Annotated[int, Field(ge=1024 * 1024)] = 512 * 1024 * 1024
    batch_messages: Annotated[int, Field(ge=1, le=100_000)] = 500
    take_over: bool = False
    rival_wait: Annotated[float, Field(gt=0, le=300)] = 2.0
    rival_settle: Annotated[float, Field(ge=0, le=60)] = 0.2
    rival_sightings: Annotated[int, Field(ge=1, le=1000)] = 2
    rival_apart: Annotated[float, Field(gt=0, le=60)] = 0.2
    rival_quiet: Annotated[float, Field(gt=0, le=3600)] = 30.0
    birth_pause: Annotated[float, Field(gt=0, le=60)] = 0.25
    newcomer_pause: Annotated[float, Field(gt=0, le=3600)] = 1.0
    max_agents: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    fleet_bytes: Annotated[int, Field(ge=1024 * 1024)] = 256 * 1024 * 1024
    births_burst: Annotated[int, Field(ge=2, le=100_000)] = 60
    births_per_minute: Annotated[float, Field(gt=0, le=60_000)] = 30.0
    longest_up: Annotated[float, Field(gt=0, le=100 * 365 * 86400)] = 365 * 86400.0
    kept_evaluations: Annotated[int, Field(ge=1, le=100_000)] = 64
    parts_bytes: Annotated[int, Field(ge=limits.MAX_DECODED_BYTES)] = 4 * limits.MAX_DECODED_BYTES
    parts_per_agent: Annotated[int, Field(ge=1, le=1000)] = 2
    max_inflight: Annotated[int, Field(ge=1, le=65535)] = 100
    oversize_tries: Annotated[int, Field(ge=2, le=1000)] = 3
    close_wait: Annotated[float, Field(gt=0, le=300)] = 1.0
    stop_wait: Annotated[float, Field(ge=0, le=300)] = 2.0
    call_wait: Annotated[float, Field(gt=0, le=3600)] = 30.0
    broker_missed: Annotated[float, Field(ge=0, le=3600)] = 1.0
    journal_wait: Annotated[float, Field(ge=0, le=300)] = 5.0
    verdict_tries: Annotated[int, Field(ge=1, le=1000)] = 5
    kept_certificates: Annotated[int, Field(ge=1, le=10_000_000)] = 4096
    identity_look: Annotated[float, Field(ge=0, le=24 * 3600)] = 2.0
    clock_leeway: Annotated[float, Field(ge=0, le=24 * 3600)] = 300.0
    refused_told_every: Annotated[float, Field(ge=0, le=24 * 3600)] = 10.0
    bad_seals_burst: Annotated[float, Field(ge=1, le=1e9)] = 1000.0
    bad_seals_per_second: Annotated[float, Field(gt=0, le=1e9)] = 200.0
    bad_seals_agents: Annotated[int, Field(ge=1, le=10_000_000)] = 4096
    rollout_settle: Annotated[float, Field(ge=0, le=3600)] = 2.0
    refused_runs: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    refused_reasons: Annotated[int, Field(ge=1, le=100_000)] = 40
    refused_agents: Annotated[int, Field(ge=1, le=100_000)] = 50
    api_stop_wait: Annotated[int, Field(ge=1, le=300)] = 1
    dashboard_watchers: Annotated[int, Field(ge=1, le=100_000)] = 64
    dashboard_heartbeat: Annotated[float, Field(gt=0, le=3600)] = 15.0
    dashboard_reconnect: Annotated[float, Field(gt=0, le=3600)] = 2.0
    dashboard_fleet_period: Annotated[float, Field(gt=0, le=3600)] = 1.0
    dashboard_run_period: Annotated[float, Field(gt=0, le=3600)] = 0.25
    dashboard_sign_in: Annotated[int, Field(ge=1, le=30 * 24 * 3600)] = 8 * 3600
    dashboard_operators: Annotated[int, Field(ge=1, le=100_000)] = 100
    dashboard_form_bytes: Annotated[int, Field(ge=4096, le=16 * 1024 * 1024)] = 64 * 1024
    dashboard_row_chars: Annotated[int, Field(ge=100, le=10_000_000)] = 20_000
    dashboard_models: Annotated[int, Field(ge=1, le=100_000)] = 16
    explain_at_once: Annotated[int, Field(ge=1, le=16)] = 2
    explain_wait: Annotated[float, Field(ge=0, le=3600)] = 20.0
    summary_rules: Annotated[int, Field(ge=0, le=10_000_000)] = 10_000

    @field_validator("fleet")
    @classmethod
    def _fleet_is_id(cls, fleet: str) -> str:
        try:
            return check_id("fleet", fleet)
        except UsageError as fault:
            raise ValueError(str(fault)) from fault

    @field_validator("broker")
    @classmethod
    def _broker_is_url(cls, broker: str) -> str:
        if not broker.startswith(("mqtt://", "mqtts://")):
            raise ValueError(f"{broker!r} is not a broker address: use mqtt://host:port or mqtts://host:port")
        return broker

    @model_validator(mode="after")
    def _api_is_private(self) -> CoordinatorConfig:
        if self.api and not self.api_expose and not _is_loopback(self.api_host):
            raise ValueError(
                f"api_host {self.api_host} can be reached from other machines, and the API shows every run to whoever "
                "asks: use 127.0.0.1, or set api_expose if a firewall or proxy guards it"
            )
        return self

    @model_validator(mode="after")
    def _rivals_are_told_apart(self) -> CoordinatorConfig:
        if self.rival_quiet <= self.rival_apart:
            raise ValueError(f"rival_quiet {self.rival_quiet} is not above rival_apart {self.rival_apart}")
        return self

    @property
    def journal_url(self) -> str:
        """The journal's URL, with the default filled in."""
        return self.journal or f"sqlite:///{self.state_dir / 'journal.sqlite'}"

    @property
    def refusal_limits(self) -> RefusalLimits:
        """How much of refused answers is remembered."""
        return RefusalLimits(self.refused_runs, self.refused_reasons, self.refused_agents)

    @property
    def dashboard_limits(self) -> DashboardLimits:
        """What the dashboard may cost."""
        return DashboardLimits(
            watchers=self.dashboard_watchers,
            heartbeat=self.dashboard_heartbeat,
            reconnect=self.dashboard_reconnect,
            fleet_period=self.dashboard_fleet_period,
            run_period=self.dashboard_run_period,
            sign_in=self.dashboard_sign_in,
            operators=self.dashboard_operators,
            form_bytes=self.dashboard_form_bytes,
            row_chars=self.dashboard_row_chars,
            models=self.dashboard_models,
            explain_at_once=self.explain_at_once,
            explain_wait=self.explain_wait,
            summary_rules=self.summary_rules,
        )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Look in the flags, ``GLASSFLEET_COORDINATOR_*``, ``GLASSFLEET_*`` and the file's settings, in this order."""
        del dotenv_settings, file_secret_settings
        own = EnvSettingsSource(settings_cls, env_prefix="GLASSFLEET_COORDINATOR_")
        return init_settings, own, env_settings, InitSettingsSource(settings_cls, init_kwargs=_FILE.get())


_FILE: ContextVar[dict[str, Any]] = ContextVar("file settings", default={})  # noqa: B039  never changed, only replaced


def load_config(file: Path | str | None = None, **flags: Any) -> CoordinatorConfig:
    """Return the configuration from flags, environment, `file` and defaults, the former stronger than the latter.

    Parameters
    ----------
    file : Path or None
        TOML; its keys are the settings' names, at the top level or in a table ``[coordinator]``.
    flags
        Settings by name; None means not given.

    Raises
    ------
    UsageError
        A setting is unknown or out of range, or the file cannot be read; the text names it.
    """
    token = _FILE.set({} if file is None else _read(Path(file)))
    try:
        return CoordinatorConfig(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as fault:
        error = fault.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in error["loc"])
        text = error["msg"].removeprefix("Value error, ")
        raise UsageError(f"configuration: {where}: {text}" if where else f"configuration: {text}") from fault
    finally:
        _FILE.reset(token)


def _read(file: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as fault:
        raise UsageError(f"cannot read {file}: {fault.strerror}") from fault
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise UsageError(f"{file} is not valid TOML: {fault}") from fault
    own = content.get("coordinator", {})
    if not isinstance(own, dict):
        raise UsageError(f"{file}: [coordinator] must be a table")
    settings = {**{name: value for name, value in content.items() if not isinstance(value, dict)}, **own}
    unknown = sorted(set(settings) - set(CoordinatorConfig.model_fields))
    if unknown:
        known = ", ".join(CoordinatorConfig.model_fields)
        raise UsageError(f"{file}: there is no setting {unknown[0]!r}; the settings are: {known}")
    return settings


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
