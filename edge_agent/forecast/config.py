"""The forecaster's configuration: flags, environment (``GLASSFLEET_FORECAST_...``), a TOML file and defaults."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from edge_agent.config import SHARED, Id
from edge_agent.forecast.log import DEFAULT_MAX_BYTES
from glassfleet.data.windows import WindowPlan
from schemas.errors import UsageError
from schemas.topics import DEFAULT_FLEET


class ForecastConfig(BaseModel):
    """Everything that one forecaster can be told. Use `load_config` to read environment and file too.

    Attributes
    ----------
    id : str
        The agent beside which it works: its models are used, and forecasts are published under its id.
    fleet : str
        Fleet id.
    state_dir : Path
        As the agent has it.
    source : str
        Where samples come from: ``-`` (JSON objects on standard input, a line each), ``mqtt[s]://host/a/topic`` (JSON
        objects on a broker of the vehicle), a ``.csv``, ``.csv.gz`` or ``.parquet`` file (replayed), or a file or named
        pipe of JSON lines.
    window : Path or None
        JSON file that says which inputs the last samples make, or ``qoe`` for the case study's; without it samples are
        rows with the inputs already.
    model : str or None
        Name of the model to serve; None: the only one that the agent keeps.
    data : str or None
        The vehicle's rows, as the agent has them: for models of which every vehicle makes its own, such as fedga's
        trees. That is made when the model is taken over, kept in the log alone, and what forecasts and is explained.
    data_pause : float
        Seconds until rows of `data` that could not be read or used are tried again.
    models : Path or None
        Folder of the models; None: the agent's.
    log : Path or None
        Folder of the log of forecasts; None: ``forecasts`` beside the agent's models.
    log_max_bytes : int
        Most bytes of the log; then the oldest sixteenth gives way. 64 KiB to 1 TiB.
    speed : float
        A replayed file goes so many times as fast as one row a second; 0: as fast as it can.
    every : float
        Seconds from a forecast to the next, 0 to 3600; samples that come faster still fill windows and memory. A row
        of a replayed file is a second.
    alert : str or None
        A forecast below this number, or of this class, is an alert.
    observed : str or None
        Field of a sample with the target's present value, for models that remember the target.
    publish : str
        ``none``, ``alerts`` or ``all`` of the forecasts on the fleet's broker, with their explanation. It tells about
        the vehicle's rows, so nothing is published unless asked. Of a tree of the vehicle's own only what it answers.
    broker : str or None
        Broker's URL, when forecasts are published.
    source_identity : Path or None
        Folder with ``key.pem``, ``cert.pem`` and ``ca.pem`` for a source at ``mqtts``, of an id of its own too.
    source_ca_file : Path or None
        Certificate authority for a source at ``mqtts``, in place of that identity's or the system's.
    identity : Path or None
        Folder with ``key.pem``, ``cert.pem`` and ``ca.pem`` for ``mqtts``: of an agent id of the forecaster's own,
        since brokers give each certificate one connection. Forecasts are signed with it, and published under its id.
    ca_file : Path or None
        Certificate authority for ``mqtts``, in place of the identity's.
    insecure_plaintext : bool
        Allow ``mqtt`` to another machine, where everybody on the way can read and change what is said.
    kept_rows : int
        Rows that are kept in memory, so that a new model with a longer memory need not wait for them.
    queue_samples : int
        Samples that wait to be forecast from; a live topic drops the newest beyond it, a file waits.
    max_sample_bytes : int
        Longer lines and messages are no samples.
    faults_told_every : int
        So often the same kind of fault of a sample is logged once: a broken sensor must not fill the log.
    identity_look : float
        Seconds between two looks whether the files of `identity` changed, at least.
    log_level : str
        ``debug``, ``info``, ``warning`` or ``error``.
    log_format : str
        ``console`` or ``json``.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: Id
    fleet: Id = DEFAULT_FLEET
    state_dir: Path
    source: str = Field(min_length=1)
    window: Path | None = None
    model: Id | None = None
    data: str | None = None
    data_pause: Annotated[float, Field(ge=0, le=24 * 3600)] = 60.0
    models: Path | None = None
    log: Path | None = None
    log_max_bytes: Annotated[int, Field(ge=1 << 16, le=1 << 40)] = DEFAULT_MAX_BYTES
    speed: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    every: Annotated[float, Field(ge=0, le=3600)] = 1.0
    alert: str | None = None
    observed: str | None = None
    publish: Literal["none", "alerts", "all"] = "none"
    broker: str | None = None
    source_identity: Path | None = None
    source_ca_file: Path | None = None
    identity: Path | None = None
    ca_file: Path | None = None
    insecure_plaintext: bool = False
    kept_rows: Annotated[int, Field(ge=1, le=10_000_000)] = 600
    queue_samples: Annotated[int, Field(ge=1, le=10_000_000)] = 1000
    max_sample_bytes: Annotated[int, Field(ge=1024, le=1 << 26)] = 1 << 16
    faults_told_every: Annotated[int, Field(ge=1, le=1_000_000)] = 60
    identity_look: Annotated[float, Field(ge=0, le=24 * 3600)] = 2.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"

    @model_validator(mode="after")
    def _consistent(self) -> ForecastConfig:
        if self.publish != "none" and not self.broker:
            raise ValueError("to publish forecasts a broker is needed: give --broker, or --publish none")
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

    def window_plan(self) -> WindowPlan | None:
        """Read the declaration of windows; raises UsageError."""
        if self.window is None:
            return None
        try:
            return WindowPlan.from_document(json.loads(self.window.read_text(encoding="utf-8")))
        except OSError as fault:
            raise UsageError(f"--window: cannot read {self.window}: {fault.strerror}") from fault
        except ValueError as fault:
            raise UsageError(f"--window: {self.window} is not valid JSON: {fault}") from fault


def load_config(file: Path | None = None, **flags: Any) -> ForecastConfig:
    """Return the configuration from flags, environment, `file` and defaults, the former stronger than the latter.

    Parameters
    ----------
    file : Path or None
        TOML; the ``[forecast]`` table, over top-level keys that all processes of a fleet share.
    flags
        Settings by name; None means not given.

    Raises
    ------
    UsageError
        A setting is missing, unknown or out of range.
    """
    settings: dict[str, Any] = {}
    if file is not None:
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as fault:
            raise UsageError(f"cannot read the configuration {file}: {fault.strerror}") from fault
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
            raise UsageError(f"the configuration {file} is not valid TOML: {fault}") from fault
        own = content.get("forecast", {})
        settings = {name: content[name] for name in ForecastConfig.model_fields if name in SHARED and name in content}
        settings.update(own if isinstance(own, dict) else {"forecast": own})
    for name in ForecastConfig.model_fields:
        for prefix in ("GLASSFLEET_", "GLASSFLEET_FORECAST_") if name in SHARED else ("GLASSFLEET_FORECAST_",):
            value = os.environ.get(prefix + name.upper())
            if value is not None:
                settings[name] = value
    settings.update({name: value for name, value in flags.items() if value is not None})
    try:
        return ForecastConfig(**settings)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        flag = f"--{name.replace('_', '-')}"
        if first["type"] == "missing":
            prefix = "GLASSFLEET_" if name in SHARED else "GLASSFLEET_FORECAST_"
            raise UsageError(
                f"{name} is missing: give {flag}, set {prefix}{name.upper()}, or write it in the --config file "
                "(see: glassfleet forecast run --help)"
            ) from fault
        text = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"{f'{flag}: ' if name else ''}{text} (see: glassfleet forecast run --help)") from fault
