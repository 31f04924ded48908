"""``glassfleet broker``: a broker for one machine."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import click

from console.common import config_option, json_option, print_json, state_dir_option
from schemas.errors import BrokerError


@click.command()
@click.option(
    "--kind",
    type=click.Choice(["auto", "embedded", "mosquitto"]),
    default="auto",
    show_default=True,
    help="auto: Mosquitto when it is found, else the embedded one.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=1883, show_default=True, help="0: a free one.")
@state_dir_option
@json_option
@config_option
def broker(**options: Any) -> None:
    """Start a broker on loopback and keep it until SIGTERM or Ctrl-C.

    Its address, with the password, is printed and written to STATE_DIR/broker-url (for your eyes only), where the other
    commands find it.

    Example: glassfleet broker --kind embedded
    """
    from broker.launch import launch  # noqa: PLC0415 - loaded when used

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    state_dir: Path = options["state_dir"]
    running = launch(options["kind"], state_dir=state_dir / "broker", port=options["port"])
    note = state_dir / "broker-url"
    try:
        note.touch(mode=0o600)
        note.write_text(running.url + "\n", encoding="utf-8")
        if options["as_json"]:
            print_json({"url": running.url, "kind": running.kind, "pid": running.pid})
        else:
            click.echo(f"{running.kind} broker at {running.url} (also in {note}); Ctrl-C ends it")
        while not stop.wait(0.5):
            if not running.is_running:
                raise BrokerError(f"the {running.kind} broker ended by itself; its log is in {state_dir / 'broker'}")
    finally:
        running.stop()
        note.unlink(missing_ok=True)
