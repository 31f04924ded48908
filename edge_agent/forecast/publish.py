"""Where forecasts go beside the log: to the fleet's broker with reasons, into the vehicle as signals of VSS."""

from __future__ import annotations

import datetime as dt
import json
import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link
from broker.signed import signed
from broker.tls import tls_of
from edge_agent.forecast.config import ForecastConfig
from edge_agent.live import databroker
from edge_agent.live.adapters.mqtt import link_of
from edge_agent.live.port import ServerAccess
from schemas.envelope import Envelope
from schemas.errors import UsageError
from schemas.log import Log
from schemas.messages import Forecast
from schemas.topics import Topics

if TYPE_CHECKING:
    from kuksa_client.grpc import EntryUpdate

Take = Callable[[Mapping[str, Any]], None]
"""Takes the record of a forecast."""

BRANCH: Final = "Vehicle.Glassfleet.Forecast"

PATIENCE: Final = 2.0
"""Seconds that a databroker has for each signal."""

_AGAIN: Final = 60
"""So many forecasts that could not be published are told by one line."""


def signals_of(record: Mapping[str, Any]) -> dict[str, float | str | int | bool | None]:
    """Return what a forecast's record says as signals of the overlay, the alert last."""
    prediction = record["prediction"]
    is_class = isinstance(prediction, str)
    return {
        f"{BRANCH}.Value": None if is_class else prediction,
        f"{BRANCH}.Class": prediction if is_class else None,
        f"{BRANCH}.Rule": record["rule"],
        f"{BRANCH}.IsAlert": record["alert"],
    }


def overlay() -> Path:
    """Return the file with the overlay, as a databroker takes it; beside it is the same for vss-tools."""
    return Path(__file__).with_name("vss") / "glassfleet.json"


def types_of_signals() -> dict[str, str]:
    """Return the data type of each signal of the overlay."""
    document = json.loads(overlay().read_text("utf-8"))
    node = {"children": document}
    for part in BRANCH.split("."):
        node = node["children"][part]
    return {f"{BRANCH}.{name}": leaf["datatype"] for name, leaf in node["children"].items()}


def updates_of(values: Mapping[str, Any], at: float) -> list[EntryUpdate]:
    """Return signals of the overlay as the official client takes them."""
    from kuksa_client.grpc import DataEntry, Datapoint, DataType, EntryUpdate, Field, Metadata  # noqa: PLC0415

    types, time = types_of_signals(), dt.datetime.fromtimestamp(at, dt.UTC)
    return [
        EntryUpdate(
            DataEntry(path, value=Datapoint(value, time), metadata=Metadata(data_type=DataType[types[path].upper()])),
            (Field.VALUE,),
        )
        for path, value in values.items()
        if value is not None
    ]


def into_vehicle(config: ForecastConfig, access: ServerAccess, stack: ExitStack) -> Take:
    """Return what publishes each forecast as signals; what nobody takes at its time is not sent later.

    Raises
    ------
    UsageError
        The place cannot be used.
    """
    if not config.publish:
        return lambda _record: None
    scheme = config.publish.partition("://")[0]
    if scheme in databroker.SCHEMES:
        return _to_databroker(config.publish, access, stack)
    if scheme in {"mqtt", "mqtts"}:
        return _to_topic(config.publish, access, stack)
    raise UsageError(f"--publish {config.publish}: give kuksa[s]://HOST[:PORT] or mqtt[s]://HOST[:PORT]/TOPIC")


def _to_topic(url: str, access: ServerAccess, stack: ExitStack) -> Take:
    link, topic = link_of(url, access, "mqtt://127.0.0.1:1883/vehicle/forecast", who="signals")
    transport = PahoTransport(link)
    transport.start(Handlers(lambda _message: None, lambda: None, lambda _why: None))
    stack.callback(transport.stop)
    stack.callback(transport.flush, 1.0)

    def publish(record: Mapping[str, Any]) -> None:
        if transport.is_connected:
            transport.publish(topic, json.dumps({"ts": record["time"], **signals_of(record)}).encode())

    return publish


def _to_databroker(url: str, access: ServerAccess, stack: ExitStack) -> Take:
    databroker.client_of(url, access)  # whose faults are told now
    waiting: queue.Queue[Mapping[str, Any] | None] = queue.Queue(1)
    thread = threading.Thread(target=_feed, args=(url, access, waiting), name="publish", daemon=True)
    thread.start()

    def publish(record: Mapping[str, Any] | None) -> None:
        while True:
            try:
                waiting.put_nowait(record)
            except queue.Full:
                _drop(waiting)  # the older one is no news any more
            else:
                return

    def end() -> None:
        waiting.put(None)
        thread.join(PATIENCE)

    stack.callback(end)
    return publish


def _drop(waiting: queue.Queue[Mapping[str, Any] | None]) -> None:
    with suppress(queue.Empty):
        waiting.get_nowait()


def _feed(url: str, access: ServerAccess, waiting: queue.Queue[Mapping[str, Any] | None]) -> None:
    from kuksa_client.grpc import VSSClientError  # noqa: PLC0415 - the extra `kuksa`

    failed = 0
    record = waiting.get()
    while record is not None:
        with databroker.client_of(url, access) as client:
            while record is not None:
                try:
                    client.set(updates_of(signals_of(record), record["time"]), try_v2=True, timeout=PATIENCE)
                    failed = 0
                except VSSClientError as fault:
                    if failed % _AGAIN == 0:
                        Log().warning(
                            "not-published", reason=databroker.words(fault, url), overlay=str(overlay()), kind="signals"
                        )
                    failed += 1
                record = waiting.get()
                if failed:
                    break  # by a new connection, with the token of now


def to_fleet(config: ForecastConfig, stack: ExitStack) -> Callable[[Forecast], None]:
    """Return what sends forecasts with their reasons to the fleet's broker, as far as `config.report` says.

    Raises
    ------
    UsageError, IdentityError
        The broker, or the identity for it, cannot be used.
    """
    if config.report == "none" or config.broker is None:
        return lambda _forecast: None
    speaker, credentials = config.id, None
    if config.identity is not None:
        from broker.credentials import FolderCredentials  # noqa: PLC0415 - loaded by fleets that sign
        from broker.identity import check_owner  # noqa: PLC0415

        speaker = check_owner(config.identity, "agent").owner.id
        if speaker == config.id:
            raise UsageError(
                f"--identity {config.identity} is agent {config.id}'s own: a broker gives one connection to each "
                "certificate, so publishing would throw the agent out. Enrol a second one, such as "
                f"{config.id}-forecast"
            )
        credentials = FolderCredentials(config.identity)
    topics = Topics(config.fleet)
    link = Link(
        url=config.broker,
        client_id=f"gf-{config.fleet}-forecast-{config.id}",
        session_expiry=0,
        tls=tls_of(config.identity, config.ca_file),
        insecure_plaintext=config.insecure_plaintext,
    )
    # It subscribes to nothing but, perhaps, the revocation list: there is nothing else to refuse.
    transport = signed(link, topics, credentials, lambda _message, _fault: None, PahoTransport)
    topic = topics.forecast(speaker)
    transport.start(Handlers(lambda _message: None, lambda: None, lambda _why: None))
    stack.callback(transport.stop)
    stack.callback(transport.flush, 1.0)

    def publish(forecast: Forecast) -> None:
        # What nobody could hear at its time is not news later: nothing is queued while the broker is away.
        if transport.is_connected and (config.report == "all" or forecast.alert):
            envelope = Envelope(fleet=config.fleet, body=forecast, agent=speaker, time=forecast.at)
            transport.publish(topic, envelope.to_bytes())

    return publish
