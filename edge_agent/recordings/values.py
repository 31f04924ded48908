"""What the raw numbers of a signal mean: values in its unit or words, and which of them are no values, and why."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from cantools.database.can.signal import Signal as Layout
from numpy.typing import NDArray

OUTSIDE: Final = "outside the range of the database"
NO_WORD: Final = "no word for it in the database"
ALL_ONES: Final = "all bits set, and no range in the database"
NOT_AVAILABLE: Final = "not available (J1939)"
ERROR: Final = "error (J1939)"
NOT_A_NUMBER: Final = "not a number"

_NO_STATE: Final = re.compile(
    r"(.*[_ ])?(sna|n/?a|not[_ -]?avail\w*|unavail\w*|invalid\w*|(signal|value)[_ ]?invalid)", re.IGNORECASE
)
"""Words that are no state of anything."""
_NO_NUMBER: Final = re.compile(
    _NO_STATE.pattern
    + r"|.*\b(err(or)?|faulty?|failure)\b.*|(init|reserved|unused|undefined|unknown|default)\w*([_ ].*)?",
    re.IGNORECASE,
)
"""Words that may name single values of a number."""


@dataclass(frozen=True)
class Values:
    """A signal's values, shape (n,), how many of them are missing, by reason, and its limits; see `Signal`."""

    value: NDArray[Any]
    missing: Counter[str]
    low: float | None = None
    high: float | None = None


def read(raw: NDArray[Any], layout: Layout, *, j1939: bool = False) -> Values:
    """Return what raw numbers mean.

    Parameters
    ----------
    raw : ndarray of uint64, int64 or floats, shape (n,)
    layout : cantools signal
    j1939 : bool
        Its message is one of SAE J1939, where the highest numbers of each length are no values.
    """
    words = None if layout.is_float else _words(layout)
    return _of_words(raw, words) if words else _of_numbers(raw, layout, j1939=j1939)


def _words(layout: Layout) -> dict[int, str] | None:
    """Return the words of a signal that is a state, None of one that is a number; decided by the database alone."""
    named = {int(number): str(word) for number, word in (layout.choices or {}).items()}
    if not named or layout.unit not in (None, "", "-") or (layout.scale, layout.offset) != (1, 0):
        return None
    low, high = _raw_range(layout)
    if all(number in named for number in range(low, high + 1)[: len(named) + 1]):
        return named
    states = [word for word in named.values() if not _NO_NUMBER.fullmatch(word)]
    return named if len(states) >= 2 and layout.length <= 8 else None


def _raw_range(layout: Layout) -> tuple[int, int]:
    low = -(1 << layout.length - 1) if layout.is_signed else 0
    high = low + (1 << layout.length) - 1
    if layout.minimum is not None and layout.maximum is not None:
        low, high = max(low, int(layout.minimum)), min(high, int(layout.maximum))
    return low, high


def _of_words(raw: NDArray[Any], named: dict[int, str]) -> Values:
    missing: Counter[str] = Counter()
    numbers, where, counts = np.unique(raw, return_inverse=True, return_counts=True)
    texts = np.empty(len(numbers), dtype=object)
    for index, (number, count) in enumerate(zip(numbers.tolist(), counts.tolist(), strict=True)):
        word = named.get(number)
        if word is not None and not _NO_STATE.fullmatch(word):
            texts[index] = word
        else:
            missing[NO_WORD if word is None else f"{word} (a word of the database)"] += count
    return Values(texts[where.reshape(-1)], missing)


def _of_numbers(raw: NDArray[Any], layout: Layout, *, j1939: bool) -> Values:
    missing: Counter[str] = Counter()
    value = raw.astype(np.float64) * float(layout.scale) + float(layout.offset)
    low, high = (None if end is None else float(end) for end in (layout.minimum, layout.maximum))

    def none(where: NDArray[np.bool_], why: str) -> None:
        where &= ~np.isnan(value)
        if number := int(np.count_nonzero(where)):
            missing[why] += number
            value[where] = np.nan

    if layout.is_float:
        missing.update({NOT_A_NUMBER: int(np.isnan(value).sum())} if np.isnan(value).any() else {})
        none(np.isinf(value), NOT_A_NUMBER)
    else:
        for number, word in (layout.choices or {}).items():
            scaled = float(number) * float(layout.scale) + float(layout.offset)
            if _NO_NUMBER.fullmatch(str(word)) or _is_outside(np.array([scaled]), layout)[0]:
                none(raw == number, f"{word} (a word of the database)")
        if j1939 and not layout.is_signed:
            _marks_of_j1939(raw, layout, none)
        if low is None and high is None and not layout.is_signed and layout.length >= 8 and not j1939:
            none(raw == (1 << layout.length) - 1, ALL_ONES)
    none(_is_outside(value, layout), OUTSIDE)
    return Values(value, missing, low, high)


def _marks_of_j1939(raw: NDArray[Any], layout: Layout, none: Any) -> None:
    if layout.length >= 8:
        top = raw >> np.uint64(layout.length - 8)
        none(top == 0xFF, NOT_AVAILABLE)
        none(top == 0xFE, ERROR)
    elif layout.length > 1:
        none(raw == (1 << layout.length) - 1, NOT_AVAILABLE)
        none(raw == (1 << layout.length) - 2, ERROR)


def _is_outside(value: NDArray[np.float64], layout: Layout) -> NDArray[np.bool_]:
    """Return which values are outside the range, by more than the rounding of the range itself."""
    half = 0.0 if layout.is_float else abs(float(layout.scale)) / 2
    outside = np.zeros(len(value), dtype=np.bool_)
    if layout.minimum is not None:
        outside |= value < float(layout.minimum) - half
    if layout.maximum is not None:
        outside |= value > float(layout.maximum) + half
    return outside
