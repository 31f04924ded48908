"""The coordinator as a program: service, HTTP and signals, put together."""

from __future__ import annotations

import contextlib
import signal

import structlog

from broker.tls import check_owner
from coordinator.config import CoordinatorConfig
from coordinator.service import build
from coordinator.telemetry import logs

_log = structlog.get_logger("coordinator")


def run_coordinator(config: CoordinatorConfig) -> None:
    """Run the coordinator until SIGTERM or SIGINT.

    Raises
    ------
    StorageError, BrokerError, UsageError
        See `build` and `Service.serve_forever`; a port that is taken is a UsageError.
    """
    logs.configure(config.log_level, config.log_format, fleet=config.fleet)
    check_owner(config.identity, "coordinator")
    for note in config.notes:
        _log.warning("retired-setting", note=note)
    service = build(config)
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.signal(number, lambda *_: service.stop())
            stack.callback(signal.signal, number, before)
        if config.http.api:
            from coordinator.http.api import ApiServer  # noqa: PLC0415  the web framework is slow to import, and optional

            server = ApiServer(service)
            stack.callback(server.stop)
            _log.info("api", url=server.start())
        _log.info("coordinator-up", fleet=config.fleet, state_dir=str(config.state_dir))
        service.serve_forever()
    _log.info("coordinator-down")
