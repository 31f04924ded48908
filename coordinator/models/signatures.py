"""Signatures of the registry's models: which of them nobody can verify any more, and an operator's word on one.

A record is signed once, by the coordinator that made it. When its certificate is revoked, or another authority takes
the place of the fleet's, vehicles refuse the record. The log names such versions; an operator who has looked at one may
have it signed again. The coordinator does not do so by itself: a signature must not make good what a thief or a revoked
coordinator left in the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from coordinator.journal.port import StoredModel
from schemas.errors import DocumentError, UsageError, VerificationError, WireError
from schemas.record import ModelRecord

if TYPE_CHECKING:  # a fleet that does not sign need not load the cryptography
    from schemas.trust.signing import Signer, Trust, Verifier

_log = structlog.get_logger("coordinator")


class Signatures:
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

    def check(self, models: Callable[[], Iterable[StoredModel]]) -> None:
        """Log which models cannot be verified; looks only when our certificate or whom we trust has changed.

        Parameters
        ----------
        models : callable
            Returns those to look at.
        """
        certificate, trusted = self._signer().certificate, self._verifier.trusted
        if self._seen is not None and self._seen[0] == certificate and self._seen[1] is trusted:
            return
        self._seen = (certificate, trusted)
        for model in models():
            try:
                read(model).verified_by(self._verifier)
            except Exception as fault:  # noqa: BLE001  whatever stands in the journal, the fleet goes on
                _log.warning(
                    "model-not-verified", name=model.name, version=model.version, reason=str(fault)[:300],
                    hint="vehicles refuse it; if good: glassfleet model sign NAME@VERSION",
                )  # fmt: skip

    def by_hand(self, model: StoredModel, digest: str) -> tuple[StoredModel, str, str]:
        """Sign a record because an operator has checked it.

        Parameters
        ----------
        digest : str
            Of the document that the operator has looked at.

        Returns
        -------
        StoredModel
            As it shall be; the same one when its signature is good.
        str
            Who signs.
        str
            Why the former signature was not good: a code and a sentence; empty when it was.

        Raises
        ------
        DocumentError
            The record is damaged, or its document is not the one that was registered, or looked at.
        UsageError
            The coordinator's own certificate is not good.
        """
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
        try:
            record.verified_by(self._verifier)
        except WireError as fault:
            return replace(model, record=record.signed_by(signer).to_bytes()), str(signer.owner), str(fault)
        return model, str(signer.owner), ""


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
