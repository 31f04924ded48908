"""``glassfleet doctor``: what works on this machine, what does not, and what to do about it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from console.broker_discovery import ANONYMOUS_BROKER, is_left_behind, killed_broker, noted_broker, read_note
from console.checkup import machine
from console.checkup.finding import Finding, looked, warning, wrong
from console.common import (
    BrokerOptions,
    broker_options,
    ca_file_option,
    folder_option,
    json_option,
    options_as,
    print_json,
    rows_place,
    token_file_option,
)
from console.progress import progress
from schemas.errors import BrokerError, UsageError
from schemas.topics import SHARDS, Topics, check_id

if TYPE_CHECKING:
    from broker.port import Link


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(BrokerOptions):
    """Of ``glassfleet doctor``."""

    identity: Path | None
    ca_file: Path | None
    insecure_plaintext: bool
    agent_id: str | None
    as_coordinator: bool
    coordinator: str | None
    journal: str | None
    notify: str | None
    data: str | None
    target: str | None
    kuksa: str | None
    token_file: Path | None
    as_json: bool


_MARKS = {"ok": ("ok   ", "green"), "warning": ("look ", "yellow"), "wrong": ("WRONG", "red")}


@click.command()
@broker_options
@folder_option(
    "--identity", envvar="GLASSFLEET_IDENTITY", help="Identity folder: look at its certificate, and connect with it."
)
@ca_file_option("GLASSFLEET_CA_FILE")
@click.option("--insecure-plaintext", is_flag=True, help="Connect to mqtt:// on another machine.")
@click.option("--agent", "agent_id", metavar="ID", help="Try what this vehicle may publish and subscribe.")
@click.option("--as-coordinator", is_flag=True, help="Try what the coordinator may publish and subscribe.")
@click.option(
    "--coordinator", envvar="GLASSFLEET_COORDINATOR", metavar="URL",
    help="HTTP API to ask. Default: what the coordinator wrote to STATE_DIR/api-url.",
)  # fmt: skip
@click.option(
    "--journal", envvar="GLASSFLEET_COORDINATOR_JOURNAL", metavar="URL",
    help="Journal to look at. Default: STATE_DIR/journal.sqlite, if it is there.",
)  # fmt: skip
@click.option(
    "--notify", envvar="GLASSFLEET_COORDINATOR_NOTIFY", metavar="URLS",
    help="Send a message to these addresses, as --notify of the coordinator.",
)  # fmt: skip
@click.option(
    "--data", callback=rows_place, metavar="SOURCE", help="A vehicle's data to look at, as --data of the agent."
)
@click.option("--target", metavar="COLUMN", help="Its target column. Default: the last one.")
@click.option(
    "--kuksa", metavar="URL",
    help="Databroker in the vehicle, kuksa[s]://HOST[:PORT]: what it has, and whether forecasts can go there. If "
    "nobody has published yet, it is told that there is no alert.",
)  # fmt: skip
@token_file_option
@json_option
@options_as(DoctorOptions)
def doctor(options: DoctorOptions) -> int:
    """Check packages, disk, broker, TLS, access rules, clock, coordinator, journal, data and databroker.

    Each fault is told with a way out; exit code 1 when something is wrong. What is only worth a look does not count.

    With a certificate --agent and --as-coordinator may interrupt the running process of that name for a moment: a
    broker that takes the client id from the certificate lets only one of them in. It comes back by itself.

    \b
    Examples:
      glassfleet doctor --broker mqtt://127.0.0.1 --data vehicle-07.csv.gz
      glassfleet doctor --broker mqtts://broker.example.org --identity identity --agent vehicle-07
      glassfleet doctor --kuksa kuksa://127.0.0.1:55555
    """
    findings = []
    with progress("looking") as work:
        for finding in _examine(options):
            findings.append(finding)
            if not options.as_json:
                mark, colour = _MARKS[finding.level]
                work.say(f"{click.style(mark, fg=colour)}  {finding.check}: {finding.says}", out=True)
                if finding.fix:
                    work.say(f"         -> {finding.fix}", out=True)
    if options.as_json:
        print_json([finding.to_document() for finding in findings])
    return 0 if all(finding.level != "wrong" for finding in findings) else 1


def _examine(options: DoctorOptions) -> Iterator[Finding]:
    state_dir = options.state_dir
    yield machine.python()
    yield machine.core()
    yield from looked("schemes", machine.schemes)
    yield machine.state_folder(state_dir)
    yield machine.disk(state_dir)
    identity, data = options.identity, options.data
    if identity is not None:
        yield from looked("certificate", lambda: _identity(identity))
    # Before the broker: what is tried there may interrupt the coordinator's own connection for a moment.
    if options.coordinator or read_note(state_dir / "api-url"):
        yield from looked("coordinator", lambda: _coordinator(options.coordinator, state_dir))
    url = options.broker or noted_broker(state_dir)
    from broker.url import urls_of  # loaded when used, as all below

    for node in urls_of(url) if url else ():
        yield from _broker(node, options)
    if not url:
        yield _none(state_dir, is_needed=bool(options.agent_id or options.as_coordinator))
    file = state_dir / "journal.sqlite"
    journal = options.journal or (f"sqlite:///{file}" if file.exists() else "")
    if journal:
        yield from looked("journal", lambda: _journal(journal))
    notify = options.notify
    if notify:
        yield from looked("notify", lambda: _notified(notify))
    if data is not None:
        yield from looked("data", lambda: machine.data(data, options.target))
    kuksa = options.kuksa
    if kuksa is not None:
        yield from looked("databroker", lambda: _databroker(kuksa, options))
    yield from machine.extras()


def _databroker(url: str, options: DoctorOptions) -> Iterator[Finding]:
    from console.checkup.databroker import databroker
    from edge_agent.live.port import ServerAccess

    return databroker(url, ServerAccess(None, options.ca_file, options.token_file, options.insecure_plaintext))


def _none(state_dir: Path, *, is_needed: bool) -> Finding:
    """Say that no broker is named, and whether there is one that a service would take nevertheless."""
    from broker.paho_transport import connect_once  # loaded when used, as all below
    from broker.port import Link

    if is_left_behind(state_dir):
        return wrong("broker", *killed_broker(state_dir))
    level = wrong if is_needed else warning
    try:
        connect_once(Link(ANONYMOUS_BROKER, f"gf-doctor-{secrets.token_hex(6)}", session_expiry=0), timeout=2.0)
    except BrokerError:
        return level(
            "broker",
            f"none is named, {state_dir / 'broker-url'} does not exist, and none answers at {ANONYMOUS_BROKER}: "
            "coordinator and agents need one to meet",
            "start one with `glassfleet broker`, or name one with --broker URL (or GLASSFLEET_BROKER)",
        )
    return level(
        "broker",
        f"none is named; one without a password answers at {ANONYMOUS_BROKER}, which coordinator and agents would take",
        f"name it to have it looked at: --broker {ANONYMOUS_BROKER}",
    )


def _identity(folder: Path) -> Iterator[Finding]:
    from console.checkup.link import identity

    yield from identity(folder)
    for worker in _workers(folder):  # revocation lists are read from the coordinator's own folder alone
        yield from (each for each in identity(worker) if each.check in ("certificate", "private key"))


def _workers(folder: Path | None) -> list[Path]:
    """Return the identity folders of a coordinator's intake workers."""
    from broker.tls import worker_identity

    every = [] if folder is None else [worker_identity(folder, number + 1) for number in range(SHARDS)]
    return [own for own in every if own.is_dir()]


