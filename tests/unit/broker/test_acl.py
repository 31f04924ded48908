"""Access rules: every message that the protocol knows has its writer and its readers, and nobody else may write."""

from __future__ import annotations

import pytest

from broker.servers.acl import agent_rules, coordinator_rules, loopback_acl, mosquitto_acl, observer_rules
from broker.servers.passwords import mosquitto_hash, new_password
from schemas.errors import UsageError
from schemas.topics import Topics, matches

TOPICS = Topics("fleet")
DIGEST = "0" * 64
WRITERS = {
    TOPICS.coordinator_state(): {"coordinator"},
    TOPICS.agent_state("v1"): {"v1"},
    TOPICS.agent_state("v2"): {"v2"},
    TOPICS.request("r"): {"coordinator"},
    TOPICS.contribution("v1", "r"): {"v1"},
    TOPICS.contribution("v2", "r"): {"v2"},
    TOPICS.receipt("v1"): {"coordinator"},
    TOPICS.receipt("v2"): {"coordinator"},
    TOPICS.blob(DIGEST, 0): {"coordinator"},
    TOPICS.model_current("m"): {"coordinator"},
    TOPICS.model_version("m", 1): {"coordinator"},
    TOPICS.evaluation("v1"): {"v1"},
    TOPICS.forecast("v1"): {"v1"},
    Topics("other").request("r"): set(),
    TOPICS.prefix + "agent/v1/anything": set(),
}
READERS = {
    TOPICS.coordinator_state(): {"coordinator", "v1", "v2"},
    TOPICS.agent_state("v1"): {"coordinator", "v1"},
    TOPICS.request("r"): {"coordinator", "v1", "v2"},
    TOPICS.contribution("v1", "r"): {"coordinator"},
    TOPICS.receipt("v1"): {"v1"},
    TOPICS.blob(DIGEST, 0): {"coordinator", "v1", "v2"},
    TOPICS.model_current("m"): {"coordinator", "v1", "v2"},
    TOPICS.model_version("m", 1): {"coordinator", "v1", "v2"},
    TOPICS.evaluation("v1"): {"coordinator"},
    TOPICS.forecast("v1"): {"coordinator"},
}
USERS = {"coordinator": coordinator_rules(TOPICS), "v1": agent_rules(TOPICS, "v1"), "v2": agent_rules(TOPICS, "v2")}


def may(user: str, how: str, topic: str) -> bool:
    return any(rule.access in (how, "readwrite") and matches(rule.pattern, topic) for rule in USERS[user])


def test_topics_are_written_by_their_owner_alone_and_read_by_those_who_need_them():
    for how, expected in (("write", WRITERS), ("read", READERS)):
        assert {topic: {user for user in USERS if may(user, how, topic)} for topic in expected} == expected


def test_no_rule_of_an_agent_is_a_wildcard_over_a_branch():
    assert not any(rule.pattern.endswith("#") for rule in agent_rules(TOPICS, "v1"))


def test_observer_may_only_read():
    assert {rule.access for rule in observer_rules(TOPICS)} == {"read"}


def test_acl_file_has_a_block_for_each_user():
    text = mosquitto_acl({"v1": agent_rules(TOPICS, "v1")})
    assert "user v1\n" in text
    assert f"topic read {TOPICS.receipt('v1')}\n" in text
    assert "topic readwrite gf/1/#" in loopback_acl("fleet")


def test_user_name_that_would_break_out_of_its_line_is_misuse():
    with pytest.raises(UsageError):
        mosquitto_acl({"v1\ntopic readwrite #": []})


def test_password_hash_is_the_one_of_mosquitto():
    # That Mosquitto takes it is shown by every test that signs in; here, that it has the form of version 2.
    assert mosquitto_hash("secret", salt=bytes(range(12)), iterations=101).startswith("$7$101$AAECAwQFBgcICQoL$")


def test_passwords_differ_and_need_no_escaping():
    made = {new_password() for _ in range(50)}
    assert len(made) == 50
    assert all(len(one) == 32 and one.replace("-", "").replace("_", "").isalnum() for one in made)
