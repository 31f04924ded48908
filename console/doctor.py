"""``glassfleet doctor``: what works on this machine, what does not, and what to do about it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

import click

from console.common import EXTRAS, broker_options, config_option, json_option, print_json, read_note
from schemas.errors import GlassfleetError

CORE = ("click", "msgpack", "numpy", "paho", "pydantic", "rfc8785", "scipy", "structlog")


@click.command()
@broker_options
@click.option("--data", type=click.Path(path_type=Path), metavar="FILE", help="A vehicle's data to look at.")
@click.option("--target", metavar="COLUMN", help="Its target column. Default: the last one.")
@json_option
@config_option
def doctor(
    broker: str | None, fleet: str, state_dir: Path, data: Path | None, target: str | None, *, as_json: bool
) -> int:
    """Check packages, state folder, broker, coordinator and data; exit code 1 when something is wrong.

    Example: glassfleet doctor --broker mqtt://127.0.0.1 --data vehicle-07.csv.gz
    """
    del fleet
    checks: list[tuple[str, Callable[[], str]]] = [
        ("python", _python),
        ("core packages", _core),
        ("schemes", _schemes),
        ("state folder", lambda: _folder(state_dir)),
    ]
    url = broker or read_note(state_dir / "broker-url")
    if url:
        checks.append(("broker", lambda: _broker(url)))
    if read_note(state_dir / "api-url"):
        checks.append(("coordinator", lambda: _coordinator(state_dir)))
    if data is not None:
        checks.append(("data", lambda: _data(data, target)))
    found = [_outcome(name, check) for name, check in checks]
    found += [{"check": f"extra {extra}", "ok": True, "says": says} for extra, says in _extras().items()]
    if as_json:
        print_json(found)
    else:
        for item in found:
            click.echo(f"{'ok   ' if item['ok'] else 'WRONG'}  {item['check']}: {item['says']}")
    return 0 if all(item["ok"] for item in found) else 1


def _outcome(name: str, check: Callable[[], str]) -> dict[str, str | bool]:
    try:
        return {"check": name, "ok": True, "says": check()}
    except GlassfleetError as fault:
        return {"check": name, "ok": False, "says": str(fault)}


def _python() -> str:
    return f"{sys.version.split()[0]} at {sys.executable}"


def _core() -> str:
    missing = [name for name in CORE if importlib.util.find_spec(name) is None]
    if missing:
        raise GlassfleetError(f"missing: {', '.join(missing)}; install with: pip install glassfleet")
    return "all there"


def _schemes() -> str:
    from glassfleet import catalogue  # noqa: PLC0415 - numpy comes with it

    absent = "".join(f"; {name} {reason}" for name, reason in catalogue.unavailable().items())
    return ", ".join(catalogue.names()) + absent


def _folder(folder: Path) -> str:
    place = folder
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK):
        raise GlassfleetError(f"{folder} cannot be written: choose another with --state-dir or GLASSFLEET_STATE_DIR")
    return f"{folder} can be written"


def _broker(url: str) -> str:
    from broker.paho_transport import connect_once  # noqa: PLC0415
    from broker.port import Link  # noqa: PLC0415

    return f"answers, MQTT {connect_once(Link(url, 'doctor'), 5.0)}"


def _coordinator(state_dir: Path) -> str:
    from console.client import Coordinator  # noqa: PLC0415

    api = Coordinator(None, None, state_dir)
    health = api.get("/api/health")
    if not health.get("connected"):
        raise GlassfleetError(f"{api.url} answers, but has no connection to its broker: see its log")
    return f"{api.url} answers, fleet {health.get('fleet')}"


def _data(path: Path, target: str | None) -> str:
    from edge_agent.sources import read_source  # noqa: PLC0415

    source = read_source(path, target=target)
    warnings = "".join(f"; {warning}" for warning in source.warnings)
    return (
        f"{source.train.rows} rows to train, {source.test.rows} to test, {len(source.train.features)} inputs, "
        f"target {source.train.target}{warnings}"
    )


def _extras() -> dict[str, str]:
    words: dict[str, str] = {}
    for extra in dict.fromkeys(EXTRAS.values()):
        missing = [name for name, part in EXTRAS.items() if part == extra and importlib.util.find_spec(name) is None]
        words[extra] = f"not installed (pip install 'glassfleet[{extra}]')" if missing else "installed"
    return words
