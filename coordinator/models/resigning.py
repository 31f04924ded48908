"""Who signs the models of the registry again: the coordinator after a planned change of authority, else an operator.

A record is signed once, by the coordinator that made it. Who trusts another authority later cannot verify it. So while
both authorities are trusted, a coordinator whose certificate is from the other one signs again what it can verify
itself, and nothing else. A signature must not make good what a thief or a revoked coordinator left in the journal. What
it cannot verify stays as it stands, which is told in the log; an operator who has looked at it may have it signed.

Reading a large record takes a while. So what the coordinator's own authority certifies is judged by its certificate
alone, without the content, which whoever uses the model verifies anyway.
"""

from __future__ import annotations

import base64
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from coordinator.journal.port import Journal, StoredModel
from schemas.errors import DocumentError, UsageError, VerificationError, WireError
from schemas.record import ModelRecord

if TYPE_CHECKING:  # a fleet that does not sign need not load the cryptography
    from schemas.trust.signing import Signer, Trust, Verifier

_log = structlog.get_logger("coordinator")

_SIGNATURES = b'"signatures":'
_CERTIFICATE = re.compile(_SIGNATURES + rb'\[\{"algorithm":"ed25519","certificate":"([A-Za-z0-9+/]+=*)"')
"""In the canonical JSON of a record; no text in a record can hold it, as its quotation marks would be escaped."""


class ReSigner:
    """Signatures over what is in the registry.

    Parameters
    ----------
    signer : callable
        Returns who signs now.
    verifier : Verifier
        Knows whom to trust now.
    """

    def __init__(self, signer: Callable[[], Signer], verifier: Verifier) -> None:
        self._signer = signer
        self._verifier = verifier
        self._seen: tuple[bytes, Trust] | None = None
        self._logged: set[tuple[str, int, str]] = set()

    def due(self, models: Callable[[], Iterable[StoredModel]]) -> Iterator[tuple[StoredModel, StoredModel] | None]:
        """Yield each model that must be signed again, as it is and as it shall be; looks only after something changed.

        Who iterates may pause for as long as it likes, also after a model that need not be signed, for which None
        comes. When the certificate or the authorities change meanwhile, it ends, and the next call begins anew.

        Parameters
        ----------
        models : callable
            Returns all that are registered, each as it stands when it is asked for.
        """
        signer, trusted = self._signer(), self._verifier.trusted
        if self._seen is not None and self._is_still(*self._seen):
            return
        try:
            # One that came before its authority waits for it; what it would sign nobody could verify.
            self._verifier.owner(signer.certificate)
        except WireError as fault:
            self._seen = (signer.certificate, trusted)
            _log_own_certificate(fault)
            return
        faults: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
        for model in models():
            if not self._is_still(signer.certificate, trusted):
                return
            try:
                record = self._again(model, signer)
            except WireError as fault:
                faults[model.name, fault.code].append((model.version, fault.detail))
            except Exception as fault:  # noqa: BLE001  whatever stands in the journal, the fleet goes on
                faults[model.name, "damaged"].append((model.version, str(fault)))
            else:
                if record is not None:
                    yield model, replace(model, record=record)
                    continue
            yield None
        self._seen = (signer.certificate, trusted)
        self._tell(faults)

    def _is_still(self, certificate: bytes, trusted: Trust) -> bool:
        return self._signer().certificate == certificate and self._verifier.trusted is trusted

    def _again(self, model: StoredModel, signer: Signer) -> bytes | None:
        """Return the record signed again; None: there is no need. Raises what stands against its signature."""
        from schemas.trust.certificates import issuer_of  # noqa: PLC0415 - loaded by fleets that sign

        # The last: a document may hold what looks like a signature, and stands before it.
        match = _CERTIFICATE.match(model.record, model.record.rfind(_SIGNATURES))
        if match is not None and model.record.endswith(b'"version":%d}' % model.version):  # else it is cut off
            certificate = base64.b64decode(match[1])
            # At no time: what it signed before it expired stays good.
            owner = self._verifier.owner(certificate, float("-inf"))
            if owner.role != "coordinator":
                raise WireError("wrong-signer", f"{owner} may not make models")
            if issuer_of(certificate) == signer.issuer:
                return None
        record = read(model)
        record.verified_by(self._verifier)
        return record.signed_by(signer).to_bytes()

    def by_hand(self, model: StoredModel, digest: str) -> tuple[StoredModel, str, str]:
        """Sign a record because an operator has checked it.

        Parameters
        ----------
        digest : str
            Of the document that the operator has looked at.

        Returns
        -------
        StoredModel
            As it shall be; the same one when its signature is good, and from our own authority.
        str
            Who signs.
        str
            Why the former signature was not good: a code and a sentence; empty when it was, from whichever authority.

        Raises
        ------
        DocumentError
            The record is damaged, or its document is not the one that was registered, or looked at.
        UsageError
            The coordinator's own certificate is not good.
        """
        from schemas.trust.certificates import issuer_of  # noqa: PLC0415 - loaded by fleets that sign

        what = f"model {model.name!r} version {model.version}"
        try:
            record = read(model)
        except (DocumentError, VerificationError) as fault:
            raise DocumentError(f"{what} is not signed: {fault}") from fault
        if digest != model.digest:
            raise DocumentError(
                f"{what} has digest {model.digest}, not {digest[:80]}: what you looked at is another document"
            )
        signer = self._signer()
        try:
            self._verifier.owner(signer.certificate)
        except WireError as fault:
            raise UsageError(
                f"the coordinator's own certificate is refused, so it can sign for nobody: {fault}"
            ) from fault
        why = ""
        try:
            record.verified_by(self._verifier)
            if issuer_of(base64.b64decode(record.signatures[0].certificate)) == signer.issuer:
                return model, str(signer.owner), ""
        except WireError as fault:
            why = str(fault)
        return replace(model, record=record.signed_by(signer).to_bytes()), str(signer.owner), why

    def _tell(self, faults: dict[tuple[str, str], list[tuple[int, str]]]) -> None:
        """Tell of each version once, and of all versions of a name together."""
        for (name, code), versions in faults.items():
            new = sorted((version, detail) for version, detail in versions if (name, version, code) not in self._logged)
            self._logged.update((name, version, code) for version, _ in new)
            if new:
                _log.warning(
                    "model-not-verified", name=name, versions=[version for version, _ in new], code=code,
                    reason=new[0][1][:300], hint="vehicles refuse it; if good: glassfleet model sign NAME@VERSION",
                )  # fmt: skip


