"""A RabbitMQ node of our own for tests.

It shares nothing with an installed one: own name, own folders, loopback, no epmd (a daemon that would outlive it), one
scheduler.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from broker.servers.child import ChildBroker, Program
from broker.servers.process import free_port, prepare_state_dir
from broker.servers.rabbitmq import USER, RabbitmqConfig, write_rabbitmq
from broker.url import BrokerAddress

_PLACES = "/usr/lib/rabbitmq/bin:/usr/local/sbin:/opt/homebrew/sbin"
"""Where the script itself is; Debian's ``/usr/sbin/rabbitmq-server`` is a wrapper that changes the user."""


def find_rabbitmq() -> str | None:
    """Path of the server's start script; None when RabbitMQ or its MQTT plugin is not installed."""
    return shutil.which("rabbitmq-server", path=_PLACES)


class RabbitmqProcess(ChildBroker):
    """One RabbitMQ node on this machine that is not part of a cluster.

    Parameters
    ----------
    state_dir : Path
        Made if it does not exist; holds everything that the node writes.
    """

    def __init__(self, state_dir: Path) -> None:
        program = find_rabbitmq()
        assert program is not None, "rabbitmq-server is not installed: apt install rabbitmq-server"
        state_dir = prepare_state_dir(state_dir)
        self.config = RabbitmqConfig(free_port(), state_dir)
        password = write_rabbitmq(self.config, state_dir / "rabbitmq.conf")
        super().__init__(
            "rabbitmq",
            BrokerAddress(self.config.host, self.config.port, username=USER, password=password),
            Program("rabbitmq", [program], state_dir, environment=self._surroundings(state_dir), patience=60.0),
        )

    def _surroundings(self, state_dir: Path) -> dict[str, str]:
        """Everything that would otherwise come from the machine's own RabbitMQ."""
        distribution = free_port()
        node = f"glassfleet-{self.config.port}@localhost"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")}
        return inherited | {
            # The Erlang cookie is made here, and not taken from or left in somebody's home.
            "HOME": str(state_dir),
            "RABBITMQ_NODENAME": node,
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(state_dir / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(state_dir / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(state_dir / "mnesia"),
            "RABBITMQ_LOG_BASE": str(state_dir / "log"),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                f"-sname {node} -start_epmd false -erl_epmd_port {distribution} "
                # One scheduler that does not spin while it waits: it shares the machine with the tests.
                "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1 +sbwt none"
            ),
            "ERL_MAX_PORTS": "65536",
            # Let the script become the server, instead of waiting for it: signals then reach the server itself.
            "RUNNING_UNDER_SYSTEMD": "1",
        }
