"""Topics: built and parsed in one place, each in one spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UsageError, WireError
from schemas.limits import ID_PATTERN
from schemas.topics import Address, Topics, check_id, matches

TOPICS = Topics("fleet-1")
DIGEST = "0123456789abcdef" * 4
IDS = st.from_regex(f"\\A{ID_PATTERN}\\Z")


@given(IDS, IDS)
def test_topics_parse_what_they_build(agent, run):
    for topic, address in [
        (TOPICS.coordinator_state(), Address("coordinator-state")),
        (TOPICS.agent_state(agent), Address("agent-state", agent=agent)),
        (TOPICS.request(run), Address("request", run=run)),
        (TOPICS.contribution(agent, run), Address("contribution", agent=agent, run=run)),
        (TOPICS.receipt(agent), Address("receipt", agent=agent)),
        (TOPICS.blob(DIGEST, 12), Address("blob", digest=DIGEST, number=12)),
        (TOPICS.model_current(run), Address("model-current", name=run)),
        (TOPICS.model_version(run, 7), Address("model-version", name=run, number=7)),
        (TOPICS.evaluation(agent), Address("evaluation", agent=agent)),
        (TOPICS.forecast(agent), Address("forecast", agent=agent)),
    ]:
        assert TOPICS.parse(topic) == address
        with pytest.raises(WireError) as caught:
            Topics("other").parse(topic)
        assert caught.value.code == "foreign-fleet"


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
    with pytest.raises(WireError) as caught:
        TOPICS.parse(TOPICS.prefix + rest)
    assert caught.value.code == "unknown-topic"


@pytest.mark.parametrize("text", ["", "-a", ".a", "a/b", "a b", "a\n", "\u00e4", "x" * 65, "+", "#"])
def test_id_that_cannot_be_one_is_misuse(text):
    with pytest.raises(UsageError, match="not a valid id"):
        check_id("agent", text)
    with pytest.raises(UsageError):
        Topics(text)


def test_filters_match_the_topics_that_they_are_for():
    assert matches(TOPICS.blobs(DIGEST), TOPICS.blob(DIGEST, 3))
    assert not matches(TOPICS.blobs(DIGEST), TOPICS.blob("0" * 64, 3))
    assert matches(TOPICS.model_versions("m"), TOPICS.model_version("m", 3))
    assert not matches(TOPICS.model_versions("m"), TOPICS.model_current("m"))
    assert matches(TOPICS.contribution("+", "+"), TOPICS.contribution("a", "r"))


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
