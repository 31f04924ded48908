"""A coordinator with an identity folder on a broker in memory, for what becomes of its models' signatures."""

from __future__ import annotations

import hashlib
import time
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from broker.credentials import FolderCredentials
from broker.identity import save_identity
from broker.memory import MemoryHub
from broker.memory_client import MemoryTransport
from broker.port import Handlers, Link
from coordinator.config import load_config
from coordinator.journal import MemoryJournal
from coordinator.journal.port import StoredModel
from coordinator.main import assemble
from coordinator.service import Service
from schemas.documents import document_digest
from schemas.record import ModelRecord
from schemas.trust.signing import Signer, Verifier
from tests.support.engine_bench import TOY_ENGINE
from tests.support.fleet import FleetCa


def _both(digest: str, data: bytes, _version: int) -> tuple[str, bytes]:
    return digest, data


def record_of(version: int = 1, **other: Any) -> ModelRecord:
    document = {"scheme": "toy", "leaves": [hashlib.sha256(bytes([version, each])).hexdigest() for each in range(100)]}
    # Made long before the authorities were.
    about = {"created": "2026-01-01T00:00:00+00:00", "cohort": ["v1"], "fleet": "f", "scheme": "toy", "name": "m"}
    return ModelRecord.model_validate(
        {"version": version, "digest": document_digest(document), "document": document, "run": f"r{version}"}
        | about
        | other
    )


class Cloud:
    """A coordinator with an identity folder, on a broker in memory."""

    def __init__(self, folder: Path, *, limit: int = 100_000, kept: int = 10, signs: bool = True) -> None:
        self.folder = folder
        self.signs = signs
        self.limit, self.kept = limit, kept
        self.journal = MemoryJournal()
        self.hub = MemoryHub()
        self.lines: list[Any] = []
        self.credentials = FolderCredentials(folder, pause=0.0)

    def register(self, *records: ModelRecord | bytes) -> None:
        for version, each in enumerate(records, start=1):
            data = each if isinstance(each, bytes) else each.to_bytes()
            digest = record_of(version).digest if isinstance(each, bytes) else each.digest
            self.journal.add_model("m", f"r{version}", partial(_both, digest, data))

    def start(self) -> None:
        """Begin a life, on a broker that keeps what is retained."""
        self.hub.kill("coordinator")
        self.credentials = FolderCredentials(self.folder, pause=0.0)
        transport = MemoryTransport(self.hub, Link("mqtt://m", "coordinator", max_message_bytes=self.limit))
        self.core = assemble(
            "f",
            transport,
            self.journal,
            TOY_ENGINE,
            max_message_bytes=self.limit,
            retained_versions=self.kept,
            clock=lambda: self.hub.now,
            signer=(lambda: self.credentials.signer) if self.signs else None,
            verifier=self.credentials.verifier,
        )
        with structlog.testing.capture_logs() as lines:
            transport.start(Handlers(lambda message: self.core.handle([message]), self.core.connected, lambda _: None))
            self.hub.pump()
        self.lines += lines

    def change(self, issued: Path | None = None, *trusted: FleetCa) -> None:
        """Put another certificate, with its key, or other authorities into the folder of the running process."""
        named = {"ca": b"".join(each.authority.ca_pem for each in trusted)} if trusted else {}
        crl = {"crl": b"".join(each.authority.crl_pem for each in trusted)} if trusted else {}
        made = {} if issued is None else {"key": (issued / "key.pem").read_bytes()}
        made |= {} if issued is None else {"certificate": (issued / "cert.pem").read_bytes()}
        save_identity(self.folder, **named, **crl, **made)
        self.credentials.refresh()
        self.tick()

    def tick(self) -> None:
        with structlog.testing.capture_logs() as lines:
            self.core.tick()
            self.hub.pump()
        self.lines += lines

    def service(self, state: Path) -> Service:
        """What the HTTP API stands on; whoever calls is the coordinator's thread."""
        made = Service(load_config(state_dir=state), self.core)
        made.call = lambda function, timeout=None: function(self.core)  # type: ignore[method-assign]
        return made

    def told(self, event: str = "model-not-verified") -> list[tuple[str, list[int]]]:
        return [(line["code"], line["versions"]) for line in self.lines if line["event"] == event]

    def stored(self, version: int = 1) -> StoredModel:
        return self.core.registry.get("m", version)

    def published(self) -> dict[str, bytes]:
        """What is retained of versions and blobs."""
        return {topic: content for topic, content in self.hub.retained.items() if "/v/" in topic or "/blob/" in topic}


def is_believed(model: StoredModel, *cas: FleetCa) -> bool:
    verifier = Verifier(b"".join(each.authority.ca_pem for each in cas), time.time)
    verifier.update_crl(b"".join(each.authority.crl_pem for each in cas))
    try:
        return ModelRecord.from_bytes(model.record).verified_by(verifier).role == "coordinator"
    except ValueError:
        return False


def signer_of(folder: Path) -> Signer:
    return FolderCredentials(folder).signer


def authorities(tmp_path: Path, *names: str) -> list[FleetCa]:
    return [FleetCa(tmp_path / name, name) for name in names]
