"""The model record: a document with everything that is said about it - run, cohort, parents, training, signature.

The document alone decides the model's digest (promise 1); the record may differ between two runs that learned the same
model. On the wire and in files a record is canonical JSON (RFC 8785), readable with any text editor and verifiable with
any JSON library: the digest is the SHA-256 of the canonical JSON of ``document``.
"""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas import limits
from schemas.codec import canonical_json, document_digest
from schemas.errors import DocumentError, VerificationError, WireError
from schemas.messages import Count, Digest, Id, Text
from schemas.text import first_fault

if TYPE_CHECKING:  # fleets that do not sign shall not pay for the cryptography: 7 MB at each vehicle
    from schemas.trust.owner import Owner
    from schemas.trust.signing import Signer, Verifier

SIGNED_AS = b"glassfleet-record/1\x00"
"""What is put before the bytes of a record when it is signed: the signature can never pass for a message's."""

RECORD_FORMAT = "glassfleet-model-record/1"
"""What the ``format`` field of a record says; the number grows when an old reader could misunderstand a new record."""

CENTRAL = "central"
"""What ``source`` says in the parameters of a record whose model was learned in one place, to be compared with only."""

Signed = Annotated[str, Field(max_length=1024)]


class Training(BaseModel):
    """How the model came about.

    Attributes
    ----------
    rounds : int
        Rounds that ended with a quorum.
    rows : int
        Training rows of the cohort together.
    dropped : dict of str to str
        Agents that were asked and do not count, each with the reason.
    nullified_cells : int
        Statistics that vehicles withheld because they would have given a row away.
    sums_digest : str
        SHA-256 of the statistics that the model was computed from; empty for schemes without exact sums.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    rounds: Count = 0
    rows: Annotated[int, Field(ge=0, lt=2**53)] = 0
    dropped: dict[Id, Text] = Field(default_factory=dict)
    nullified_cells: Annotated[int, Field(ge=0, lt=2**53)] = 0
    sums_digest: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""


class Signature(BaseModel):
    """A signature over the record without its ``signatures`` field.

    What is signed is ``glassfleet-record/1``, a NUL byte, and the canonical JSON of the record without ``signatures``:
    any JSON library and any Ed25519 library can verify it.

    Attributes
    ----------
    key : str
        Who signed, such as ``coordinator cloud``.
    algorithm : str
        ``ed25519``.
    value : str
        The signature, Base64.
    certificate : str
        The signer's X.509 certificate, DER in Base64.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key: Signed
    algorithm: Signed
    value: Signed
    certificate: Annotated[str, Field(max_length=4096)] = ""


