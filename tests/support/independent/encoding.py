"""The encoding of messages (docs/reference/protocol.md).

It imports nothing of Glassfleet, and was written from the pages alone.
"""

# mypy: ignore-errors

import hashlib
import zlib

import msgpack
import numpy as np


class Refused(Exception):  # noqa: N818 - a reason, and no error of ours
    """Why a task is not answered."""


def plain(value):
    if isinstance(value, np.ndarray):
        code = (
            {"b": "|b1", "i": "<i8", "f": "<f8"}[value.dtype.kind]
            if value.dtype.itemsize in (1, 8)
            else value.dtype.str
        )
        return {"__nd__": code, "shape": list(value.shape), "data": value.astype(code).tobytes()}
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def enc(value):
    return msgpack.packb(plain(value), use_bin_type=True)


def rich(value):
    if isinstance(value, dict) and "__nd__" in value:
        return np.frombuffer(value["data"], value["__nd__"]).reshape(value["shape"])
    if isinstance(value, dict):
        return {key: rich(item) for key, item in value.items()}
    return [rich(item) for item in value] if isinstance(value, list) else value


def digest(value):
    return hashlib.sha256(enc(value)).hexdigest()


def pack(content):
    small = zlib.compress(content)
    return b"\x01" + small if len(small) < len(content) else b"\x00" + content


def unpack(packed):
    return zlib.decompressobj().decompress(packed[1:], 64 << 20) if packed[:1] == b"\x01" else packed[1:]
