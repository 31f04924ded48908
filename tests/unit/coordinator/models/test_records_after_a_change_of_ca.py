"""Signatures of models when the authority, or the coordinator's certificate, changes: what is signed again, by whom."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from broker.identity import save_identity
from console.model.versions import _line_of_decision
from coordinator.http.api import make_app
from schemas.documents import document_digest
from schemas.errors import DocumentError, UsageError
from schemas.record import ModelRecord
from schemas.topics import Topics
from tests.support.authorities import FleetCa
from tests.support.coordinator_bench import Cloud, authorities, is_believed, record_of, signer_of
from tests.support.coordinator_http import ask
from tests.support.memory_broker import MemoryHub

TOPICS = Topics("f")
LIMITS = {"in one message": 100_000, "in parts": 2100}


@pytest.mark.parametrize("size", LIMITS)
def test_running_coordinator_signs_its_models_again_at_each_planned_change_and_leaves_nothing_on_the_broker(
    size, tmp_path: Path
):
    cas = authorities(tmp_path, "one", "two", "three")
    cloud = Cloud(cas[0].identity("coordinator", "cloud"), limit=LIMITS[size], kept=2)
    # The first version is in the journal alone; a change must not leave it behind.
    cloud.register(*(record_of(version).signed_by(signer_of(cloud.folder)) for version in (1, 2, 3)))
    cloud.start()
    before = cloud.published()
    assert len(before) == (2 if size == "in one message" else 2 * 4)
    for former, after in ((cas[0], cas[1]), (cas[1], cas[2])):
        cloud.change(None, former, after)
        assert is_believed(cloud.stored(), former), "who trusts the former one alone can follow in peace"
        cloud.change(after.identity("coordinator", "cloud"))
        cloud.change(None, after)
        for version in (1, 2, 3):
            assert is_believed(cloud.stored(version), after)
            assert not is_believed(cloud.stored(version), former)
        assert len(cloud.published()) == len(before), "parts of the former record are left"
    assert cloud.logged() == []
    assert [line["event"] for line in cloud.lines].count("model-signed-again") == 6
    again, cloud.hub = cloud.published(), MemoryHub()
    cloud.start()
    assert cloud.published() == again, "one form, also after a restart"
    assert cloud.core.registry.history("m") == [each for each in cloud.journal.decisions("m") if each.kind == "current"]


def test_coordinator_that_was_down_signs_again_at_its_start_while_both_authorities_are_trusted(tmp_path: Path):
    former, after = authorities(tmp_path, "one", "two")
    cloud = Cloud(former.identity("coordinator", "cloud"))
    cloud.register(record_of().signed_by(signer_of(cloud.folder)))
    cloud.folder = after.identity("coordinator", "cloud")
    save_identity(cloud.folder, ca=former.authority.ca_pem + after.authority.ca_pem)
    cloud.start()
    assert is_believed(cloud.stored(), after)


def test_coordinator_waits_with_its_signature_for_the_authority_of_its_own_certificate(tmp_path: Path):
    former, after = authorities(tmp_path, "one", "two")
    cloud = Cloud(former.identity("coordinator", "cloud"))
    cloud.register(record_of().signed_by(signer_of(cloud.folder)))
    cloud.start()
    cloud.change(after.identity("coordinator", "cloud"))
    cloud.tick()
    assert is_believed(cloud.stored(), former)
    assert cloud.logged() == [], "no model is to blame"
    result = [line for line in cloud.lines if line["event"] == "coordinator-certificate-not-trusted"]
    assert [(line["code"], line["hint"]) for line in result] == [
        ("foreign-certificate", "trust its authority first (`ca trust`)")
    ]
    cloud.change(None, former, after)
    assert is_believed(cloud.stored(), after)


def test_models_are_judged_anew_and_not_blamed_when_their_authority_is_trusted_again_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    former, after = authorities(tmp_path, "one", "two")
    cloud = Cloud(former.identity("coordinator", "cloud"))
    cloud.register(*(record_of(number).signed_by(signer_of(cloud.folder)) for number in (1, 2, 3, 4)))
    cloud.start()
    cloud.change(None, former, after)
    monkeypatch.setattr("coordinator.models.lifecycle.SLICE", 0.0)  # one model a tick
    cloud.change(after.identity("coordinator", "cloud"))
    assert is_believed(cloud.stored(4), former), "they are not signed all at once"
    cloud.change(None, after)
    cloud.tick()  # the next one of the former authority is looked at
    cloud.change(None, former, after)
    for _ in range(6):
        cloud.tick()
    assert cloud.logged() == []
    assert all(is_believed(cloud.stored(number), after) for number in (1, 2, 3, 4))


def _by_agent(record: ModelRecord, former: FleetCa) -> ModelRecord:
    return record.signed_by(signer_of(former.identity("agent", "thief")))


def _spliced(record: ModelRecord, former: FleetCa) -> ModelRecord:
    honest = record_of(7).signed_by(signer_of(former.identity("coordinator", "honest")))
    return record.model_copy(update={"signatures": honest.signatures})


def _hidden(record: ModelRecord, former: FleetCa) -> ModelRecord:
    """A document with what looks like a signature."""
    honest = record.signed_by(signer_of(former.identity("coordinator", "honest")))
    document = {**record.document, "z": {"signatures": [each.model_dump() for each in honest.signatures]}}
    return record.model_copy(update={"document": document, "digest": document_digest(document)})


def _cut(record: ModelRecord, former: FleetCa) -> bytes:
    return record.signed_by(signer_of(former.identity("coordinator", "honest"))).to_bytes()[:-40]


@pytest.mark.parametrize(
    ("code", "forge"),
    [("wrong-signer", _by_agent), ("bad-signature", _spliced), ("unsigned", _hidden), ("damaged", _cut)],
)
def test_record_that_cannot_be_verified_stays_as_it_stands_and_is_told_once_when_the_authority_changes(
    code: str, forge: Callable[[ModelRecord, FleetCa], ModelRecord | bytes], tmp_path: Path
):
    former, after = authorities(tmp_path, "one", "two")
    cloud = Cloud(former.identity("coordinator", "cloud"))
    cloud.register(forge(record_of(), former), record_of(2).signed_by(signer_of(cloud.folder)))
    data = cloud.journal.models("m")[0].record
    cloud.start()
    # Which content our own authority's certificate is for is not looked at: vehicles do that.
    assert cloud.logged() == ([] if code == "bad-signature" else [(code, [1])])
    cloud.change(None, former, after)
    cloud.change(after.identity("coordinator", "cloud"))
    assert cloud.published()[TOPICS.model_version("m", 1)] == data
    assert is_believed(cloud.stored(2), after), "the others do not wait for it"
    assert cloud.logged() == [(code, [1])]
    cloud.start()
    assert cloud.stored().record == data


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
    assert cloud.logged() == [(code, [1])]

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
