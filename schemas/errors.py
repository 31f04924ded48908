"""Faults by name. A peer's fault is data (it becomes a receipt); only local misuse is raised to the caller."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

FREE: Final = "Free some space, or name another folder"
"""The way out where a disk is full."""


class GlassfleetError(Exception):
    """Base of every error that a user can meet. ``exit_code`` is what the command line returns.

    The codes are documented in docs/reference/exit-codes.md.
    """

    exit_code = 1


class UsageError(GlassfleetError):
    """The command or configuration cannot be meant as written."""

    exit_code = 2


class DataError(GlassfleetError):
    """The vehicle's data cannot be used: missing target, text column, NaN, no rows.

    It tells `where` the data is (may be empty), `what` is wrong with it, and how to `mend` that (may be empty). Of all
    this only `tells` may leave the vehicle: it names columns, and no cell, file or address.
    """

    exit_code = 3

    def __init__(self, what: str, mend: str = "", where: str = "", tells: str = "its log says why") -> None:
        super().__init__((f"{where}: " if where else "") + what + (f". {mend}" if mend else ""))
        self.tells = tells
        self.what = what
        self.mend = mend
        self.where = where


class BrokerError(GlassfleetError):
    """The broker is not there, refuses us, or cannot carry what must be sent."""

    exit_code = 4


class StorageError(GlassfleetError):
    """Journal, snapshot or outbox cannot be read or written (full disk, permissions, a second process)."""

    exit_code = 5


class DamagedError(StorageError):
    """A part of the journal was changed or cannot be read; the rest is as it was."""


class RunFailedError(GlassfleetError):
    """The run reached a named end that is not a model; `cause` is its name, empty where it has none of its own."""

    exit_code = 6

    def __init__(self, detail: str, cause: str = "") -> None:
        super().__init__(f"{cause}: {detail}" if cause else detail)
        self.detail = detail
        self.cause = cause


class IdentityError(GlassfleetError):
    """Another process uses this agent id, or another coordinator has this fleet."""

    exit_code = 7


class VerificationError(GlassfleetError):
    """A digest differs from the one that was promised."""

    exit_code = 8


class NotFoundError(GlassfleetError):
    """No such run, model, version or scheme."""

    exit_code = 9


class DocumentError(GlassfleetError):
    """A model document that cannot be read."""

    exit_code = 10


class WireError(ValueError):
    """A message that cannot be accepted; the text is the reason. Counted and, if possible, answered; never a crash."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


def one_line(raised: BaseException, most: int = 300) -> str:
    """Return what an error of a library says, in one line; its kind, if it says nothing."""
    return " ".join(str(raised).split())[:most] or type(raised).__name__


@contextmanager
def os_faults_as(kind: type[GlassfleetError], what: str, way_out: str = "") -> Iterator[None]:
    """Raise `kind` for an OSError: what could not be done, the system's reason, and the `way_out` behind it.

    A full disk is no fault of data: that is a StorageError.
    """
    try:
        yield
    except OSError as fault:
        if kind is DataError and fault.errno == errno.ENOSPC:
            raise StorageError(f"{fault.strerror}. {FREE}") from fault
        raise kind(f"{what}: {fault.strerror or type(fault).__name__}{way_out}") from fault
