"""The envelope: what goes in comes out; whatever else arrives is a WireError with its reason."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import codec
from schemas.envelope import Envelope
from schemas.errors import WireError
from schemas.messages import BODIES, ContributionBody, Receipt

DIGEST = "0123456789abcdef" * 4
RECEIPT = Receipt(run="r1", task_digest=DIGEST, outcome="accepted")
GOOD = Envelope(fleet="fleet", body=RECEIPT, run="r1", agent="v-07", scheme="frt", round=3, attempt=2, time=1.5)


def taken(data: bytes) -> Envelope | None:
    """Give the envelope, None when it is refused; any exception but WireError passes."""
    try:
        return Envelope.from_bytes(data, fleet="fleet")
    except WireError:
        return None


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


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=70)
    | st.binary(max_size=70),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12) | st.just("__nd__"), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=500)
@given(st.sampled_from([*sorted(BODIES), "?"]), st.data())
def test_envelope_raises_only_wire_errors_on_any_body_of_any_kind(kind, data):
    fields = sorted(BODIES[kind].model_fields) if kind in BODIES else ["x"]
    body = data.draw(st.dictionaries(st.sampled_from([*fields, "extra"]), JUNK))
    head = data.draw(
        st.dictionaries(st.sampled_from(["run", "agent", "scheme", "round", "attempt", "time", "signature"]), JUNK)
    )
    try:
        message = msgpack.packb({"v": 1, "kind": kind, "fleet": "fleet", "body": body, **head})
    except UnicodeEncodeError:
        return
    envelope = taken(message)
    if envelope is not None:
        assert Envelope.from_bytes(envelope.to_bytes(), fleet="fleet").to_bytes() == envelope.to_bytes()


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_envelope_raises_only_wire_errors_on_arbitrary_bytes(data):
    with pytest.raises(WireError):
        Envelope.from_bytes(data, fleet="fleet")


@settings(max_examples=300)
@given(st.data())
def test_envelope_raises_only_wire_errors_on_damaged_messages(data):
    body = ContributionBody(task_digest=DIGEST, rows=1, data_digest=DIGEST, contribution={"a": [1, {"b": b"c"}]})
    good = bytearray(Envelope(fleet="fleet", body=body, run="r", agent="a").to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    envelope = taken(bytes(good))
    assert envelope is None or envelope.fleet == "fleet"
