"""``glassfleet broker``: a broker for one machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from broker.servers.process import write_private
from broker.url import is_loopback
from console.broker_discovery import read_note
from console.common import StopFlag, broker_kind_option, file_option, json_option, options_as, state_dir_option, tell
from console.services.tap import tap
from schemas.errors import BrokerError, StorageError, UsageError, os_faults_as
from schemas.limits import MAX_MESSAGE_BYTES, MIN_MESSAGE_BYTES
from schemas.private_files import make_folders, open_private, private_folder
from schemas.topics import DEFAULT_FLEET, Topics

if TYPE_CHECKING:
    from broker.servers.mosquitto import MosquittoConfig

_TRIES, _PORT_TRIES, _MOMENT = 5, 20, 0.05


@click.group(invoke_without_command=True)
@broker_kind_option
@click.option("--port", type=click.IntRange(0, 65535), default=1883, show_default=True, help="0: a free one.")
@state_dir_option
@json_option
@click.pass_context
def broker(context: click.Context, kind: str, port: int, state_dir: Path, *, as_json: bool) -> None:
    """Start a broker on loopback and keep it until SIGTERM or Ctrl-C.

    Its URL, with the password, is written to STATE_DIR/broker-url, which only you can read and where the other commands
    find it. The password is never printed.

    \b
    Examples:
      glassfleet broker --kind embedded
    """
    if context.invoked_subcommand is not None:
        return
    from broker.servers.launch import launch

    stop = StopFlag()
    note = state_dir / "broker-url"
    with contextlib.ExitStack() as stack:
        stack.enter_context(_only_one(state_dir / "broker"))
        # Whose it was has ended: nobody should go there while this one starts.
        killed = bool(read_note(note))
        note.unlink(missing_ok=True)
        kept = state_dir / "broker" / "port"
        wanted = context.get_parameter_source("port")
        if port == 0 or (killed and wanted is ParameterSource.DEFAULT):
            port = _former(kept, port)
        running = launch(kind, state_dir=state_dir / "broker", port=port)
        write_private(kept, f"{urlsplit(running.url).port}\n")
        stack.callback(_take_back, note, running.url)
        stack.callback(running.stop)
        write_private(note, running.url + "\n")
        # Without the password: what is printed lands in logs.
        place = running.address.public
        text = f"{running.kind} broker at {place}; its URL with the password is in {note}; Ctrl-C ends it"
        tell(text, as_json=as_json, address=place, url_file=str(note), kind=running.kind, pid=running.pid)
        while not stop.wait(0.5):
            if not running.is_running:
                raise BrokerError(f"the {running.kind} broker ended by itself; its log is in {state_dir / 'broker'}")


def _former(kept: Path, port: int) -> int:
    """Return the port that the broker of this folder had; `port` when it had none, or that one is taken."""
    try:
        former = int(kept.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return port
    # One that was killed may have its port for a moment longer.
    for _ in range(_PORT_TRIES):
        with socket.socket() as probe:
            # As the broker itself will: connections of the former one that still linger do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError, OverflowError):
                probe.bind(("127.0.0.1", former))
                return former
        time.sleep(_MOMENT)
    return port


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold a broker's folder; the system gives it free when this process ends, however it ends."""
    path = folder / "lock"
    with os_faults_as(StorageError, f"cannot open {path}", "; choose another --state-dir"):
        private_folder(folder.parent)
        private_folder(folder)
        file = open_private(path, "ab")
    with file:
        try:
            _lock(file)
        except OSError as fault:
            raise StorageError(
                f"another `glassfleet broker` works in {folder}: use that one ({folder.parent / 'broker-url'} has its "
                "address), stop it first, or give this one another --state-dir"
            ) from fault
        yield


def _lock(file: IO[bytes]) -> None:
    """Take the lock; who only looks whether it is held has it for a moment."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_MOMENT)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _take_back(note: Path, url: str) -> None:
    """Remove the note, unless another broker's URL is in it."""
    with contextlib.suppress(FileNotFoundError):
        if note.read_text(encoding="utf-8").strip() == url:
            note.unlink()


@dataclass(frozen=True, kw_only=True)
class ConfigOptions:
    """Of ``glassfleet broker config``."""

    host: str
    port: int
    cert: Path | None
    key: Path | None
    identity: Path | None
    coordinators: tuple[str, ...]
    operators: tuple[str, ...]
    fleet: str
    max_message_bytes: int
    out: Path | None
    state_dir: Path

    @property
    def folder(self) -> Path:
        """Where the broker keeps its files."""
        return (self.state_dir / "broker" if self.out is None else self.out.parent).absolute()


