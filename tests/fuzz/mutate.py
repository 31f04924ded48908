"""Seeded mutation of messages, at three depths: values (what a lying peer says), msgpack (what a broken encoder says),
bytes (what a broken link says); and msgpack made up from nothing.

Everything is decided by the `random.Random` that is passed in, so that a failing input can be made again from its seed.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import msgpack
import numpy as np

from schemas import codec

INTEGERS = (
    -1, 0, 1, 2, 3, 7, 255, 256, 2**15, 2**20, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), 2**64 - 1,
)  # fmt: skip
FLOATS = (0.0, -0.0, 1e-300, -1.5, 0.5, 1e9, 1e300, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "", "a", "../../etc", "x" * 300, "\x00", "\u202e", "é" * 70, "level", "domain", "frt", "0" * 64, "f" * 64,
    "vehicle-1",
)  # fmt: skip
ARRAYS: tuple[Any, ...] = (
    np.zeros(0),
    np.zeros(0, dtype=np.int64),
    np.array(3),
    np.zeros((2, 0, 5), dtype=np.int64),
    np.zeros((1, 1, 1, 1, 1, 1)),
    np.array([2**62, -(2**62)], dtype=np.int64),
    np.array([True, False]),
    np.arange(64, dtype=np.int64),
    np.full((3, 3), 1e308),
    np.arange(6, dtype=np.int8).reshape(2, 3),
)


def odd(rng: random.Random) -> Any:
    """Draw a value that does not belong."""
    kind = rng.randrange(10)
    if kind < 3:
        return rng.choice(INTEGERS)
    if kind == 3:
        return rng.choice(FLOATS)
    if kind == 4:
        return rng.choice(TEXTS)
    if kind == 5:
        return rng.choice((None, True, False, [], {}, b"", [[]], [None], {"": 0}))
    if kind == 6:
        return rng.randbytes(rng.randrange(40))
    if kind == 7:
        return rng.choice(ARRAYS)
    if kind == 8:
        return nested(rng, rng.choice((3, 33, 200)))
    return [rng.choice(INTEGERS)] * rng.choice((1, 5, 300))


def nested(rng: random.Random, depth: int) -> Any:
    """Draw lists in lists, or maps in maps."""
    value: Any = 0
    for _ in range(depth):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def edited(rng: random.Random, value: Any, *, edits: int = 1) -> Any:
    """Return a copy of nested maps, lists and arrays with a few edits; only what changes is copied."""
    for _ in range(edits):
        value = _edit(rng, value)
    return value


def _edit(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        return _edit_map(rng, dict(value))
    if isinstance(value, list | tuple) and value and rng.random() < 0.9:
        return _edit_list(rng, list(value))
    if isinstance(value, np.ndarray) and rng.random() < 0.85:
        return mutate_array(rng, value)
    if isinstance(value, bool):
        return rng.choice((not value, int(value), None))
    if rng.random() < 0.3:
        return odd(rng)
    if isinstance(value, int):
        changes = (value + 1, value - 1, -value, value * 2, value ^ 1 << rng.randrange(62), rng.choice(INTEGERS))
        return rng.choice(changes)
    if isinstance(value, float):
        return rng.choice((value * 2, -value, value + 1e-9, value * 1e6, rng.choice(FLOATS)))
    if isinstance(value, str) and value:
        place = rng.randrange(len(value))
        return value[:place] + rng.choice(("", "\n", "/", "a", "0", "+", "\u0000", "..")) + value[place + 1 :]
    return odd(rng)


def _edit_map(rng: random.Random, value: dict[Any, Any]) -> dict[Any, Any]:
    key = rng.choice(list(value))
    way = rng.random()
    if way < 0.06:
        del value[key]
    elif way < 0.10:
        value[rng.choice(TEXTS)] = odd(rng)
    elif way < 0.13:
        value[rng.choice(list(value))] = value[key]
    else:
        value[key] = _edit(rng, value[key])
    return value


def _edit_list(rng: random.Random, line: list[Any]) -> list[Any]:
    place, other = rng.randrange(len(line)), rng.randrange(len(line))
    way = rng.random()
    if way < 0.06:
        del line[place]
    elif way < 0.12:
        line.insert(place, line[other])
    elif way < 0.16:
        line[place], line[other] = line[other], line[place]
    else:
        line[place] = _edit(rng, line[place])
    return line


def mutate_array(rng: random.Random, array: Any) -> Any:
    """Return a changed copy: elements, signs, scale, shape or type."""
    if array.size and rng.random() < 0.5:
        return _edit_elements(rng, array.copy())
    with np.errstate(all="ignore"):
        ways: list[Any] = [
            array.reshape(-1),
            array[None],
            array.astype(rng.choice(("<i8", "<f8", "|i1", "<i4", "<u8", "|b1"))),
        ]
        if array.ndim:
            ways += [array[:-1].copy(), np.concatenate([array, array[:1]]), array[..., ::-1].copy()]
        if array.dtype.kind in "if":
            ways.append(array * np.array(rng.choice((0, -1, 2, 3)), dtype=array.dtype))
    return rng.choice(ways)


def _edit_elements(rng: random.Random, array: Any) -> Any:
    for _ in range(rng.choice((1, 1, 1, 3))):
        place = rng.randrange(array.size)
        old = array.flat[place]
        if array.dtype.kind == "f":
            array.flat[place] = rng.choice((old * 2, -old, old + 1e-6, rng.choice(FLOATS)))
        elif array.dtype.kind == "b":
            array.flat[place] = not old
        else:
            limits = np.iinfo(array.dtype)
            new = rng.choice((int(old) + 1, int(old) - 1, -int(old), 2 * int(old), rng.choice(INTEGERS)))
            array.flat[place] = min(max(new, int(limits.min)), int(limits.max))
    return array


def plain(value: Any) -> Any:
    """Return what msgpack gets to see: arrays become maps, whose lies the next mutation can make."""
    if isinstance(value, np.ndarray):
        little = value.astype(value.dtype.newbyteorder("<"), copy=False)
        return {"__nd__": little.dtype.str, "shape": list(little.shape), "data": little.tobytes()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def pack(value: Any) -> bytes:
    """Encode as a careless peer would: no check of anything but what msgpack itself refuses."""
    try:
        packed: bytes = msgpack.packb(plain(value), use_bin_type=True)
    except (OverflowError, ValueError, TypeError, RecursionError):
        return b"\xc1"
    return packed


def break_bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:  # noqa: C901 - a table of cases
    """Return bytes as a broken link, or somebody who knows the format, would change them."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not out:
            out += rng.randbytes(3)
        place = rng.randrange(len(out))
        match rng.randrange(8):
            case 0:
                out[place] ^= 1 << rng.randrange(8)
            case 1:
                out[place] = rng.choice(
                    (0x00, 0x7F, 0x80, 0x90, 0xC0, 0xC1, 0xC4, 0xC6, 0xC9, 0xD9, 0xDB, 0xDD, 0xDF, 0xFF)
                )
            case 2:
                del out[place:]
            case 3:
                out[place:place] = rng.randbytes(rng.randrange(1, 9))
            case 4:
                del out[place : place + rng.randrange(1, 9)]
            case 5:
                out[place : place + 5] = rng.choice((b"\xdd", b"\xdf", b"\xc6", b"\xdb")) + struct.pack(
                    ">I", rng.choice((0, 1, 2**16, 2**31 - 1, 2**32 - 1))
                )
            case 6:
                start = rng.randrange(len(out))
                out[place:place] = out[start : start + rng.randrange(1, 64)]
            case 7:
                out[place:] = other[rng.randrange(len(other) + 1) :]
    return bytes(out)


