"""A coordinator's HTTP side without a fleet: asked in the process or over a socket, with models that nobody learned."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from coordinator.authority.web import authority_server
from coordinator.config import CoordinatorConfig
from coordinator.http.api import ApiServer
from coordinator.http.server import HttpLimits
from coordinator.main import build
from coordinator.process.service import Service
from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from schemas.codec import document_digest
from schemas.messages import AgentState
from schemas.record import ModelRecord, Training
from tests.support.sample_models import unit_domain
from tests.support.scratch_journal import ScratchJournal

EVIL = "<script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">"
"""What a peer may write wherever it may write a text."""


def ask(app: Any, method: str, path: str, *, token: str = "token", **rest: Any) -> httpx.Response:
    """Ask an application in this process, with a token."""

    async def one() -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}", **rest.pop("headers", {})}
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
            return await client.request(method, path, **rest)

    return asyncio.run(one())


@contextmanager
def served(folder: Path, **settings: Any) -> Iterator[tuple[Service, httpx.Client]]:
    """A coordinator's HTTP side, whose own thread does nothing."""
    service = build(CoordinatorConfig.load(state_dir=folder, **settings), journal=ScratchJournal())
    server = ApiServer(service.config.state_dir, service.config.http.api_host, service.config.http.api_port)
    with httpx.Client(base_url=server.start(service), trust_env=False, timeout=20) as client:
        try:
            yield service, client
        finally:
            server.stop()


@contextmanager
def enrolling(authority: Any, identity: Path, limits: HttpLimits = HttpLimits()) -> Iterator[str]:  # noqa: B008 - frozen
    """An authority's server; gives its address."""
    server = authority_server(authority, identity, limits=limits)
    server.begin("authority")
    try:
        yield f"https://localhost:{server.port}"
    finally:
        server.end()


def is_closed(peer: socket.socket) -> bool:
    """Whether a peer hangs up, whatever it says before."""
    peer.settimeout(20)
    try:
        while peer.recv(65536):
            pass
    except (ConnectionError, ssl.SSLError):
        pass
    except TimeoutError:
        return False
    return True


def births(service: Service, count: int) -> None:
    """Let vehicles come up."""
    for number in range(count):
        body = AgentState(
            status="up",
            incarnation=f"{number:016x}",
            software="glassfleet 0.1.0",
            schemes=["frt", "tree", "frbc", "tsk"],
            features=[f"column_{index}" for index in range(20)],
            target="quality",
        )
        service.coordinator.fleet.up(f"vehicle-{number:04d}", body)


def publish(  # noqa: PLR0917
    service: Service,
    model: Any,
    name: str,
    cohort: list[str],
    participation: str = "cohort",
    run: str = "",
    **parameters: Any,
) -> ModelRecord:
    """Register a model of which a hostile vehicle was dropped; `parameters` are those of the record."""
    run = run or f"run-{name}"
    about = {"scheme": model.scheme, "cohort": cohort, "parameters": {"participation": participation, **parameters}}

    def make(version: int) -> tuple[str, bytes]:
        record = record_of(
            model.to_document(), name, version, run=run, **about, training=Training(dropped={"zz": EVIL})
        )
        return record.digest, record.to_bytes()

    return ModelRecord.from_bytes(service.coordinator.registry.journal.add_model(name, run, make).record)


def record_of(document: dict[str, Any], name: str = "m", version: int = 1, **other: Any) -> ModelRecord:
    """Return the record of a document; its run is ``run-NAME-VERSION`` unless it is given."""
    about: dict[str, Any] = {"fleet": "fleet", "scheme": "frt", "cohort": [], "created": "2026-01-01T00:00:00+00:00"}
    about |= {"name": name, "version": version, "run": f"run-{name}-{version}", **other}
    return ModelRecord.model_validate({"document": document, "digest": document_digest(document), **about})


@cache
def small_document(slope: float = 1.0) -> dict[str, Any]:
    """Return the document of a small tree of the inputs ``a`` and ``b``; another one for each slope."""
    scheme = catalogue.load("frt")
    X = np.random.default_rng(0).random((200, 2))
    domain = unit_domain("ab")
    data = Dataset(("a", "b"), "y", X, np.clip(X[:, 0] * slope, 0, 1))
    made: dict[str, Any] = simulation.central(scheme, scheme.Parameters(max_depth=1), domain, data).model.to_document()
    return made


def dataset(names: tuple[str, ...], *, labels: bool, rows: int = 600) -> Dataset:
    """Rows whose labels and target are written to harm a page."""
    rng = np.random.default_rng(5)
    X = rng.random((rows, len(names)))
    y: Any = X[:, 0] + np.sin(5 * X[:, 1]) * X[:, -1]
    if labels:
        y = np.where(y > np.median(y), EVIL[:60], "Poor")
    return Dataset(names, "quality <b>", X, y)


def domain_of(data: Dataset, *, labels: bool) -> Domain:
    """The domain of such rows, its units like them."""
    features = tuple(Variable(name=name, low=0, high=1, unit="<i>") for name in data.features)
    if labels:
        return Domain(features=features, label=data.target, classes=tuple(sorted(set(data.y.tolist()))))
    return Domain(features=features, target=Variable(name=data.target, low=0, high=2, unit="<u>"))
