"""Mosquitto as a child process: found, configured, started, stopped, restarted on the same port.

The generated configuration is explained line by line in ``docs/reference/brokers.md``. Two of its lines are measured
necessities: without ``set_tcp_nodelay`` a round costs 44 ms at least, and the default ``max_queued_messages`` silently
dropped 980 of 2000 answers that all had been acknowledged.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from broker.identity import check_owner
from broker.servers.process import (
    ChildBroker,
    Program,
    free_port,
    kept_password,
    mosquitto_hash,
    prepare_state_dir,
    write_private,
)
from broker.tls import CA, CERT, CRL, KEY, Tls, wait_for_server
from broker.url import BrokerAddress
from schemas.errors import BrokerError
from schemas.limits import MAX_MESSAGE_BYTES
from schemas.topics import SHARDS, Topics, check_id, shard_of

Access = Literal["read", "write", "readwrite"]


@dataclass(frozen=True)
class AclRule:
    """Permission to publish on (write) or to subscribe to (read) the topics that match a filter, or none at all."""

    access: Access
    pattern: str


def agent_rules(topics: Topics, agent: str) -> list[AclRule]:
    """Give what one agent needs, and nothing else."""
    return [
        AclRule("read", topics.coordinator_state()),
        AclRule("read", topics.revoked()),
        # It reads nothing that it writes: what it sends to itself and never reads, a broker would keep.
        AclRule("write", topics.agent_state(agent)),
        AclRule("read", topics.request("+")),
        *(AclRule("write", topics.contributions(shard, agent)) for shard in _shards(agent)),
        AclRule("read", topics.receipt(agent)),
        AclRule("read", topics.blobs("+")),
        AclRule("read", topics.model_current("+")),
        AclRule("read", topics.model_candidate("+")),
        AclRule("read", topics.model_versions("+")),
        AclRule("write", topics.evaluation(agent)),
        AclRule("write", topics.forecast(agent)),
    ]


def _shards(agent: str) -> Sequence[int]:
    """Return on which shards an agent may write: a pattern knows no hash, and ``+`` would allow topics without end."""
    return range(SHARDS) if agent == PATTERN_USER else [shard_of(agent)]


def coordinator_rules(topics: Topics) -> list[AclRule]:
    """Give what the coordinator needs."""
    return [
        # It also reads its own state and models: a second coordinator, or a forgotten version, must be noticed.
        AclRule("readwrite", topics.coordinator_state()),
        AclRule("readwrite", topics.revoked()),
        AclRule("read", topics.agent_state("+")),
        AclRule("readwrite", topics.request("+")),
        # What a vehicle has retained there is cleared.
        AclRule("readwrite", topics.contributions()),
        AclRule("write", topics.receipt("+")),
        AclRule("readwrite", topics.blobs("+")),
        AclRule("readwrite", topics.model_current("+")),
        AclRule("readwrite", topics.model_candidate("+")),
        AclRule("readwrite", topics.model_versions("+")),
        AclRule("readwrite", topics.evaluation("+")),
        AclRule("read", topics.forecast("+")),
    ]


def observer_rules(topics: Topics) -> list[AclRule]:
    """Give what a display or an auditor needs: all of the fleet, nothing to write."""
    return [AclRule("read", f"{topics.prefix}#")]


def mosquitto_acl(users: dict[str, list[AclRule]]) -> str:
    """Render an ACL file for Mosquitto: a block for each user, nothing for anybody else.

    Raises
    ------
    UsageError
        A user name is not a valid id: anything else could break out of its line.
    """
    blocks = ["# Written by glassfleet from the topics of the protocol. Changes will be overwritten."]
    for user, rules in users.items():
        check_id("user", user)
        lines = [f"user {user}", *(f"topic {rule.access} {rule.pattern}" for rule in rules)]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


PATTERN_USER = "%u"
"""What Mosquitto replaces by the name of the user."""


def certificate_acl(topics: Topics, *, coordinators: Sequence[str], operators: Sequence[str] = ()) -> str:
    """Render the ACL file of a broker that takes the user's name from the certificate.

    Parameters
    ----------
    coordinators, operators : sequence of str
        Ids. The authority gives no agent an id that one of them has.

    Raises
    ------
    UsageError
        A name is not a valid id.
    """
    users = {name: coordinator_rules(topics) for name in coordinators}
    users |= {name: observer_rules(topics) for name in operators if name not in users}
    # Patterns hold for every user, coordinators too: each may also use the topics of an agent with its own name, which
    # nobody else has and whose messages would not bear an agent's signature.
    patterns = [f"pattern {rule.access} {rule.pattern}" for rule in agent_rules(topics, PATTERN_USER)]
    return mosquitto_acl(users) + "\n" + "\n".join(patterns) + "\n"


def loopback_acl(user: str) -> str:
    """Render the ACL file of a broker that only this machine can reach: one user, all fleets, nothing else."""
    return mosquitto_acl({user: [AclRule("readwrite", "gf/1/#")]})


PID_FILE = "mosquitto.pid"

QUEUED = 1024
"""So many of the largest messages are kept for one client: one answer of each vehicle of a large fleet."""

USER = "fleet"
"""The one user of a broker with passwords."""

PACKET_ROOM = 4096
"""Bytes that a packet may have beyond its payload."""


def find_mosquitto() -> str | None:
    """Path of the mosquitto program: on the PATH, or where Debian puts it; None when it is not installed."""
    program = shutil.which("mosquitto")
    if program is None:
        program = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin")
    return program


@dataclass(frozen=True)
class MosquittoConfig:
    """What the generated configuration says.

    Attributes
    ----------
    port : int
        Of MQTT.
    state_dir : Path
        Where the broker's other files live.
    host : str
        Address to listen on; loopback by default.
    max_message_bytes : int
        Largest payload that the broker carries.
    cert, key : Path or None
        Certificate (with its chain) and private key, PEM: TLS. Both or neither.
    max_queued_messages : int
        Messages kept for one client that is away or slow; must be above the number of agents that answer at once.
    run_as : str
        User that it becomes when it is started as root. A child of ours stays root, to read the files that we wrote.
    ca, crl : Path or None
        With `ca`, mutual TLS: only clients with a certificate of that authority, their common name as user name and
        client id, no passwords. With `crl`, not those that it lists.
    acl : str
        With `ca`: the text of the access rules.
    """

    port: int
    state_dir: Path
    host: str = "127.0.0.1"
    max_message_bytes: int = MAX_MESSAGE_BYTES
    cert: Path | None = None
    key: Path | None = None
    max_queued_messages: int = 100_000
    run_as: str = "root"
    ca: Path | None = None
    crl: Path | None = None
    acl: str = ""

    @property
    def max_queued_bytes(self) -> int:
        """What is kept for one client that is away or does not read. What is dropped there is sent again."""
        return QUEUED * self.max_message_bytes

    @property
    def is_mutual(self) -> bool:
        """Whether clients show certificates: nobody has a password then."""
        return self.ca is not None

    def _sign_in(self) -> list[str]:
        """Give the lines about who may connect."""
        if not self.is_mutual:
            tls = [] if self.cert is None else [f"certfile {self.cert}", f"keyfile {self.key}", "tls_version tlsv1.2"]
            return [*tls, "allow_anonymous false", f"password_file {self.state_dir / 'passwords'}"]
        return [
            f"certfile {self.cert}",
            f"keyfile {self.key}",
            f"cafile {self.ca}",
            *([] if self.crl is None else [f"crlfile {self.crl}"]),
            "tls_version tlsv1.3",
            "require_certificate true",
            "use_identity_as_username true",
            "use_username_as_clientid true",
            "allow_anonymous false",
            f"pid_file {self.state_dir / PID_FILE}",
        ]

    def render(self) -> str:
        """Give the text of the configuration file."""
        lines = [
            "# Written by glassfleet; see docs/reference/brokers.md for the reason of each line.",
            f"listener {self.port} {self.host}",
            *self._sign_in(),
            "allow_zero_length_clientid false",
            f"acl_file {self.state_dir / 'acl'}",
            "set_tcp_nodelay true",
            "max_inflight_messages 100",
            f"max_queued_messages {self.max_queued_messages}",
            f"max_queued_bytes {self.max_queued_bytes}",
            # What is sent with QoS 0 would wait outside that queue, and without bound.
            "upgrade_outgoing_qos true",
            f"memory_limit {4 * self.max_queued_bytes}",
            f"max_packet_size {self.max_message_bytes + PACKET_ROOM}",
            "max_keepalive 300",
            "persistent_client_expiration 7d",
            "persistence true",
        ]
        if os.geteuid() == 0:
            lines.append(f"user {self.run_as}")
        lines += [
            f"persistence_location {self.state_dir}/",
            "persistence_file mosquitto.db",
            # Written on a clean stop anyway; in between, what a kill may cost.
            "autosave_interval 10",
            f"log_dest file {self.state_dir / 'mosquitto.log'}",
            "log_type error",
            "log_type warning",
            "log_type notice",
            "log_timestamp_format %Y-%m-%dT%H:%M:%S",
        ]
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> str:
        """Write the configuration to `path`, and the files that it names to `state_dir`.

        Returns
        -------
        str
            The password of the one user: the one that was made before for this state directory, or a new one. Empty:
            there is none.

        Raises
        ------
        StorageError
            A file cannot be written.
        """
        password = "" if self.is_mutual else kept_password(self.state_dir)
        if password:
            write_private(self.state_dir / "passwords", f"{USER}:{mosquitto_hash(password)}\n")
        write_private(self.state_dir / "acl", self.acl if self.is_mutual else loopback_acl(USER))
        write_private(path, self.render())
        return password


def mutual(config: MosquittoConfig, identity: Path, acl: str) -> MosquittoConfig:
    """Return `config` with mutual TLS and rules, from a broker's identity folder; raises UsageError when it is none."""
    check_owner(identity, "broker")
    folder = identity.resolve()
    crl = folder / CRL if (folder / CRL).exists() else None
    return replace(config, cert=folder / CERT, key=folder / KEY, ca=folder / CA, crl=crl, acl=acl)