@broker.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; a network needs TLS.")
@click.option("--port", type=click.IntRange(1, 65535), default=1883, show_default=True, help="Port to listen on.")
@click.option(
    "--cert", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Certificate and chain, PEM."
)
@click.option("--key", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Its private key, PEM.")
@click.option(
    "--tls", "identity", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
    help="Mutual TLS with this identity folder (`glassfleet ca issue --broker`): no passwords, rules for each vehicle.",
)  # fmt: skip
@click.option("--coordinator", "coordinators", multiple=True, metavar="ID", help="With --tls; default: coordinator.")
@click.option("--operator", "operators", multiple=True, metavar="ID", help="With --tls: may read all; repeatable.")
@click.option("--fleet", default=DEFAULT_FLEET, show_default=True, help="With --tls: whose topics.")
@click.option(
    "--max-message-bytes",
    type=click.IntRange(MIN_MESSAGE_BYTES, 2**28 - 1),
    default=MAX_MESSAGE_BYTES,
    show_default=True,
    help="Largest payload that the broker carries.",
)
@file_option(
    "--out", help="Write it there, and beside it the password file and access rules that it names. Default: print it."
)
@state_dir_option
@options_as(ConfigOptions)
def config(options: ConfigOptions) -> None:
    """Write the hardened configuration of a Mosquitto: the one that Glassfleet starts and tests.

    One user with a random password, who may use the topics of Glassfleet and nothing else; limits above the fleet's
    size; TLS with --cert and --key. docs/reference/brokers.md gives the reason of each line.

    With --tls, only who has a certificate of the fleet may connect, as the id in it; an agent writes under its own id
    alone, and reads requests, its receipts and models.

    \b
    Examples:
      glassfleet broker config --out mosquitto/mosquitto.conf
      glassfleet broker config --tls broker-identity --host 0.0.0.0 --port 8883 --out fleet/broker.conf
    """
    out, folder = options.out, options.folder
    made = _with_passwords(options) if options.identity is None else _mutual(options, options.identity)
    if out is None:
        click.echo(made.render(), nl=False)
        return
    from broker.servers.mosquitto import USER

    make_folders(folder)
    made.write(out)
    if os.geteuid() == 0:
        whose = f"-R mosquitto {folder}" if options.identity is None else f"mosquitto {folder} {options.identity}"
        click.echo(f"as root it becomes mosquitto: chown {whose}", err=True)
    start = f"mosquitto -c {out}"
    if options.identity is None:
        click.echo(f"start it with: {start}", err=True)
        click.echo(f"user {USER}; its password is in {folder / 'secret'}", err=True)
    else:
        click.echo(f"start it with: {start}; others connect to mqtts://HOST:{made.port}", err=True)


def _with_passwords(options: ConfigOptions) -> MosquittoConfig:
    """Return the configuration of a broker with one user."""
    from broker.servers.mosquitto import MosquittoConfig

    cert, key = (None if path is None else path.resolve() for path in (options.cert, options.key))
    if (cert is None) != (key is None):
        raise UsageError("TLS needs both --cert and --key")
    if cert is None and not is_loopback(options.host):
        raise UsageError(
            f"{options.host} is a network, where passwords and answers need TLS: give --cert and --key, or keep the "
            "broker on 127.0.0.1"
        )
    place = (options.port, options.folder, options.host)
    return MosquittoConfig(*place, options.max_message_bytes, cert=cert, key=key, run_as="mosquitto")


def _mutual(options: ConfigOptions, identity: Path) -> MosquittoConfig:
    """Return the configuration of a Mosquitto with mutual TLS."""
    from broker.servers.mosquitto import MosquittoConfig, certificate_acl, mutual

    if options.cert is not None or options.key is not None:
        raise UsageError("--tls DIR has certificate and key in it: leave --cert and --key out")
    coordinators = options.coordinators or ("coordinator",)
    acl = certificate_acl(Topics(options.fleet), coordinators=coordinators, operators=options.operators)
    common = (options.port, options.folder, options.host, options.max_message_bytes)
    return mutual(MosquittoConfig(*common, run_as="mosquitto"), identity, acl)


@broker.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--crl", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="The new revocation list; it replaces the broker's, if the same authority made it and it is not older.",
)  # fmt: skip
@click.option("--deny", multiple=True, metavar="ID", help="Also shut out an id that is connected now; repeatable.")
@click.option("--allow", multiple=True, metavar="ID", help="Let an id in again that was denied; repeatable.")
@json_option
def reload(folder: Path, crl: Path | None, deny: tuple[str, ...], allow: tuple[str, ...], *, as_json: bool) -> None:
    """Let a running Mosquitto in FOLDER (of `config --tls --out FOLDER/FILE`) take over a revocation list.

    The list keeps revoked certificates from connecting; --deny takes every right from a connection that stands.

    \b
    Examples:
      glassfleet broker reload fleet --crl ca/crl.pem --deny vehicle-07
    """
    from broker.servers.revocation import reload as way

    result = way(folder, None if crl is None else crl.read_bytes(), deny=deny, allow=allow)
    tell(result, as_json=as_json, folder=str(folder), done=result)


broker.add_command(tap)
