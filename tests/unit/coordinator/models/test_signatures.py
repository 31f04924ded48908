"""Signatures of models that nobody can verify any more: named in the log, and made anew on an operator's word."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from broker.identity import save_identity
from console.operator.versions import _line_of_decision
from coordinator.http.api import make_app
from schemas.codec import document_digest
from schemas.errors import DocumentError, UsageError
from schemas.topics import Topics
from tests.support.coordinator_bench import Cloud, authorities, is_believed, record_of, signer_of
from tests.support.coordinator_http import ask

TOPICS = Topics("f")


@pytest.mark.parametrize("what", ["the coordinator's certificate", "the authority's key"])
def test_models_from_before_a_stolen_identity_wait_until_an_operator_signs_them(what, tmp_path: Path):
    former, after = authorities(tmp_path, "one", "two")
    cloud = Cloud(former.identity("coordinator", "cloud"))
    cloud.register(record_of().signed_by(signer_of(cloud.folder)))
    cloud.start()
    if what == "the authority's key":
        cloud.change(after.identity("coordinator", "cloud"), after)
        now = after
    else:
        former.authority.revoke("cloud", "stolen")
        now = former
        cloud.change(former.identity("coordinator", "cloud-2"), former)
    assert not is_believed(cloud.stored(), now)
    code = "foreign-certificate" if now is after else "revoked-certificate"
    assert cloud.logged() == [(code, 1)]

    result = cloud.core.models.sign("m", 1, record_of().digest, "compared")
    cloud.hub.pump()
    assert result["former"].startswith(code)
    assert is_believed(cloud.stored(), now)
    assert cloud.published() == {TOPICS.model_version("m", 1): cloud.stored().record}
    last = cloud.core.registry.history("m")[-1]
    assert (last.kind, last.body) == ("signed", {"version": 1, "digest": record_of().digest, "reason": "compared",
                                                 "signer": result["signer"], "former": result["former"]})  # fmt: skip
    assert _line_of_decision({"kind": last.kind, "wall": 0.0, **last.body}) == (
        f"  v1 signed by {result['signer']} on an operator's word: compared"
    )
    assert cloud.core.models.sign("m", 1, record_of().digest)["former"] == "", "again does nothing"
    assert len(cloud.core.registry.history("m")) == 2
    cloud.start()
    assert cloud.core.aliases.current["m"].version == 1
    assert is_believed(cloud.stored(), now)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ("the document, its digest fits", "was registered with digest"),
        ("the document", "was changed after it was published"),
        ("the version", "its record is of 'm' version 9"),
        ("the end", "not a model record"),
        ("what was looked at", "what you looked at is another document"),
    ],
)
def test_operator_cannot_sign_another_document_than_was_registered(changed, why, tmp_path: Path):
    (ca,) = authorities(tmp_path, "one")
    cloud, record = Cloud(ca.identity("coordinator", "cloud")), record_of()
    other = {**record.document, "leaves": []}
    wanted = record.digest
    match changed:
        case "the document, its digest fits":
            data = record.model_copy(update={"document": other, "digest": document_digest(other)}).to_bytes()
            wanted = document_digest(other)
        case "the document":
            data = record.to_bytes().replace(b'"leaves":["', b'"leaves":["x')
        case "the version":
            data = record.model_copy(update={"version": 9}).to_bytes()
        case "the end":
            data = record.to_bytes()[:-9]
        case _:
            data, wanted = record.to_bytes(), "0" * 64
    cloud.register(data)
    cloud.start()
    with pytest.raises(DocumentError, match=why):
        cloud.core.models.sign("m", 1, wanted)
    assert cloud.stored().record == data
    assert [each.kind for each in cloud.core.registry.history("m")] == ["current"]


def test_coordinator_that_nobody_trusts_or_that_has_no_identity_signs_nothing(tmp_path: Path):
    (ca,) = authorities(tmp_path, "one")
    cloud = Cloud(ca.identity("coordinator", "cloud"))
    cloud.register(record_of())
    ca.authority.revoke("cloud", "stolen")
    save_identity(cloud.folder, crl=ca.authority.crl_pem)
    cloud.start()
    with pytest.raises(UsageError, match="own certificate is refused"):
        cloud.core.models.sign("m", 1, record_of().digest)
    cloud = Cloud(cloud.folder, signs=False)
    cloud.register(record_of())
    cloud.start()
    with pytest.raises(UsageError, match="start it with --identity"):
        cloud.core.models.sign("m", 1, record_of().digest)


def test_operator_needs_the_token_to_sign_over_http_and_a_damaged_record_is_given_as_it_is(tmp_path: Path):
    (ca,) = authorities(tmp_path, "one")
    cloud = Cloud(ca.identity("coordinator", "cloud"))
    cloud.register(record_of(), record_of(2).to_bytes()[:-9])
    cloud.start()
    asked = partial(ask, make_app(cloud.service(tmp_path / "state"), "token"))
    body = {"digest": record_of().digest, "reason": "looked at"}
    assert asked("POST", "/api/models/m/1/sign", token="other", json=body).status_code == 401
    assert asked("POST", "/api/models/m/1/sign", json={**body, "digest": "0" * 64}).status_code == 409
    assert asked("POST", "/api/models/m/9/sign", json=body).status_code == 404
    answer = asked("POST", "/api/models/m/1/sign", json=body)
    assert (answer.status_code, answer.json()["former"].split(":")[0]) == (200, "unsigned")
    assert is_believed(cloud.stored(), ca)
    damaged = asked("GET", "/api/models/m/2")
    assert (damaged.status_code, damaged.content) == (200, cloud.stored(2).record)
    assert asked("POST", "/api/models/m/2/sign", json={"digest": record_of(2).digest}).status_code == 409
    assert json.loads(asked("GET", "/api/models/m/1").content)["signatures"]
