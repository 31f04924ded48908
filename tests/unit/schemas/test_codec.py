"""Whatever the bytes: the codec gives back what was encoded, or a WireError, and reserves nothing unchecked."""

from __future__ import annotations

import resource
import subprocess
import sys
import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from schemas import codec, limits
from schemas.errors import WireError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
    | st.binary(max_size=40)
)
ARRAYS = hnp.arrays(
    dtype=st.sampled_from([np.dtype(code) for code in codec.DTYPES]),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    elements=None,
).filter(lambda a: a.dtype.kind != "f" or bool(np.isfinite(a).all()))
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10).filter(lambda key: key != "__nd__")
VALUES = st.recursive(
    SCALARS | ARRAYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


def same(left, right) -> bool:
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and left.dtype == right.dtype
            and left.shape == right.shape
            and left.tobytes() == right.tobytes()
        )
    if isinstance(left, dict):
        return isinstance(right, dict) and left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@given(VALUES)
def test_codec_gives_back_what_was_encoded(value):
    data = codec.encode(value)
    back = codec.decode(data)
    assert same(value, back)
    assert codec.encode(back) == data


@given(st.dictionaries(KEYS, SCALARS, max_size=6))
def test_equal_maps_have_equal_bytes_whatever_their_order(value):
    turned = dict(reversed(list(value.items())))
    assert codec.encode(turned) == codec.encode(value)
    assert codec.digest_of(turned) == codec.digest_of(value)


def nested(depth: int, kind: str) -> bytes:
    head = {"list": b"\x91", "map": b"\x81\xa1k"}[kind]
    return head * depth + b"\xc0"


@pytest.mark.parametrize("kind", ["list", "map"])
def test_codec_refuses_deep_nesting(kind):
    assert codec.decode(nested(limits.MAX_DEPTH, kind)) is not None
    with pytest.raises(WireError, match="nested deeper"):
        codec.decode(nested(limits.MAX_DEPTH + 1, kind))
    with pytest.raises(WireError, match="nested deeper"):
        codec.decode(nested(100_000, kind))


def array_map(**changes) -> Any:
    return msgpack.packb({"__nd__": "<i4", "shape": [1], "data": bytes(4)} | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"__nd__": "<f4"},
        {"__nd__": "|O"},
        {"__nd__": "<U1"},
        {"__nd__": ">i4"},
        {"__nd__": None},
        {"__nd__": ["<i4"]},
        {"__nd__": {"__nd__": "<i4", "shape": [], "data": b""}},
        {"shape": [2]},
        {"shape": [], "data": bytes(8)},
        {"shape": [-1]},
        {"shape": [True]},
        {"shape": [1.0]},
        {"shape": ["1"]},
        {"shape": [[1]]},
        {"shape": 1},
        {"shape": None},
        {"shape": [1] * 7},
        {"shape": [2**63]},
        {"shape": [0, 2**62]},
        {"shape": [2**26] * 6},
        {"data": "text"},
        {"data": None},
        {"data": b""},
        {"data": bytes(5)},
        {"extra": 1},
    ],
    ids=str,
)
def test_codec_refuses_impossible_arrays(changes):
    with pytest.raises(WireError) as caught:
        codec.decode(array_map(**changes))
    assert caught.value.code == "malformed"


@pytest.mark.parametrize("shape", [[0, 2**26], [2**26, 0], [0, 0, 5]])
def test_codec_takes_or_refuses_empty_arrays_without_reserving(shape):
    array = codec.decode(array_map(shape=shape, data=b""))
    assert array.size == 0


def test_codec_refuses_truth_values_other_than_0_and_1():
    assert codec.decode(array_map(__nd__="|b1", shape=[2], data=b"\x00\x01")).tolist() == [False, True]
    with pytest.raises(WireError, match="neither 0 nor 1"):
        codec.decode(array_map(__nd__="|b1", shape=[2], data=b"\x00\x02"))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_neither_leave_nor_enter(number):
    for value in (number, np.float64(number), [number], np.array([1.0, number])):
        with pytest.raises(ValueError, match="not finite"):
            codec.encode(value)
    with pytest.raises(WireError, match="not finite"):
        codec.decode(msgpack.packb(number))
    with pytest.raises(WireError, match="not finite"):
        codec.decode(array_map(__nd__="<f8", data=np.array([number]).tobytes()))


def test_codec_refuses_more_bytes_than_asked_for():
    data = codec.encode(bytes(100))
    assert codec.decode(data, max_bytes=len(data)) == bytes(100)
    with pytest.raises(WireError) as caught:
        codec.decode(data, max_bytes=len(data) - 1)
    assert caught.value.code == "oversize"


def test_codec_reserves_no_memory_for_declared_lengths():
    # 128 KiB that declare lists of a million items within each other: gigabytes, if anybody believed them.
    bomb = b"\xdd\x00\x0f\x42\x40" * 26_000
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            codec.decode(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(bomb)


def test_codec_refuses_bombs_where_address_space_is_short():
    code = (
        "import resource, sys\n"
        "from schemas import codec\n"
        "from schemas.errors import WireError\n"
        "resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), -1))\n"
        "lists, short, maps = b'\\xdd\\x00\\x0f\\x42\\x40', b'\\xdc\\xff\\xff', b'\\xdf\\x00\\x07\\xa1\\x20'\n"
        "for bomb in (lists * 26000, short * 40000, maps * 26000):\n"
        "    try:\n"
        "        codec.decode(bomb)\n"
        "    except WireError:\n"
        "        continue\n"
        "    raise SystemExit('decoded')\n"
    )
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY and hard < 2**30:
        pytest.skip("address space is limited here already")
    done = subprocess.run(
        [sys.executable, "-c", code, str(2**30)],
        capture_output=True,
        text=True,
        check=False,
        env={"OPENBLAS_NUM_THREADS": "1", "PATH": ""},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_decoded_arrays_cannot_be_written_to():
    array = codec.decode(codec.encode(np.arange(4)))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_arrays_travel_little_endian_whatever_their_order_in_memory():
    plain = np.arange(6, dtype="<i4").reshape(2, 3)
    for other in (plain.astype(">i4"), np.asfortranarray(plain), plain[:, :]):
        assert codec.encode(other) == codec.encode(plain)