class MosquittoProcess(ChildBroker):
    """One Mosquitto on this machine.

    Parameters
    ----------
    state_dir : Path
        Made if it does not exist. The password stays in it, so a broker started again on it has the same URL.
    port : int
        0: a free one.
    max_message_bytes : int
        Largest payload that it carries.
    identity : Path or None
        Its identity folder: mutual TLS, with the revocation list that is in it.
    acl : str
        The text of its access rules, with `identity`.

    Raises
    ------
    BrokerError
        Mosquitto is not installed.
    StorageError
        The state directory cannot be written.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        port: int = 0,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        identity: Path | None = None,
        acl: str = "",
    ) -> None:
        program = find_mosquitto()
        if program is None:
            raise BrokerError("mosquitto is not installed: apt install mosquitto, or use the embedded broker")
        state_dir = prepare_state_dir(state_dir)
        self.config = MosquittoConfig(port or free_port(), state_dir, max_message_bytes=max_message_bytes)
        if identity is not None:
            self.config = mutual(self.config, identity, acl)
        conf = state_dir / "mosquitto.conf"
        password = self.config.write(conf)
        address = (
            BrokerAddress(self.config.host, self.config.port, username=USER, password=password)
            if identity is None
            else BrokerAddress("localhost", self.config.port, tls=True)
        )
        errors = "mosquitto.err"
        super().__init__(
            "mosquitto",
            address,
            Program(
                "mosquitto",
                [program, "-c", str(conf)],
                state_dir,
                output=errors,
                tells={errors: 3, "mosquitto.log": 3},
                at_home=False,
                protocol="auto",
                grace=5.0,
            ),
        )

    def reload(self, acl: str | None = None) -> None:
        """Let it read its certificates, revocation list and access rules again, with new rules if given."""
        if acl is not None:
            write_private(self.config.state_dir / "acl", acl)
        self.signal(signal.SIGHUP)

    def await_answer(self, timeout: float) -> None:
        """Return when it answers; raises BrokerError when it does not, or has ended."""
        if self.config.ca is None:
            super().await_answer(timeout)
            return
        # A probe of ours has no certificate for a client; that it shows its own is enough.
        trust = Tls(str(self.config.ca))
        wait_for_server("localhost", self.config.port, trust, timeout, is_alive=lambda: self.is_running)

    def last_words(self) -> str:
        """Return the end of what it printed."""
        # One that runs and shows a wrong certificate has nothing to say about it.
        return "" if self.config.is_mutual and self.is_running else super().last_words()
