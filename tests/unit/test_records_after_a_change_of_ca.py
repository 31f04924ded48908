"""Models that were signed under a former CA can be verified by who knows the next one alone."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import pytest

from broker.credentials import FolderCredentials
from coordinator.journal import MemoryJournal
from coordinator.registry import Registry
from schemas.documents import document_digest
from schemas.errors import WireError
from schemas.parts import Frame
from schemas.record import ModelRecord
from schemas.signing import Signer, Verifier
from schemas.topics import Topics
from tests.fleet import FleetCa

TOPICS = Topics("f")
LIMITS = {"in one message": 100_000, "in parts": 2100}


def registry_of(journal: MemoryJournal, signer: Signer | None) -> Registry:
    return Registry(journal, "f", "test", time.time, signer=None if signer is None else lambda: signer)


def published(registry: Registry, limit: int) -> dict[str, bytes]:
    """What is retained on the broker afterwards."""
    return left_by({}, registry.frames(TOPICS, limit, 5, "m"))


def left_by(before: dict[str, bytes], frames: list[Frame]) -> dict[str, bytes]:
    after = before | {frame.topic: frame.payload for frame in frames}
    return {topic: payload for topic, payload in after.items() if payload}


@pytest.mark.parametrize("size", LIMITS)
def test_coordinator_signs_its_models_again_when_its_certificate_is_from_another_ca(size, tmp_path: Path):
    limit, journal = LIMITS[size], MemoryJournal()
    former, after = FleetCa(tmp_path / "former"), FleetCa(tmp_path / "next")
    signers = [FolderCredentials(ca.identity("coordinator", "cloud")).signer for ca in (former, after)]
    document = {"scheme": "toy", "leaves": [hashlib.sha256(bytes([number])).hexdigest() for number in range(100)]}
    # Made long before the next authority was.
    record = ModelRecord(
        name="m", version=1, digest=document_digest(document), document=document, fleet="f", run="r", scheme="toy",
        cohort=["v1"], created="2026-01-01T00:00:00+00:00",
    ).signed_by(signers[0])  # fmt: skip
    model = journal.add_model("m", "r", lambda _: (record.digest, record.to_bytes()))
    assert registry_of(journal, signers[0]).record(model) == model.record

    registry = registry_of(journal, signers[1])
    again = ModelRecord.from_bytes(registry.record(model))
    knows = [Verifier(ca.authority.ca_pem, time.time) for ca in (former, after)]
    assert again.verified_by(knows[1]).id == "cloud"
    assert again.model_copy(update={"signatures": []}) == record.model_copy(update={"signatures": []})
    for verifier, seen in ((knows[0], again), (knows[1], record)):
        with pytest.raises(WireError, match="not issued by this fleet"):
            seen.verified_by(verifier)

    retained = published(registry_of(journal, signers[0]), limit)
    assert (len(retained) > 1) == (size == "in parts")
    assert left_by(retained, registry.frames(TOPICS, limit, 5, "m")) == published(registry, limit), "parts are left"


def test_record_that_nobody_signed_is_not_signed_by_a_coordinator_that_has_a_certificate_now(tmp_path: Path):
    journal = MemoryJournal()
    record = ModelRecord(
        name="m", version=1, digest=document_digest({}), document={}, fleet="f", run="r", scheme="toy", cohort=[],
        created="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    model = journal.add_model("m", "r", lambda _: (record.digest, record.to_bytes()))
    signer = FolderCredentials(FleetCa(tmp_path).identity("coordinator", "cloud")).signer
    assert registry_of(journal, signer).record(model) == registry_of(journal, None).record(model) == model.record
