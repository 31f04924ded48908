"""What the configurations that Glassfleet writes for brokers have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from broker.servers.passwords import write_private
from broker.servers.process import kept_password
from schemas.limits import MAX_MESSAGE_BYTES

QUEUED = 1024
"""So many of the largest messages are kept for one client: one answer of each vehicle of a large fleet."""

USER = "fleet"
"""The one user of a broker with passwords."""


@dataclass(frozen=True)
class BrokerConfig(ABC):
    """What a generated configuration says.

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
    """

    port: int
    state_dir: Path
    host: str = "127.0.0.1"
    max_message_bytes: int = MAX_MESSAGE_BYTES
    cert: Path | None = None
    key: Path | None = None

    @property
    def max_queued_bytes(self) -> int:
        """What is kept for one client that is away or does not read. What is dropped there is sent again."""
        return QUEUED * self.max_message_bytes

    @property
    def is_mutual(self) -> bool:
        """Whether clients show certificates: nobody has a password then."""
        return False

    @abstractmethod
    def render(self) -> str:
        """Give the text of the configuration file."""

    @abstractmethod
    def beside(self, password: str) -> dict[str, str]:
        """Give the texts of the files in `state_dir` that the configuration names; `password` is the one user's."""

    def write(self, path: Path) -> str:
        """Write the configuration to `path`, and the files that it names.

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
        for name, text in self.beside(password).items():
            write_private(self.state_dir / name, text)
        write_private(path, self.render())
        return password
