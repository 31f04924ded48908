"""NATS with its MQTT gateway: a server of our own for tests.

NATS clusters, is one small program, and keeps MQTT sessions and retained messages in its JetStream store; the
conformance suite runs against it. What Debian's 2.9 does otherwise is listed in ``docs/reference/brokers.md``.
"""

from __future__ import annotations

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


def find_nats() -> str | None:
    """Path of the server program; None when it is not installed."""
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/bin:/opt/homebrew/bin")


@dataclass(frozen=True)
class NatsConfig:
    """What the generated configuration says.

    Attributes
    ----------
    port, client_port : int
        Of MQTT, and of NATS's own protocol (it cannot be turned off).
    state_dir : Path
        Where JetStream keeps sessions and messages.
    password : str
    host : str
        Address to listen on; loopback by default.
    max_message_bytes : int
        Largest payload that the broker carries.
    """

    port: int
    client_port: int
    state_dir: Path
    password: str
    host: str = "127.0.0.1"
    max_message_bytes: int = 1024 * 1024

    def render(self) -> str:
        """Give the text of the configuration file; it holds the password."""
        return f"""# Written by glassfleet; see docs/reference/brokers.md.
server_name: "glassfleet-{self.port}"
listen: "{self.host}:{self.client_port}"
max_payload: {self.max_message_bytes}
jetstream {{ store_dir: "{self.state_dir / "jetstream"}", max_memory_store: 64M, max_file_store: 1G }}
mqtt {{ listen: "{self.host}:{self.port}", max_ack_pending: 1000, ack_wait: "5s" }}
authorization {{
  users: [ {{
    user: {USER}
    password: "{self.password}"
    # Topics gf/1/#; the second is how the gateway delivers QoS 1.
    permissions: {{ publish: ["gf.1.>"], subscribe: ["gf.1.>", "$MQTT.sub.>"] }}
  }} ]
}}
"""


class NatsProcess(ChildBroker):
    """One NATS server on this machine that is not part of a cluster.

    Parameters
    ----------
    state_dir : Path
        Made if it does not exist; holds everything that the server writes.

    Raises
    ------
    BrokerError
        NATS is not installed.
    StorageError
        The state directory cannot be written.
    """

    def __init__(self, state_dir: Path) -> None:
        program = find_nats()
        if program is None:
            raise BrokerError("nats-server is not installed: apt install nats-server, or use Mosquitto")
        state_dir = prepare_state_dir(state_dir)
        password = kept_password(state_dir)
        self.config = NatsConfig(free_port(), free_port(), state_dir, password)
        write_private(state_dir / "nats.conf", self.config.render())
        super().__init__(
            "nats",
            BrokerAddress(self.config.host, self.config.port, username=USER, password=password),
            Program("nats", [program, "-c", str(state_dir / "nats.conf")], state_dir),
        )
