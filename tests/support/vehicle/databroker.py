"""A small databroker for tests: a server of kuksa.val.v2, made from the official client's own stubs.

It was written after the service's comments in the .proto files. It is no databroker: what is tested against it is that
we, and the official client, speak the protocol; the databroker itself was not run.
"""

from __future__ import annotations

import datetime as dt
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kuksa.val.v2 import types_pb2, val_pb2, val_pb2_grpc

from edge_agent.forecast import publish

SPEED, GEAR, DOOR, ARRAY = (
    "Vehicle.Speed",
    "Vehicle.Powertrain.Transmission.SelectedGear",
    "Vehicle.Cabin.Door.Row1.DriverSide.IsOpen",
    "Vehicle.OBD.DTCList",
)
TYPES = {SPEED: "FLOAT", GEAR: "STRING", DOOR: "BOOLEAN", ARRAY: "STRING_ARRAY"}
FIELDS = {"FLOAT": "float", "STRING": "string", "BOOLEAN": "bool", "DOUBLE": "double", "UINT32": "uint32"}


def overlay() -> dict[str, str]:
    """Return the data types of the overlay's signals, as a databroker that was given its file."""
    return {path: kind.upper() for path, kind in publish.types_of_signals().items()}


def certificate(folder: Path) -> tuple[Path, Path]:
    """Write a key and a certificate of its own for localhost, and return the files; gRPC takes none with Ed25519."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "databroker-key.pem", folder / "databroker.pem"
    pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files[0].write_bytes(key.private_bytes(serialization.Encoding.PEM, pkcs8, plain))
    files[1].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return files


class Databroker(val_pb2_grpc.VALServicer):  # type: ignore[misc]  # its library has no types
    """Signals, their values, and who hears of them.

    Parameters
    ----------
    token : str or None
        Whoever does not show it is refused.
    tls : tuple of Path or None
        Key and certificate.
    port : int
        0: any that is free.
    """

    def __init__(
        self,
        types: dict[str, str] | None = None,
        *,
        token: str | None = None,
        tls: tuple[Path, Path] | None = None,
        port: int = 0,
    ) -> None:
        self._types = types or TYPES
        self._token = token
        self.points: dict[str, types_pb2.Datapoint] = {}
        self.published: list[tuple[str, Any]] = []
        self._heard: list[tuple[set[str], queue.Queue[dict[str, types_pb2.Datapoint] | None]]] = []
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(8))
        val_pb2_grpc.add_VALServicer_to_server(self, self._server)
        if tls is None:
            self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        else:
            key, certificate = (path.read_bytes() for path in tls)
            credentials = grpc.ssl_server_credentials([(key, certificate)])
            self.port = self._server.add_secure_port(f"127.0.0.1:{port}", credentials)
        self._server.start()

    @property
    def subscribers(self) -> int:
        """How many hear of changes now."""
        return len(self._heard)

    def set(self, values: dict[str, Any], at: float | None) -> None:
        """Change signals, as a provider does; None: there is no value. `at` None: the time is not told."""
        points = {}
        for path, value in values.items():
            point = types_pb2.Datapoint()
            if at is not None:
                point.timestamp.FromNanoseconds(round(at * 1e9))
            if self._types[path] == "STRING_ARRAY":
                point.value.string_array.values.extend(value)
            elif value is not None:
                setattr(point.value, FIELDS[self._types[path]], value)
            points[path] = point
        self._change(points)

    def stop(self) -> None:
        """Go away."""
        with self._lock:
            for _, waiting in self._heard:
                waiting.put(None)
        self._server.stop(0).wait()

    def _change(self, points: dict[str, types_pb2.Datapoint]) -> None:
        with self._lock:
            self.points |= points
            for paths, waiting in self._heard:
                wanted = {path: point for path, point in points.items() if path in paths}
                if wanted:
                    waiting.put(wanted)

    def _check(self, context: grpc.ServicerContext, paths: list[str]) -> None:
        metadata = dict(context.invocation_metadata())
        if self._token is not None and metadata.get("authorization") != f"Bearer {self._token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "a token is needed")
        for path in paths:
            if path not in self._types:
                context.abort(grpc.StatusCode.NOT_FOUND, f"Path not found: {path}")

    # The service

    def Subscribe(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        self._check(context, list(request.signal_paths))
        waiting: queue.Queue[dict[str, types_pb2.Datapoint] | None] = queue.Queue()
        with self._lock:
            known = {path: self.points.get(path, types_pb2.Datapoint()) for path in request.signal_paths}
            waiting.put(known)
            mine = (set(request.signal_paths), waiting)
            self._heard.append(mine)
        context.add_callback(lambda: waiting.put(None))
        while (points := waiting.get()) is not None:
            yield val_pb2.SubscribeResponse(entries=points)
        with self._lock:
            self._heard.remove(mine)

    def PublishValue(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        path = request.signal_id.path
        self._check(context, [path])
        field = FIELDS[self._types[path]]
        if request.data_point.value.WhichOneof("typed_value") != field:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{path} is of type {self._types[path]}")
        self.published.append((path, getattr(request.data_point.value, field)))
        self._change({path: request.data_point})
        return val_pb2.PublishValueResponse()

    def GetValue(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._check(context, [request.signal_id.path])
        return val_pb2.GetValueResponse(data_point=self.points.get(request.signal_id.path, types_pb2.Datapoint()))

    def ListMetadata(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._check(context, [])
        root = request.root
        found = [path for path in self._types if path == root or path.startswith(f"{root}.") or not root]
        if not found:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Path not found: {root}")
        kinds = types_pb2.DataType
        return val_pb2.ListMetadataResponse(
            metadata=[
                types_pb2.Metadata(path=path, data_type=kinds.Value(f"DATA_TYPE_{self._types[path]}")) for path in found
            ]
        )

    def GetServerInfo(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._check(context, [])
        return val_pb2.GetServerInfoResponse(name="tests", version="0")
