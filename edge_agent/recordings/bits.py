"""Numbers out of the bytes of many frames at once: what a database calls a signal, as an array."""

from __future__ import annotations

import numpy as np
from cantools.database.can.signal import Signal as Layout
from numpy.typing import NDArray


def span(layout: Layout) -> tuple[int, int]:
    """Return the first bit of a signal and the first behind it, in the order of its own bytes."""
    start = int(layout.start)
    if layout.byte_order == "big_endian":
        start = 8 * (start // 8) + 7 - start % 8
    return start, start + int(layout.length)


def is_usual(layout: Layout) -> bool:
    """Whether `extract` can read a signal of this kind: a number of at most 64 bits."""
    return 0 < layout.length <= 64 and (not layout.is_float or layout.length in (16, 32, 64))


def extract(data: NDArray[np.uint8], layout: Layout) -> NDArray[np.generic]:
    """Return a signal's raw numbers, shape (n,): uint64, int64, or floats of its length.

    Parameters
    ----------
    data : ndarray of uint8, shape (n, bytes)
        Frames side by side, with all bytes of the signal.
    layout : Layout
        With `is_usual`.
    """
    first, end = span(layout)
    taken = data[:, first // 8 : (end + 7) // 8]  # nine bytes at most
    if layout.byte_order != "big_endian":
        taken, below = taken[:, ::-1], first % 8
    else:
        below = -end % 8
    # Big-endian by now: the last eight bytes hold all bits but those of a ninth before them.
    low = np.zeros((len(data), 8), dtype=np.uint8)
    low[:, max(0, 8 - taken.shape[1]) :] = taken[:, -8:]
    raw: NDArray[np.uint64] = low.view(">u8").ravel().astype(np.uint64) >> np.uint64(below)
    if taken.shape[1] == 9:
        raw |= taken[:, 0].astype(np.uint64) << np.uint64(64 - below)
    if layout.length < 64:
        raw &= np.uint64((1 << layout.length) - 1)
    if layout.is_float:
        return raw.astype(f"u{layout.length // 8}").view(f"f{layout.length // 8}")
    if not layout.is_signed:
        return raw
    sign = np.uint64(1 << (layout.length - 1))
    return ((raw ^ sign) - sign).view(np.int64)