class ModelRecord(BaseModel):
    """One version of a named model.

    Attributes
    ----------
    format : str
        `RECORD_FORMAT`.
    name : str
    version : int
        At least 1; grows by one with each publication under this name.
    digest : str
        Of the document: SHA-256 of its canonical JSON.
    document : dict
        ``{scheme, format, parameters, domain, model}``, JSON values only.
    fleet, run, scheme : str
    cohort : list of str
        Agents whose contributions the model rests on, sorted.
    domain_contributors : list of str
        Agents that the feature domain rests on, sorted; empty when it was declared.
    parents : list of str
        Digests of the models that this one continues.
    parameters : dict
        Summary of the run's parameters, JSON values.
    training : Training
    created : str
        Coordinator's clock, ISO 8601 with offset.
    software : str
        Who made it, with version.
    signatures : list of Signature
        Empty when records are not signed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Annotated[str, Field(pattern=f"^{RECORD_FORMAT}$")] = RECORD_FORMAT
    name: Id
    version: Annotated[int, Field(ge=1, lt=2**31)]
    digest: Digest
    document: dict[str, Any]
    fleet: Id
    run: Id
    scheme: Id
    cohort: list[Id]
    domain_contributors: list[Id] = Field(default_factory=list)
    parents: list[Digest] = Field(default_factory=list, max_length=1000)
    parameters: dict[str, Any] = Field(default_factory=dict)
    training: Training = Field(default_factory=Training)
    created: Annotated[str, Field(min_length=1, max_length=40)]
    software: Text = ""
    signatures: list[Signature] = Field(default_factory=list, max_length=16)

    @property
    def is_reference(self) -> bool:
        """Whether no run of a fleet has learned the model: it was learned in one place, to be compared with only."""
        return self.parameters.get("source") == CENTRAL

    @property
    def is_private(self) -> bool:
        """Whether it was learned in a private run: vehicles tell no scores of it, the record has the fleet's."""
        return bool(self.parameters.get("private"))

    def to_bytes(self) -> bytes:
        """Encode as canonical JSON.

        Raises
        ------
        DocumentError
            The document or the parameters hold what JSON cannot, or the digest is not the document's.
        """
        actual = document_digest(self.document)
        if actual != self.digest:
            raise DocumentError(f"the record of {self.name} says digest {self.digest}, its document has {actual}")
        return canonical_json(self.model_dump())

    def signed_content(self) -> bytes:
        """Return the bytes that a signature of this record is over."""
        return SIGNED_AS + canonical_json(self.model_dump(exclude={"signatures"}))

    def signed_by(self, signer: Signer) -> ModelRecord:
        """Return the record with the signature of `signer` in place of any other."""
        signature = Signature(
            key=str(signer.owner),
            algorithm="ed25519",
            value=base64.b64encode(signer.sign(self.signed_content())).decode(),
            certificate=base64.b64encode(signer.certificate).decode(),
        )
        return self.model_copy(update={"signatures": [signature]})

    def verified_by(self, verifier: Verifier) -> Owner:
        """Verify that a coordinator of this fleet signed the record; returns who.

        The certificate must not have expired when the record was made; now it may have: a model outlives the
        certificate of who made it. A revoked one is refused whenever it signed.

        Raises
        ------
        WireError
            ``unsigned``, ``wrong-signer``, ``bad-signature``, or a fault of the certificate.
        """
        if not self.signatures:
            raise WireError("unsigned", f"the record of {self.name} carries no signature")
        first = self.signatures[0]
        try:
            value = base64.b64decode(first.value, validate=True)
            certificate = base64.b64decode(first.certificate, validate=True)
        except ValueError as fault:
            raise WireError("bad-signature", "the record's signature is not Base64") from fault
        owner = verifier.verify(self.signed_content(), value, certificate, _moment(self.created))
        if owner.role != "coordinator":
            raise WireError("wrong-signer", f"{owner} may not make models")
        return owner

    @classmethod
    def from_bytes(cls, data: bytes) -> ModelRecord:
        """Decode and verify a record from a peer.

        Raises
        ------
        WireError
            ``oversize``, ``malformed``, ``unknown-version`` or ``digest-mismatch``. No other exception leaves this
            function, whatever the bytes.
        """
        value = _parse(data)
        written = value.get("format")
        if written != RECORD_FORMAT:
            raise WireError(
                "unknown-version", f"record format {str(written)[:60]!r}; this software reads {RECORD_FORMAT!r}"
            )
        try:
            record = cls.model_validate(value)
            actual = document_digest(record.document)
        except ValidationError as fault:
            raise WireError("malformed", f"model record, {first_fault(fault)}"[:400]) from fault
        except DocumentError as fault:
            raise WireError("malformed", f"model record: {fault}"[:400]) from fault
        if actual != record.digest:
            raise WireError("digest-mismatch", f"the record promises {record.digest}, its document has {actual}")
        return record

    @classmethod
    def load(cls, data: bytes) -> ModelRecord:
        """Decode and verify a record that the user named (a file): as `from_bytes`, with errors for people.

        Raises
        ------
        VerificationError
            The digest is not the document's.
        DocumentError
            Anything else that is wrong with it.
        """
        try:
            return cls.from_bytes(data)
        except WireError as fault:
            if fault.code == "digest-mismatch":
                raise VerificationError(f"the model was changed after it was published: {fault.detail}") from fault
            raise DocumentError(f"not a model record: {fault.detail}") from fault


def _parse(data: bytes) -> dict[str, Any]:
    if len(data) > limits.MAX_DECODED_BYTES:
        raise WireError("oversize", f"{len(data)} bytes, at most {limits.MAX_DECODED_BYTES} are accepted")
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except WireError:
        raise
    except (ValueError, RecursionError) as fault:
        raise WireError("malformed", f"not JSON: {fault}"[:200]) from fault
    if not isinstance(value, dict):
        raise WireError("malformed", "a model record is a JSON object")
    return value


def _moment(text: str) -> float:
    try:
        when = datetime.fromisoformat(text)
    except ValueError as fault:
        raise WireError("malformed", f"{text[:40]!r} is not a time") from fault
    if when.tzinfo is None:
        raise WireError("malformed", "the time of a signed record needs its offset")
    return when.timestamp()


def _refuse_constant(name: str) -> None:
    raise WireError("malformed", f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        # Two readers could take different ones, and the digest would fit both.
        raise WireError("malformed", "a key appears twice in one object")
    return value
