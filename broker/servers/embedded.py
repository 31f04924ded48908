"""The embedded broker: amqtt, in a process of its own, on loopback, with a password. MQTT 3.1.1, for about 100 agents.

For demonstrations, tests and small fleets on one machine, where no other broker is installed. It keeps nothing on disk:
a restart forgets sessions and retained messages, and the coordinator publishes its retained topics again. What it does
otherwise than the standard says is listed in ``docs/reference/brokers.md`` and in the conformance suite; what had to be
patched for agents that come and go is in ``broker/servers/amqtt_patches.py``.

``python -m broker.servers.embedded --config FILE`` runs it; ``broker.servers.launch`` and the command ``glassfleet
broker`` do that.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from broker.servers.passwords import write_private
from broker.servers.process import free_port, kept_password, prepare_state_dir
from broker.url import BrokerAddress
from schemas.errors import BrokerError, UsageError

USER = "fleet"
"""The one user."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class EmbeddedConfig:
    """What the broker process needs to know.

    Attributes
    ----------
    host : str
        A loopback address.
    state_dir : str
        Holds the password file and the log.
    """

    host: str
    port: int
    state_dir: str

    @property
    def password_file(self) -> Path:
        """User and hash."""
        return Path(self.state_dir) / "passwords"

    @property
    def address(self) -> BrokerAddress:
        """Where it listens, and how to sign in."""
        return BrokerAddress(self.host, self.port, username=USER, password=kept_password(Path(self.state_dir)))

    @property
    def url(self) -> str:
        """URL with user and password."""
        return self.address.url


def prepare_embedded(state_dir: Path, *, host: str = "127.0.0.1", port: int = 0) -> EmbeddedConfig:
    """Choose a port (0: a free one), make the password, write the files.

    Raises
    ------
    UsageError
        `host` is not a loopback address.
    BrokerError
        The extra ``glassfleet[broker]`` is not installed.
    StorageError
        `state_dir` cannot be written.
    """
    if host not in LOOPBACK:
        raise UsageError(
            f"the embedded broker listens on this machine only, not on {host}: it has no TLS and no access rules. "
            "Use Mosquitto for a network (docs/reference/brokers.md)"
        )
    try:
        import argon2  # noqa: PLC0415 - comes with the optional extra
    except ImportError as fault:
        raise BrokerError("the embedded broker is not installed: pip install 'glassfleet[broker]'") from fault
    directory = prepare_state_dir(state_dir)
    password = kept_password(directory)
    # Cheap on purpose: 192 random bits need no stretching, and amqtt checks passwords on its only thread, so the
    # default of 50 ms each would stall the whole fleet whenever it reconnects.
    hashed = argon2.PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash(password)
    config = EmbeddedConfig(host=host, port=port or free_port(host), state_dir=str(directory))
    write_private(config.password_file, f"{USER}:{hashed}\n")
    write_private(directory / "embedded.json", json.dumps(asdict(config)) + "\n")
    return config


def run_embedded(config: EmbeddedConfig) -> None:
    """Serve until SIGTERM or SIGINT; prints nothing (faults go to ``broker.log`` in the state directory).

    Parameters
    ----------
    config : EmbeddedConfig
        From `prepare_embedded`.

    Raises
    ------
    BrokerError
        amqtt is not installed, or the port is taken.
    """
    _tame_logging(Path(config.state_dir) / "broker.log")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(config))


def _tame_logging(path: Path) -> None:
    """Send what amqtt, its state machine and asyncio complain about to a file, and only faults."""
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    for name in ("amqtt", "transitions", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(logging.ERROR)
        logger.propagate = False


async def _serve(config: EmbeddedConfig) -> None:
    try:
        from broker.servers.amqtt_patches import PatchedBroker  # noqa: PLC0415 - amqtt is an optional extra
    except ImportError as fault:
        raise BrokerError("the embedded broker is not installed: pip install 'glassfleet[broker]'") from fault
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not on the main thread
            loop.add_signal_handler(number, ended.set)
    place = f"[{config.host}]" if ":" in config.host else config.host
    settings: dict[str, Any] = {
        "listeners": {"default": {"type": "tcp", "bind": f"{place}:{config.port}"}},
        # Added to each client's keepalive: paho pings exactly when it ends, so without it the two would race.
        "timeout_disconnect_delay": 15,
        "session_expiry_interval": 7 * 24 * 3600,
        "plugins": {
            "amqtt.plugins.authentication.FileAuthPlugin": {"password_file": str(config.password_file)},
        },
    }
    broker = PatchedBroker(settings)
    try:
        await broker.start()
    except Exception as fault:
        raise BrokerError(
            f"the embedded broker cannot listen on {config.host}:{config.port}: {fault}. Choose another port"
        ) from fault
    await ended.wait()
    with contextlib.suppress(Exception):
        await asyncio.wait_for(broker.shutdown(), 5)


def main() -> None:
    """Run the broker that a configuration file describes; the process's exit code is that of `BrokerError`."""
    parser = argparse.ArgumentParser(prog="python -m broker.servers.embedded", description=run_embedded.__doc__)
    parser.add_argument(
        "--config", required=True, type=Path, help="file written by broker.servers.embedded.prepare_embedded"
    )
    chosen = parser.parse_args()
    config = EmbeddedConfig(**json.loads(chosen.config.read_text(encoding="utf-8")))
    try:
        run_embedded(config)
    except BrokerError as fault:
        with (Path(config.state_dir) / "broker.log").open("a", encoding="utf-8") as log:
            log.write(f"{fault}\n")
        os._exit(fault.exit_code)


if __name__ == "__main__":
    main()
