"""What travels: envelopes, topics, documents and arrays come out as they went in, or are refused with the reason."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from schemas import codec, limits
from schemas.envelope import Envelope
from schemas.errors import UsageError, WireError
from schemas.limits import ID_PATTERN
from schemas.messages import Receipt
from schemas.topics import Address, Topics, check_id, matches, shard_of

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


def test_envelope_needs_only_version_kind_fleet_and_body():
    data = raw(run=..., agent=..., scheme=..., round=..., attempt=..., time=..., signature=...)
    assert Envelope.from_bytes(data, fleet="fleet") == Envelope(fleet="fleet", body=RECEIPT)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"v": 0}, "unknown-version"),
        ({"v": "1"}, "malformed"),
        ({"v": ...}, "malformed"),
        ({"kind": ...}, "unknown-kind"),
        ({"kind": 3}, "malformed"),
        ({"kind": "k" * 41}, "malformed"),
        ({"fleet": ...}, "foreign-fleet"),
        ({"fleet": 1}, "malformed"),
        ({"agent": "+"}, "malformed"),
        ({"agent": "x" * 65}, "malformed"),
        ({"agent": b"v"}, "malformed"),
        ({"scheme": "s" * 65}, "malformed"),
        ({"round": 1.0}, "malformed"),
        ({"attempt": True}, "malformed"),
        ({"time": True}, "malformed"),
        ({"time": float("nan")}, "malformed"),
        ({"body": {}}, "malformed"),
        ({"body": RECEIPT.model_dump() | {"more": 1}}, "malformed"),
        ({"body": RECEIPT.model_dump() | {"outcome": "lovely"}}, "malformed"),
        ({"body": RECEIPT.model_dump() | {"run": "-x"}}, "malformed"),
    ],
    ids=str,
)
def test_envelope_refuses_with_the_reason(changes, code):
    """What else is refused: tests/fuzz/corpus/envelope.json."""
    with pytest.raises(WireError, match=f"^{code}: ") as caught:
        Envelope.from_bytes(raw(**changes), fleet="fleet")
    assert len(str(caught.value)) < 600


def test_unknown_version_is_told_even_when_all_else_is_new_too():
    with pytest.raises(WireError, match=r"^unknown-version: "):
        Envelope.from_bytes(msgpack.packb({"v": 9, "novel": 1}), fleet="fleet")


def test_envelope_refuses_more_bytes_than_asked_for():
    data = GOOD.to_bytes()
    with pytest.raises(WireError, match=r"^oversize: "):
        Envelope.from_bytes(data, fleet="fleet", max_bytes=len(data) - 1)


TOPICS = Topics("fleet-1")

IDS = st.from_regex(f"\\A{ID_PATTERN}\\Z")


@given(IDS, IDS)
def test_topics_parse_what_they_build(agent, run):
    for topic, address in [
        (TOPICS.coordinator_state(), Address("coordinator-state")),
        (TOPICS.agent_state(agent), Address("agent-state", agent=agent)),
        (TOPICS.request(run), Address("request", run=run)),
        (TOPICS.contribution(agent), Address("contribution", agent=agent, number=shard_of(agent))),
        (TOPICS.receipt(agent), Address("receipt", agent=agent)),
        (TOPICS.blob(DIGEST, 12), Address("blob", digest=DIGEST, number=12)),
        (TOPICS.model_current(run), Address("model-current", name=run)),
        (TOPICS.model_version(run, 7), Address("model-version", name=run, number=7)),
        (TOPICS.evaluation(agent), Address("evaluation", agent=agent)),
        (TOPICS.forecast(agent), Address("forecast", agent=agent)),
    ]:
        assert TOPICS.parse(topic) == address
        with pytest.raises(WireError, match=r"^foreign-fleet: "):
            Topics("other").parse(topic)


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "coordinator",
        "coordinator/state/",
        "agent//state",
        "agent/-x/state",
        "agent/a b/state",
        "agent/x/other",
        "agent/x\n/state",
        "agent/+/state",
        "run/x",
        "blob/short/0",
        f"blob/{DIGEST}",
        f"blob/{DIGEST}/-1",
        f"blob/{DIGEST}/01",
        f"blob/{DIGEST}/1234567890",
        f"blob/{DIGEST}/\u0661",
        f"blob/{DIGEST.upper()}/0",
        "model/m/v/x",
        "model/m",
    ],
)
def test_topics_refuse_what_is_not_in_the_protocol(rest):
    with pytest.raises(WireError, match=r"^unknown-topic: "):
        TOPICS.parse(TOPICS.prefix + rest)


@pytest.mark.parametrize("text", ["", "-a", ".a", "a/b", "a b", "a\n", "\u00e4", "x" * 65, "+", "#"])
def test_id_that_cannot_be_one_is_misuse(text):
    with pytest.raises(UsageError, match="not a valid id"):
        check_id("agent", text)
    with pytest.raises(UsageError):
        Topics(text)


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/c", False),
        ("a/+", "a/b", True),
        ("a/+", "a", False),
        ("a/+", "a/b/c", False),
        ("a/#", "a/b/c", True),
        ("a/#", "a", True),
        ("#", "a/b", True),
        ("+/b", "a/b", True),
        ("a/+/c", "a//c", True),
        ("a", "a/b", False),
    ],
)
def test_filter_matches_as_mqtt_says(pattern, topic, expected):
    assert matches(pattern, topic) is expected


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


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=5), st.data())
def test_a_part_of_a_message_is_found_and_encoded_again_as_it_is(value, data):
    key = data.draw(st.sampled_from(sorted(value)))
    part = codec.encoded_part(codec.encode({"after": 1, "body": value, "c": [value]}), "body", key)
    assert part == codec.encode(value[key])
    others = {name: item for name, item in value.items() if name != key}
    before, behind = codec.encode_around(others, key)
    assert before + part + behind == codec.encode(value)


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
        {"__nd__": "<U1"},
        {"__nd__": None},
        {"__nd__": ["<i4"]},
        {"__nd__": {"__nd__": "<i4", "shape": [], "data": b""}},
        {"shape": [2]},
        {"shape": [], "data": bytes(8)},
        {"shape": [True]},
        {"shape": [1.0]},
        {"shape": ["1"]},
        {"shape": [[1]]},
        {"shape": 1},
        {"shape": None},
        {"shape": [2**63]},
        {"shape": [0, 2**62]},
        {"data": "text"},
        {"data": None},
        {"data": b""},
    ],
    ids=str,
)
def test_codec_refuses_impossible_arrays(changes):
    """What else is refused: tests/fuzz/corpus/codec.json."""
    with pytest.raises(WireError, match=r"^malformed: "):
        codec.decode(array_map(**changes))


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


def test_decoded_arrays_cannot_be_written_to():
    array = codec.decode(codec.encode(np.arange(4)))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_arrays_travel_little_endian_whatever_their_order_in_memory():
    plain = np.arange(6, dtype="<i4").reshape(2, 3)
    for other in (plain.astype(">i4"), np.asfortranarray(plain), plain[:, :]):
        assert codec.encode(other) == codec.encode(plain)
