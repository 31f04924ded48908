"""NATS with its MQTT gateway: a server of our own for tests.

NATS clusters, is one small program, and keeps MQTT sessions and retained messages in its JetStream store; the
conformance suite runs against it. What Debian's 2.9 does otherwise is listed in ``docs/reference/brokers.md``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.servers.child import ChildBroker, Program
from broker.servers.passwords import new_password, write_private
from broker.servers.process import free_port, kept_password, prepare_state_dir
from broker.url import BrokerAddress

CONFIG = """
server_name: "glassfleet-{port}"
listen: "127.0.0.1:{client_port}"
max_payload: 1048576
jetstream {{ store_dir: "{jetstream}", max_memory_store: 64M, max_file_store: 1G }}
mqtt {{ listen: "127.0.0.1:{port}", max_ack_pending: 1000, ack_wait: "5s" }}
authorization {{
  users: [ {{
    user: fleet
    password: "{password}"
    # Topics gf/1/#; the second is how the gateway delivers QoS 1.
    permissions: {{ publish: ["gf.1.>"], subscribe: ["gf.1.>", "$MQTT.sub.>"] }}
  }} ]
}}
"""
"""NATS's own protocol, on `client_port`, cannot be turned off."""

CLUSTER = """
server_name: "{name}"
listen: "127.0.0.1:{client_port}"
max_payload: 1048576
jetstream {{ store_dir: "{jetstream}", max_memory_store: 64M, max_file_store: 1G }}
cluster {{ name: glassfleet, listen: "127.0.0.1:{route}", routes: [{routes}] }}
mqtt {{ listen: "127.0.0.1:{port}", max_ack_pending: 1000, ack_wait: "5s" }}
accounts {{
  FLEET {{
    jetstream: enabled
    users: [ {{
      user: fleet
      password: "{password}"
      permissions: {{ publish: ["gf.1.>"], subscribe: ["gf.1.>", "$MQTT.sub.>"] }}
    }} ]
  }}
  # A cluster's JetStream needs one of the system's own.
  $SYS {{ users: [ {{ user: system, password: "{password}" }} ] }}
}}
"""


def find_nats() -> str | None:
    """Path of the server program; None when it is not installed."""
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/bin:/opt/homebrew/bin")


class NatsProcess(ChildBroker):
    """One NATS server on this machine that is not part of a cluster.

    Parameters
    ----------
    state_dir : Path
        Made if it does not exist; holds everything that the server writes.
    """

    def __init__(self, state_dir: Path) -> None:
        program = find_nats()
        assert program is not None, "nats-server is not installed: apt install nats-server"
        state_dir = prepare_state_dir(state_dir)
        password, port = kept_password(state_dir), free_port()
        config = CONFIG.format(port=port, client_port=free_port(), jetstream=state_dir / "jetstream", password=password)
        write_private(state_dir / "nats.conf", config)
        super().__init__(
            "nats",
            BrokerAddress("127.0.0.1", port, username="fleet", password=password),
            Program("nats", [program, "-c", str(state_dir / "nats.conf")], state_dir),
        )


@contextmanager
def nats_cluster(folder: Path, nodes: int = 3) -> Iterator[list[ChildBroker]]:
    """Start a cluster on this machine, and end it. Sessions and retained messages are kept by all three."""
    program = find_nats()
    assert program is not None, "nats-server is not installed: apt install nats-server"
    password, ports = new_password(), [(free_port(), free_port(), free_port()) for _ in range(nodes)]
    routes = ", ".join(f'"nats://127.0.0.1:{route}"' for *_, route in ports)
    made = []
    for port, client_port, route in ports:
        state_dir = prepare_state_dir(folder / f"nats-{port}")
        config = CLUSTER.format(
            name=f"n{port}", port=port, client_port=client_port, route=route, routes=routes,
            jetstream=state_dir / "jetstream", password=password,
        )  # fmt: skip
        write_private(state_dir / "nats.conf", config)
        made.append(
            ChildBroker(
                "nats",
                BrokerAddress("127.0.0.1", port, username="fleet", password=password),
                Program("nats", [program, "-c", str(state_dir / "nats.conf")], state_dir),
            )
        )
    try:
        for node in made:
            node.begin()  # none answers before two are there
        for node in made:
            node.await_answer(60.0)
        yield made
    finally:
        for node in made:
            node.kill()
