"""Frames of one id decoded together are what cantools says of each of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import cantools
import numpy as np
from cantools.database.can import Database, Message
from cantools.database.can.signal import Signal as Layout
from cantools.database.conversion import BaseConversion
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.recordings import bus
from edge_agent.recordings.databases import Databases
from edge_agent.recordings.frames import Frames, extract


@st.composite
def layouts(draw, length, name="s"):
    """Return a signal that fits into a frame of `length` bytes."""
    is_float = draw(st.booleans())
    bits = (
        draw(st.sampled_from([size for size in (16, 32, 64) if size <= 8 * length])) if is_float and length > 1 else 0
    )
    is_float, bits = bits > 0, bits or draw(st.integers(1, min(64, 8 * length)))
    first = draw(st.integers(0, 8 * length - bits))
    big = draw(st.booleans())
    start = 8 * (first // 8) + 7 - first % 8 if big else first
    scale, offset = draw(st.sampled_from([(1, 0), (2, -3), (0.01, 0), (-0.5, 40.0)]))
    return Layout(
        name,
        start,
        bits,
        "big_endian" if big else "little_endian",
        is_signed=draw(st.booleans()),
        conversion=BaseConversion.factory(scale, offset, None, is_float),
    )


def frames_of(rows: list[list[int]]) -> Frames:
    data = np.array(rows, dtype=np.uint8)
    return Frames("1", 1, False, np.arange(len(data), dtype=float), data, np.full(len(data), data.shape[1], np.uint8))


@given(st.data())
def test_bits_of_any_layout(data):
    length = data.draw(st.sampled_from([1, 2, 3, 8, 9, 12, 64]))
    layout = data.draw(layouts(length))
    rows = data.draw(st.lists(st.binary(min_size=length, max_size=length), min_size=1, max_size=5))
    message = Message(1, "m", length, [layout], strict=False, is_fd=length > 8)
    found = extract(np.array([list(row) for row in rows], dtype=np.uint8), layout)
    for row, number in zip(rows, found.tolist(), strict=True):
        decoded: Any = message.decode(row, decode_choices=False, scaling=False)
        expected = decoded["s"]
        assert number == expected or (number != number and expected != expected)  # noqa: PLR0124 - NaN


@given(st.data())
def test_multiplexed_messages(data):
    """Two selectors, the second within a page of the first."""
    pages = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True))
    text = f"""VERSION ""
BU_: X
BO_ 1 m: 8 X
 SG_ page M : 0|2@1+ (1,0) [0|3] "" X
 SG_ inner m{pages[0]}M : 8|2@1+ (1,0) [0|3] "" X
 SG_ deep m2 : 16|8@1- (0.5,1) [-200|200] "" X
 SG_ other m{pages[-1]} : 32|12@1+ (1,0) [0|5000] "" X
 SG_ always : 55|10@0- (0.25,3) [-500|500] "" X
SG_MUL_VAL_ 1 inner page {pages[0]}-{pages[0]};
SG_MUL_VAL_ 1 deep inner 2-2;
SG_MUL_VAL_ 1 other page {pages[-1]}-{pages[-1]};
"""
    rows = data.draw(st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=8))
    known = cantools.database.load_string(text, "dbc", strict=False)
    assert isinstance(known, Database)
    databases = Databases([])
    databases._messages[1, False] = [(Path("m.dbc"), known.messages[0])]
    signals = bus.decode(Path("log"), [frames_of([list(row) for row in rows])], databases, Counter())
    found = {
        (signal.name, int(at)): value for signal in signals for at, value in zip(signal.time, signal.value, strict=True)
    }
    for number, row in enumerate(rows):
        try:
            expected: Any = known.messages[0].decode(row)
        except cantools.database.errors.DecodeError:  # a page that the database does not know: the rest is there
            assert found["always", number] is not None
            continue
        assert {name: found[name, number] for name in expected} == expected
        assert not any((name, number) in found for name in {"inner", "deep", "other"} - expected.keys())
