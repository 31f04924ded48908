"""The model record and canonical JSON: verified, and an error by name for everything else."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import rfc8785

from schemas.codec import canonical_json, document_digest
from schemas.errors import DocumentError, VerificationError, WireError
from schemas.record import ModelRecord, Signature, Training

DOCUMENT = {
    "scheme": "frt",
    "format": 1,
    "parameters": {"sets": 3},
    "domain": {},
    "model": {"leaves": [0.1, 1e-7, 2.0]},
}
RECORD = ModelRecord(
    name="qoe",
    version=3,
    digest=document_digest(DOCUMENT),
    document=DOCUMENT,
    fleet="fleet",
    run="run-1",
    scheme="frt",
    cohort=["v1", "v2"],
    domain_contributors=["v1", "v2", "v3"],
    parents=["0" * 64],
    parameters={"max_depth": 5},
    training=Training(
        rounds=7, rows=36000, dropped={"v3": "missed the deadline"}, nullified_cells=2, sums_digest="1" * 64
    ),
    created="2026-01-02T03:04:05+00:00",
    software="glassfleet 0.1.0",
)


def changed(**changes) -> bytes:
    value = json.loads(RECORD.to_bytes())
    for name, content in changes.items():
        if content is ...:
            del value[name]
        else:
            value[name] = content
    return json.dumps(value).encode()


def test_record_comes_back_as_it_was_published():
    data = RECORD.to_bytes()
    assert ModelRecord.from_bytes(data) == RECORD
    assert ModelRecord.load(data) == RECORD
    assert data == canonical_json(json.loads(data))
    assert data.startswith(b"{")


def test_digest_is_of_the_document_alone():
    signed = RECORD.model_copy(
        update={"run": "other", "signatures": [Signature(key="k", algorithm="ed25519", value="eA==")]}
    )
    assert signed.digest == RECORD.digest
    assert ModelRecord.from_bytes(signed.to_bytes()) == signed


def test_record_with_a_changed_document_is_refused_by_name():
    data = changed(document=DOCUMENT | {"format": 2})
    with pytest.raises(WireError, match=r"^digest-mismatch: "):
        ModelRecord.from_bytes(data)
    with pytest.raises(VerificationError, match="was changed"):
        ModelRecord.load(data)


def test_record_with_a_wrong_digest_is_not_written():
    with pytest.raises(DocumentError, match="says digest"):
        RECORD.model_copy(update={"digest": "0" * 64}).to_bytes()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xff", "malformed"),
        (b"[" * 100_000, "malformed"),
        (b"{}", "unknown-version"),
        (changed(format=1), "unknown-version"),
        (changed(name=...), "malformed"),
        (changed(name="a/b"), "malformed"),
        (changed(version=0), "malformed"),
        (changed(version="1"), "malformed"),
        (changed(digest="x"), "malformed"),
        (changed(document=[]), "malformed"),
        (changed(document={"x": 2**60}), "malformed"),
        (changed(document={"x": "\ud800"}), "malformed"),
        (changed(cohort=["a b"]), "malformed"),
        (changed(training={"rounds": -1}), "malformed"),
        (changed(training={"dropped": {"a b": "x"}}), "malformed"),
        (changed(more=1), "malformed"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[:20].decode("latin1"),
)
def test_record_is_refused_with_the_reason(data, code):
    """What else is refused: tests/fuzz/corpus/record.json."""
    with pytest.raises(WireError, match=f"^{code}: ") as caught:
        ModelRecord.from_bytes(data)
    assert len(str(caught.value)) < 600
    with pytest.raises(DocumentError, match="not a model record"):
        ModelRecord.load(data)


def test_equal_documents_have_equal_bytes():
    assert document_digest({"a": 1, "b": 2}) == document_digest({"b": 2.0, "a": 1.0})
    document: Any = {"\U00010000": [5e-324, 1e-7, 1.5e16, -2.0, -0.0, (0.1,)], "\uffff": '\x00\n"\\é\x7f', "z": None}
    assert canonical_json(document) == rfc8785.dumps(document)


@pytest.mark.parametrize("value", [math.nan, math.inf, 2**53 + 1, {1: 2}, object(), "\ud800"])
def test_what_canonical_json_cannot_hold_is_a_document_error(value):
    with pytest.raises(DocumentError):
        canonical_json({"x": value})
