"""Where each number of an answer stands in the one vector that is masked.

    [rows, rows > 0, the sums in the order of their names, each in C order]     int64

Names and shapes are a function of the task alone, so all answers to a task have one length, whatever a vehicle's rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glassfleet.errors import PrivacyError
from glassfleet.scheme import Contribution, Task
from schemas.codec import digest_of

_HEAD = 2
_MOST_ROWS = 2**31


class Additive(Protocol):
    """What says how answers are laid out: a scheme with private runs, or domain discovery."""

    def layout(self, task: Task) -> Mapping[str, tuple[int, ...]]:
        """Return names and shapes of the sums of an answer to `task`."""
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
    """

    kind: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def size(self) -> int:
        """Length of the vector."""
        return _HEAD + sum(math.prod(shape) for _, shape in self.shapes)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex): who computes another for the same task runs other software."""
        return digest_of({"kind": self.kind, "shapes": [[name, list(shape)] for name, shape in self.shapes]})

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
        head = np.array([contribution.rows, contribution.rows > 0], dtype=np.int64)
        return np.concatenate([head, *(sums[name].ravel() for name, _ in self.shapes)])

    def read(self, total: NDArray[np.int64], members: int) -> Contribution:
        """Return a group's sum, shape (size,), as one answer; the scheme's ``check`` says whether it can be true.

        Parameters
        ----------
        total : ndarray of int64, shape (size,)
            From :func:`glassfleet.private.masks.add`.
        members : int
            Of the edition.

        Raises
        ------
        PrivacyError
            ``impossible-sum``: somebody answered noise, or another question.
        """
        if total.shape != (self.size,):
            raise PrivacyError("impossible-sum", f"{total.size} numbers, expected {self.size}")
        rows, vehicles = int(total[0]), int(total[1])
        if not 0 <= vehicles <= members or not vehicles <= rows < _MOST_ROWS or (rows > 0) != (vehicles > 0):
            raise PrivacyError("impossible-sum", f"{rows} rows of {vehicles} vehicles with rows, of {members} members")
        sums, at = {}, _HEAD
        for name, shape in self.shapes:
            end = at + math.prod(shape)
            sums[name] = total[at:end].reshape(shape).copy()
            at = end
        return Contribution(self.kind, rows, sums, vehicles=vehicles)


def layout_of(scheme: Additive, task: Task) -> Layout:
    """Return the layout of answers to `task`; raises TaskError when they are no sums, or the task is malformed."""
    shapes = scheme.layout(task)
    return Layout(task.kind, tuple((name, tuple(map(int, shapes[name]))) for name in sorted(shapes)))
