"""MQTT's packets: what is written is read back, in whatever pieces it arrives; what is no MQTT is said to be none."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import packets
from broker.port import Message

MESSAGES = st.builds(
    Message, st.text(min_size=1, max_size=20).filter(str.isprintable), st.binary(max_size=300), st.booleans()
)


@given(st.lists(MESSAGES, max_size=5), st.lists(st.integers(0, 2000)), st.booleans())
def test_messages_are_read_as_they_were_written_in_whatever_pieces_they_arrive(messages, cuts, is_five):
    written = [
        packets.publish(each.topic, each.payload, number, retain=each.retained, is_five=is_five)
        for number, each in enumerate(messages, start=1)
    ]
    data = b"".join(written)
    reader, read = packets.Reader(), []
    for start, end in pairwise(sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})):
        read += [packets.read_message(head, body, is_five=is_five) for head, body in reader.feed(data[start:end])]
    assert read == [(each, number.to_bytes(2, "big")) for number, each in enumerate(messages, start=1)]


@pytest.mark.parametrize("length", [0, 127, 128, 16_383, 16_384, 2_097_151, 268_435_455])
def test_lengths_take_as_many_bytes_as_the_standard_says(length):
    data = packets.varint(length)
    assert packets.read_varint(data, 0) == (length, len(data))
    assert packets.read_varint(data[:-1], 0) is None


def test_message_without_acknowledgement_has_no_number_and_properties_are_left_out():
    assert packets.read_message(0x30, b"\0\1th!") == (Message("t", b"h!"), b"")
    assert packets.read_message(0x31, b"\0\1t\x02\x01\x01h!", is_five=True) == (Message("t", b"h!", retained=True), b"")
    topic = packets.read_message(0x30, b"\0\1\xffh!")[0].topic
    assert topic == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("body", "reason", "told"),
    [
        (b"\0\0", 0, {}),
        (b"\1\0\0", 0, {}),
        (b"\0\5", 0x87, {}),
        (b"\0\x86\0", 0x86, {}),
        # Between the numbers a text and a pair of them; the last property is cut off.
        (b"\0\0\x1e\x21\0\x0a\x1f\0\2no\x26\0\1a\0\1b\x27\0\0\x10\0\x13\0\x1e\x1f\0\xff", 0,
         {packets.RECEIVE_MAXIMUM: 10, packets.MAXIMUM_PACKET: 4096, packets.KEEPALIVE: 30}),
    ],
)  # fmt: skip
def test_greetings_of_both_versions_are_read(body, reason, told):
    assert packets.read_greeting(body) == (reason, told)


def test_complaints_are_told_in_the_standards_words():
    assert packets.read_receipt(b"\0\7") == packets.read_receipt(b"\0\7\x10\0") == (7, "")
    assert packets.read_receipt(b"\0\7\x87\0") == (7, "Not authorized")
    assert packets.read_grants(b"\0\3\1\x80", is_five=False) == (3, ["Unspecified error"])
    assert packets.read_grants(b"\0\3\4\x1f\0\1x\1\xa2\xfe", is_five=True) == (
        3, ["Wildcard subscription not supported", "reason 254"],
    )  # fmt: skip


@pytest.mark.parametrize("data", [b"\x20\xff\xff\xff\xff\x01", b"\x20\x01\x00"])
def test_what_is_no_mqtt_is_said_to_be_none(data):
    with pytest.raises(packets.MalformedError):
        _ = [packets.read_greeting(body) for _, body in packets.Reader().feed(data)]


@given(st.binary(max_size=60), st.booleans())
def test_no_bytes_lead_to_another_fault(data, is_five):
    try:
        for head, body in packets.Reader().feed(data):
            packets.read_message(head, body, is_five=is_five)
            packets.read_receipt(body)
            packets.read_grants(body, is_five=is_five)
            packets.read_greeting(body)
    except packets.MalformedError:
        pass
