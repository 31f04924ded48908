"""What a vehicle remembers between private runs, and its own limits.

Runs over the same rows are one run to whoever adds and subtracts. So a vehicle keeps, for each run that it answered,
all totals that it then knew, as long as it has one of the rows, and announces them in the next: whoever is added up
with it knows them, too. What follows from them is in `glassfleet.private.totals`.

Nor does a row tell of itself by coming or going: a vehicle answers from the rows of the run before until enough have
come or gone, :meth:`Ledger.tells_few`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Lt
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset
from glassfleet.errors import PrivacyError
from glassfleet.private.chain import Chain
from glassfleet.private.groups import LEAST_COMPANY, LEAST_FLOOR, MOST_TOTALS, Edition, Terms
from glassfleet.private.totals import TAG, Total, tells_few_rows
from schemas.codec import Value, encode
from schemas.errors import WireError

KEPT_RUNS = 16
"""Runs that are remembered though none of their rows is there any more: a source may be switched back."""

KEPT_NONCES = 1024
"""Nonces of ended runs that are remembered: such a run cannot be opened again with other vehicles."""


@dataclass(frozen=True)
class Limits:
    """What a vehicle asks for, whatever a run's terms say.

    Attributes
    ----------
    floor : int
        Fewest vehicles over which its numbers may be summed, 8 or more. Why: to hide in a larger group.
    company : int
        Fewest vehicles that must leave a group together, 3 or more. Why: vehicles that may collude.
    least_rows : int
        With fewer rows it does not join, for it would hide nobody. Why: rows that come slowly.
    runs : int
        Most private runs over one row; those that asked nothing new do not count. Why: a fleet that learns often from
        the same rows.
    """

    floor: Annotated[int, Ge(LEAST_FLOOR), Lt(2**31)] = LEAST_FLOOR
    company: Annotated[int, Ge(LEAST_COMPANY), Lt(2**31)] = LEAST_COMPANY
    least_rows: Annotated[int, Ge(1), Lt(2**31)] = 32
    runs: Annotated[int, Ge(1), Lt(2**31)] = 4


@dataclass(frozen=True)
class Rows:
    """Rows that a vehicle answers from.

    Attributes
    ----------
    training, tests : ndarray of uint64, shape (n,) and (m,)
        Keyed hashes, increasing, see :func:`row_hashes`; a row that is in both has two.
    """

    training: NDArray[np.uint64]
    tests: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))

    def equals(self, other: Rows) -> bool:
        """Whether these are the same rows."""
        return np.array_equal(self.training, other.training) and np.array_equal(self.tests, other.tests)

    def shares(self, other: Rows) -> bool:
        """Whether a row is in both."""
        return any(
            np.isin(own, theirs, assume_unique=True).any()
            for own, theirs in ((self.training, other.training), (self.tests, other.tests))
        )


@dataclass(frozen=True)
class Answered:
    """One private run that a vehicle answered, or was asked in.

    Attributes
    ----------
    nonce : str
    rows : Rows
        From which it answered.
    era, anchor : str
        As it announced the one, and as the other is since.
    totals, heard : tuple of Total
        The editions in which it answered, and those of earlier runs in which its founders had.
    tasks : frozenset of str
        Digests of the questions that it was asked, whatever the run's nonce.
    counts : bool
        Whether it asked what no run over some of these rows had asked before.
    """

    nonce: str
    rows: Rows
    era: str
    anchor: str
    totals: tuple[Total, ...] = ()
    heard: tuple[Total, ...] = ()
    tasks: frozenset[str] = frozenset()
    counts: bool = False

    @property
    def news(self) -> tuple[Any, ...]:
        """What an answer may change."""
        return self.totals, self.tasks, self.counts

    def to_value(self) -> dict[str, Value]:
        """Return it as a codec value, with the digests of totals: of runs over the same rows most are the same."""
        return {
            **{name: getattr(self, name) for name in ("nonce", "era", "anchor", "counts")},
            "rows": self.rows.training,
            "tests": self.rows.tests,
            "totals": [each.digest for each in self.totals],
            "heard": [each.digest for each in self.heard],
            "tasks": sorted(self.tasks),
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any], totals: Mapping[bytes, Total]) -> Answered:
        """Read :meth:`to_value`; `totals` by their digests."""
        return cls(
            str(value["nonce"]),
            Rows(*(np.asarray(value[name], dtype=np.uint64) for name in ("rows", "tests"))),
            str(value["era"]),
            str(value["anchor"]),
            tuple(totals[digest] for digest in value["totals"]),
            tuple(totals[digest] for digest in value["heard"]),
            frozenset(value["tasks"]),
            bool(value["counts"]),
        )


@dataclass(frozen=True)
class Ledger:
    """Private runs of a vehicle.

    Attributes
    ----------
    answered : tuple of Answered
        The oldest first: those one of whose rows it still has, and a few more.
    ended : tuple of str
        Nonces of runs that ended, the oldest first.
    open : Terms or None
        Of the run that it takes part in.
    """

    answered: tuple[Answered, ...] = ()
    ended: tuple[str, ...] = ()
    open: Terms | None = None

    def join(self, terms: Terms, rows: Rows, limits: Limits, *, distinct: int | None = None) -> Ledger:
        """Return the ledger with the run of `terms` open; to be synced before the vehicle announces itself.

        Parameters
        ----------
        terms : Terms
        rows : Rows
            All that the run may ask about.
        limits : Limits
        distinct : int or None
            How many different training rows there are; None: all.

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
        distinct = rows.training.size if distinct is None else distinct
        if distinct < limits.least_rows:
            raise PrivacyError("no-rows", f"{distinct} rows; {limits.least_rows} make a vehicle company for others")
        if terms.company < limits.company:
            raise PrivacyError("company-too-small", f"the run has {terms.company}, this vehicle asks {limits.company}")
        if not self.left(rows, limits, terms.nonce):
            raise PrivacyError("too-many-runs", f"{limits.runs} private runs over some of these rows were answered")
        known = self.stands(rows, "", "", terms.nonce)
        if max(len(known["totals"]), len(known["heard"])) > MOST_TOTALS:
            raise PrivacyError("too-many-runs", f"this vehicle knows more than {MOST_TOTALS} sums over these rows")
        return replace(self, open=terms)

    def left(self, rows: Rows, limits: Limits, nonce: str = "") -> int:
        """Return how many more private runs over `rows` the vehicle joins, the one with this nonce included."""
        counted = sum(each.counts for each in self._others(rows, nonce))
        return max(0, limits.runs - counted)

    def has_answered(self, nonce: str) -> bool:
        """Whether a run is noted; without its chain, such a run must not be met again: it would begin anew."""
        return any(each.nonce == nonce for each in self.answered)

    def stands(self, rows: Rows, tag: str, tests: str, nonce: str) -> dict[str, Any]:
        """Return what a vehicle announces of its rows and of earlier runs over some of them.

        Parameters
        ----------
        rows : Rows
            As for `join`.
        tag, tests : str
            Of `rows`, from :func:`rows_tag`.
        nonce : str
            Of the run to come.
        """
        others = self._others(rows, nonce)
        own = {total.digest for each in others for total in each.totals}
        heard = {total.digest for each in others for total in each.heard} - own
        era, anchor = (others[-1].era, others[-1].anchor) if others else (tag, "")
        about = {"era": era, "rows": tag, "tests": tests, "anchor": anchor}
        return {**about, "totals": tuple(sorted(own)), "heard": tuple(sorted(heard))}

    def asked(self, chain: Chain, rows: Rows) -> Ledger:
        """Return the ledger with what `chain` was asked noted, before it is answered."""
        return self._noted(chain, rows, chain.editions if chain.answers else ())

    def note(self, chain: Chain, rows: Rows) -> Ledger:
        """Return the ledger with what `chain` heard and answered noted; to be synced before the answer leaves.

        The same object where there is nothing new.
        """
        return self._noted(chain, rows, chain.editions)

    def _noted(self, chain: Chain, rows: Rows, editions: Sequence[Edition]) -> Ledger:
        nonce, own = chain.roster.terms.nonce, chain.roster.by_id[chain.agent]
        before = frozenset().union(*(each.tasks for each in self._others(rows, nonce)))
        # Noise is drawn anew in each run: the same question told twice tells more.
        counts = chain.spent > 0 or not chain.contents <= before
        totals = tuple(each.total for each in editions)
        heard = tuple(each for each in chain.known if each.digest in chain.roster.answered)
        run = Answered(nonce, rows, own.era, chain.roster.anchor, totals, heard, chain.contents, counts)
        noted = next((each for each in self.answered if each.nonce == nonce), None)
        if noted is not None and noted.news == run.news:
            return self
        return replace(self, answered=(*(each for each in self.answered if each.nonce != nonce), run))

    def close(self, nonce: str) -> Ledger:
        """Return the ledger with the run ended; what was answered in it stays noted."""
        ended = (*(each for each in self.ended if each != nonce), nonce)[-KEPT_NONCES:]
        is_open = self.open is not None and self.open.nonce != nonce
        return replace(self, ended=ended, open=self.open if is_open else None)

    def forget(self, rows: Rows) -> Ledger:
        """Return the ledger without old runs that had none of `rows`: but for a few, as rows may come back."""
        here = {each.nonce for each in self._others(rows)}
        others = [each.nonce for each in self.answered if each.nonce not in here]
        kept = here | set(others[-KEPT_RUNS:])
        if len(kept) == len(self.answered):
            return self
        return replace(self, answered=tuple(each for each in self.answered if each.nonce in kept))

    def tells_few(self, rows: Rows, least: int) -> bool:
        """Whether answers from `rows` would, with those of earlier runs, tell of fewer than `least` rows of a kind."""
        others = [each.rows for each in self._others(rows)]
        return any(
            tells_few_rows(kind, least)
            for kind in (
                [*(each.training for each in others), rows.training],
                [*(each.tests for each in others), rows.tests],
            )
        )

    def has(self, rows: Rows) -> bool:
        """Whether a run was answered from just these rows."""
        return any(each.rows.equals(rows) for each in self.answered)

    def has_some(self, rows: Rows) -> bool:
        """Whether a run was answered from some of `rows`."""
        return bool(self._others(rows))

    def _others(self, rows: Rows, nonce: str = "") -> list[Answered]:
        """Return the runs that had some of `rows`, but for the one with this nonce."""
        return [each for each in self.answered if each.nonce != nonce and each.rows.shares(rows)]

    def to_value(self) -> dict[str, Value]:
        """Return the ledger as a codec value, for the vehicle's disk."""
        totals = dict.fromkeys(total for each in self.answered for total in (*each.totals, *each.heard))
        return {
            "answered": [each.to_value() for each in self.answered],
            "totals": [each.to_value() for each in totals],
            "ended": list(self.ended),
            "open": self.open and self.open.to_value(),
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Ledger:
        """Read :meth:`to_value`; raises WireError when the file is damaged."""
        try:
            is_open = None if value["open"] is None else Terms.from_value(value["open"])
            totals = {each.digest: each for each in map(Total.from_value, value["totals"])}
            answered = tuple(Answered.from_value(each, totals) for each in value["answered"])
            return cls(answered, tuple(value["ended"]), is_open)
        except (KeyError, TypeError, ValueError) as fault:
            raise WireError("malformed", f"ledger: {fault}"[:200]) from fault


def rows_tag(secret: bytes, rows: NDArray[np.uint64]) -> str:
    """Return what tells these rows from others, to who knows nothing else of them; :data:`TAG` characters.

    Parameters
    ----------
    secret : bytes
        Of the vehicle.
    rows : ndarray of uint64
        From :func:`row_hashes`.
    """
    return hmac.digest(secret, b"glassfleet-rows/1\x00" + rows.astype("<u8").tobytes(), "sha256").hex()[:TAG]


def row_hashes(secret: bytes, data: Dataset) -> NDArray[np.uint64]:
    """Return 64 bits of a keyed hash of each row, increasing, shape (``data.rows``,); as :func:`hashed`."""
    return hashed(secret, data)[0]


def hashed(secret: bytes, data: Dataset) -> tuple[NDArray[np.uint64], int]:
    """Return 64 bits of a keyed hash of each row, increasing, shape (n,), and how many different rows there are.

    Equal rows have different hashes, by how many there were before: sums tell how often a row is there.

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
    hashes.sort()
    first = np.searchsorted(hashes, hashes)
    again = np.arange(hashes.size) - first
    told_apart = hashes + again.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.unique(told_apart), int((again == 0).sum())
