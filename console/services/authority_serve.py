"""``glassfleet ca serve``: the door at which vehicles enrol and renew over HTTPS."""

from __future__ import annotations

from pathlib import Path

import click

from console.common import StopFlag, ca_dir_option, config_option, json_option, print_json


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
@click.option(
    "--handshake", type=click.FloatRange(0, 300, min_open=True), default=5.0, show_default=True, metavar="SECONDS",
    help="Seconds that TLS may take.",
)  # fmt: skip
@click.option(
    "--lifetime", type=click.FloatRange(0, 3600, min_open=True), default=20.0, show_default=True, metavar="SECONDS",
    help="Seconds that a connection may last, whatever it is busy with.",
)  # fmt: skip
@click.option(
    "--connections", type=click.IntRange(1, 100_000), default=200, show_default=True,
    help="Connections at once; the oldest whose request is not whole gives way.",
)  # fmt: skip
@click.option(
    "--max-body-bytes", type=click.IntRange(16 * 1024, 1 << 24), default=32 * 1024, show_default=True,
    help="Longest request that is read.",
)  # fmt: skip
@click.option(
    "--max-header-bytes", type=click.IntRange(1024, 1 << 20), default=16 * 1024, show_default=True,
    help="Longest headers that are read.",
)  # fmt: skip
@ca_dir_option
@json_option
@config_option
def serve(  # noqa: PLR0917 - click passes options by name
    identity: Path,
    host: str,
    port: int,
    days: int,
    handshake: float,
    lifetime: float,
    connections: int,
    max_body_bytes: int,
    max_header_bytes: int,
    ca_dir: Path,
    *,
    as_json: bool,
) -> None:
    """Let vehicles enrol and renew over HTTPS, until SIGTERM or Ctrl-C.

    It offers nothing else: no operators' actions, no tokens. It may run only while vehicles are enrolled.

    \b
    Examples:
      glassfleet ca serve --identity coordinator-identity --host 0.0.0.0
    """  # noqa: D301 - \b is click's mark for lines that keep their breaks
    from coordinator.authority.store import Authority  # noqa: PLC0415 - loaded when used
    from coordinator.authority.web import AuthorityServer  # noqa: PLC0415 - the web framework is slow to import
    from coordinator.http.server import HttpLimits  # noqa: PLC0415

    stop = StopFlag()
    limits = HttpLimits(handshake, lifetime, connections, max_body_bytes, max_header_bytes)
    server = AuthorityServer(Authority(ca_dir), identity, host=host, port=port, days=days, limits=limits)
    server.start()
    place = f"[{host}]" if ":" in host else host
    if as_json:
        print_json({"host": host, "port": server.port})
    else:
        click.echo(f"vehicles enrol at https://{place}:{server.port}; Ctrl-C ends it")
    try:
        server.keep_fresh()
        while not stop.wait(3600):
            server.keep_fresh()
    finally:
        server.stop()
