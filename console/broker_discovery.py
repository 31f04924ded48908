"""Which broker a command talks to: the one that is named, or the one that ``glassfleet broker`` noted here."""

from __future__ import annotations

import fcntl
import math
import time
from pathlib import Path

import click

from schemas.errors import BrokerError, UsageError

ANONYMOUS_BROKER = "mqtt://127.0.0.1:1883"
"""Where a broker without a password is looked for when none is named."""


def broker_url(given: str | None, state_dir: Path) -> str:
    """Return the broker's URL.

    Raises
    ------
    UsageError
        None is given and none is noted.
    BrokerError
        None is given, and the one that is noted has ended.
    """
    result = given or noted_broker(state_dir)
    if result:
        return result
    if is_left_behind(state_dir):
        raise BrokerError(no_broker(state_dir))
    raise UsageError(no_broker(state_dir))


def noted_broker(state_dir: Path) -> str:
    """Return the URL that ``glassfleet broker`` noted; empty when it noted none, or was killed since."""
    return "" if is_left_behind(state_dir) else read_note(state_dir / "broker-url")


def is_left_behind(state_dir: Path) -> bool:
    """Whether there is a note of a ``glassfleet broker`` that was killed: one that ends takes its note back.

    It holds a lock for as long as it lives. A note without such a lock was written by hand, and is believed.
    """
    if not read_note(state_dir / "broker-url"):
        return False
    try:
        with (state_dir / "broker" / "lock").open("rb") as file:
            # Shared, so that those who look do not see each other; given back when the file is closed.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def killed_broker(state_dir: Path) -> tuple[str, str]:
    """Say that the broker that is noted was killed, and the way out."""
    again = "start it again with `glassfleet broker` (it takes its former port)"
    other = "name another with --broker URL (or GLASSFLEET_BROKER)"
    return f"the `glassfleet broker` that wrote {state_dir / 'broker-url'} was killed", f"{again}, or {other}"


def no_broker(state_dir: Path) -> str:
    """Say that there is no broker, and the way to one."""
    if is_left_behind(state_dir):
        return "no broker: " + "; ".join(killed_broker(state_dir))
    lacks = f"{state_dir / 'broker-url'} does not exist"
    return f"no broker: give --broker URL (or GLASSFLEET_BROKER), or start one with `glassfleet broker` - {lacks}"


def awaited_broker(state_dir: Path, wait: float) -> str:
    """Return the URL of a broker that is about to start: a service may have been started together with it.

    `ANONYMOUS_BROKER` is taken too, if it lets us in without a password.

    Parameters
    ----------
    state_dir : Path
        Where ``glassfleet broker`` notes its URL.
    wait : float
        Seconds, at least 0; 0: for ever.

    Raises
    ------
    BrokerError
        There was none within `wait` seconds.
    """
    from broker.paho_transport import connect_once
    from broker.port import Link

    deadline = time.monotonic() + (wait or math.inf)
    is_announced = False
    while True:
        url = noted_broker(state_dir)
        if url:
            return url
        try:
            connect_once(Link(ANONYMOUS_BROKER, "probe"), timeout=2.0)
        except BrokerError:
            pass
        else:
            # One that is just starting may have written its note after we looked for it.
            return noted_broker(state_dir) or ANONYMOUS_BROKER
        if time.monotonic() >= deadline:
            raise BrokerError(no_broker(state_dir))
        if not is_announced:
            is_announced = True
            why = ", for the one that wrote it was killed" if is_left_behind(state_dir) else ""
            click.echo(f"no broker yet: waiting for {state_dir / 'broker-url'} of `glassfleet broker`{why}", err=True)
        time.sleep(0.25)


def read_note(path: Path) -> str:
    """Return a one-line file's text; empty when there is no such file."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except OSError as fault:
        raise UsageError(f"cannot read {path}: {fault.strerror}") from fault
    except UnicodeDecodeError as fault:
        raise UsageError(f"{path} holds no address: remove it, and start what wrote it again") from fault
