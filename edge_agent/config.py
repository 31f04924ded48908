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

from edge_agent.outbox import DEFAULT_MAX_BYTES
from edge_agent.session import Timing
from schemas import limits
from schemas.errors import UsageError
from schemas.topics import DEFAULT_FLEET

Id = Annotated[str, Field(pattern=f"^{limits.ID_PATTERN}$")]


SHARED = frozenset(
    {
        "broker",
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
    data : Path
        The vehicle's rows: ``.csv``, ``.csv.gz`` or ``.parquet``.
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
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: Id
    fleet: Id = DEFAULT_FLEET
    broker: str = Field(min_length=1)
    data: Path
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

    @field_validator("schemes", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(part for part in value.replace(",", " ").split()) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _consistent(self) -> AgentConfig:
        if self.resend_longest < self.resend_first:
            raise ValueError(f"resend_longest {self.resend_longest} is below resend_first {self.resend_first}")
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
