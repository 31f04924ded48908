"""``glassfleet ca serve``: the door at which vehicles enrol and renew over HTTPS."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from console.common import StopFlag, ca_dir_option, json_option, tell


@click.command()
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
