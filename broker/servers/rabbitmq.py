"""RabbitMQ with its MQTT plugin: the generated configuration, and a node of our own for tests.

RabbitMQ clusters and is what many clouds already run, so the conformance suite runs against it. What Debian's 3.10
cannot do is listed in ``docs/reference/brokers.md``; the gravest: a retained message reaches only subscribers that name
its topic in full. `RabbitmqProcess` starts a node that shares nothing with an installed one: own name, own folders,
loopback, no epmd (a daemon that would outlive it), one scheduler.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from broker.servers.child import ChildBroker, Program
from broker.servers.passwords import write_private
from broker.servers.process import free_port, kept_password, prepare_state_dir
from broker.url import BrokerAddress
from schemas.errors import BrokerError

USER = "fleet"
"""The one user of a loopback broker."""

_ABSENT = "rabbitmq-server is not installed: apt install rabbitmq-server, or use Mosquitto"

_PLACES = "/usr/lib/rabbitmq/bin:/usr/local/sbin:/opt/homebrew/sbin"
"""Where the script itself is; Debian's ``/usr/sbin/rabbitmq-server`` is a wrapper that changes the user."""


def find_rabbitmq() -> str | None:
    """Path of the server's start script; None when RabbitMQ or its MQTT plugin is not installed."""
    return shutil.which("rabbitmq-server", path=_PLACES)


def rabbitmq_hash(password: str, *, salt: bytes | None = None) -> str:
    """Hash for a definitions file: base64 of salt and SHA-512(salt, password); the salt has 4 bytes."""
    salt = secrets.token_bytes(4) if salt is None else salt
    return base64.b64encode(salt + hashlib.sha512(salt + password.encode()).digest()).decode()


@dataclass(frozen=True)
class RabbitmqConfig:
    """What the generated configuration says.

    Attributes
    ----------
    port : int
        Of MQTT.
    state_dir : Path
        Where the user definitions live.
    host : str
        Address to listen on; loopback by default.
    max_message_bytes : int
        Largest payload that the broker carries.
    cert, key : Path or None
        Certificate (with its chain) and private key, PEM: TLS. Both or neither.
    """

    port: int
    state_dir: Path
    host: str = "127.0.0.1"
    max_message_bytes: int = 1024 * 1024
    cert: Path | None = None
    key: Path | None = None

    def render(self) -> str:
        """Give the text of ``rabbitmq.conf``."""
        if self.cert is None:
            listener = [f"mqtt.listeners.tcp.1 = {self.host}:{self.port}"]
        else:
            listener = [
                "mqtt.listeners.tcp = none",
                f"mqtt.listeners.ssl.1 = {self.host}:{self.port}",
                f"ssl_options.certfile = {self.cert}",
                f"ssl_options.keyfile = {self.key}",
                "ssl_options.versions.1 = tlsv1.2",
                "ssl_options.versions.2 = tlsv1.3",
            ]
        return (
            "\n".join(
                [
                    "# Written by glassfleet; see docs/reference/brokers.md for the reason of each line.",
                    "# Beside it: enabled_plugins with the line [rabbitmq_mqtt].",
                    "listeners.tcp = none",
                    *listener,
                    "mqtt.allow_anonymous = false",
                    "mqtt.vhost = /",
                    "mqtt.exchange = amq.topic",
                    "mqtt.prefetch = 100",
                    "mqtt.subscription_ttl = 604800000",
                    "mqtt.tcp_listen_options.nodelay = true",
                    "mqtt.tcp_listen_options.backlog = 4096",
                    "mqtt.retained_message_store = rabbit_mqtt_retained_msg_store_dets",
                    f"max_message_size = {self.max_message_bytes}",
                    f"load_definitions = {self.state_dir / 'definitions.json'}",
                    "log.console = true",
                    "log.console.level = warning",
                    "log.file = false",
                ]
            )
            + "\n"
        )


def render_definitions(password: str) -> str:
    """Give the text of the definitions file: one user, who may use the topics ``gf/1/#`` and nothing else.

    MQTT's ``/`` is AMQP's ``.`` in a routing key. The user may declare and use the queues of MQTT sessions only.
    """
    queues = "^mqtt-subscription-.*"
    allowed = {"configure": queues, "write": f"{queues}|^amq\\.topic$", "read": f"{queues}|^amq\\.topic$"}
    topics = {"exchange": "amq.topic", "write": "^gf\\.1\\..*", "read": "^gf\\.1\\..*"}
    user = {
        "name": USER,
        "password_hash": rabbitmq_hash(password),
        "hashing_algorithm": "rabbit_password_hashing_sha512",
        "tags": [],
    }
    value = {
        "users": [user],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": USER, "vhost": "/", **allowed}],
        "topic_permissions": [{"user": USER, "vhost": "/", **topics}],
    }
    return json.dumps(value, indent=2) + "\n"


def write_rabbitmq(config: RabbitmqConfig, path: Path) -> str:
    """Write the configuration to `path`, and in its state directory the user definitions and ``enabled_plugins``.

    Returns
    -------
    str
        The password of the one user: the one that was made before for this state directory, or a new one.

    Raises
    ------
    StorageError
        A file cannot be written.
    """
    password = kept_password(config.state_dir)
    write_private(config.state_dir / "definitions.json", render_definitions(password))
    write_private(config.state_dir / "enabled_plugins", "[rabbitmq_mqtt].\n")
    write_private(path, config.render())
    return password


class RabbitmqProcess(ChildBroker):
    """One RabbitMQ node on this machine that is not part of a cluster.

    Parameters
    ----------
    state_dir : Path
        Made if it does not exist; holds everything that the node writes.
    port : int
        0: a free one.
    max_message_bytes : int
    dies_with_parent : bool
        See `broker.servers.child.ChildBroker`.

    Raises
    ------
    BrokerError
        RabbitMQ is not installed.
    StorageError
        The state directory cannot be written.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        port: int = 0,
        max_message_bytes: int = 1024 * 1024,
        dies_with_parent: bool = True,
    ) -> None:
        program = find_rabbitmq()
        if program is None:
            raise BrokerError(_ABSENT)
        state_dir = prepare_state_dir(state_dir)
        self.config = RabbitmqConfig(port or free_port(), state_dir, max_message_bytes=max_message_bytes)
        password = write_rabbitmq(self.config, state_dir / "rabbitmq.conf")
        super().__init__(
            "rabbitmq",
            BrokerAddress(self.config.host, self.config.port, username=USER, password=password),
            Program("rabbitmq", [program], state_dir, environment=self._surroundings(state_dir), patience=60.0),
            dies_with_parent=dies_with_parent,
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
