"""The agent's configuration: one frozen object, from flags, environment, a TOML file and defaults, in this order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from broker.port import ConnectionSettings
from edge_agent.session.accounts import Monthly
from edge_agent.session.outbox import DEFAULT_MAX_BYTES
from edge_agent.session.session import Timing
from edge_agent.worker import Budget
from glassfleet.private.ledger import Limits
from schemas import limits
from schemas.errors import UsageError
from schemas.settings import Id, Prefix, Settings

SHARED = frozenset(
    {
        "broker",
        "broker_wait",
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
        "reconnect_longest",
        "protocol",
    }
)
"""Keys that also listen to ``GLASSFLEET_{NAME}``: all processes of a fleet have them."""


class AgentConfig(Settings):
    """What an agent can be told beyond `Settings`.

    Attributes
    ----------
    id : str
        The agent's id in its fleet. Why: every vehicle has its own.
    broker : str
        ``mqtt[s]://[user[:password]@]host[:port]``; for a cluster, its nodes with commas between. Why: every fleet has
        its own.
    broker_wait : float
        Seconds to wait for the first connection before exit code 4; 0: wait for ever. Why: the broker may come later.
    connection : ConnectionSettings
        How it speaks with the broker.
    data : Path or str
        The vehicle's rows: a file or URL that `glassfleet data --help` lists. Why: every vehicle has its own.
    target : str or None
        Target column; default: the last one. Why: another column is to be forecast.
    labels : bool
        The target is a class, not a number. Why: a classifier is to be learned.
    categories : bool
        Columns of text are inputs, too, if the scheme takes categories. Why: rows with text.
    missing : bool
        Cells of inputs may be empty, if the scheme takes that. Why: rows with gaps.
    schemes : tuple of str or None
        Schemes it takes part in; default: all that are installed. Why: it must not take part in some.
    slow : float
        Delay of each answer in seconds, 0 to 3600. Why: demonstrations.
    evaluate : bool
        Score new models on the local test rows and publish the scores. Why: scores must stay private.
    outbox_max_bytes : int
        Most bytes of unacknowledged answers on disk. Why: a small disk.
    timing : Timing
        When an unacknowledged answer is sent again.
    budget : Budget
        Time and memory that one answer may take.
    month : Monthly
        What learning may take in a calendar month.
    private : "only", "allowed" or "never"
        Which runs it answers: private ones only, all, or never private ones. Why: nobody may see its numbers.
    private_limits : Limits
        What it asks for in private runs, whatever the coordinator says.
    """

    service: ClassVar = "agent"
    shared: ClassVar = SHARED
    flags: ClassVar = (
        *("id", "broker", "identity", "data", "target", "labels", "categories", "missing"),
        *("private", "fleet", "state_dir", "slow"),
        *("broker_wait", "ca_file", "insecure_plaintext", "log_level", "log_format"),
    )

    id: Id
    broker: str = Field(min_length=1)
    broker_wait: Annotated[float, Field(ge=0)] = 10.0
    connection: ConnectionSettings = ConnectionSettings()
    data: Path | str
    target: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    labels: bool = False
    categories: bool = False
    missing: bool = False
    schemes: tuple[str, ...] | None = None
    slow: Annotated[float, Field(ge=0, le=3600)] = 0.0
    evaluate: bool = True
    outbox_max_bytes: Annotated[int, Field(ge=limits.MIN_MESSAGE_BYTES)] = DEFAULT_MAX_BYTES
    timing: Annotated[Timing, Prefix("resend_")] = Timing()
    budget: Annotated[Budget, Prefix("answer_")] = Budget()
    month: Annotated[Monthly, Prefix("month_")] = Monthly()
    private: Literal["only", "allowed", "never"] = "allowed"
    private_limits: Annotated[Limits, Prefix("private_")] = Limits()

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
        if self.timing.longest < self.timing.first:
            raise ValueError(f"resend_longest {self.timing.longest} is below resend_first {self.timing.first}")
        return self

    @property
    def directory(self) -> Path:
        """Where this agent keeps secret, outbox, snapshots of rows and the last good model."""
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
