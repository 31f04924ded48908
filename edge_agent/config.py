"""The agent's configuration: one frozen object, from flags, environment, a TOML file and defaults, in this order.

Environment variables are ``GLASSFLEET_AGENT_`` and the setting's name: ``GLASSFLEET_AGENT_ID``,
``GLASSFLEET_AGENT_DATA``. Those that every process of a fleet has (`SHARED`) are read without ``AGENT_`` too:
``GLASSFLEET_BROKER``. The few lines that read them replace pydantic-settings here, which costs a vehicle 14 MB and 80
ms at every start (measured).
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from edge_agent.compute.budget import Budget
from edge_agent.messages.duplicate_id import Duel
from edge_agent.models.fetch import Patience
from edge_agent.session.outbox import DEFAULT_MAX_BYTES
from edge_agent.session.session import Memory, Timing
from schemas import limits
from schemas.errors import UsageError
from schemas.topics import DEFAULT_FLEET

Id = Annotated[str, Field(pattern=f"^{limits.ID_PATTERN}$")]


SHARED = frozenset(
    {
        "broker",
        "identity",
        "ca_file",
        "insecure_plaintext",
        "fleet",
        "state_dir",
        "log_level",
        "log_format",
        "max_message_bytes",
        "keepalive",
        "session_expiry",
        "connect_timeout",
        "reconnect_first",
        "reconnect_longest",
        "broker_wait",
        "protocol",
        "max_inflight",
        "oversize_tries",
        "verdict_tries",
        "kept_certificates",
        "identity_look",
        "clock_leeway",
        "refused_told_every",
        "close_wait",
        "stop_wait",
    }
)
"""Settings that also listen to ``GLASSFLEET_{NAME}``, because all processes of a fleet have them."""


def _state_home() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "glassfleet"


class AgentConfig(BaseModel):
    """Everything that one agent process can be told.

    Use `load_config` to read environment and file too, and to get errors in words.

    Attributes
    ----------
    id : str
        The agent's id in its fleet.
    fleet : str
        Fleet id: the prefix of all topics.
    broker : str
        ``mqtt://[user[:password]@]host[:port]`` or ``mqtts://...``.
    identity : Path or None
        Folder with ``key.pem``, ``cert.pem`` and ``ca.pem`` for ``mqtts``, made by ``glassfleet agent enrol``.
    ca_file : Path or None
        Certificate authority for ``mqtts``, in place of the identity's.
    insecure_plaintext : bool
        Allow ``mqtt`` to another machine, where everybody on the way can read and change what is said.
    data : Path or str
        The vehicle's rows: ``.csv``, ``.csv.gz``, ``.parquet``, a ``.window`` of a live stream, or a query:
        ``sqlite:///FILE?query=SELECT ...``, ``postgresql://USER@HOST/DATABASE?query=SELECT ...``.
    target : str or None
        Target column; None: the last one.
    labels : bool
        The target is a class label (text), not a number.
    categories : bool
        Columns of text are inputs too, for the schemes that take categories; otherwise text is a fault.
    state_dir : Path
        Where state is kept; the agent's own part is ``agents/{fleet}/{id}`` in it (`directory`), so that agents can
        share the setting. Default: ``$XDG_STATE_HOME/glassfleet``, or ``~/.local/state/glassfleet``.
    schemes : tuple of str or None
        Allow-list; None: every scheme that is installed.
    slow : float
        Seconds that each answer is on its way, as over a slow link, for demonstrations, 0 to 3600.
    evaluate : bool
        Score new models on the local test rows and publish the scores.
    log_level : str
        ``debug``, ``info``, ``warning`` or ``error``.
    log_format : str
        ``console`` or ``json``.
    max_message_bytes : int
        Larger messages travel in parts; 4 KiB to 64 MiB.
    outbox_max_bytes : int
        Most bytes of unacknowledged answers on disk.
    answer_seconds : float
        Longest that one answer, or the scores of one model, may take to compute; what would take longer is refused.
    answer_megabytes : int
        Most memory for one answer, or the scores of one model, that take longer than a moment, libraries included;
        what needs more is refused.
    queue_size : int
        Most messages from the broker that wait to be handled; more are dropped, counted, and asked for again.
    resend_first : float
        Seconds until the first resend of an unacknowledged answer.
    resend_factor : float
        Each wait is this much longer than the one before, 1 to 10.
    resend_longest : float
        Longest wait between two resends, seconds.
    resend_jitter : float
        Share of a wait that is left to chance, [0, 1).
    keepalive : int
        Seconds between signs of life to the broker, 1 to 65535.
    session_expiry : int
        Seconds for which the broker keeps subscriptions and messages of an absent agent.
    connect_timeout : float
        Seconds that a connection attempt may take.
    reconnect_first : float
        Seconds before the first reconnect; each wait is twice the one before, and drawn between half of it and all.
    reconnect_longest : float
        Longest wait between two reconnects, seconds.
    broker_wait : float
        Seconds to wait for the first connection before giving up with exit code 4; 0: wait for ever, as a vehicle
        that starts without coverage does.
    protocol : str
        ``auto`` (MQTT 5, then 3.1.1), ``5`` or ``3.1.1``.
    max_inflight : int
        Published messages that may wait for the broker's acknowledgement at once; less when the broker says so.
    oversize_tries : int
        So many connections in a row must end over one message, larger than any that the broker ever took, before it
        is given up as too large and the limit halved (MQTT 3.1.1 tells no limit).
    close_wait : float
        Seconds that a clean disconnect may take.
    stop_wait : float
        Seconds that the goodbye may wait for the broker's acknowledgement when the process ends.
    birth_pause : float
        Seconds between two birth certificates at least.
    birth_spread : float
        Seconds over which the agents of a fleet spread the birth certificates with which they greet a new coordinator.
    fetch_first : float
        Seconds until parts that did not come are asked for again; each time twice as long.
    fetch_longest : float
        Longest of these waits, seconds.
    fetch_by_name : int
        Up to so many parts are subscribed to one by one instead of by a wildcard, which RabbitMQ needs.
    fetch_at_once : int
        Requests and models in parts that are fetched at once; the oldest gives way.
    batch_messages : int
        Most messages that are handled before the clock is looked at again.
    outbox_wait : float
        Seconds to wait for another process that holds the outbox (a backup, say).
    kept_receipts : int
        Marks of ended answers that the outbox keeps, so that a restarted agent does not answer again.
    kept_snapshots : int
        Snapshots of frozen rows that are kept when runs end while the agent is away.
    kept_local_models : int
        Local models that are remembered for scoring, so that they are not learned again.
    followed_models : int
        Model names that are followed at once.
    remembered_runs : int
        Runs that the session remembers at once.
    remembered_tasks : int
        Tasks that it remembers of each run.
    duel_sightings : int
        So often another process must be seen under this agent's id before the later of the two stops (exit code 7).
    duel_apart : float
        Seconds between two such sightings at least; what comes closer together is one.
    duel_quiet : float
        Seconds after which another process that was not seen again is forgotten.
    duel_span : float
        Seconds over which it must be seen, at least.
    duel_patience : int
        So many times as long until the earlier of the two stops, should the later one not.
    duel_stubborn : int
        The same for the number of sightings.
    duel_remembered : int
        Other processes under this id that are counted at once.
    verdict_tries : int
        Tries to read what the broker said of our certificate before it closed the connection.
    kept_certificates : int
        Certificates that are remembered as verified; others are verified again with each message.
    identity_look : float
        Seconds between two looks whether the files of `identity` changed, at least.
    clock_leeway : float
        Seconds by which a certificate may seem too young: clocks differ.
    refused_told_every : float
        Seconds between two log lines about refused messages of one kind, at least; all are counted.
    window_wait : float
        Seconds to wait for another process that writes to the window (``.window``) of rows.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: Id
    fleet: Id = DEFAULT_FLEET
    broker: str = Field(min_length=1)
    identity: Path | None = None
    ca_file: Path | None = None
    insecure_plaintext: bool = False
    data: Path | str
    target: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    labels: bool = False
    categories: bool = False
    state_dir: Path = Field(default_factory=_state_home)
    schemes: tuple[str, ...] | None = None
    slow: Annotated[float, Field(ge=0, le=3600)] = 0.0
    evaluate: bool = True
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"
    max_message_bytes: Annotated[int, Field(ge=limits.MIN_MESSAGE_BYTES, le=limits.MAX_DECODED_BYTES)] = (
        limits.MAX_MESSAGE_BYTES
    )
    outbox_max_bytes: Annotated[int, Field(ge=limits.MIN_MESSAGE_BYTES)] = DEFAULT_MAX_BYTES
    answer_seconds: Annotated[float, Field(gt=0, le=7 * 24 * 3600)] = Budget.seconds
    answer_megabytes: Annotated[int, Field(ge=256, le=1 << 20)] = Budget.megabytes
    queue_size: Annotated[int, Field(ge=16, le=1_000_000)] = 10_000
    resend_first: Annotated[float, Field(gt=0, le=3600)] = 2.0
    resend_factor: Annotated[float, Field(ge=1, le=10)] = 2.0
    resend_longest: Annotated[float, Field(gt=0, le=24 * 3600)] = 60.0
    resend_jitter: Annotated[float, Field(ge=0, lt=1)] = 0.5
    keepalive: Annotated[int, Field(ge=1, le=65535)] = 30
    session_expiry: Annotated[int, Field(ge=0, lt=2**32)] = 3600
    connect_timeout: Annotated[float, Field(gt=0, le=600)] = 5.0
    reconnect_first: Annotated[float, Field(gt=0, le=3600)] = 0.25
    reconnect_longest: Annotated[float, Field(gt=0, le=24 * 3600)] = 10.0
    broker_wait: Annotated[float, Field(ge=0)] = 10.0
    protocol: Literal["auto", "5", "3.1.1"] = "auto"
    max_inflight: Annotated[int, Field(ge=1, le=65535)] = 100
    oversize_tries: Annotated[int, Field(ge=2, le=1000)] = 3
    close_wait: Annotated[float, Field(gt=0, le=300)] = 1.0
    stop_wait: Annotated[float, Field(ge=0, le=300)] = 2.0
    birth_pause: Annotated[float, Field(gt=0, le=60)] = 0.25
    birth_spread: Annotated[float, Field(ge=0, le=3600)] = 1.0
    fetch_first: Annotated[float, Field(gt=0, le=3600)] = 5.0
    fetch_longest: Annotated[float, Field(gt=0, le=24 * 3600)] = 60.0
    fetch_by_name: Annotated[int, Field(ge=0, le=limits.MAX_PARTS)] = 64
    fetch_at_once: Annotated[int, Field(ge=1, le=1000)] = 4
    batch_messages: Annotated[int, Field(ge=1, le=100_000)] = 256
    outbox_wait: Annotated[float, Field(ge=0, le=300)] = 5.0
    kept_receipts: Annotated[int, Field(ge=64, le=10_000_000)] = 4096
    kept_snapshots: Annotated[int, Field(ge=1, le=10_000)] = 16
    kept_local_models: Annotated[int, Field(ge=1, le=10_000)] = 4
    followed_models: Annotated[int, Field(ge=1, le=100_000)] = 64
    remembered_runs: Annotated[int, Field(ge=1, le=100_000)] = 64
    remembered_tasks: Annotated[int, Field(ge=2, le=1_000_000)] = 1024
    duel_sightings: Annotated[int, Field(ge=2, le=1000)] = 6
    duel_apart: Annotated[float, Field(gt=0, le=60)] = 0.2
    duel_quiet: Annotated[float, Field(gt=0, le=3600)] = 30.0
    duel_span: Annotated[float, Field(ge=0, le=3600)] = 1.5
    duel_patience: Annotated[int, Field(ge=2, le=1000)] = 10
    duel_stubborn: Annotated[int, Field(ge=2, le=1000)] = 3
    duel_remembered: Annotated[int, Field(ge=1, le=10_000)] = 64
    verdict_tries: Annotated[int, Field(ge=1, le=1000)] = 5
    kept_certificates: Annotated[int, Field(ge=1, le=10_000_000)] = 4096
    identity_look: Annotated[float, Field(ge=0, le=24 * 3600)] = 2.0
    clock_leeway: Annotated[float, Field(ge=0, le=24 * 3600)] = 300.0
    refused_told_every: Annotated[float, Field(ge=0, le=24 * 3600)] = 10.0
    window_wait: Annotated[float, Field(ge=0, le=300)] = 10.0

    @field_validator("schemes", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(part for part in value.replace(",", " ").split()) if isinstance(value, str) else value

    @field_validator("data", mode="before")
    @classmethod
    def _place(cls, value: Any) -> Any:
        # A URL stays text: a Path would make one slash of two.
        return Path(value) if isinstance(value, str) and "://" not in value else value

    @model_validator(mode="after")
    def _consistent(self) -> AgentConfig:
        if self.resend_longest < self.resend_first:
            raise ValueError(f"resend_longest {self.resend_longest} is below resend_first {self.resend_first}")
        if self.fetch_longest < self.fetch_first:
            raise ValueError(f"fetch_longest {self.fetch_longest} is below fetch_first {self.fetch_first}")
        if self.duel_quiet <= self.duel_apart:
            raise ValueError(f"duel_quiet {self.duel_quiet} is not above duel_apart {self.duel_apart}")
        return self

    @property
    def directory(self) -> Path:
        """Where this agent keeps secret, outbox, frozen rows and the last good model."""
        return self.state_dir / "agents" / self.fleet / self.id

    def usable_schemes(self, installed: Sequence[str], unavailable: Mapping[str, str]) -> tuple[str, ...]:
        """Return the schemes that this agent offers.

        Raises
        ------
        UsageError
            The allow-list names one that is not installed.
        """
        if self.schemes is None:
            return tuple(installed)
        for name in self.schemes:
            if name not in installed:
                why = unavailable.get(name, "there is no such scheme")
                raise UsageError(
                    f"schemes: {name!r} cannot be offered: {why}. Installed: {', '.join(installed) or 'none'}"
                )
        return self.schemes

    @property
    def timing(self) -> Timing:
        """The session's resend timing."""
        return Timing(self.resend_first, self.resend_factor, self.resend_longest, self.resend_jitter)

    @property
    def memory(self) -> Memory:
        """How much the session remembers."""
        return Memory(self.remembered_runs, self.remembered_tasks)

    @property
    def budget(self) -> Budget:
        """Time and memory that one answer may take."""
        return Budget(self.answer_seconds, self.answer_megabytes)

    @property
    def fetch_patience(self) -> Patience:
        """When parts are asked for again, and how."""
        return Patience(self.fetch_first, self.fetch_longest, self.fetch_by_name, self.fetch_at_once)

    @property
    def duel(self) -> Duel:
        """How sure the agent must be that another process uses its id."""
        return Duel(
            self.duel_sightings,
            self.duel_apart,
            self.duel_quiet,
            self.duel_span,
            self.duel_patience,
            self.duel_stubborn,
            self.duel_remembered,
        )


def load_config(file: Path | str | None = None, **flags: Any) -> AgentConfig:
    """Return the configuration from flags, environment, `file` and defaults, the former stronger than the latter.

    Parameters
    ----------
    file : Path or None
        TOML; the ``[agent]`` table, over top-level keys of the same names, which all processes can share.
    flags
        Settings by name; None means not given.

    Raises
    ------
    UsageError
        A setting is missing, unknown or out of range; the text names it and where it can be given.
    """
    settings: dict[str, Any] = {}
    if file is not None:
        settings = _read_file(Path(file))
    settings.update(_environment())
    settings.update({name: value for name, value in flags.items() if value is not None})
    try:
        return AgentConfig(**settings)
    except ValidationError as fault:
        raise UsageError(_words(fault)) from fault


def _read_file(path: Path) -> dict[str, Any]:
    """Return the ``[agent]`` table over the shared settings at the top level; other processes' keys are left alone."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise UsageError(f"cannot read the configuration {path}: {fault.strerror}") from fault
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise UsageError(f"the configuration {path} is not valid TOML: {fault}") from fault
    own = content.get("agent", {})
    if not isinstance(own, dict):
        raise UsageError(f"the configuration {path}: [agent] must be a table")
    unknown = sorted(set(own) - set(AgentConfig.model_fields))
    if unknown:
        known = ", ".join(AgentConfig.model_fields)
        raise UsageError(f"the configuration {path}: [agent] has no setting {unknown[0]!r}; the settings are: {known}")
    return {**{name: value for name, value in content.items() if name in AgentConfig.model_fields}, **own}


def _environment() -> dict[str, str]:
    found = {}
    for name in AgentConfig.model_fields:
        for prefix in ("GLASSFLEET_", "GLASSFLEET_AGENT_") if name in SHARED else ("GLASSFLEET_AGENT_",):
            value = os.environ.get(prefix + name.upper())
            if value is not None:
                found[name] = value  # the more particular name comes last, and wins
    return found


def _words(fault: ValidationError) -> str:
    first = fault.errors(include_url=False, include_input=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    flag = f"--{name.replace('_', '-')}"
    variable = f"GLASSFLEET_{'' if name in SHARED else 'AGENT_'}{name.upper()}"
    if first["type"] == "missing":
        return f"{name} is missing: give {flag}, set {variable}, or write it in the --config file"
    if not name:
        return f"configuration: {first['msg']}"
    if first["type"] == "string_pattern_mismatch":
        return (
            f"{name} is not a valid id: use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit "
            f"({flag}, {variable} or --config)"
        )
    return f"{name}: {first['msg']} ({flag}, {variable} or --config)"
