"""Who has the pages alone makes the test vectors: an implementation that imports nothing of ours does."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import ast
import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from tests.support.independent import rows, schemes
from tests.support.independent.encoding import enc, pack, rich, unpack
from tests.support.independent.private import chacha20, x25519

FOLDER = Path(__file__).parents[2] / "docs/reference/vectors"
VECTORS = json.loads((FOLDER / "vectors.json").read_text(encoding="utf-8"))


def untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float(value["float"])
    if "bytes" in value:
        return bytes.fromhex(value["bytes"])
    if "array" in value:
        return np.frombuffer(bytes.fromhex(value["data"]), value["array"]).reshape(value["shape"])
    return {key: untagged(item) for key, item in value.items()}


def content(text: str) -> bytes:
    whole: bytes = unpack(base64.b64decode(text))
    return whole


def test_it_imports_nothing_of_ours():
    allowed = {"pathlib", "csv", "hashlib", "hmac", "math", "os", "queue", "random", "sys", "time", "urllib", "zlib"}
    for path in (Path(__file__).parents[1] / "support/independent").glob("*.py"):
        if path.name.startswith(("test_", "__init__")):
            continue
        names = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {each.name.split(".")[0] for each in node.names}
            if isinstance(node, ast.ImportFrom):
                names.add(".".join((node.module or "").split(".")[:2]))
        assert names <= allowed | {"urllib.parse", "msgpack", "numpy", "paho", "tests.support"}, path.name


@pytest.mark.parametrize("case", VECTORS["codec"], ids=lambda case: case["what"])
def test_codec(case: dict[str, Any]) -> None:
    assert enc(untagged(case["value"])).hex() == case["encoded"]


def test_packing_and_hashes() -> None:
    products, limbs, ties = VECTORS["packing"]
    z = np.array([list(map(float, line)) for line in products["columns"]])
    assert rows.pairs(z).astype(int).T.tolist() == products["products"]
    c = rows.grid(z, 30).astype(object)
    whole = [int((c[i] * c[j]).sum()) for i in range(3) for j in range(i, 3)]
    assert [each >> 30 for each in whole] == limbs["high"]
    assert [each & (2**30 - 1) for each in whole] == limbs["low"]
    assert np.rint(ties["numbers"]).tolist() == ties["rounded"]
    (case,) = VECTORS["hashes"]
    columns = [np.array(list(map(float, line))) for line in zip(*case["inputs"], strict=True)]
    result = rows.hashes([*columns, np.array(list(map(float, case["target"])))])
    assert [f"{each:016x}" for each in result.tolist()] == case["hashes"]
    assert ((result >> np.uint64(11)).astype(float) < 0.5 * 2.0**53).tolist() == case["held_out"]


def test_condensing() -> None:
    (case,) = VECTORS["condensing"]
    made = rows.condense(untagged(case["points"]), case["min_rows"], bytes.fromhex(case["key"]), [2])
    expected = untagged(case["made"])
    assert np.sort(made, axis=0).tobytes() == np.sort(expected, axis=0).tobytes()


def test_parts() -> None:
    (case,) = VECTORS["parts"]
    parts = [rich(msgpack.unpackb(content(part)))["body"] for part in case["parts"]]
    packed = b"".join(part["data"] for part in sorted(parts, key=lambda part: part["index"]))
    assert len(parts) == parts[0]["count"]
    assert hashlib.sha256(packed).hexdigest() == parts[0]["digest"]
    assert unpack(packed) == content(case["encoded"])
    assert unpack(pack(unpack(packed))) == unpack(packed)


@pytest.mark.parametrize("case", VECTORS["questions"], ids=lambda case: case["what"])
def test_questions(case: dict[str, Any]) -> None:
    table = rows.Table(FOLDER / case["rows"])
    written = content(case["task"])
    assert hashlib.sha256(written).hexdigest() == case["task_digest"]
    task = rich(msgpack.unpackb(written))
    assert enc(task) == written
    key = bytes.fromhex(case.get("key", ""))
    if task["scheme"] == "domain":
        _, result = rows.discovery(task["body"], table)
    else:
        _, result = {"frt": schemes.frt, "tree": schemes.tree}[task["scheme"]](task["kind"], task["body"], table, key)
    expected = rich(msgpack.unpackb(content(case["answer"])))
    for name, right in expected["sums"].items():
        given = result["sums"][name]
        assert given.shape == right.shape, name
        assert np.array_equal(given, right), (name, np.argwhere(given != right)[0].tolist())
    assert enc(result) == enc(expected)


def test_keys_and_streams_of_private_runs() -> None:
    masks = json.loads((FOLDER / "masks.json").read_text(encoding="utf-8"))
    base = (9).to_bytes(32, "little")
    for agent, secret in masks["secrets"].items():
        assert x25519(bytes.fromhex(secret), base).hex() == masks["public_keys"][agent]
    stream = chacha20(bytes.fromhex(masks["stream_key_tram_v03"]), len(masks["stream_tram_v03"]))
    assert [str(word) for word in stream.tolist()] == masks["stream_tram_v03"]
