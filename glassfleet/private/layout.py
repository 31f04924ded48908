"""Where each number of an answer stands in the one vector that is masked.

    [rows, rows > 0, the sums in the order of their names, each in C order]     int64

Names and shapes are a function of the task alone, so all answers to a task have one length, whatever a vehicle's rows.

Counts of a question of `support` end at a small number in each vehicle. So several share a word of 64 bits, the first
one lowest, each with as many bits as :data:`MOST_MEMBERS` vehicles need: sums never carry into the next one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import SUPPORT, Contribution, Task
from glassfleet.contract.scheme import Abilities
from glassfleet.data.sampling import mixed_in
from glassfleet.errors import PrivacyError, TaskError
from glassfleet.private.groups import Edition
from schemas.codec import Value, digest_of

Ints = NDArray[np.int64]

_HEAD = 2
_MOST_ROWS = 2**31

MOST_MEMBERS = 2048
"""Most vehicles whose counts are added up."""


class Additive(Protocol):
    """What says how answers are laid out: a scheme with private runs, or domain discovery."""

    @property
    def abilities(self) -> Abilities:
        """What it can do: `private` among it."""
        ...


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the sums of one task.

    Attributes
    ----------
    kind : str
        Of the task.
    shapes : tuple of (str, tuple of int)
        In the order of names.
    most : int
        At which number counts end; 0: sums have no such end, and a word each.
    """

    kind: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    most: int = 0

    @property
    def size(self) -> int:
        """Length of the vector."""
        return _HEAD + sum(self._words(math.prod(shape)) for _, shape in self.shapes)

    @property
    def _bits(self) -> int:
        """Bits of one number."""
        return (self.most * MOST_MEMBERS).bit_length() or 64

    @property
    def _in_a_word(self) -> int:
        return 64 // self._bits

    def _words(self, count: int) -> int:
        return -(-count // self._in_a_word)

    @property
    def _shift(self) -> NDArray[np.uint64]:
        """Where each number of a word begins."""
        return np.arange(self._in_a_word, dtype=np.uint64) * np.uint64(self._bits)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex): who computes another for the same task runs other software."""
        shapes: dict[str, Value] = {
            "kind": self.kind,
            "shapes": [[name, list(shape)] for name, shape in self.shapes],
        }
        return digest_of(shapes | {"most": self.most} if self.most else shapes)

    def flatten(self, contribution: Contribution) -> NDArray[np.int64]:
        """Return the vector of one vehicle's own answer, shape (size,).

        Raises
        ------
        PrivacyError
            ``other-layout``: the answer has other sums, or something that is not a sum.
        """
        sums = contribution.sums
        fits = {name: sums[name].shape for name in sums} == dict(self.shapes) and contribution.kind == self.kind
        if not fits or contribution.values or contribution.nullified:
            raise PrivacyError("other-layout", f"an answer to {self.kind!r} with {sorted(sums)[:12]} is not its layout")
        if self.most and any(((part < 0) | (part > self.most)).any() for part in sums.values()):
            raise PrivacyError("other-layout", f"a count is below 0, or above {self.most}")
        head = np.array([contribution.rows, contribution.rows > 0], dtype=np.int64)
        return np.concatenate([head, *(self._packed(sums[name].ravel()) for name, _ in self.shapes)])

    def _packed(self, numbers: Ints) -> Ints:
        if not self.most:
            return numbers
        columns = np.zeros((self._words(len(numbers)), self._in_a_word), dtype=np.uint64)
        columns.ravel()[: len(numbers)] = numbers
        words: Ints = np.bitwise_or.reduce(columns << self._shift, axis=1).view(np.int64)
        return words

    def _unpacked(self, words: Ints, count: int) -> Ints:
        if not self.most:
            return words.copy()
        numbers = (words.view(np.uint64)[:, None] >> self._shift) & np.uint64((1 << self._bits) - 1)
        return numbers.ravel()[:count].astype(np.int64)

    def read(self, total: NDArray[np.int64], members: int) -> Contribution:
        """Return a group's sum, shape (size,), as one answer; the scheme's ``check`` says whether it can be true.

        Parameters
        ----------
        total : ndarray of int64, shape (size,)
            From :func:`glassfleet.private.layout.add`.
        members : int
            Of the edition.

        Raises
        ------
        PrivacyError
            ``impossible-sum``: somebody answered noise, or another question.
        """
        if total.shape != (self.size,):
            raise PrivacyError("impossible-sum", f"{total.size} numbers, expected {self.size}")
        if self.most and members > MOST_MEMBERS:
            raise PrivacyError("impossible-sum", f"{members} members; counts of {MOST_MEMBERS} can be added up")
        rows, vehicles = int(total[0]), int(total[1])
        if not 0 <= vehicles <= members or not vehicles <= rows < _MOST_ROWS or (rows > 0) != (vehicles > 0):
            raise PrivacyError("impossible-sum", f"{rows} rows of {vehicles} vehicles with rows, of {members} members")
        sums, at = {}, _HEAD
        for name, shape in self.shapes:
            count = math.prod(shape)
            end = at + self._words(count)
            sums[name] = self._unpacked(total[at:end], count).reshape(shape)
            at = end
        return Contribution(self.kind, rows, sums, vehicles=vehicles)


def layout_of(scheme: Additive, task: Task) -> Layout:
    """Return the layout of answers to `task`; raises TaskError when they are no sums, or the task is malformed."""
    private = scheme.abilities.private
    if isinstance(private, str):
        raise TaskError(f"answers to {task.scheme} are no sums")
    shapes = private.layout(task)
    most = private.most_told(task) if task.kind == SUPPORT else 0
    return Layout(task.kind, tuple((name, tuple(map(int, shapes[name]))) for name in sorted(shapes)), most)


# --- factors of rows in sums with `support`: two sums over nearly the same rows do not tell those they differ in ------
#
# In each sum a row has a *draw* of its own as a factor, from a hash of the row and of what is asked. So the rows that
# two sums share do not cancel out, as a rule. Only the same question to another edition has the same draws: the rows of
# differences of editions are counted (:mod:`glassfleet.private.support`).


DRAWS = tuple(draw / 16.0 for draw in range(8, 16))
"""Factors of rows, one for each of three bits of a hash."""

DRAWN = 23 / 32
"""Mean of the draws: sums are so many times what they would be without."""


def draws(hashes: NDArray[np.uint64], about: Value) -> NDArray[np.float64]:
    """Return the factors of rows in sums about something, one of :data:`DRAWS` each, shape (n,).

    Parameters
    ----------
    hashes : ndarray of uint64, shape (n,)
        Of the rows.
    about : Value
        In a form that means the same in every task.
    """
    seed = np.array([int(digest_of(about)[:16], 16)], dtype=np.uint64)
    return np.array(DRAWS)[(mixed_in(hashes, seed) >> np.uint64(61)).astype(np.intp)]


# --- the sum of masked answers, and the question that they answer; what a coordinator needs, without any key ----------


Words = NDArray[np.uint64]


def question_digest(edition: Edition, task_digest: str, layout_digest: str) -> str:
    """Return the identity of "this task, in this edition, with this layout" (SHA-256, hex).

    It stands wherever the digest of a task stands in runs that are not private: in the outbox, in receipts, and in what
    is counted once.
    """
    text = b"glassfleet-question/1\x00" + edition.digest + bytes.fromhex(task_digest) + bytes.fromhex(layout_digest)
    return hashlib.sha256(text).hexdigest()


def add(answers: Iterable[Words]) -> NDArray[np.int64]:
    """Return the sum of masked vectors, shape (L,): modulo 2^64, read as int64.

    It is the sum of the vectors if exactly the members of an edition answered one task in it, and noise otherwise. At
    least one answer; all of one length.
    """
    parts = iter(answers)
    total = next(parts).copy()
    for each in parts:
        total += each
    return total.view(np.int64)
