"""Msgpack with arrays: the one encoding of everything that travels or is journalled.

Maps are written with sorted keys, so equal values have equal bytes and a digest of the bytes identifies the value.
Arrays travel as ``{"__nd__": dtype, "shape": [...], "data": bytes}``, little-endian, C order, from an allow-list of
dtypes. Decoding never trusts a length, a shape or a nesting depth before it is checked.
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
    packed: bytes = msgpack.packb(_plain(value, 0), use_bin_type=True)
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
    try:
        plain = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_str_len=max_bytes,
            max_bin_len=max_bytes,
            max_array_len=limits.MAX_ITEMS,
            max_map_len=limits.MAX_ITEMS,
            max_ext_len=0,
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
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value).reshape(value.shape)
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        code = array.dtype.str
        if code not in DTYPES:
            raise TypeError(f"arrays of dtype {value.dtype} do not travel; use one of {sorted(DTYPES)}")
        return {"__nd__": code, "shape": list(array.shape), "data": array.tobytes()}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("map keys must be strings")
        return {key: _plain(value[key], depth + 1) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.floating):
        return float(value)
    raise TypeError(f"values of type {type(value).__name__} do not travel")


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
        raise WireError("malformed", f"array of {count} items does not fit its {len(data)} bytes")
    if code == "|b1" and any(byte > 1 for byte in data):
        raise WireError("malformed", "a truth value is neither 0 nor 1")
    array = np.frombuffer(data, dtype=np.dtype(code)).reshape(shape)
    if code == "<f8" and not bool(np.isfinite(array).all()):
        raise WireError("malformed", "an array holds a number that is not finite")
    return array