def _coordinator(url: str | None, state_dir: Path) -> Iterator[Finding]:
    from console.checkup.cloud import coordinator

    return coordinator(url, state_dir)


def _journal(url: str) -> Iterator[Finding]:
    from console.checkup.cloud import journal

    return journal(url)


def _notified(urls: str) -> Iterator[Finding]:
    from console.checkup.cloud import notified

    return notified(urls)


def _broker(url: str, options: DoctorOptions) -> Iterator[Finding]:
    from broker.tls import tls_of
    from console.checkup import access, link

    made: list[Link] = []

    def connect() -> Iterator[Finding]:
        made.append(_link(url, options))
        return link.broker(made[0])

    findings = looked("broker", connect)
    yield from findings
    if not made:
        return
    yield from looked("tls", lambda: link.server_certificate(made[0]))
    if any(finding.level == "wrong" and finding.check == "broker" for finding in findings):
        return
    agent = options.agent_id
    topics = Topics(options.fleet)
    if agent is not None:
        check_id("agent", agent)
        yield from looked("access", lambda: access.access(made[0], topics, "agent", agent))
    if options.as_coordinator:
        yield from looked("access", lambda: access.access(made[0], topics, "coordinator", ""))
        for worker in _workers(options.identity):
            its = replace(made[0], tls=tls_of(worker, options.ca_file))
            for each in looked("access", partial(access.access, its, topics, "coordinator", "")):
                yield replace(each, check=f"{worker.name} {each.check}")


def _link(url: str, options: DoctorOptions) -> Link:
    from broker.port import Link
    from broker.tls import tls_of

    if options.agent_id and options.as_coordinator:
        raise UsageError("choose one of --agent and --as-coordinator: each is another certificate, or password")
    tls = tls_of(options.identity, options.ca_file)
    has_certificate = tls is not None and tls.has_certificate
    return Link(
        url,
        f"gf-doctor-{secrets.token_hex(6)}",
        # With a certificate the broker may take its name for the client id; a clean start would then throw away what
        # waits for the running process.
        session_expiry=3600 if has_certificate else 0,
        tls=tls,
        insecure_plaintext=options.insecure_plaintext,
    )
