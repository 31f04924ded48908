"""Broker URLs: ``mqtt://[user[:password]@]host[:port]``, and ``mqtts://`` for TLS; of a cluster one for each node."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from broker.tls import Tls
from schemas.errors import UsageError

PORTS = {"mqtt": 1883, "mqtts": 8883}
"""Schemes and their registered ports."""


@dataclass(frozen=True)
class BrokerAddress:
    """Where a broker is and how to sign in.

    Attributes
    ----------
    port : int
        1 to 65535.
    username, password : str or None
        The password is never part of ``repr``.
    """

    host: str
    port: int
    tls: bool = False
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        """``host:port``, for messages to people."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL with everything in it, also the password: keep it out of logs."""
        user = ""
        if self.username is not None:
            secret = "" if self.password is None else f":{quote(self.password, safe='')}"
            user = f"{quote(self.username, safe='')}{secret}@"
        return f"{'mqtts' if self.tls else 'mqtt'}://{user}{self.place}"

    @property
    def public(self) -> str:
        """The URL without user and password, for logs and displays."""
        return f"{'mqtts' if self.tls else 'mqtt'}://{self.place}"


def parse_url(url: str) -> BrokerAddress:
    """Parse a broker URL; raises UsageError that says what is wrong and what a right one looks like."""
    way_out = "; write it as mqtt://[user[:password]@]host[:port], or mqtts:// for TLS"
    try:
        parts = urlsplit(url.strip())
        port = parts.port
        host = parts.hostname
    except ValueError as fault:
        raise UsageError(f"the broker URL has a bad host or port ({fault}){way_out}") from fault
    if parts.scheme not in PORTS:
        reason = f"starts with {parts.scheme}://" if "://" in url else "has no mqtt:// in front"
        raise UsageError(f"the broker URL {reason}{way_out}")
    if not host:
        raise UsageError(f"the broker URL names no host{way_out}")
    if port == 0:
        raise UsageError(f"the broker URL names port 0, where nothing can listen{way_out}")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise UsageError(
            f"the broker URL has something after the port (a '/', '?' or '#' in a password is written %2F, "
            f"%3F, %23){way_out}"
        )
    if parts.password is not None and not parts.username:
        raise UsageError(f"the broker URL has a password but no user{way_out}")
    return BrokerAddress(
        host=host,
        port=PORTS[parts.scheme] if port is None else port,
        tls=parts.scheme == "mqtts",
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password is not None else None,
    )


def urls_of(urls: str) -> tuple[str, ...]:
    """Return each URL of a list with commas between: the nodes of one cluster."""
    return tuple(re.split(r",(?=mqtts?://)", urls.strip()))


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine, and nobody listens on the way."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def safe_address(url: str, tls: Tls | None = None, *, insecure_plaintext: bool = False) -> BrokerAddress:
    """Parse a broker URL for use: plain MQTT leaves this machine only if somebody says that it shall.

    Parameters
    ----------
    tls : Tls or None
        Settings that only make sense with ``mqtts://``.
    insecure_plaintext : bool
        Whether ``mqtt://`` to another machine is meant.

    Raises
    ------
    UsageError
        The URL is wrong, would send in the clear to another machine, or leaves a certificate unused.
    """
    address = parse_url(url)
    if address.tls:
        return address
    if tls is not None and tls.has_certificate:
        raise UsageError(
            f"{address.public} makes no use of the certificate of --identity: write mqtts://, or leave --identity out"
        )
    if not insecure_plaintext and not is_loopback(address.host):
        raise UsageError(
            f"{address.public} is another machine, and plain MQTT can be read and changed by everybody on the way: use "
            "mqtts:// with --identity DIR (docs/howto/secure-fleet.md), or say --insecure-plaintext if the network is "
            "guarded otherwise"
        )
    return address
