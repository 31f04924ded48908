"""The agent's configuration: one frozen object, from flags, environment, a TOML file and defaults, in this order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from broker.port import RETIRED, ConnectionSettings
from edge_agent.compute.budget import Budget
from edge_agent.session.accounts import Monthly
from edge_agent.session.outbox import DEFAULT_MAX_BYTES
from edge_agent.session.session import Timing
from glassfleet.private.ledger import Limits
from schemas import limits
from schemas.errors import UsageError
from schemas.settings import Id, Prefix, Settings

SHARED = frozenset(
    {
        *RETIRED,
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
        "stop_wait",
    }
)
"""Keys, former ones among them, that also listen to ``GLASSFLEET_{NAME}``: all processes of a fleet have them."""


class AgentConfig(Settings):
    """What an agent can be told beyond `Settings`.

    Attributes
    ----------
    id : str
        The agent's id in its fleet. Why: every vehicle has its own.
    broker : str
        ``mqtt://[user[:password]@]host[:port]`` or ``mqtts://...``; of a cluster one for each node, with commas
        between. Why: every fleet has its own.
    broker_wait : float
        Seconds to wait for the first connection before giving up with exit code 4; 0: wait for ever. Why: a vehicle
        that starts without coverage waits for ever.
    connection : ConnectionSettings
        How it speaks with the broker.
    data : Path or str
        The vehicle's rows: a file, a window of a live stream, or the URL of a query, as `glassfleet data --help` lists
        them. Why: every vehicle has its own.
    target : str or None
        Target column; None: the last one. Why: another column is to be forecast.
    labels : bool
        The target is a class label (text), not a number. Why: classes are to be told apart.
    categories : bool
        Columns of text are inputs too, for the schemes that take categories; otherwise text is a fault. Why: rows with
        text.
    missing : bool
        Cells of inputs may be empty, for the schemes that take such; otherwise that is a fault. Why: rows with gaps.
    schemes : tuple of str or None
        Allow-list; None: every scheme that is installed. Why: a vehicle that shall not take part in some.
    slow : float
        Seconds that each answer is on its way, as over a slow link, 0 to 3600. Why: demonstrations.
    evaluate : bool
        Score new models on the local test rows and publish the scores. Why: nobody shall hear a vehicle's scores.
    outbox_max_bytes : int
        Most bytes of unacknowledged answers on disk. Why: a small disk.
    timing : Timing
        When an unacknowledged answer is sent again.
    budget : Budget
        Time and memory that one answer may take.
    month : Monthly
        What learning may take in a calendar month.
    private : "only", "allowed" or "never"
        Whether it answers runs in which the coordinator sees its numbers, and private runs. Why: "only" where nobody
        may see a vehicle's numbers.
    private_limits : Limits
        What it asks for in private runs, whatever the coordinator says.
    """

    service: ClassVar = "agent"
    shared: ClassVar = SHARED
    first: ClassVar = (
        *("id", "broker", "identity", "data", "target", "labels", "categories", "missing"),
        *("private", "fleet", "state_dir"),
    )
    retired: ClassVar = {
        **RETIRED,
        "queue_size": "edge_agent.runner.QUEUE_SIZE",
        "batch_messages": "edge_agent.runner.BATCH",
        "resend_factor": "edge_agent.session.session.RESEND_FACTOR",
        "resend_jitter": "edge_agent.session.session.RESEND_JITTER",
        "stop_wait": "edge_agent.agent.STOP_WAIT",
        "birth_pause": "edge_agent.presence.BIRTH_PAUSE",
        "birth_spread": "edge_agent.presence.SPREAD",
        "fetch_first": "edge_agent.models.fetch.FIRST",
        "fetch_longest": "edge_agent.models.fetch.LONGEST",
        "fetch_by_name": "edge_agent.models.fetch.BY_NAME",
        "fetch_at_once": "edge_agent.models.fetch.AT_ONCE",
        "outbox_wait": "edge_agent.session.outbox.BUSY_WAIT",
        "kept_receipts": "edge_agent.session.outbox.KEPT_RECEIPTS",
        "kept_snapshots": "edge_agent.session.snapshots.KEPT_RUNS",
        "kept_local_models": "edge_agent.models.evaluation.KEPT_LOCAL_MODELS",
        "followed_models": "edge_agent.models.follower.FOLLOWED_MODELS",
        "remembered_runs": "edge_agent.session.session.REMEMBERED_RUNS",
        "remembered_tasks": "edge_agent.session.session.REMEMBERED_TASKS",
        "duel_sightings": "edge_agent.presence.SIGHTINGS",
        "duel_apart": "edge_agent.presence.APART",
        "duel_quiet": "edge_agent.presence.QUIET",
        "duel_span": "edge_agent.presence.SPAN",
        "duel_patience": "edge_agent.presence.PATIENCE",
        "duel_stubborn": "edge_agent.presence.STUBBORN",
        "duel_remembered": "edge_agent.presence.REMEMBERED",
        "window_wait": "edge_agent.sources.window.BUSY_WAIT",
    }

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
