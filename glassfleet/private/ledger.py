"""What a vehicle remembers between private runs, and its own limits.

Two runs over equal rows are one run to whoever subtracts: if a set of vehicles answered in the first, and all but one
of them in the second, the difference is that one. So a vehicle keeps, for each run that it answered, in which editions,
as long as it still has one of the rows; and it joins no run that would tell of fewer than `company` vehicles. That
bounds the difference of two runs. It does not bound combinations of several, nor what differs because a vehicle's rows
changed; `runs` bounds how many there can be.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Lt
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset
from glassfleet.errors import PrivacyError
from glassfleet.private.chain import Chain
from glassfleet.private.groups import LEAST_COMPANY, LEAST_FLOOR, LEAST_GROUP, Terms
from schemas.codec import Value, encode
from schemas.errors import WireError

KEPT_NONCES = 1024
"""Nonces of ended runs that are remembered: such a run cannot be opened again with other vehicles."""


@dataclass(frozen=True)
class Limits:
    """What a vehicle asks for, whatever a run's terms say.

    Attributes
    ----------
    floor : int
        It answers only in sums over at least so many vehicles, 8 or more. Why: to hide in a larger crowd.
    company : int
        It joins no run in which fewer vehicles leave a group together, 3 or more. Why: vehicles that may work together
        against others.
    least_rows : int
        With fewer rows it does not join: it would be no company for others. Why: rows that come slowly.
    runs : int
        It joins at most so many private runs over one row. Why: a fleet that learns again and again from the same rows.
    """

    floor: Annotated[int, Ge(LEAST_FLOOR), Lt(2**31)] = LEAST_FLOOR
    company: Annotated[int, Ge(LEAST_COMPANY), Lt(2**31)] = LEAST_COMPANY
    least_rows: Annotated[int, Ge(1), Lt(2**31)] = 32
    runs: Annotated[int, Ge(1), Lt(2**31)] = 4


@dataclass(frozen=True)
class Answered:
    """One private run that a vehicle answered, or was asked in.

    Attributes
    ----------
    nonce : str
    rows : ndarray of uint64, shape (n,)
        Keyed hashes of the rows that it answered from, increasing, see :func:`row_hashes`; of its test rows, too, if it
        answered with scores.
    founders : int
        Of its group.
    editions : tuple of frozenset of str
        In which it answered; none where it was asked alone.
    """

    nonce: str
    rows: NDArray[np.uint64]
    founders: int
    editions: tuple[frozenset[str], ...]


@dataclass(frozen=True)
class Ledger:
    """Private runs of a vehicle.

    Attributes
    ----------
    answered : tuple of Answered
        The oldest first; only those one of whose rows it still has.
    ended : tuple of str
        Nonces of runs that ended, the oldest first.
    open : Terms or None
        Of the run that it takes part in.
    """

    answered: tuple[Answered, ...] = ()
    ended: tuple[str, ...] = ()
    open: Terms | None = None

    def join(self, terms: Terms, rows: NDArray[np.uint64], limits: Limits, *, training: int | None = None) -> Ledger:
        """Return the ledger with the run of `terms` open; to be synced before the vehicle announces itself.

        Parameters
        ----------
        terms : Terms
        rows : ndarray of uint64, shape (n,)
            From :func:`row_hashes`: all rows that the run may ask about.
        limits : Limits
        training : int or None
            How many of them are learned from; None: all.

        Raises
        ------
        PrivacyError
            ``run-over``, ``no-rows``, ``company-too-small``; ``not-private``: it is open under other terms;
            ``too-many-runs``: another one is open, or as many as `limits` allow were answered over some of these rows.
        """
        if terms.nonce in self.ended:
            raise PrivacyError("run-over", "this run ended here before")
        if self.open is not None and self.open != terms:
            if self.open.nonce == terms.nonce:
                raise PrivacyError("not-private", "this run is open under other terms")
            raise PrivacyError("too-many-runs", "another private run is open")
        training = rows.size if training is None else training
        if training < limits.least_rows:
            raise PrivacyError("no-rows", f"{training} rows; {limits.least_rows} make a vehicle company for others")
        if terms.company < limits.company:
            raise PrivacyError("company-too-small", f"the run has {terms.company}, this vehicle asks {limits.company}")
        before = sum(each.nonce != terms.nonce for each in self._overlapping(rows))
        if before >= limits.runs:
            raise PrivacyError("too-many-runs", f"{before} private runs over some of these rows were answered")
        return replace(self, open=terms)

    def has_answered(self, nonce: str) -> bool:
        """Whether a run is noted; without its chain, such a run must not be met again: it would begin anew."""
        return any(each.nonce == nonce for each in self.answered)

    def former(self, terms: Terms, rows: NDArray[np.uint64]) -> tuple[frozenset[str], ...]:
        """Return the sets that were answered over some of `rows` in other runs than that of `terms`, each once."""
        sets = (members for each in self._overlapping(rows) if each.nonce != terms.nonce for members in each.editions)
        return tuple(dict.fromkeys(sets))

    def overlapping(self, terms: Terms, rows: NDArray[np.uint64]) -> tuple[str, ...]:
        """Return the nonces of other runs than that of `terms` that were answered over some of `rows`, in order.

        A vehicle announces them: who chooses the founders must know in which of the earlier runs' sets it still is.
        """
        return tuple(sorted(each.nonce for each in self._overlapping(rows) if each.nonce != terms.nonce))

    def least_founders(self, rows: NDArray[np.uint64]) -> int:
        """Return how many founders a group must have: three quarters of the largest that was met over these rows.

        A coordinator that wants to meet a vehicle alone, with vehicles of its own, must first have shown it a small
        fleet. At most :data:`~glassfleet.private.groups.LEAST_GROUP`, as larger fleets are cut.
        """
        met = max((each.founders for each in self._overlapping(rows)), default=0)
        return min(LEAST_GROUP, -(-3 * met // 4))

    def asked(self, chain: Chain, rows: NDArray[np.uint64]) -> Ledger:
        """Return the ledger with the run noted, before anything of it is answered: it counts as one over `rows`.

        What a vehicle cannot answer may depend on its rows, so that one is told of these by a run without answers, too.
        """
        return self._noted(chain, rows, ())

    def note(self, chain: Chain, rows: NDArray[np.uint64]) -> Ledger:
        """Return the ledger with the editions in `chain` and `rows` noted; to be synced before the answer leaves."""
        return self._noted(chain, rows, tuple(frozenset(each.members) for each in chain.editions))

    def _noted(self, chain: Chain, rows: NDArray[np.uint64], editions: tuple[frozenset[str], ...]) -> Ledger:
        nonce = chain.roster.terms.nonce
        rows = np.unique(np.concatenate([rows, *(each.rows for each in self.answered if each.nonce == nonce)]))
        own = Answered(nonce, rows, len(chain.roster.founders), editions)
        return replace(self, answered=(*(each for each in self.answered if each.nonce != nonce), own))

    def close(self, nonce: str) -> Ledger:
        """Return the ledger with the run ended; what was answered in it stays noted."""
        ended = (*(each for each in self.ended if each != nonce), nonce)[-KEPT_NONCES:]
        is_open = self.open is not None and self.open.nonce != nonce
        return replace(self, ended=ended, open=self.open if is_open else None)

    def forget(self, rows: NDArray[np.uint64]) -> Ledger:
        """Return the ledger without the runs of which none of `rows`, all that the vehicle has now, was part."""
        return replace(self, answered=tuple(self._overlapping(rows)))

    def _overlapping(self, rows: NDArray[np.uint64]) -> list[Answered]:
        return [each for each in self.answered if np.isin(each.rows, rows, assume_unique=True).any()]

    def to_value(self) -> dict[str, Value]:
        """Return the ledger as a codec value, for the vehicle's disk."""
        runs = [
            {
                "nonce": each.nonce,
                "rows": each.rows,
                "founders": each.founders,
                "editions": [sorted(members) for members in each.editions],
            }
            for each in self.answered
        ]
        return {"answered": runs, "ended": list(self.ended), "open": self.open and self.open.to_value()}

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Ledger:
        """Read :meth:`to_value`; raises WireError when the file is damaged."""
        try:
            runs = tuple(
                Answered(
                    str(each["nonce"]),
                    np.asarray(each["rows"], dtype=np.uint64),
                    int(each["founders"]),
                    tuple(frozenset(members) for members in each["editions"]),
                )
                for each in value["answered"]
            )
            is_open = None if value["open"] is None else Terms.from_value(value["open"])
            return cls(runs, tuple(value["ended"]), is_open)
        except (KeyError, TypeError, ValueError) as fault:
            raise WireError("malformed", f"ledger: {fault}"[:200]) from fault


