"""What a recording is read into: signals, each with its own times; the contract between readers and the importer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Signal:
    """One signal of a recording.

    Attributes
    ----------
    name : str
        As its recording or database has it; unlike that of any other signal of the recording.
    unit : str
        As its recording or database has it; empty: none is told.
    time : ndarray of float64, shape (n,)
        Seconds, in the order of the recording: since its begin, or since 1970 in UTC where it tells the date.
    value : ndarray, shape (n,)
        float64 with NaN, or object of str with None, for no value.
    low, high : float or None
        The least and the greatest that the database or format says it can be; None: it tells nothing.
    description : str
        What it is, in words.
    missing : mapping of str to int
        How many of the values without a number are missing for which reason.
    """

    name: str
    unit: str
    time: NDArray[np.float64]
    value: NDArray[Any]
    low: float | None = None
    high: float | None = None
    description: str = ""
    missing: Mapping[str, int] = field(default_factory=dict)


class Recording(Protocol):
    """A reader of one kind of recording."""

    def __call__(self, path: Path, databases: Sequence[Path], left_out: Counter[str]) -> Iterator[Signal]:
        """Yield the recording's signals.

        Parameters
        ----------
        path : Path
        databases : sequence of Path
            What frames of a bus mean; the first one that knows a frame counts.
        left_out : Counter of str
            Gets what is left out of the recording, by reason (``"error frames"``); complete at the end of the signals.

        Raises
        ------
        schemas.errors.DataError
            It cannot be read; the text names the fault and the way out.
        schemas.errors.UsageError
            An option does not fit: no database for frames of a bus.
        """
        ...
