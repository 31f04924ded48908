"""The forecaster's configuration: flags, environment (``GLASSFLEET_FORECAST_...``), a TOML file and defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from edge_agent.config import SHARED
from edge_agent.forecast.log import DEFAULT_MAX_BYTES
from schemas.settings import Id, Settings


class ForecastConfig(Settings):
    """What a forecaster can be told beyond `Settings`.

    Attributes
    ----------
    id : str
        The agent whose models are used, and under whose id forecasts are published. Why: every vehicle has its own.
    source : str
        Where samples come from: ``-`` (lines of JSON on standard input), ``mqtt[s]://host/a/topic``,
        ``viss+mqtt[s]://host/VEHICLE``, ``kuksa[s]://host:port``, ``can:CHANNEL?database=FILE``, a file or pipe of JSON
        lines, or a table or recording to replay. Why: every vehicle has its own.
    plan : str or None
        TOML file whose table ``[time]`` says how samples become rows, or ``qoe`` for the case study's; default: each
        sample is a row. Why: samples that are not rows yet.
    vss : tuple of Path
        VSS catalogues, separated by commas; later ones win. Why: a plan with their paths.
    model : str or None
        Name of the model to serve; default: the only one that the agent keeps. Why: an agent that keeps several.
    data : str or None
        The agent's rows, for a scheme in which every vehicle makes its own model. Why: fedga.
    models : Path or None
        Folder of the models; default: the agent's. Why: a model that was copied here.
    log : Path or None
        Folder of the log of forecasts; default: ``forecasts`` beside the agent's models. Why: another disk.
    log_max_bytes : int
        Most bytes of the log, 64 KiB to 1 TiB; then its oldest sixteenth is deleted. Why: the disk, or how long
        forecasts must be kept.
    speed : float
        How many times faster than recorded a file is replayed; 0: as fast as possible. Why: long files.
    every : float
        Seconds from a forecast to the next, 0 to 3600; samples in between still fill windows. A
        replayed file has its own time; a table without one, a row a second. Why: more, or fewer, forecasts.
    alert : str or None
        A forecast below this number, or of this class, is an alert. Why: only you know what is bad.
    publish : str
        Where forecast, alert and rule go as signals of VSS: ``kuksa[s]://host:port`` or ``mqtt[s]://host/a/topic``.
        Why: another application in the vehicle uses them.
    report : str
        Publish ``none``, ``alerts`` or ``all`` explained forecasts on the fleet's broker. They disclose
        the vehicle's rows. Why: somebody in the cloud wants to see them.
    broker : str or None
        Broker for `report`. Why: every fleet has its own.
    source_identity : Path or None
        Identity folder for a source at ``mqtts``. Why: a vehicle's broker that asks for a certificate.
    source_ca_file : Path or None
        Certificate authority for `source` and `publish`, instead of that identity's or the system's. Why: a server of
        another authority.
    source_token_file : Path or None
        File with the token for a databroker. Why: a databroker that asks for one.
    """

    service: ClassVar = "forecast"
    shared: ClassVar = SHARED
    top: ClassVar = "shared"
    flags: ClassVar = (
        *("id", "source", "plan", "vss", "model", "data", "speed", "every", "alert", "publish", "report"),
        *("broker", "identity", "fleet", "log", "state_dir"),
        *("ca_file", "insecure_plaintext", "log_level", "log_format"),
    )

    id: Id
    source: str = Field(min_length=1)
    plan: str | None = None
    vss: tuple[Path, ...] = ()
    model: Id | None = None
    data: str | None = None
    models: Path | None = None
    log: Path | None = None
    log_max_bytes: Annotated[int, Field(ge=1 << 16, le=1 << 40)] = DEFAULT_MAX_BYTES
    speed: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    every: Annotated[float, Field(ge=0, le=3600)] = 1.0
    alert: str | None = None
    publish: str = ""
    report: Literal["none", "alerts", "all"] = "none"
    broker: str | None = None
    source_identity: Path | None = None
    source_ca_file: Path | None = None
    source_token_file: Path | None = None

    @field_validator("vss", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _consistent(self) -> ForecastConfig:
        if self.report != "none" and not self.broker:
            raise ValueError("to report forecasts a broker is needed: give --broker, or --report none")
        return self

    @property
    def directory(self) -> Path:
        """The agent's own state directory."""
        return self.state_dir / "agents" / self.fleet / self.id

    @property
    def models_directory(self) -> Path:
        """Where the models are."""
        return self.models or self.directory / "models"

    @property
    def log_directory(self) -> Path:
        """Where the log is."""
        return self.log or self.directory / "forecasts"
