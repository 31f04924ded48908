"""Access rules as text. Who may write and read what is asked of a real broker: test_secure_mosquitto.py."""

from __future__ import annotations

import pytest

from broker.servers.acl import agent_rules, loopback_acl, mosquitto_acl, observer_rules
from broker.servers.passwords import mosquitto_hash, new_password
from schemas.errors import UsageError
from schemas.topics import Topics

TOPICS = Topics("fleet")


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