def made_up(rng: random.Random) -> bytes:
    """Return msgpack from nothing: right, deep, lying about its lengths, or noise."""
    way = rng.randrange(6)
    if way == 0:
        return rng.randbytes(rng.randrange(64))
    if way == 1:
        return rng.choice((b"\x91", b"\x81\xa1a", b"\xdd\x00\x00\x00\x01")) * rng.choice((10, 40, 2000)) + b"\xc0"
    if way == 2:
        head = rng.choice((b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"))
        return head + struct.pack(">I", rng.choice((2**16, 2**20, 2**31, 2**32 - 1))) + rng.randbytes(rng.randrange(40))
    if way == 3:
        # As many items as fit: one byte each.
        count = rng.choice((10, 100, 1000)) if rng.random() < 0.98 else 65535
        return b"\xdc" + struct.pack(">H", count) + bytes([rng.choice((0x00, 0x80, 0x90, 0xC0))]) * count
    return pack(_grown(rng, 0))


def _grown(rng: random.Random, depth: int) -> Any:
    if depth > 4 or rng.random() < 0.4:
        return odd(rng)
    if rng.random() < 0.5:
        keys = (
            "v",
            "kind",
            "fleet",
            "run",
            "agent",
            "body",
            "__nd__",
            "shape",
            "data",
            "task_digest",
            rng.choice(TEXTS),
        )
        return {rng.choice(keys): _grown(rng, depth + 1) for _ in range(rng.randrange(6))}
    return [_grown(rng, depth + 1) for _ in range(rng.randrange(6))]


def mutate(rng: random.Random, value: Any, other: bytes = b"") -> bytes:
    """Return the bytes of a message that began as `value` and is not right any more (or happens to be)."""
    way = rng.random()
    edits = rng.choice((1, 1, 1, 2, 5))
    if way < 0.55:
        return pack(edited(rng, value, edits=edits))
    if way < 0.75:
        return pack(edited(rng, plain(value), edits=edits))
    if way < 0.95:
        return break_bytes(rng, codec.encode(value), other)
    return made_up(rng)
