"""The model record: a document with everything that is said about it - run, cohort, parents, training, signature.

The document alone decides the model's digest (promise 1); the record may differ between two runs that learned the same
model. On the wire and in files a record is canonical JSON (RFC 8785), readable with any text editor and verifiable with
any JSON library: the digest is the SHA-256 of the canonical JSON of ``document``.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas import limits
from schemas.documents import canonical_json, document_digest
from schemas.errors import DocumentError, VerificationError, WireError
from schemas.messages import Count, Digest, Id, Text

RECORD_FORMAT = "glassfleet-model-record/1"
"""What the ``format`` field of a record says; the number grows when an old reader could misunderstand a new record."""

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
    """Room for signatures over the record without its ``signatures`` field; none are made yet.

    Attributes
    ----------
    key : str
        Which key signed.
    algorithm : str
        Such as ``ed25519``.
    value : str
        Base64.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key: Signed
    algorithm: Signed
    value: Signed


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
            first = fault.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part)[:40] for part in first["loc"])
            raise WireError("malformed", f"model record, {where}: {first['msg']}"[:400]) from fault
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


def _refuse_constant(name: str) -> None:
    raise WireError("malformed", f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        # Two readers could take different ones, and the digest would vouch for both.
        raise WireError("malformed", "a key appears twice in one object")
    return value
