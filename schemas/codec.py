"""Msgpack with arrays: the one encoding of everything that travels or is journalled.

Maps are written with sorted keys, so equal values have equal bytes and a digest of the bytes identifies the value.
Arrays travel as ``{"__nd__": dtype, "shape": [...], "data": bytes}``, little-endian, C order, from an allow-list of
dtypes. Decoding never trusts a length, a shape or a nesting depth before it is checked: the headers are walked first,
so that a few hostile bytes cannot make the msgpack library reserve gigabytes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgpack
import numpy as np

from schemas import limits
from schemas.errors import WireError

Value: TypeAlias = Any
"""None, bool, int, float, str, bytes, ndarray, or lists and string-keyed mappings of these."""

DTYPES = {"|b1": 1, "|i1": 1, "|u1": 1, "<i2": 2, "<u2": 2, "<i4": 4, "<u4": 4, "<i8": 8, "<u8": 8, "<f8": 8}
"""Allow-listed array types and their item sizes in bytes."""


def encode(value: Value) -> bytes:
    """Encode `value`; raises TypeError or ValueError on what cannot travel (a programming error of ours)."""
    try:
        packed: bytes = msgpack.packb(_plain(value, 0), use_bin_type=True)
    except OverflowError as fault:
        raise ValueError("integers beyond 64 bits do not travel") from fault
    return packed


def decode(data: bytes, *, max_bytes: int = limits.MAX_DECODED_BYTES) -> Value:
    """Decode bytes from a peer.

    Raises
    ------
    WireError
        ``malformed`` or ``oversize``; no other exception leaves this function, whatever the bytes.
    """
    if len(data) > max_bytes:
        raise WireError("oversize", f"{len(data)} bytes, at most {max_bytes} are accepted")
    _walk(data)
    try:
        plain = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_str_len=len(data),
            max_bin_len=len(data),
            max_array_len=limits.MAX_ITEMS,
            max_map_len=limits.MAX_ITEMS,
            max_ext_len=0,
            object_pairs_hook=_unique,
        )
        return _rich(plain, 0)
    except WireError:
        raise
    except (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError, OverflowError) as fault:
        raise WireError("malformed", f"not a valid msgpack message ({type(fault).__name__})") from fault


def digest_of(value: Value) -> str:
    """SHA-256 (hex) of the encoding of `value`."""
    return hashlib.sha256(encode(value)).hexdigest()


def _plain(value: Value, depth: int) -> Any:
    if depth > limits.MAX_DEPTH:
        raise ValueError(f"nested deeper than {limits.MAX_DEPTH}")
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str | bytes):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a number that is not finite does not travel")
        return value
    if isinstance(value, np.ndarray):
        return _plain_array(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value) or "__nd__" in value:
            raise TypeError("map keys must be strings, and not '__nd__', which marks arrays")
        return {key: _plain(value[key], depth + 1) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    raise TypeError(f"values of type {type(value).__name__} do not travel")


def _plain_array(value: np.ndarray[Any, Any]) -> dict[str, Any]:
    array = np.ascontiguousarray(value).reshape(value.shape)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    code = array.dtype.str
    if code not in DTYPES:
        raise TypeError(f"arrays of dtype {value.dtype} do not travel; use one of {sorted(DTYPES)}")
    if array.ndim > limits.MAX_ARRAY_DIMS:
        raise ValueError(f"arrays of {array.ndim} dimensions do not travel, at most {limits.MAX_ARRAY_DIMS} do")
    if code == "<f8" and not bool(np.isfinite(array).all()):
        raise ValueError("an array with numbers that are not finite does not travel")
    return {"__nd__": code, "shape": list(array.shape), "data": array.tobytes()}


def _rich(plain: Any, depth: int) -> Value:
    if depth > limits.MAX_DEPTH:
        raise WireError("malformed", f"nested deeper than {limits.MAX_DEPTH}")
    if isinstance(plain, dict):
        if "__nd__" in plain:
            return _array(plain)
        return {key: _rich(item, depth + 1) for key, item in plain.items() if _is_text(key)}
    if isinstance(plain, list):
        return [_rich(item, depth + 1) for item in plain]
    if isinstance(plain, float) and not math.isfinite(plain):
        raise WireError("malformed", "a number is not finite")
    if plain is None or isinstance(plain, bool | int | float | str | bytes):
        return plain
    raise WireError("malformed", f"a {type(plain).__name__} does not travel")


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        # Two readers could take different ones of the two.
        raise WireError("malformed", "a key appears twice in one map")
    return value


# What a header byte of msgpack announces: values inside per unit of length (0: plain bytes follow; 1: a list; 2: a
# map), width of the length field that follows, and the length when there is no such field. None: an extension type, or
# unused.
_Header: TypeAlias = tuple[int, int, int]
_HEADERS: list[_Header | None] = [
    *[(0, 0, 0)] * 0x80,  # 00..7f small integers
    *[(2, 0, length) for length in range(16)],  # 80..8f short maps
    *[(1, 0, length) for length in range(16)],  # 90..9f short lists
    *[(0, 0, length) for length in range(32)],  # a0..bf short texts
    *[(0, 0, 0), None, (0, 0, 0), (0, 0, 0)],  # c0..c3 nil, unused, false, true
    *[(0, width, 0) for width in (1, 2, 4)],  # c4..c6 bytes
    *[None] * 3,  # c7..c9 extension types
    *[(0, 0, size) for size in (4, 8, 1, 2, 4, 8, 1, 2, 4, 8)],  # ca..d3 floats, unsigned and signed integers
    *[None] * 5,  # d4..d8 extension types
    *[(0, width, 0) for width in (1, 2, 4)],  # d9..db texts
    *[(1, width, 0) for width in (2, 4)],  # dc, dd lists
    *[(2, width, 0) for width in (2, 4)],  # de, df maps
    *[(0, 0, 0)] * 0x20,  # e0..ff small negative integers
]


def _walk(data: bytes) -> None:
    """Check nesting, declared lengths and the number of items of a whole message before anything is built from it."""
    place, end, items = 0, len(data), 1
    waiting = [1]  # values still to come, for each list or map that is open
    while waiting:
        if waiting[-1] == 0:
            waiting.pop()
            continue
        waiting[-1] -= 1
        if place >= end:
            break
        header = _HEADERS[data[place]]
        place += 1
        if header is None:
            raise WireError("malformed", "msgpack extension types do not travel")
        inside, width, length = header
        if width:
            length = int.from_bytes(data[place : place + width], "big")
            place += width
        if not inside:
            place += length
            continue
        count = inside * length
        items += count
        if items > limits.MAX_ITEMS or place + count > end:
            raise WireError("malformed", "a list or map is longer than the message or the limit")
        # An array is two levels itself: its map, and the list of its shape.
        if len(waiting) > limits.MAX_DEPTH + 2:
            raise WireError("malformed", f"nested deeper than {limits.MAX_DEPTH}")
        waiting.append(count)
    if waiting or place != end:
        raise WireError("malformed", "the message ends too early or too late")


def _is_text(key: Any) -> bool:
    if not isinstance(key, str):
        raise WireError("malformed", "map keys must be text")
    return True


def _array(plain: dict[Any, Any]) -> np.ndarray[Any, Any]:
    if set(plain) != {"__nd__", "shape", "data"}:
        raise WireError("malformed", "an array needs exactly dtype, shape and data")
    code, shape, data = plain["__nd__"], plain["shape"], plain["data"]
    if not isinstance(code, str) or code not in DTYPES:
        raise WireError("malformed", "array dtype is not allowed")
    if not isinstance(shape, list) or len(shape) > limits.MAX_ARRAY_DIMS or not isinstance(data, bytes):
        raise WireError("malformed", "array shape or data has the wrong type")
    count = 1
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= limits.MAX_DECODED_BYTES:
            raise WireError("malformed", "array shape has an impossible size")
        count *= size
    if count * DTYPES[code] != len(data):
        raise WireError("malformed", f"an array's shape does not fit its {len(data)} bytes")
    if code == "|b1" and bool((np.frombuffer(data, np.uint8) > 1).any()):
        raise WireError("malformed", "a truth value is neither 0 nor 1")
    array = np.frombuffer(data, dtype=np.dtype(code)).reshape(shape)
    if code == "<f8" and not bool(np.isfinite(array).all()):
        raise WireError("malformed", "an array holds a number that is not finite")
    return array
