"""Whether the fleet's authority stands behind a model: its record's signature, and who says which one is current."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker.port import Message
from broker.signed import writers
from schemas.errors import VerificationError, WireError
from schemas.record import ModelRecord
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.trust.signing import Verifier


@dataclass(frozen=True)
class Signatures:
    """What signatures are held against.

    Attributes
    ----------
    folder : Path or None
        The identity whose authority is trusted; None: nothing is verified, and `judge` says so.
    verifier : Verifier or None
        Its verifier.
    """

    folder: Path | None = None
    verifier: Verifier | None = None

    @classmethod
    def at_hand(cls) -> Signatures:
        """Return those of the identity that the running command was given; raises UsageError when it is none."""
        from broker.credentials import FolderCredentials

        context = click.get_current_context(silent=True)
        folder = None if context is None else context.meta.get("glassfleet.identity")
        return cls() if folder is None else cls(folder, FolderCredentials(folder).verifier)

    @property
    def advice(self) -> str:
        """What to do about a record that is not believed."""
        return (
            f"Trusted is the authority in {self.folder}: name the identity of this fleet with --identity; if it is the "
            "one, somebody else wrote this - look with `glassfleet broker tap --identity`"
        )

    def fault_of(self, result: ModelRecord | Message) -> str:
        """Return why a record, or the message of a pointer, is not believed; empty when it is, or none is verified."""
        if self.verifier is None:
            return ""
        try:
            if isinstance(result, ModelRecord):
                result.verified_by(self.verifier)
            else:
                fleet = result.topic.split("/")[2]
                self.verifier.open(result.topic, result.payload, writers(Topics(fleet).parse(result.topic)))
        except WireError as fault:
            return fault.detail
        return ""

    def judge(self, record: ModelRecord) -> None:
        """Say on stderr, in one line, who signed a record, if there is anything to say.

        Raises
        ------
        VerificationError
            It is not believed.
        """
        what = f"{record.name} v{record.version}"
        if self.verifier is None:
            if record.signatures:
                click.echo(f"{what} is signed; not verified: give --identity (or GLASSFLEET_IDENTITY)", err=True)
            return
        why = self.fault_of(record)
        if why:
            raise VerificationError(f"model {what} is not believed: {why}. {self.advice}")
        click.echo(f"{what}: signed by {record.verified_by(self.verifier)}, verified", err=True)
