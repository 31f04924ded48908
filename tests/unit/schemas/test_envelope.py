"""The envelope: what goes in comes out; whatever else arrives is a WireError with its reason."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from schemas import codec
from schemas.envelope import Envelope
from schemas.errors import WireError
from schemas.messages import Receipt

DIGEST = "0123456789abcdef" * 4
RECEIPT = Receipt(run="r1", task_digest=DIGEST, outcome="accepted")
GOOD = Envelope(fleet="fleet", body=RECEIPT, run="r1", agent="v-07", scheme="frt", round=3, attempt=2, time=1.5)


def raw(**changes) -> Any:
    value = codec.decode(GOOD.to_bytes())
    for name, content in changes.items():
        if content is ...:
            del value[name]
        else:
            value[name] = content
    return msgpack.packb(value)


def test_envelope_comes_back_as_it_was_sent():
    back = Envelope.from_bytes(GOOD.to_bytes(), fleet="fleet")
    assert back == GOOD
    assert back.to_bytes() == GOOD.to_bytes()


def test_envelope_needs_only_version_kind_fleet_and_body():
    data = raw(run=..., agent=..., scheme=..., round=..., attempt=..., time=..., signature=...)
    assert Envelope.from_bytes(data, fleet="fleet") == Envelope(fleet="fleet", body=RECEIPT)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"v": 2}, "unknown-version"),
        ({"v": 0}, "unknown-version"),
        ({"v": True}, "malformed"),
        ({"v": "1"}, "malformed"),
        ({"v": ...}, "malformed"),
        ({"kind": "sing"}, "unknown-kind"),
        ({"kind": ...}, "unknown-kind"),
        ({"kind": 3}, "malformed"),
        ({"kind": "k" * 41}, "malformed"),
        ({"fleet": "other"}, "foreign-fleet"),
        ({"fleet": ...}, "foreign-fleet"),
        ({"fleet": 1}, "malformed"),
        ({"run": "a/b"}, "malformed"),
        ({"run": "r\n"}, "malformed"),
        ({"agent": "+"}, "malformed"),
        ({"agent": "x" * 65}, "malformed"),
        ({"agent": b"v"}, "malformed"),
        ({"scheme": "s" * 65}, "malformed"),
        ({"round": -1}, "malformed"),
        ({"round": 2**31}, "malformed"),
        ({"round": 1.0}, "malformed"),
        ({"attempt": True}, "malformed"),
        ({"time": "now"}, "malformed"),
        ({"time": True}, "malformed"),
        ({"time": float("nan")}, "malformed"),
        ({"signature": "s"}, "malformed"),
        ({"signature": bytes(2049)}, "malformed"),
        ({"body": []}, "malformed"),
        ({"body": ...}, "malformed"),
        ({"body": {}}, "malformed"),
        ({"body": RECEIPT.model_dump() | {"more": 1}}, "malformed"),
        ({"body": RECEIPT.model_dump() | {"outcome": "lovely"}}, "malformed"),
        ({"body": RECEIPT.model_dump() | {"task_digest": DIGEST + "\n"}}, "malformed"),
        ({"body": RECEIPT.model_dump() | {"run": "-x"}}, "malformed"),
        ({"other": 1}, "malformed"),
    ],
    ids=str,
)
def test_envelope_refuses_with_the_reason(changes, code):
    with pytest.raises(WireError) as caught:
        Envelope.from_bytes(raw(**changes), fleet="fleet")
    assert caught.value.code == code
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("value", [None, 1, "text", [], [1, 2], b"bytes"])
def test_envelope_is_a_map(value):
    with pytest.raises(WireError, match="a message is a map"):
        Envelope.from_bytes(msgpack.packb(value), fleet="fleet")


def test_unknown_version_is_told_even_when_all_else_is_new_too():
    with pytest.raises(WireError) as caught:
        Envelope.from_bytes(msgpack.packb({"v": 9, "novel": 1}), fleet="fleet")
    assert caught.value.code == "unknown-version"


def test_envelope_refuses_more_bytes_than_asked_for():
    data = GOOD.to_bytes()
    with pytest.raises(WireError) as caught:
        Envelope.from_bytes(data, fleet="fleet", max_bytes=len(data) - 1)
    assert caught.value.code == "oversize"
