"""Seals and signed records: what was signed is taken, everything else is refused by name."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import limits
from schemas.envelope import Envelope
from schemas.errors import UsageError, WireError
from schemas.messages import ContributionBody, Receipt
from schemas.record import ModelRecord
from schemas.topics import Topics
from schemas.trust.certificates import is_issued
from schemas.trust.owner import Owner
from schemas.trust.signing import Signer, Verifier, split
from tests.support.authorities import DAY, NOW, TestCa, pem
from tests.support.coordinator_http import record_of

TOPICS = Topics("fleet")
CA = TestCa()
AGENT = CA.agent("v1")
CLOUD = CA.coordinator()
SIGNER = AGENT.signer()
TOPIC = TOPICS.contribution("v1")
WRITERS = (Owner("agent", "v1"),)


def envelope() -> Envelope:
    body = ContributionBody(
        task_digest="a" * 64, rows=10, data_digest="b" * 64, contribution={"sums": b"\xa9signature\xc5\x01\x00" * 40}
    )
    return Envelope(fleet="fleet", body=body, run="run-1", agent="v1", time=NOW)


SEALED = SIGNER.seal(TOPIC, envelope().to_bytes())


def refused(payload: bytes, *, topic=TOPIC, writers=WRITERS, verifier: Verifier | None = None) -> str:
    with pytest.raises(WireError) as caught:
        (verifier or CA.verifier()).open(topic, payload, writers)
    return caught.value.code


def test_sealed_message_is_still_the_same_envelope():
    opened = Envelope.from_bytes(SEALED, fleet="fleet")
    assert opened == replace(envelope(), signature=opened.signature)
    assert len(opened.signature) <= limits.MAX_SEAL_BYTES
    assert split(SEALED) == (envelope().to_bytes(), opened.signature)


@settings(max_examples=100)
@given(position=st.integers(0, len(SEALED) - 1), flip=st.integers(1, 255))
def test_verifier_refuses_a_message_in_which_any_byte_was_changed(position, flip):
    changed = bytearray(SEALED)
    changed[position] ^= flip
    with pytest.raises(WireError):
        CA.verifier().open(TOPIC, bytes(changed), WRITERS)


@settings(max_examples=100)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_verifier_raises_nothing_but_wire_errors_when_the_bytes_are_garbage(head, tail):
    cut = len(SEALED) // 2
    for payload in (head, head + SEALED, SEALED[:cut] + head + SEALED[cut:], SEALED[:-17] + tail + SEALED[-17:]):
        try:
            CA.verifier().open(TOPIC, payload, WRITERS)
        except WireError:
            continue
        # Only what stands before the envelope's start could be ignored, and the signature covers that too.
        assert payload == SEALED


def test_verifier_refuses_a_message_that_was_moved_to_another_topic():
    for topic in (TOPICS.contribution("v2"), TOPICS.agent_state("v1"), Topics("other").contribution("v1")):
        assert refused(SEALED, topic=topic) == "bad-signature"


def test_verifier_refuses_an_agents_seal_where_the_coordinator_writes():
    topic = TOPICS.receipt("v2")
    body = Receipt(run="r", task_digest="0" * 64, outcome="accepted")
    forged = SIGNER.seal(topic, Envelope(fleet="fleet", body=body, agent="v2").to_bytes())
    assert refused(forged, topic=topic, writers=(Owner("coordinator", "*"),)) == "wrong-signer"
    honest = CLOUD.signer().seal(topic, Envelope(fleet="fleet", body=body, agent="v2").to_bytes())
    assert CA.verifier().open(topic, honest, (Owner("coordinator", "*"),)).id == "cloud"


def test_verifier_refuses_unsigned_messages():
    assert refused(envelope().to_bytes()) == "unsigned"
    assert refused(b"\x01\x02") == "malformed"


def test_verifier_refuses_certificates_of_another_ca():
    assert refused(TestCa().agent("v1").signer().seal(TOPIC, envelope().to_bytes())) == "foreign-certificate"


def test_verifier_refuses_certificates_outside_their_dates():
    assert refused(SEALED, verifier=CA.verifier(NOW + 2 * DAY)) == "expired-certificate"
    assert refused(SEALED, verifier=CA.verifier(NOW - 2 * DAY)) == "expired-certificate"
    assert CA.verifier(NOW - DAY - 200).open(TOPIC, SEALED, WRITERS).id == "v1"  # a vehicle's clock that is late


def test_verifier_refuses_revoked_certificates_when_it_has_the_list():
    verifier = CA.verifier()
    assert verifier.open(TOPIC, SEALED, WRITERS)
    assert verifier.update_crl(CA.crl(AGENT)) == 1
    assert refused(SEALED, verifier=verifier) == "revoked-certificate"
    assert verifier.update_crl(CA.crl()) == 1  # an older list does not bring anybody back
    assert refused(SEALED, verifier=verifier) == "revoked-certificate"


def test_verifier_refuses_a_revocation_list_that_the_ca_did_not_sign():
    for crl in (TestCa().crl(AGENT), b"nonsense"):
        with pytest.raises(WireError, match="bad-crl"):
            CA.verifier().update_crl(crl)


@pytest.mark.parametrize(
    "uris", [(), ("urn:other:agent:v1",), ("urn:glassfleet:king:v1",), ("urn:glassfleet:agent:",),
             ("urn:glassfleet:agent:v1", "urn:glassfleet:agent:v2")],
)  # fmt: skip
def test_verifier_refuses_certificates_that_do_not_name_one_owner(uris):
    issued = CA.issue(*uris)
    with pytest.raises(WireError, match="bad-certificate"):
        CA.verifier().owner(issued.certificate.public_bytes(Encoding.DER))
    with pytest.raises(UsageError):
        issued.signer()


def test_verifier_refuses_a_ca_as_a_signer():
    issued = CA.issue("urn:glassfleet:agent:v1", extensions=[x509.BasicConstraints(ca=True, path_length=None)])
    assert refused(issued.signer().seal(TOPIC, envelope().to_bytes())) == "bad-certificate"


def test_signer_refuses_a_key_that_is_not_the_certificates():
    with pytest.raises(UsageError, match="another key"):
        Signer(pem(CLOUD.key), AGENT.certificate.public_bytes(Encoding.PEM))
    with pytest.raises(UsageError, match="cannot be read"):
        Signer(b"nonsense", b"nonsense")
    with pytest.raises(UsageError, match="cannot be read"):
        Verifier(b"nonsense", lambda: NOW)


RECORD = record_of(
    {"scheme": "frt", "format": 1, "parameters": {}, "domain": {}, "model": {"leaves": [0.5]}},
    "qoe",
    cohort=["v1"],
    created="2027-01-15T08:00:00+00:00",
)


def test_record_signed_by_the_coordinator_is_verified_by_everybody_with_the_ca():
    signed = RECORD.signed_by(CLOUD.signer())
    again = ModelRecord.from_bytes(signed.to_bytes())
    assert again.verified_by(CA.verifier()) == Owner("coordinator", "cloud")
    assert again.digest == RECORD.digest
    # Long after the certificate has expired, too; but not when its key was stolen and it was revoked.
    late = CA.verifier(NOW + 500 * DAY)
    assert again.verified_by(late).id == "cloud"
    late.update_crl(CA.crl(CLOUD))
    with pytest.raises(WireError, match="revoked-certificate"):
        again.verified_by(late)


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"cohort": ["v1", "v2"]}, {"created": "2027-01-15T08:00:01+00:00"}, {"name": "other"}]
)
def test_record_that_was_changed_after_signing_is_refused(change):
    changed = RECORD.signed_by(CLOUD.signer()).model_copy(update=change)
    with pytest.raises(WireError, match="bad-signature"):
        changed.verified_by(CA.verifier())


def test_signature_that_takes_bytes_of_what_was_signed_along_is_none_of_the_rest():
    signed, certificate = b"hello world", SIGNER.certificate
    value = SIGNER.sign(signed)
    assert CA.verifier().verify(signed, value, certificate) == Owner("agent", "v1")
    for cut in range(-64, len(signed) + 1):
        whole = value + signed
        if cut:
            with pytest.raises(WireError, match="bad-signature"):
                CA.verifier().verify(whole[64 + cut :], whole[: 64 + cut], certificate)


def test_record_without_a_coordinators_signature_is_refused():
    with pytest.raises(WireError, match="unsigned"):
        RECORD.verified_by(CA.verifier())
    with pytest.raises(WireError, match="wrong-signer"):
        RECORD.signed_by(SIGNER).verified_by(CA.verifier())
    with pytest.raises(WireError, match="foreign-certificate"):
        RECORD.signed_by(TestCa().coordinator().signer()).verified_by(CA.verifier())


def test_verifier_refuses_a_certificate_that_is_not_written_in_the_one_way_of_der():
    while True:  # until the last bit of the CA's signature is one that could be called unused
        certificate = CA.agent("v1").certificate.public_bytes(Encoding.DER)
        if certificate[-1] & 1 == 0:
            break
    assert CA.verifier().owner(certificate) == Owner("agent", "v1")
    with pytest.raises(WireError, match="bad-certificate"):
        CA.verifier().owner(certificate[:-65] + b"\x01" + certificate[-64:])


@settings(max_examples=100)
@given(position=st.integers(0, 200), value=st.integers(0, 255))
def test_verifier_raises_nothing_but_wire_errors_when_a_certificate_is_garbage(position, value):
    certificate = bytearray(SIGNER.certificate)
    certificate[position] = value
    with contextlib.suppress(WireError):
        assert CA.verifier().owner(bytes(certificate)) == Owner("agent", "v1")
        assert bytes(certificate) == SIGNER.certificate


def test_certificate_of_a_dropped_ca_is_refused_afterwards_though_somebody_was_checking_it_meanwhile(monkeypatch):
    after, verifier = TestCa("next CA"), CA.verifier()
    judged = is_issued

    def slowly(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
        verdict = judged(certificate, ca)
        verifier.trust(after.pem)
        return verdict

    monkeypatch.setattr("schemas.trust.signing.is_issued", slowly)
    assert verifier.owner(SIGNER.certificate) == Owner("agent", "v1"), "it was trusted when the check began"
    with pytest.raises(WireError, match="foreign-certificate"):
        verifier.owner(SIGNER.certificate)


def test_list_that_comes_with_its_ca_counts_with_it_and_another_one_is_passed_over():
    after, verifier = TestCa("next CA"), CA.verifier()
    gone, foreign = after.agent("v1"), TestCa("other CA")
    for passed_over in (b"nonsense", foreign.crl(AGENT)):
        verifier.trust(after.pem, passed_over)
        assert verifier.revoked == frozenset()
    verifier.trust(after.pem, after.crl(gone))
    assert verifier.revoked == {gone.certificate.serial_number}
    verifier.trust(CA.pem)
    assert verifier.revoked == frozenset()


def test_seals_and_records_end_with_the_authority_that_issued_the_certificate():
    ca = TestCa()
    leaf = ca.agent("v1", ends=NOW + 2000 * DAY).certificate.public_bytes(Encoding.DER)
    assert ca.verifier(NOW + 999 * DAY).owner(leaf) == Owner("agent", "v1")
    with pytest.raises(WireError, match="expired-certificate"):
        ca.verifier(NOW + 1001 * DAY).owner(leaf)
    assert ca.verifier(NOW + 1001 * DAY).owner(leaf, NOW) == Owner("agent", "v1"), "what it signed before stays good"
    with pytest.raises(WireError, match="expired-certificate"):
        ca.verifier(NOW).owner(leaf, NOW + 1001 * DAY)
