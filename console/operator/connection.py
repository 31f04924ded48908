"""The options that name a coordinator, and the connection that a command gets for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from console.common import state_dir_option

if TYPE_CHECKING:
    from console.client import CoordinatorClient

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class CoordinatorOptions:
    """What `coordinator_options` adds."""

    api: CoordinatorClient


def coordinator_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Add ``--coordinator URL``, ``--token TEXT`` and ``--state-dir DIR``; the command gets an `api` for them."""

    @wraps(command)
    def call(*, coordinator: str | None, token: str | None, state_dir: Path, **given: Any) -> Result:
        from console.client import CoordinatorClient  # the extra `operator` is asked for when it is used

        return command(api=CoordinatorClient(coordinator, token, state_dir), **given)

    function = click.option(
        "--token", envvar="GLASSFLEET_TOKEN", help="For actions. Default: what is in STATE_DIR/api-token."
    )(state_dir_option(call))
    return click.option(
        "--coordinator",
        envvar="GLASSFLEET_COORDINATOR",
        metavar="URL",
        help="The coordinator's HTTP address. Default: what is in STATE_DIR/api-url.",
    )(function)