def row_hashes(secret: bytes, data: Dataset) -> NDArray[np.uint64]:
    """Return 64 bits of a keyed hash of each different row, increasing, shape (n,); n is at most ``data.rows``.

    Parameters
    ----------
    secret : bytes
        Of the vehicle. The hashes stay on it.
    data : Dataset
    """
    key = hmac.digest(secret, encode(["glassfleet-row-hash/1", list(data.features), data.target]), "sha256")
    labels = data.y.dtype.kind not in "fiu"
    inputs = np.array(data.X, dtype="<f8") + 0.0  # minus zero equals zero; its bits do not
    texts = {index: data.categories[name] for index, name in enumerate(data.features) if name in data.categories}
    for index in texts:  # a column's positions change whenever a row brings a category that sorts before others
        inputs[:, index] = 0.0
    targets = [str(each).encode() if labels else (np.float64(each) + 0.0).tobytes() for each in data.y]
    hashes = np.empty(data.rows, dtype=np.uint64)
    for row, target in enumerate(targets):
        cells = encode([own[int(data.X[row, index])] for index, own in texts.items()])
        word = hashlib.blake2b(inputs[row].tobytes() + cells + target, digest_size=8, key=key).digest()
        hashes[row] = int.from_bytes(word, "little")
    return np.unique(hashes)
