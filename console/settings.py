"""Options of a service's command, made from its configuration class; file and environment take all its settings."""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, Union, cast, get_args, get_origin

import click

from console.broker_discovery import ANONYMOUS_BROKER, awaited_broker, noted_broker
from console.common import read_toml, rows_place
from schemas.private_files import state_home
from schemas.settings import Settings, settings_of
from schemas.text import attributes
from schemas.topics import DEFAULT_FLEET

DEFAULTS = {"fleet": DEFAULT_FLEET, "state_dir": None, "broker": "what STATE_DIR/broker-url says"}
"""Defaults that :meth:`Given.load` gives, where they are not the configuration's own."""

C = TypeVar("C", bound=Settings)


@dataclass(frozen=True)
class Given(Generic[C]):
    """What a service's command was given.

    Attributes
    ----------
    config : type of Settings
    file : Path or None
        The --config file.
    flags : Mapping
        By key of a setting; None means not given.
    """

    config: type[C]
    file: Path | None
    flags: Mapping[str, object]

    def load(self, *, waits: bool = True) -> C:
        """Return the settings, with what neither flags, environment nor file name filled in.

        The state folder becomes `state_home`, the fleet ``fleet``, and the broker the one that
        ``glassfleet broker`` noted in the state folder. If it noted none, it is awaited, once all else is known to be
        right; or, unless `waits`, there is none.

        Raises
        ------
        UsageError
            As `Settings.load`.
        BrokerError
            No broker came.
        """
        flags, table = dict(self.flags), self.config.service
        content = {} if self.file is None else read_toml(self.file)
        own = content.get(table)
        settings = {**content, **own} if isinstance(own, dict) else content

        def named(name: str) -> Any:
            variables = (f"GLASSFLEET_{table.upper()}_{name.upper()}", f"GLASSFLEET_{name.upper()}")
            values = [flags.get(name), *(os.environ.get(variable) for variable in variables), settings.get(name)]
            return next((value for value in values if value is not None), None)

        if named("fleet") is None:
            flags["fleet"] = DEFAULT_FLEET
        if named("state_dir") is None:
            flags["state_dir"] = state_home()
        if named("broker") is None:
            flags["broker"] = noted_broker(Path(named("state_dir"))) or None
        is_awaited = waits and named("broker") is None
        if is_awaited:
            flags["broker"] = ANONYMOUS_BROKER
        config: Any = self.config.load(self.file, **flags)
        if is_awaited:
            config = config.model_copy(update={"broker": awaited_broker(config.state_dir, config.broker_wait)})
        return cast("C", config)


def settings_options(config: type[C]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options that `config.flags` names, and ``--config FILE``; the command gets a :class:`Given` for them.

    The option's help is the setting's description in the class's docstring. No option has a default: what is not given
    stays None, and the configuration class looks in environment, file and defaults.
    """
    described = descriptions(config)
    known = settings_of(config)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(config_file: Path | None, **options: Any) -> Any:
            return function(Given(config, config_file, {key: options.pop(key) for key in config.flags}), **options)

        decorated = click.option(
            "--config", "config_file", envvar="GLASSFLEET_CONFIG", type=click.Path(path_type=Path), metavar="FILE",
            help="TOML file with any settings (docs/reference/settings.md). Options and environment are stronger.",
        )(call)  # fmt: skip
        for name in reversed(config.flags):
            field = known[name].field
            kind = _plain(field.annotation)
            flag = f"--{name.replace('_', '-')}"
            default = None if field.is_required() or field.default_factory is not None else field.get_default()
            default = DEFAULTS.get(name, default)
            shown = "" if default is None or default is False or default in ("", ()) else f" Default: {default}."
            text = " ".join(described[name][0].replace("`", "").split()) + shown
            if kind is bool:
                decorated = click.option(flag, name, is_flag=True, callback=_given, help=text)(decorated)
            elif get_origin(kind) is Literal:
                choice = click.Choice([str(item) for item in get_args(kind)])
                decorated = click.option(flag, name, default=None, type=choice, help=text)(decorated)
            else:
                decorated = click.option(
                    flag, name, default=None, type={int: int, float: float, Path: click.Path(path_type=Path)}.get(kind),
                    metavar=_metavar(name, kind), help=text, callback=rows_place if name == "data" else None,
                )(decorated)  # fmt: skip
        return decorated

    return decorate


def _given(_context: click.Context, _option: click.Parameter, value: bool) -> bool | None:
    return value or None  # what is not given is left to environment and file


def descriptions(config: type[Settings]) -> dict[str, tuple[str, str]]:
    """Return by key what a setting is, and why somebody would change it: what follows on ``Why:`` in the docstring."""
    texts = {key: attributes(each.owner).get(each.name, "") for key, each in settings_of(config).items()}
    return {key: (text.partition(" Why: ")[0], text.partition(" Why: ")[2]) for key, text in texts.items()}


def _plain(annotation: Any) -> Any:
    """Return the type inside Optional and Annotated; text for what is richer."""
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [part for part in get_args(annotation) if part is not type(None)]
        return _plain(inner[0]) if len(inner) == 1 else str
    if hasattr(annotation, "__metadata__"):
        return _plain(annotation.__origin__)
    return annotation if annotation in (bool, int, float, Path) or get_origin(annotation) is Literal else str


def _metavar(name: str, kind: Any) -> str:
    if name in ("broker", "journal"):
        return "URL"
    if name == "schemes":
        return "A,B,..."
    return {int: "N", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")
