"""``glassfleet lab conformance``: prove that an agent, in whatever language, does what the protocol says."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from console.common import broker_security, ended_by_sigterm, folder_option, security_options, workshop
from console.progress import progress
from schemas.errors import StorageError, UsageError, VerificationError, os_faults_as
from schemas.topics import check_id


@click.group()
def conformance() -> None:
    """Check an agent in whatever language, question by question; see docs/reference/protocol.md.

    \b
    Examples:
      glassfleet lab conformance rows
    """


@conformance.command()
@folder_option("--out", default=Path(), show_default=True, help="Folder for the files.")
def rows(out: Path) -> None:
    """Write the rows that a check is made over: rows.csv (numbers), mixed.csv (texts, empty cells, classes).

    \b
    Examples:
      glassfleet lab conformance rows
    """
    from lab.conformance.questions import tables

    with os_faults_as(StorageError, f"cannot write into {out}"):
        out.mkdir(parents=True, exist_ok=True)
        for name, text in tables().items():
            (out / name).write_text(text, encoding="utf-8")
            click.echo(str(out / name))


@conformance.command()
@click.option("--id", "agent_id", required=True, metavar="ID", help="The agent's id.")
@click.option("--broker", metavar="URL", help="mqtt://[user[:password]@]host[:port]. Default: one is started.")
@click.option("--fleet", default="conformance", show_default=True, help="Fleet id, in which no coordinator is up.")
@click.option(
    "--mixed", is_flag=True, help="The agent has mixed.csv: texts, empty cells and classes; else it has rows.csv."
)
@click.option("--only", multiple=True, metavar="CHECK", help="Only these checks; repeatable. Births come first anyway.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout; everything else on stderr.")
@security_options
@click.argument("command", nargs=-1)
def agent(
    agent_id: str,
    broker: str | None,
    fleet: str,
    command: tuple[str, ...],
    only: tuple[str, ...],
    *,
    mixed: bool,
    as_json: bool,
) -> None:
    """Play the coordinator for one agent, ask all that a run asks, and compare its answers to the last bit.

    Start the agent over rows.csv or mixed.csv (`glassfleet lab conformance rows`), with the last column but `split` as
    its target, and the broker's URL that this prints: the connection is cut on the way there. Or give its command after
    --, in which {broker}, {fleet}, {id}, {data} and {state} are replaced. Takes two minutes.

    \b
    Examples:
      glassfleet lab conformance agent --id v1 --json -- my-agent {broker} {fleet} {id} {data}
    """
    check_id("agent", agent_id)
    check_id("fleet", fleet)
    from broker.paho_transport import connect_once
    from broker.port import Link
    from edge_agent.sources.table import read_source
    from lab.conformance.checks import CHECKS, Bench
    from lab.conformance.examiner import Examiner
    from lab.conformance.questions import tables
    from schemas.topics import Topics

    with ended_by_sigterm(), workshop(None, "conformance") as work, _road(broker, work) as (url, cut, mend):
        unknown = sorted(set(only) - set(CHECKS))
        if unknown:
            raise UsageError(f"--only {unknown[0]}: no such check. Checks: {', '.join(CHECKS)}")
        path = work / ("mixed.csv" if mixed else "rows.csv")
        path.write_text(tables()[path.name], encoding="utf-8")
        data = read_source(path, labels=mixed, categories=mixed, missing=mixed).train
        places = {"broker": url[1], "fleet": fleet, "id": agent_id, "data": str(path), "state": str(work / "state")}
        click.echo("the agent's part: " + ", ".join(f"{name} {text}" for name, text in places.items()), err=True)
        link = Link(url[0], f"gf-conformance-{agent_id}", session_expiry=0, **broker_security())
        connect_once(link)
        examiner = Examiner(link, Topics(fleet), agent_id)
        try:
            with _started([part.format(**places) for part in command], work / "agent.log"):
                examiner.up()
                chosen = {name: check for name, check in CHECKS.items() if not only or name in (*only, "births")}
                results = _performed(chosen, Bench(examiner, data, cut, mend))
        finally:
            examiner.close()
    failed = _report(results, as_json=as_json)
    if failed:
        raise VerificationError(f"{failed} of {len(results)} checks failed: see above")


def _performed(checks: dict[str, Callable[[Any], Iterator[str]]], bench: Any) -> list[dict[str, Any]]:
    from lab.conformance.examiner import LeftOutError

    results: list[dict[str, Any]] = []
    with progress("checks", len(checks)) as bar:
        for name, check in checks.items():
            bar.at(doing=name)
            try:
                details = list(check(bench))
                outcome = "fault" if details else "ok"
            except LeftOutError as why:
                outcome, details = "left out", [str(why)]
            what = " ".join((check.__doc__ or "").split())
            results.append({"check": name, "outcome": outcome, "what": what, "details": details})
            bar()
            if name == "births" and details and not bench.schemes:
                break
    return results


def _report(results: list[dict[str, Any]], *, as_json: bool) -> int:
    for each in results:
        click.echo(f"{each['outcome']:<9} {each['check']:<16} {each['what']}", err=as_json)
        for detail in each["details"]:
            click.echo(f"{'':<26} {detail}", err=as_json)
    if as_json:
        click.echo(json.dumps({"ok": not any(each["outcome"] == "fault" for each in results), "checks": results}))
    return sum(each["outcome"] == "fault" for each in results)


Road = tuple[tuple[str, str], Callable[[], None] | None, Callable[[], None] | None]


@contextmanager
def _road(broker: str | None, work: Path) -> Iterator[Road]:
    """Yield the broker's URL for us and for the agent, and how to cut and mend the agent's connection."""
    from broker.servers.launch import launch
    from broker.url import parse_url
    from lab.chaos.proxy import Proxy

    with ExitStack() as stack:
        if broker is None:
            own = launch(state_dir=work / "broker")
            stack.callback(own.stop)
            broker = own.url
        address = parse_url(broker)
        if address.tls:
            yield (broker, broker), None, None
            return
        proxy = Proxy(address.host, address.port)
        stack.callback(proxy.close)
        road = replace(address, host="127.0.0.1", port=proxy.open("agent")).url
        yield (broker, road), partial(proxy.harm, "agent", "cut"), partial(proxy.mend, "agent")


@contextmanager
def _started(command: list[str], log: Path) -> Iterator[None]:
    """Run the agent's command meanwhile, if there is one."""
    if not command:
        yield
        return
    from lab.processes import Process

    process = Process("agent", command[1:], dict(os.environ), log, program=command[:1])
    try:
        process.start()
    except OSError as fault:
        raise UsageError(f"cannot start {shlex.join(command)}: {fault.strerror}") from fault
    try:
        yield
        if not process.is_running:
            raise VerificationError(f"the agent ended by itself: {log.read_text(errors='replace')[-2000:]}")
    finally:
        process.kill()
