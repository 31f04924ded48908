"""``glassfleet ca``: the fleet's certificate authority in a folder, and the door at which vehicles enrol."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from console.common import (
    StopFlag,
    authority_dir,
    ca_dir_option,
    file_option,
    folder_option,
    json_option,
    print_json,
    tell,
)
from schemas.errors import StorageError, UsageError, os_faults_as
from schemas.topics import DEFAULT_FLEET

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.authority.store import Authority
    from schemas.trust.owner import Role


F = TypeVar("F", bound="Callable[..., Any]")

DEFAULT_NAME = f"{DEFAULT_FLEET} CA"


def days_option(function: F) -> F:
    """Add ``--days N``."""
    return click.option(
        "--days", type=click.FloatRange(0.001, 36500), default=365.0, show_default=True, help="How long it is good for."
    )(function)


def into_option(function: F) -> F:
    """Add ``--into DIR``."""
    return click.option(
        "--into", multiple=True, type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
        help="Hand the list to a coordinator's identity folder, or a broker's (`broker config --out`); repeatable.",
    )(function)  # fmt: skip


@click.group()
def ca() -> None:
    """Decide who may speak in the fleet: certificates, one-time tokens for vehicles, revocation.

    \b
    Examples:
      glassfleet ca init
      glassfleet ca issue --broker broker --host broker.example.org --out broker-identity
      glassfleet ca issue --coordinator coordinator --host ca.example.org --out coordinator-identity
      glassfleet ca serve --identity coordinator-identity --host 0.0.0.0
      glassfleet ca token --agent vehicle-07
    """


@ca.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), required=False)
@click.option("--name", default=DEFAULT_NAME, show_default=True, metavar="TEXT", help="Common name of its certificate.")
@click.option("--days", type=click.IntRange(1, 36500), default=3650, show_default=True, help="How long it is good for.")
@json_option
def init(folder: Path | None, name: str, days: int, *, as_json: bool) -> None:
    """Make the fleet's authority in FOLDER. Default: STATE_DIR/ca.

    Set GLASSFLEET_CA_PASSWORD first to encrypt its key; every other command of the authority then needs it too. Whoever
    has the key can be anybody in the fleet: keep the folder off the broker's machine, and a copy of it in a safe.

    \b
    Examples:
      glassfleet ca init /srv/fleet-ca --name "north fleet"
    """
    from coordinator.authority.store import Authority

    made = Authority.create(folder or authority_dir(), name, days=days)
    until = f"{made.certificate.not_valid_after_utc:%Y-%m-%d}"
    steps = (
        "certificates for broker and coordinator with `glassfleet ca issue`, and a token for each vehicle with "
        "`glassfleet ca token`"
    )
    tell(
        f"authority in {made.folder}, until {until}, named {made.name}. Next: {steps}",
        as_json=as_json,
        folder=str(made.folder),
        name=made.name,
        until=until,
    )


@ca.command()
@click.option("--agent", required=True, metavar="ID", help="The vehicle that may enrol with it, once.")
@click.option(
    "--hours", type=click.FloatRange(0.01, 24 * 365), default=24.0, show_default=True, help="How long it can be used."
)
@ca_dir_option
@json_option
def token(agent: str, hours: float, ca_dir: Path, *, as_json: bool) -> None:
    """Print a one-time token with which one vehicle enrols. Only its hash is kept.

    \b
    Examples:
      glassfleet ca token --agent vehicle-07
    """
    made = _open(ca_dir).token(agent, hours)
    if as_json:
        print_json({"agent": agent, "token": str(made), "hours": hours})
    else:
        click.echo(str(made))
        click.echo(
            f"for {agent}, within {hours:g} hours: glassfleet agent enrol --id {agent} --token TOKEN --authority "
            "https://HOST:PORT (the address that `glassfleet ca serve` prints)",
            err=True,
        )


@ca.command()
@click.option("--coordinator", metavar="ID", help="For a coordinator with this id.")
@click.option("--broker", metavar="ID", help="For a broker: needs --host.")
@click.option("--operator", metavar="ID", help="For a person at a desk: may read all, and write nothing.")
@click.option("--agent", metavar="ID", help="For a vehicle, with a key made here. Better: `glassfleet agent enrol`.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Name or address that clients use; repeatable.")
@folder_option("--out", required=True, help="Identity folder.")
@days_option
@ca_dir_option
@json_option
def issue(  # noqa: PLR0917 - click passes options by name
    coordinator: str | None,
    broker: str | None,
    operator: str | None,
    agent: str | None,
    hosts: tuple[str, ...],
    out: Path,
    days: float,
    ca_dir: Path,
    *,
    as_json: bool,
) -> None:
    """Make a key and a certificate: an identity folder, for --identity.

    \b
    Examples:
      glassfleet ca issue --broker broker --host broker.example.org --host 203.0.113.7 --out broker-identity
    """
    from broker.identity import save_identity
    from broker.tls import CERT
    from schemas.trust.identity import load_key, new_key
    from schemas.trust.owner import Owner

    owners: list[tuple[Role, str | None]]
    owners = [("coordinator", coordinator), ("broker", broker), ("operator", operator), ("agent", agent)]
    named = [Owner(role, name) for role, name in owners if name is not None]
    if len(named) != 1:
        raise UsageError("name one owner: --coordinator, --broker, --operator or --agent, with its id")
    if (out / CERT).exists():
        raise UsageError(f"{out} has a certificate already: renew it with `glassfleet ca renew {out}`")
    authority = _open(ca_dir)
    owner, key = named[0], new_key()
    made = authority.issue(owner, load_key(key).public_key(), days=days, hosts=hosts)
    save_identity(out, key=key, ca=authority.ca_pem, crl=authority.crl_pem, certificate=made)
    text = f"identity of {owner} in {out}: give it to that process alone, with --identity"
    tell(text, as_json=as_json, role=owner.role, id=owner.id, folder=str(out))


@ca.command()
@click.argument("identity", type=click.Path(exists=True, file_okay=False, path_type=Path))
@days_option
@ca_dir_option
@json_option
def renew(identity: Path, days: float, ca_dir: Path, *, as_json: bool) -> None:
    """Renew the certificate of an identity folder on this machine; key, id and hosts stay.

    A broker reads it at a SIGHUP, the other processes on their next connection.

    \b
    Examples:
      glassfleet ca renew broker-identity
    """
    from broker.identity import load_identity, save_identity
    from schemas.errors import WireError
    from schemas.trust.identity import make_request, prove_renewal

    authority, current = _open(ca_dir), load_identity(identity)
    request = make_request(current.key, current.owner)
    try:
        made = authority.renew(request, current.certificate, prove_renewal(current.key, request), days)
    except WireError as fault:
        raise UsageError(f"{identity}: {fault.detail}") from fault
    save_identity(identity, ca=authority.ca_pem, crl=authority.crl_pem, certificate=made)
    until = f"{load_identity(identity).ends:%Y-%m-%d}"
    tell(f"{current.owner}: until {until}", as_json=as_json, role=current.owner.role, id=current.owner.id, until=until)


@ca.command()
@click.argument("name")
@click.option(
    "--reason", type=click.Choice(["unspecified", "stolen", "replaced", "retired"]), default="unspecified",
    show_default=True, help="Why; it is written into the list.",
)  # fmt: skip
@into_option
@ca_dir_option
@json_option
def revoke(name: str, reason: str, into: tuple[Path, ...], ca_dir: Path, *, as_json: bool) -> None:
    """Revoke every certificate of the id NAME (or the one with that serial number), and make a new revocation list.

    Broker and coordinator must hear of it: --into hands them the list on this machine, `glassfleet ca crl --from` on
    another. A running coordinator takes it over within seconds, and tells the fleet.

    \b
    Examples:
      glassfleet ca revoke vehicle-07 --reason stolen --into fleet --into coordinator-identity
    """
    from broker.servers.revocation import install_crl

    authority = _open(ca_dir)
    gone = authority.revoke(name, reason)
    # An id that has another good certificate is not shut out: the list knows the one that was revoked.
    deny = sorted({one.id for one in gone} & set(authority.fallen()))
    taken = {str(folder): install_crl(folder, authority.crl_pem, deny=deny) for folder in into}
    lines = [f"revoked: {one.role} {one.id}, serial {one.serial}" for one in gone]
    lines += [] if gone else [f"no certificate, but the open token of {name} was withdrawn"]
    lines += [f"{folder}: {text}" for folder, text in taken.items()]
    revoked = [{"role": one.role, "id": one.id, "serial": one.serial} for one in gone]
    tell("\n".join(lines), as_json=as_json, revoked=revoked, list=str(authority.folder / "crl.pem"), into=taken)
    if not into:
        click.echo(
            f"the new list is {authority.folder / 'crl.pem'}; now, with it: `glassfleet broker reload BROKER_DIR --crl "
            f"FILE{''.join(f' --deny {one}' for one in deny)}` where the broker runs, and `glassfleet ca crl --from "
            "FILE --into COORDINATOR_IDENTITY` where the coordinator does",
            err=True,
        )


@ca.command("list")
@ca_dir_option
@json_option
def list_(ca_dir: Path, *, as_json: bool) -> None:
    """List every certificate that was issued: owner, dates, state.

    \b
    Examples:
      glassfleet ca list
    """
    authority = _open(ca_dir)
    now = dt.datetime.now(dt.UTC)
    if as_json:
        print_json([asdict(one) | {"state": one.state(now)} for one in authority.issued()])
        return
    click.echo(f"{'the CA itself':<32} until {authority.certificate.not_valid_after_utc:%Y-%m-%d}")
    for one in authority.issued():
        click.echo(f"{one.role + ' ' + one.id:<32} until {one.ends[:10]}  {one.state(now):<22} serial {one.serial}")


@ca.command()
@file_option("--out", help="Where to. Default: print it.")
@click.option(
    "--from", "given", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Take this list in place of a fresh one; the authority is not needed for it.",
)  # fmt: skip
@into_option
@ca_dir_option
def crl(out: Path | None, given: Path | None, into: tuple[Path, ...], ca_dir: Path) -> None:
    """Make a fresh revocation list: lists expire, and a broker with an expired one refuses everybody.

    \b
    Examples:
      glassfleet ca crl --out crl.pem
      glassfleet ca crl --from crl.pem --into coordinator-identity
    """
    from broker.servers.revocation import install_crl

    made = _open(ca_dir).refresh_crl() if given is None else given.read_bytes()
    for folder in into:
        click.echo(f"{folder}: {install_crl(folder, made)}")
    if out is None and into:
        return
    if out is None:
        click.echo(made, nl=False)
    else:
        _write(out, made)


def _open(folder: Path) -> Authority:
    from coordinator.authority.store import Authority

    return Authority(folder)


def _write(path: Path, content: bytes) -> None:
    from schemas.private_files import replace_private

    with os_faults_as(StorageError, f"cannot write {path}"):
        replace_private(path, content, 0o644)


@ca.command()
@click.option(
    "--identity", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
    help="A coordinator's identity folder whose certificate names this host.",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8443, show_default=True, help="0: a free one.")
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=365,
    show_default=True,
    help="How long its certificates are good for.",
)
@ca_dir_option
@json_option
def serve(identity: Path, host: str, port: int, days: int, ca_dir: Path, *, as_json: bool) -> None:
    """Let vehicles enrol and renew over HTTPS, until SIGTERM or Ctrl-C.

    It offers nothing else: no operators' actions, no tokens. It may run only while vehicles are enrolled.

    \b
    Examples:
      glassfleet ca serve --identity coordinator-identity --host 0.0.0.0
    """
    from coordinator.authority.store import Authority
    from coordinator.authority.web import authority_server  # the web framework is slow to import
    from coordinator.telemetry import logs

    logs.configure("info", "console")
    stop, authority = StopFlag(), Authority(ca_dir)
    server = authority_server(authority, identity, host=host, port=port, days=days)
    server.begin("glassfleet-authority")
    place = f"[{host}]" if ":" in host else host
    text = f"vehicles enrol at https://{place}:{server.port}; Ctrl-C ends it"
    tell(text, as_json=as_json, host=host, port=server.port)
    try:
        is_over = False
        while not is_over:
            authority.refresh_crl(unless_newer_than=timedelta(days=1))  # lists expire
            is_over = stop.wait(3600)
    finally:
        server.end()
