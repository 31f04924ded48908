"""Msgpack with arrays: the one encoding of everything that travels or is journalled.

Maps are written with sorted keys, so equal values have equal bytes and a digest of the bytes identifies the value.
Arrays travel as ``{"__nd__": dtype, "shape": [...], "data": bytes}``, little-endian, C order, from an allow-list of
dtypes. Decoding never trusts a length, a shape or a nesting depth before it is checked: the message is skipped through
first, so that a few hostile bytes cannot make the msgpack library reserve gigabytes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any, TypeAlias

import msgpack
import numpy as np
import rfc8785

from schemas import limits
from schemas.errors import DocumentError, WireError

Value: TypeAlias = Any
"""None, bool, int, float, str, bytes, ndarray, or lists and string-keyed mappings of these."""

DTYPES = {code: np.dtype(code) for code in ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f8")}
"""Allow-listed array types."""

_LEAVES = frozenset({type(None), bool, int, str, bytes})
"""What travels as it is. Most values are of these: they are looked up by type, for that is fastest."""

_READ = _LEAVES | {np.ndarray}
"""What needs no second look once it is read: an array is made of its map while the message is unpacked."""


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
    try:
        # Nothing is built before the message is known to be whole: declared lengths then cost no more than its bytes.
        reader = msgpack.Unpacker(max_buffer_size=len(data) + 1)
        reader.feed(data)
        reader.skip()
        # Each value takes a byte at least: there are not too many in a shorter message.
        if len(data) > limits.MAX_ITEMS:
            _check_count(data)
        plain = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_str_len=len(data),
            max_bin_len=len(data),
            max_array_len=limits.MAX_ITEMS,
            max_map_len=limits.MAX_ITEMS,
            max_ext_len=0,
            object_pairs_hook=_map,
        )
        return _rich(plain, 0)
    except WireError:
        raise
    except msgpack.exceptions.StackError as fault:
        raise WireError("malformed", f"nested deeper than {limits.MAX_DEPTH}") from fault
    except (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError, OverflowError) as fault:
        raise WireError("malformed", f"not a valid msgpack message ({type(fault).__name__})") from fault


def encoded_part(data: bytes, *keys: str) -> memoryview:
    """Return where a value in maps within maps lies, by its keys; `data` is a message that `decode` has read."""
    reader = msgpack.Unpacker(max_buffer_size=len(data) + 1)
    reader.feed(data)
    for key in keys:
        for _ in range(reader.read_map_header()):
            if reader.unpack() == key:
                break
            reader.skip()
    start = reader.tell()
    reader.skip()
    return memoryview(data)[start : reader.tell()]


def encode_around(value: Mapping[str, Value], key: str) -> tuple[bytes, bytes]:
    """Encode the map `value` with one value more under `key`: what stands before that value, and what behind it."""
    packer = msgpack.Packer(autoreset=False)
    packer.pack_map_header(len(value) + 1)
    before = b""
    for name in sorted([*value, key]):
        packer.pack(name)
        if name == key:
            before = bytes(packer.bytes())
            packer.reset()
        else:
            packer.pack(_plain(value[name], 1))
    return before, packer.bytes()


def digest_of(value: Value) -> str:
    """SHA-256 (hex) of the encoding of `value`."""
    return hashlib.sha256(encode(value)).hexdigest()


def _plain(value: Value, depth: int) -> Any:
    if type(value) in _LEAVES:
        return value
    if isinstance(value, np.ndarray):
        return _plain_array(value)
    if isinstance(value, np.generic):
        return _plain(value.item(), depth)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a number that is not finite does not travel")
        return value
    if isinstance(value, (dict, list, tuple, Mapping)):
        return _plain_values(value, depth)
    if isinstance(value, (int, str, bytes)):  # of classes of their own
        return value
    raise TypeError(f"values of type {type(value).__name__} do not travel")


def _plain_values(value: Mapping[str, Value] | Sequence[Value], depth: int) -> Any:
    if value and depth >= limits.MAX_DEPTH:
        raise ValueError(f"nested deeper than {limits.MAX_DEPTH}")
    if isinstance(value, (list, tuple)):
        return [item if type(item) in _LEAVES else _plain(item, depth + 1) for item in value]
    assert isinstance(value, Mapping)
    if not _are_texts(value) or "__nd__" in value:
        raise TypeError("map keys must be strings, and not '__nd__', which marks arrays")
    return {key: item if type(item := value[key]) in _LEAVES else _plain(item, depth + 1) for key in sorted(value)}


def _plain_array(value: np.ndarray[Any, Any]) -> dict[str, Any]:
    code = value.dtype.str
    if code[0] == ">":
        return _plain_array(value.astype(value.dtype.newbyteorder("<")))
    if code not in DTYPES:
        raise TypeError(f"arrays of dtype {value.dtype} do not travel; use one of {sorted(DTYPES)}")
    if value.ndim > limits.MAX_ARRAY_DIMS:
        raise ValueError(f"arrays of {value.ndim} dimensions do not travel, at most {limits.MAX_ARRAY_DIMS} do")
    if code == "<f8" and not bool(np.isfinite(value).all()):
        raise ValueError("an array with numbers that are not finite does not travel")
    return {"__nd__": code, "shape": list(value.shape), "data": value.tobytes()}


def _rich(plain: Any, depth: int) -> Value:
    kind = type(plain)
    if kind is dict or kind is list:
        if plain and depth >= limits.MAX_DEPTH:
            raise WireError("malformed", f"nested deeper than {limits.MAX_DEPTH}")
        if kind is list:
            return [item if type(item) in _READ else _rich(item, depth + 1) for item in plain]
        if not _are_texts(plain):
            raise WireError("malformed", "map keys must be text")
        return {key: item if type(item) in _READ else _rich(item, depth + 1) for key, item in plain.items()}
    if kind is float and not math.isfinite(plain):
        raise WireError("malformed", "a number is not finite")
    if kind is float or kind in _READ:
        return plain
    raise WireError("malformed", f"a {kind.__name__} does not travel")


def _map(pairs: list[tuple[Any, Any]]) -> dict[Any, Any] | np.ndarray[Any, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        # Two readers could take different ones of the two.
        raise WireError("malformed", "a key appears twice in one map")
    return _array(value) if "__nd__" in value else value


# What a header byte of msgpack announces: bytes of the length field that follows, and of the value itself when there is
# no such field. None: the length field of a list or map, whose values follow.
_BYTES: list[tuple[int, int | None]] = [
    *[(0, 0)] * 0xA0,  # 00..9f small integers, short maps, short lists
    *[(0, length) for length in range(32)],  # a0..bf short texts
    *[(0, 0)] * 4,  # c0..c3 nil, unused, false, true
    *[(width, 0) for width in (1, 2, 4)],  # c4..c6 bytes
    *[(width, 1) for width in (1, 2, 4)],  # c7..c9 extension types
    *[(0, size) for size in (4, 8, 1, 2, 4, 8, 1, 2, 4, 8)],  # ca..d3 floats, unsigned and signed integers
    *[(0, 1 + size) for size in (1, 2, 4, 8, 16)],  # d4..d8 extension types
    *[(width, 0) for width in (1, 2, 4)],  # d9..db texts
    *[(width, None) for width in (2, 4, 2, 4)],  # dc..df lists and maps
    *[(0, 0)] * 0x20,  # e0..ff small negative integers
]


def _check_count(data: bytes) -> None:
    """Raise WireError when a whole message has more values than are accepted."""
    place = items = 0
    while place < len(data):
        width, size = _BYTES[data[place]]
        place += 1
        if width and size is not None:
            size += int.from_bytes(data[place : place + width], "big")
        place += width + (size or 0)
        items += 1
        if items > limits.MAX_ITEMS:
            raise WireError("malformed", f"more than {limits.MAX_ITEMS} values in a message")


def _are_texts(keys: Iterable[Any]) -> bool:
    return {*map(type, keys)} <= _TEXT or all(isinstance(key, str) for key in keys)


_TEXT = frozenset({str})
_ARRAY = frozenset({"__nd__", "shape", "data"})


def _array(plain: dict[Any, Any]) -> np.ndarray[Any, Any]:
    if plain.keys() != _ARRAY:
        raise WireError("malformed", "an array needs exactly dtype, shape and data")
    code, shape, data = plain["__nd__"], plain["shape"], plain["data"]
    dtype = DTYPES.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise WireError("malformed", "array dtype is not allowed")
    if not isinstance(shape, list) or len(shape) > limits.MAX_ARRAY_DIMS or not isinstance(data, bytes):
        raise WireError("malformed", "array shape or data has the wrong type")
    count = 1
    for size in shape:
        if type(size) is not int or not 0 <= size <= limits.MAX_DECODED_BYTES:
            raise WireError("malformed", "array shape has an impossible size")
        count *= size
    if count * dtype.itemsize != len(data):
        raise WireError("malformed", f"an array's shape does not fit its {len(data)} bytes")
    if code == "|b1" and bool((np.frombuffer(data, np.uint8) > 1).any()):
        raise WireError("malformed", "a truth value is neither 0 nor 1")
    array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, data)
    if code == "<f8" and not bool(np.isfinite(array).all()):
        raise WireError("malformed", "an array holds a number that is not finite")
    return array


# --- documents: JSON with one way to write each value, so that a digest of the text identifies the value --------------


def canonical_json(value: Any) -> bytes:
    """Return `value`, made of JSON values, as canonical JSON (RFC 8785), UTF-8.

    Keys are sorted, there is no white space, and each number has its shortest form that reads back as the same float64;
    any JSON library of any language that follows the RFC writes the same bytes.

    Raises
    ------
    DocumentError
        `value` holds what canonical JSON cannot: NaN, infinities, integers beyond 2^53, keys that are not text, or
        types that are not JSON's.

    Examples
    --------
    >>> canonical_json({"b": 1.0, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """
    try:
        return _canonical(value).encode()
    except (rfc8785.CanonicalizationError, RecursionError, UnicodeError) as fault:
        raise DocumentError(f"not a JSON document: {fault}") from fault


def _canonical(value: Any) -> str:
    """Write what is usual as `rfc8785` would, in half the time, and let that write the rest."""
    kind = type(value)
    # Neither with an exponent nor "inf" or "nan".
    if kind is float and value and "e" not in (text := repr(value)) and "n" not in text:
        return text.removesuffix(".0")
    if kind is str:
        return encode_basestring(value)
    if kind is int and -(2**53) < value < 2**53:
        return str(value)
    if kind is dict and {*map(type, value)} <= _TEXT:
        # By UTF-16 units; among ASCII that is Python's own order.
        keys = sorted(value, key=None if "".join(value).isascii() else lambda key: key.encode("utf-16-be"))
        return "{" + ",".join([f"{encode_basestring(key)}:{_canonical(value[key])}" for key in keys]) + "}"
    if kind is list or kind is tuple:
        return "[" + ",".join(map(_canonical, value)) + "]"
    return rfc8785.dumps(value).decode()


def document_digest(document: Any) -> str:
    """Return the SHA-256 (hex) of the canonical JSON of `document`."""
    return hashlib.sha256(canonical_json(document)).hexdigest()
