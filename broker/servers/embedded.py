"""The embedded broker: amqtt, in a process of its own, on loopback, with a password. MQTT 3.1.1, for about 100 agents.

For demonstrations, tests and small fleets on one machine, where no other broker is installed. It keeps nothing on disk:
a restart forgets sessions and retained messages, and the coordinator publishes its retained topics again. What it does
otherwise than the standard says is listed in the conformance suite; what had to be patched for agents that come and go
is in ``broker/servers/amqtt_patches.py``.

``python -m broker.servers.embedded --state-dir DIR --port PORT`` runs it; ``broker.servers.launch`` and the command
``glassfleet broker`` do that.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
from pathlib import Path
from typing import Any

from broker.servers.process import kept_password, prepare_state_dir, write_private
from schemas.errors import BrokerError

USER = "fleet"
"""The one user."""

HOST = "127.0.0.1"
"""It has no TLS and no access rules, so only this machine can reach it."""


def prepare_embedded(state_dir: Path) -> tuple[Path, str]:
    """Make the password and write it down as a hash; returns the directory, as it is to be named, and the password.

    Raises
    ------
    BrokerError
        The extra ``glassfleet[broker]`` is not installed.
    StorageError
        `state_dir` cannot be written.
    """
    try:
        import argon2  # noqa: PLC0415 - comes with the optional extra
    except ImportError as fault:
        raise BrokerError("the embedded broker is not installed: pip install 'glassfleet[broker]'") from fault
    directory = prepare_state_dir(state_dir)
    password = kept_password(directory)
    # Cheap on purpose: 192 random bits need no stretching, and amqtt checks passwords on its only thread, so the
    # default of 50 ms each would stall the whole fleet whenever it reconnects.
    hashed = argon2.PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash(password)
    write_private(_password_file(directory), f"{USER}:{hashed}\n")
    return directory, password


def _password_file(state_dir: Path) -> Path:
    return state_dir / "passwords"


def run_embedded(state_dir: Path, port: int) -> None:
    """Serve until SIGTERM or SIGINT; prints nothing (faults go to ``broker.log`` in the state directory).

    Parameters
    ----------
    state_dir : Path
        From `prepare_embedded`.
    port : int
        Of `HOST`.

    Raises
    ------
    BrokerError
        amqtt is not installed, or the port is taken.
    """
    _tame_logging(state_dir / "broker.log")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(state_dir, port))


def _tame_logging(path: Path) -> None:
    """Send what amqtt, its state machine and asyncio complain about to a file, and only faults."""
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    for name in ("amqtt", "transitions", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(logging.ERROR)
        logger.propagate = False


async def _serve(state_dir: Path, port: int) -> None:
    try:
        from broker.servers.amqtt_patches import PatchedBroker  # noqa: PLC0415 - amqtt is an optional extra
    except ImportError as fault:
        raise BrokerError("the embedded broker is not installed: pip install 'glassfleet[broker]'") from fault
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not on the main thread
            loop.add_signal_handler(number, ended.set)
    settings: dict[str, Any] = {
        "listeners": {"default": {"type": "tcp", "bind": f"{HOST}:{port}"}},
        # Added to each client's keepalive: paho pings exactly when it ends, so without it the two would race.
        "timeout_disconnect_delay": 15,
        "session_expiry_interval": 7 * 24 * 3600,
        "plugins": {"amqtt.plugins.authentication.FileAuthPlugin": {"password_file": str(_password_file(state_dir))}},
    }
    broker = PatchedBroker(settings)
    try:
        await broker.start()
    except Exception as fault:
        raise BrokerError(
            f"the embedded broker cannot listen on {HOST}:{port}: {fault}. Choose another port"
        ) from fault
    await ended.wait()
    with contextlib.suppress(Exception):
        await asyncio.wait_for(broker.shutdown(), 5)


def main() -> None:
    """Run the broker of a state directory; the process's exit code is that of `BrokerError`."""
    parser = argparse.ArgumentParser(prog="python -m broker.servers.embedded", description=run_embedded.__doc__)
    parser.add_argument("--state-dir", required=True, type=Path, help="directory that prepare_embedded has made")
    parser.add_argument("--port", required=True, type=int)
    chosen = parser.parse_args()
    try:
        run_embedded(chosen.state_dir, chosen.port)
    except BrokerError as fault:
        with (chosen.state_dir / "broker.log").open("a", encoding="utf-8") as log:
            log.write(f"{fault}\n")
        os._exit(fault.exit_code)


if __name__ == "__main__":
    main()
