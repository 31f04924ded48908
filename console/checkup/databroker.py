"""Checks of a databroker: the one command that tries a real one, from signals to an alert that comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from console.checkup.finding import Finding, fine, warning, wrong
from edge_agent.forecast.publish import BRANCH, overlay, types_of_signals, updates_of
from edge_agent.live.databroker import client_of, words
from edge_agent.live.port import ServerAccess

if TYPE_CHECKING:
    from kuksa_client.grpc import VSSClient

PATIENCE = 5.0
"""Seconds for each answer."""

_LOAD = f"start the databroker with the overlay, too: --vss vss.json,{overlay()}"


def databroker(url: str, access: ServerAccess) -> Iterator[Finding]:
    """Ask what it is and which signals it has, hear of one, and look whether forecasts can be published."""
    from kuksa_client.grpc import VSSClientError

    with client_of(url, access) as client:
        try:
            yield from _looked(client, url)
        except VSSClientError as fault:
            yield wrong("databroker", words(fault, url))


def _looked(client: VSSClient, url: str) -> Iterator[Finding]:
    from grpc import RpcError
    from kuksa.val.v2 import types_pb2, val_pb2
    from kuksa_client.grpc import VSSClientError

    metadata = client.generate_metadata_header(None)
    begun = time.monotonic()
    try:
        server = client.client_stub_v2.GetServerInfo(
            val_pb2.GetServerInfoRequest(), metadata=metadata, timeout=PATIENCE
        )
        listed = client.client_stub_v2.ListMetadata(
            val_pb2.ListMetadataRequest(root="Vehicle"), metadata=metadata, timeout=PATIENCE
        )
    except RpcError as fault:
        raise VSSClientError.from_grpc_error(fault) from fault
    took = 1000 * (time.monotonic() - begun)
    kinds = {each.path: types_pb2.DataType.Name(each.data_type).removeprefix("DATA_TYPE_") for each in listed.metadata}
    yield fine("databroker", f"{url}: {server.name} {server.version}, {len(kinds)} signals, answers in {took:.0f} ms")
    if kinds:
        some = next(iter(kinds))
        (first,) = islice(client.v2_subscribe([some], timeout=PATIENCE), 1)
        value = first[0].entry.value
        shown = "no value" if value is None or value.value is None else "a value"
        yield fine("databroker", f"a subscription to {some} tells {shown} at once, as kuksa.val.v2 says")
    wanted = {path: kind.upper() for path, kind in types_of_signals().items()}
    if not any(path in kinds for path in wanted):
        yield warning("databroker", f"it does not know {BRANCH}: forecasts cannot be published to it", _LOAD)
        return
    for path, kind in wanted.items():
        if kinds.get(path) != kind:
            yield wrong("databroker", f"{path} is {kinds.get(path, 'missing')} there, not {kind}", _LOAD)
            return
    yield from _published(client)


def _published(client: VSSClient) -> Iterator[Finding]:
    """Publish that there is no alert, unless a forecaster has published already."""
    alert = f"{BRANCH}.IsAlert"
    (known,) = islice(client.v2_subscribe([alert], timeout=PATIENCE), 1)
    value = known[0].entry.value
    if value is not None and value.value is not None:
        yield fine("databroker", f"a forecaster publishes there: {alert} is {str(value.value).lower()}")
        return
    client.set(updates_of({alert: False}, time.time()), try_v2=True, timeout=PATIENCE)
    (now,) = islice(client.v2_subscribe([alert], timeout=PATIENCE), 1)
    if now[0].entry.value.value is False:
        yield fine("databroker", f"{alert} was published, and came back")
    else:
        yield wrong("databroker", f"{alert} was published as false, and came back as {now[0].entry.value.value}")
