"""Settings of a process, in groups; flags, environment and TOML files name each of them by one flat key.

A field of a `Settings` class that is a frozen dataclass is a group: it is handed whole to who needs it. A setting's key
is the group's `Prefix` and the field's name. Flags are stronger than the environment, the environment than the file,
the file than the defaults. These few lines replace pydantic-settings, which costs a vehicle 14 MB and 80 ms at every
start (measured).
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from schemas import limits
from schemas.errors import UsageError
from schemas.private_files import state_home
from schemas.text import NO_ID
from schemas.topics import DEFAULT_FLEET

Id = Annotated[str, Field(pattern=f"^{limits.ID_PATTERN}$")]


class Prefix(NamedTuple):
    """What the keys of a group begin with: ``Annotated[Budget, Prefix("answer_")]``."""

    text: str


class Setting(NamedTuple):
    """Where a key goes: the group's field (empty: none), the field there, what it takes, and the class that has it."""

    group: str
    name: str
    field: FieldInfo
    owner: type[Any]


class Settings(BaseModel):
    """What every process of a fleet can be told. `load` reads environment and file too, and gives errors in words.

    Attributes
    ----------
    fleet : str
        Fleet id: all topics start with ``gf/1/{fleet}/``. Why: several fleets at one broker.
    state_dir : Path
        Where state is kept; an agent's part is ``agents/{fleet}/{id}`` in it. Default: ``$XDG_STATE_HOME/glassfleet``,
        or ``~/.local/state/glassfleet``. Why: another disk, a container's volume.
    identity : Path or None
        Folder with ``key.pem``, ``cert.pem`` and ``ca.pem`` for ``mqtts``. A forecaster has an agent id of its own,
        since brokers give each certificate one connection. Why: every process has its own.
    ca_file : Path or None
        Certificate authority for ``mqtts``, instead of the identity's. Why: a broker of another authority.
    insecure_plaintext : bool
        Allow ``mqtt`` to another machine: everybody on the way can read and change it. Why: a guarded network.
    log_level : str
        ``debug``, ``info``, ``warning`` or ``error``. Why: to find a fault.
    log_format : str
        ``console`` or ``json``. Why: a program collects the logs.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    service: ClassVar[str]
    """The table of the file, and the word in the environment's variables: ``GLASSFLEET_AGENT_ID``."""

    shared: ClassVar[frozenset[str] | None]
    """Keys that are also read without that word (``GLASSFLEET_BROKER``): all processes have them. None: all keys."""

    top: ClassVar[Literal["all", "shared", "strict"]] = "all"
    """Which keys the file may have outside the table; others are left alone, or (strict) refused."""

    flags: ClassVar[tuple[str, ...]] = ()
    """Keys that are options of the command, too, in the order of its help: what is given by hand."""

    fleet: Id = DEFAULT_FLEET
    state_dir: Path = Field(default_factory=state_home)
    identity: Path | None = None
    ca_file: Path | None = None
    insecure_plaintext: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"

    @model_validator(mode="before")
    @classmethod
    def _into_groups(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        known = settings_of(cls)
        grouped: dict[str, Any] = {}
        for key, value in given.items():
            group = known[key].group if key in known else ""
            if group:
                grouped.setdefault(group, {})[known[key].name] = value
            else:
                grouped[key] = value
        return grouped

    @classmethod
    def load(cls, file: Path | str | None = None, **flags: object) -> Self:
        """Return the settings from flags, environment, `file` and defaults, the former stronger than the latter.

        Parameters
        ----------
        file : Path or None
            TOML; this process's table, over top-level keys of the same names, which all processes can share.
        flags
            Settings by key; None means not given.

        Raises
        ------
        UsageError
            A setting is missing, unknown or out of range, or the file cannot be read; the text names it, and where it
            can be given.
        """
        given = {} if file is None else cls._from_file(Path(file))
        given.update(cls._from_environment())
        given.update({key: value for key, value in flags.items() if value is not None})
        try:
            return cls(**given)
        except ValidationError as fault:
            raise UsageError(cls._words(fault)) from fault

    @classmethod
    def _from_file(cls, path: Path) -> dict[str, Any]:
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as fault:
            raise UsageError(f"cannot read the configuration {path}: {fault.strerror}") from fault
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
            raise UsageError(f"the configuration {path} is not valid TOML: {fault}") from fault
        own = content.get(cls.service, {})
        if not isinstance(own, dict):
            raise UsageError(f"the configuration {path}: [{cls.service}] must be a table")
        known = settings_of(cls)
        outside = {key: value for key, value in content.items() if not isinstance(value, dict)}
        for key in {**own, **(outside if cls.top == "strict" else {})}:
            if key not in known:
                raise UsageError(
                    f"the configuration {path}: [{cls.service}] has no setting {key!r}; the settings are: "
                    f"{', '.join(known)}"
                )
        top = known if cls.top != "shared" or cls.shared is None else known.keys() & cls.shared
        return {**{key: value for key, value in outside.items() if key in top}, **own}

    @classmethod
    def _from_environment(cls) -> dict[str, str]:
        values = {}
        for key in settings_of(cls):
            for name in cls._variables(key):
                if name in os.environ:
                    values[key] = os.environ[name]  # the more particular name comes last, and wins
        return values

    @classmethod
    def _variables(cls, key: str) -> tuple[str, ...]:
        own = f"GLASSFLEET_{cls.service.upper()}_{key.upper()}"
        return (f"GLASSFLEET_{key.upper()}", own) if cls.shared is None or key in cls.shared else (own,)

    @classmethod
    def _words(cls, fault: ValidationError) -> str:
        first = fault.errors(include_url=False, include_input=False)[0]
        text = first["msg"].removeprefix("Value error, ")
        where = [str(part) for part in first["loc"]]
        if not where:
            return f"configuration: {text}"
        places = {(each.group, each.name): key for key, each in settings_of(cls).items()}
        key = places.get((where[0], where[-1]), where[0])
        flag = f"--{key.replace('_', '-')}" if key in cls.flags else ""
        variable = cls._variables(key)[0]
        if first["type"] == "missing":
            return f"{key} is missing: give {flag}, set {variable}, or write it in the --config file"
        text = f"{key} is {NO_ID}" if first["type"] == "string_pattern_mismatch" else f"{key}: {text}"
        return f"{text} ({', '.join(filter(None, [flag, variable]))} or --config)"


@cache
def settings_of(config: type[Settings]) -> Mapping[str, Setting]:
    """Return a process's settings by key, those of its groups among them."""
    settings: dict[str, Setting] = {}
    for name, field in config.model_fields.items():
        if not dataclasses.is_dataclass(field.annotation):
            owner = next(each for each in config.__mro__ if name in vars(each).get("__annotations__", {}))
            settings[name] = Setting("", name, field, owner)
            continue
        assert isinstance(field.annotation, type)
        prefix = "".join(part.text for part in field.metadata if isinstance(part, Prefix))
        hints = get_type_hints(field.annotation, include_extras=True)
        for inner in dataclasses.fields(field.annotation):
            taken = FieldInfo.from_annotated_attribute(hints[inner.name], inner.default)
            settings[prefix + inner.name] = Setting(name, inner.name, taken, field.annotation)
    return settings
