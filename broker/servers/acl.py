"""Access rules, rendered from the topics: who may read and write what, each topic by name.

Never a wildcard over an agent's whole branch: ``agent/{id}/#`` would let an agent forge receipts. On the loopback
broker all processes share one user that may use every fleet's branch. A broker for a real fleet takes the user's name
from the certificate (`certificate_acl`). What an agent may do is one set of patterns with its name in them, so a
vehicle that enrols needs no change at the broker. Coordinators and operators are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from schemas.topics import Topics, check_id

Access = Literal["read", "write", "readwrite"]


@dataclass(frozen=True)
class Rule:
    """Permission to publish on (write) or to subscribe to (read) the topics that match a filter, or none at all."""

    access: Access
    pattern: str


def agent_rules(topics: Topics, agent: str) -> list[Rule]:
    """Give what one agent needs, and nothing else."""
    return [
        Rule("read", topics.coordinator_state()),
        Rule("read", topics.revoked()),
        # It reads nothing that it writes: what it sends to itself and never reads, a broker would keep.
        Rule("write", topics.agent_state(agent)),
        Rule("read", topics.request("+")),
        Rule("write", topics.contribution(agent)),
        Rule("read", topics.receipt(agent)),
        Rule("read", topics.blobs("+")),
        Rule("read", topics.model_current("+")),
        Rule("read", topics.model_candidate("+")),
        Rule("read", topics.model_versions("+")),
        Rule("write", topics.evaluation(agent)),
        Rule("write", topics.forecast(agent)),
    ]


def coordinator_rules(topics: Topics) -> list[Rule]:
    """Give what the coordinator needs."""
    return [
        # It also reads its own state and models: a second coordinator, or a forgotten version, must be noticed.
        Rule("readwrite", topics.coordinator_state()),
        Rule("readwrite", topics.revoked()),
        Rule("read", topics.agent_state("+")),
        Rule("readwrite", topics.request("+")),
        # What a vehicle has retained there is cleared.
        Rule("readwrite", topics.contribution("+")),
        Rule("write", topics.receipt("+")),
        Rule("readwrite", topics.blobs("+")),
        Rule("readwrite", topics.model_current("+")),
        Rule("readwrite", topics.model_candidate("+")),
        Rule("readwrite", topics.model_versions("+")),
        Rule("readwrite", topics.evaluation("+")),
        Rule("read", topics.forecast("+")),
    ]


def observer_rules(topics: Topics) -> list[Rule]:
    """Give what a display or an auditor needs: all of the fleet, nothing to write."""
    return [Rule("read", f"{topics.prefix}#")]


def mosquitto_acl(users: dict[str, list[Rule]]) -> str:
    """Render an ACL file for Mosquitto: a block for each user, nothing for anybody else.

    Raises
    ------
    UsageError
        A user name is not a valid id: anything else could break out of its line.
    """
    blocks = ["# Written by glassfleet from the topics of the protocol. Changes will be overwritten."]
    for user, rules in users.items():
        check_id("user", user)
        lines = [f"user {user}", *(f"topic {rule.access} {rule.pattern}" for rule in rules)]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


USER = "%u"
"""What Mosquitto replaces by the name of the user."""


def certificate_acl(topics: Topics, *, coordinators: Sequence[str], operators: Sequence[str] = ()) -> str:
    """Render the ACL file of a broker that takes the user's name from the certificate.

    Parameters
    ----------
    coordinators, operators : sequence of str
        Ids. The authority gives no agent an id that one of them has.

    Raises
    ------
    UsageError
        A name is not a valid id.
    """
    users = {name: coordinator_rules(topics) for name in coordinators}
    users |= {name: observer_rules(topics) for name in operators if name not in users}
    # Patterns hold for every user, coordinators too: each may also use the topics of an agent with its own name, which
    # nobody else has and whose messages would not bear an agent's signature.
    patterns = [f"pattern {rule.access} {rule.pattern}" for rule in agent_rules(topics, USER)]
    return mosquitto_acl(users) + "\n" + "\n".join(patterns) + "\n"


def loopback_acl(user: str) -> str:
    """Render the ACL file of a broker that only this machine can reach: one user, all fleets, nothing else."""
    return mosquitto_acl({user: [Rule("readwrite", "gf/1/#")]})
