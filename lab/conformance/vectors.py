"""Writes the test vectors: ``python -m lab.conformance.vectors`` (docs/reference/vectors).

`vectors.json` has, by part, lists of cases. Each has `what`; inputs and outputs as hexadecimal texts, or, where they
are long, as Base64 of the packed form (a marker byte, then perhaps zlib). A value of the codec is JSON with tags:
``{"float": "0.5"}``, ``{"bytes": "00ff"}``, ``{"array": "<i8", "shape": [2], "data": "..."}``; all else as it stands.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from console.services.tap import whole
from edge_agent.sources.table import read_source
from glassfleet.data.condense import condense
from glassfleet.data.sampling import is_held_out, row_hashes
from glassfleet.numerics.statistics import gram_sums, pack_symmetric, pair_sums, to_grid
from glassfleet.private.groups import Announcement, Roster, Terms
from glassfleet.private.layout import Layout, add, question_digest
from glassfleet.private.masks import RunKey, mask, pair_keys, stream, stream_key
from lab.conformance.questions import FOLDER, questions, tables
from schemas.codec import encode
from schemas.envelope import Envelope, frames_for_contribution, pack
from schemas.messages import ContributionBody
from schemas.topics import Topics
from schemas.trust.identity import urn
from schemas.trust.owner import Owner
from schemas.trust.signing import Signer

KEY = bytes(range(32))
"""The secret by which rows are condensed here."""

Case = dict[str, Any]


def computed() -> dict[str, list[Case]]:
    """Return all vectors but those of masks."""
    return {
        "codec": _codec(),
        "packing": _packing(),
        "hashes": _hashes(),
        "condensing": _condensing(),
        "parts": _parts(),
        "seal": _seal(),
        "questions": list(_questions()),
    }


def packed(content: bytes) -> str:
    """Return bytes as the long ones stand in the file."""
    return base64.b64encode(pack(content)).decode()


def _codec() -> list[Case]:
    values = {
        "nothing, truth, and texts": [None, True, False, "", "é", "a" * 32, "b" * 300],
        "integers in their shortest form": [0, 127, 128, 256, 65536, 2**32, 2**63, -1, -33, -129, -(2**31) - 1],
        "floats stay floats": [0.0, -0.0, 1.0, 0.1, -1e300],
        "byte strings": [b"", b"\x00\xff", bytes(300)],
        "keys in order": {"b": 1, "a": {"z": [], "B": {}}, "é": 2, "aa": 3},
        "arrays": [np.arange(6, dtype="<i8").reshape(2, 3), np.array([True, False]), np.zeros((0, 4))],
    }  # fmt: skip
    return [{"what": what, "value": whole(value), "encoded": encode(value).hex()} for what, value in values.items()]


def _columns() -> np.ndarray[Any, Any]:
    return np.array([[1.0, 1.0, 1.0], [0.1, 0.7, 1 / 3], [0.0, 2**-21, 1.0]])


def _packing() -> list[Case]:
    columns, shown = _columns(), [list(map(repr, line)) for line in _columns().tolist()]
    high, low = gram_sums(to_grid(columns, 30), bits=30)
    limbs = {"high": pack_symmetric(high).tolist(), "low": pack_symmetric(low).tolist()}
    return [
        {
            "what": "products of pairs of columns on the grid of 20 bits, packed, of each row",
            "columns": shown,
            "products": pair_sums(np.eye(3), columns, 20).tolist(),
        },
        {"what": "two limbs of the Gram sums on the grid of 30 bits, packed", "columns": shown, **limbs},
        {"what": "ties go to even: rint", "numbers": [0.5, 1.5, 2.5, -0.5, -1.5], "rounded": [0, 2, 2, 0, -2]},
    ]


def _hashes() -> list[Case]:
    inputs, target = _columns(), np.array([0.25, -0.0, 1.0])
    rows = [list(map(repr, line)) for line in (*inputs.T.tolist(),)]
    return [
        {
            "what": "hashes of rows, inputs then target; and which are held out with a share of 0.5",
            "inputs": rows,
            "target": list(map(repr, target.tolist())),
            "hashes": [f"{each:016x}" for each in row_hashes(inputs, target).tolist()],
            "held_out": is_held_out(inputs, target, 0.5).tolist(),
        }
    ]


def _condensing() -> list[Case]:
    rng = np.random.default_rng(1)
    points = np.rint(rng.random((23, 3)) * 64) / 64
    points[:, 2] = np.rint(points[:, 2] * 3) / 4
    points[20:] = points[:3]
    made = condense(points, 3, KEY, (2,))
    case = {"what": "made-up rows, the last column is a text of four categories", "key": KEY.hex(), "min_rows": 3}
    return [case | {"points": whole(points), "made": whole(made)}]


def _parts() -> list[Case]:
    topics = Topics("fleet")
    sums = {"x": np.arange(2000, dtype=np.int64) * 2654435761 % 2**40}
    given = {"kind": "scan", "rows": 7, "sums": sums, "values": {}, "nullified": 0}
    body = ContributionBody(task_digest="ab" * 32, rows=7, data_digest="cd" * 32, contribution=given)
    envelope = Envelope(fleet="fleet", body=body, run="run-1", agent="v1", scheme="tree", round=2, attempt=1, time=1.5)
    frames = frames_for_contribution(envelope, topics, 4096)
    return [
        {
            "what": "a contribution in parts of at most 4096 bytes: join their data in order of index, verify, unpack",
            "topic": frames[0].topic,
            "encoded": packed(envelope.to_bytes()),
            "parts": [packed(frame.payload) for frame in frames],
        }
    ]


def _seal() -> list[Case]:
    key, ca_key = (Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32) for seed in (1, 2))
    began, name = dt.datetime(2026, 1, 1, tzinfo=dt.UTC), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "v1")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 7, began, began.replace(year=2036))
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(urn(Owner("agent", "v1")))]), False)
        .sign(ca_key, None)
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    signer = Signer(pem, certificate.public_bytes(Encoding.PEM))
    body = ContributionBody(task_digest="ab" * 32, rows=0, data_digest="cd" * 32, contribution={})
    plain = Envelope(fleet="fleet", body=body, run="run-1", agent="v1", time=1.5).to_bytes()
    topic = Topics("fleet").contribution("v1")
    return [
        {
            "what": "a seal",
            "secret_key": "01" * 32,
            "certificate": signer.certificate.hex(),
            "topic": topic,
            "unsealed": plain.hex(),
            "sealed": signer.seal(topic, plain).hex(),
        }
    ]


def _questions() -> Iterator[Case]:
    with TemporaryDirectory() as folder:
        for name, text in tables().items():
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")
            is_mixed = name == "mixed.csv"
            rows = read_source(path, labels=is_mixed, categories=is_mixed, missing=is_mixed).train
            data, condensed = replace(rows, key=KEY), 0
            for each in questions(data, ("frt", "tree")):
                condensed += not each.exact
                if not each.exact and condensed > 3:
                    continue
                task = each.task.to_value()
                case = {"what": each.name, "rows": name, "task": packed(encode(task))}
                case |= {"task_digest": hashlib.sha256(encode(task)).hexdigest()}
                case |= {"answer": packed(encode(each.expected.to_value()))}
                yield case if each.exact else case | {"key": KEY.hex()}


def files() -> dict[str, str]:
    """Return all files by name."""
    lines = [f' "{name}": [\n  ' + ",\n  ".join(map(json.dumps, cases)) + "\n ]" for name, cases in computed().items()]
    return {
        **tables(),
        "vectors.json": "{\n" + ",\n".join(lines) + "\n}\n",
        "masks.json": json.dumps(masks(), indent=1) + "\n",
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


# --- test vectors of the masks of private runs, from fixed keys and numbers -------------------------------------------


IDS = ("bus-7", "tram", "v00", "v01", "v02", "v03", "v04", "v05", "wagen")
TASK = "5f" * 32


def told_by(agent: str) -> dict[str, Any]:
    """Return what a vehicle announces besides its key: some have new rows, and some were in earlier runs."""
    place = IDS.index(agent)
    era, rows, new = (f"{kind}{place}" * 8 for kind in ("e", "r", "n"))
    has_new, was_there = place in (1, 4, 7), place not in (2, 3, 6)
    return {
        "data_digest": f"{place}d" * 32,
        "floor": 8 + place % 2,
        "era": era,
        "rows": rows,
        "tests": f"t{place}" * 8,
        "new_rows": new if has_new else "",
        "new_tests": f"u{place}" * 8 if has_new else "",
        "new_digest": "ef" * 32 if has_new else "",
        "anchor": ("b" if place % 2 else "a") * 16 if was_there else "",
        "left": 1 + 50 * place,
        "totals": tuple(bytes([number]) * 32 for number in range(1, 1 + 2 * place)) if was_there else (),
        "heard": tuple(bytes([100 + number]) * 32 for number in range(place % 4)),
    }


def masks() -> dict[str, Any]:
    """Return the vectors of masks, from fixed keys and numbers."""
    terms = Terms("fleet", "run-1", "0123456789abcdef", "frt", "ab" * 32, 8, 3, 0, 40)
    secrets = {agent: bytes([place + 1]) * 32 for place, agent in enumerate(IDS)}
    keys = {agent: RunKey(secret) for agent, secret in secrets.items()}
    announced = {agent: told_by(agent) for agent in IDS}
    roster = Roster(
        terms, 0, tuple(Announcement(agent, keys[agent].public, **announced[agent]) for agent in IDS), renews=True
    )
    edition = roster.first()
    total = edition.total
    pairs = {agent: pair_keys(keys[agent], agent, roster) for agent in IDS}
    layout = Layout("weights", (("wq", (2,)), ("ws", (2, 1))))
    numbers = np.random.default_rng(0).integers(-(2**40), 2**40, (len(IDS), layout.size))
    answers = {agent: mask(line, agent, edition, pairs[agent], TASK) for agent, line in zip(IDS, numbers, strict=True)}
    shared = stream_key(pairs["tram"]["v03"], edition, TASK, "tram", "v03")
    return {
        "terms": terms.to_value(),
        "terms_digest": terms.digest.hex(),
        "secrets": {agent: secret.hex() for agent, secret in secrets.items()},
        "public_keys": {agent: key.public.hex() for agent, key in keys.items()},
        "group": 0,
        "edition": 0,
        "renews": True,
        "founders": {
            agent: {**each, **{name: [digest.hex() for digest in each[name]] for name in ("totals", "heard")}}
            for agent, each in announced.items()
        },
        "anchor": roster.anchor,
        "total": {"members": total.to_value()["members"], "digest": total.digest.hex()},
        "roster_digest": roster.digest.hex(),
        "edition_digest": edition.digest.hex(),
        "task_digest": TASK,
        "layout": {"kind": "weights", "shapes": {"wq": [2], "ws": [2, 1]}, "digest": layout.digest},
        "question": question_digest(edition, TASK, layout.digest),
        "pair_key_tram_v03": pairs["tram"]["v03"].hex(),
        "stream_key_tram_v03": shared.hex(),
        "stream_tram_v03": [str(word) for word in stream(shared, layout.size)],
        "vectors": {agent: line.tolist() for agent, line in zip(IDS, numbers, strict=True)},
        "answers": {agent: [str(word) for word in words] for agent, words in answers.items()},
        "sum": add(answers.values()).tolist(),
    }