def _log_own_certificate(fault: WireError) -> None:
    """Tell that the coordinator's own certificate is refused: no model is to blame."""
    is_foreign = fault.code == "foreign-certificate"
    hint = "trust its authority first (`ca trust`)" if is_foreign else "renew it, or issue another one (`ca`)"
    _log.warning("coordinator-certificate-not-trusted", code=fault.code, reason=fault.detail[:300], hint=hint)


def one_by_one(journal: Journal, pinned: Collection[tuple[str, int]], keep: int) -> Iterator[StoredModel]:
    """Yield all models, what is retained first, each as it stands when it is asked for.

    One that is forgotten meanwhile is left out.

    Parameters
    ----------
    pinned : collection of (str, int)
        What names stand for.
    keep : int
        So many of the newest versions of each name are retained as well.
    """
    known, retained = [(each.name, each.version) for each in journal.heads()], set(pinned)
    for name in {name for name, _ in known}:
        retained.update((name, version) for version in journal.newest(name, keep))
    for name, version in sorted(known, key=lambda each: each not in retained):
        model = journal.model(name, version)
        if model is not None:
            yield model


def read(model: StoredModel) -> ModelRecord:
    """Read a stored record, and check that it is of the version that was registered.

    Raises
    ------
    DocumentError
        It cannot be read, or is of another model.
    VerificationError
        Its document was changed.
    """
    record = ModelRecord.load(model.record)
    if (record.name, record.version, record.digest) != (model.name, model.version, model.digest):
        raise VerificationError(
            f"version {model.version} of {model.name!r} was registered with digest {model.digest}; its record is of "
            f"{record.name!r} version {record.version}, digest {record.digest}"
        )
    return record
