"""Every topic, built and parsed in one place; access rules are rendered from here too."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from functools import cached_property
from sys import intern

from schemas.errors import UsageError, WireError
from schemas.limits import ID_PATTERN

PROTOCOL = 1
DEFAULT_FLEET = "fleet"
"""Fleet id of every process that is not told another."""

KINDS = (
    "coordinator-state", "agent-state", "request", "contribution", "receipt", "blob", "model-current",
    "model-candidate", "model-version", "evaluation", "forecast", "revoked",
)  # fmt: skip
"""Kinds of topics."""

AGENT_WRITES = frozenset({"agent-state", "contribution", "evaluation", "forecast"})
"""Kinds of topics that agents write, each its own; all others are the coordinator's."""

PASSING = frozenset({"contribution", "evaluation"})
"""Kinds of topics on which nothing is retained, and of which the coordinator clears what is."""

SHARDS = 8
"""Parts of a fleet, by a hash of the agent's id, whose answers several processes of a coordinator can share."""

_FIXED = {("coordinator", "state"): "coordinator-state", ("authority", "revoked"): "revoked"}
_SHARDS = frozenset(map(str, range(SHARDS)))
_ID = re.compile(ID_PATTERN)
_DIGEST = re.compile(r"[0-9a-f]{64}")


def check_id(what: str, text: str) -> str:
    """Return `text` if it can be an id; raises UsageError (for our own users) otherwise."""
    if _ID.fullmatch(text) is None:
        raise UsageError(
            f"{what} {text!r} is not a valid id: use 1 to 64 letters, digits, '.', '_' or '-', "
            "starting with a letter or digit"
        )
    return text


def shard_of(agent: str) -> int:
    """Return to which shard an agent belongs: the CRC-32 of its id (as in zlib), modulo `SHARDS`."""
    return zlib.crc32(agent.encode()) % SHARDS


@dataclass(frozen=True)
class Address:
    """A parsed topic.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    agent, run, name, digest : str
        Parts of the topic; empty where the kind has none.
    number : int
        Blob index, model version or shard; 0 where the kind has none.
    """

    kind: str
    agent: str = ""
    run: str = ""
    name: str = ""
    digest: str = ""
    number: int = 0

    @property
    def writer(self) -> str:
        """Id of the agent that alone may write here; empty: the coordinator may."""
        return self.agent if self.kind in AGENT_WRITES else ""


@dataclass(frozen=True)
class Topics:
    """The topics of one fleet.

    Parameters
    ----------
    fleet : str
        Fleet id; all its topics start with ``gf/1/{fleet}/``.
    """

    fleet: str

    def __post_init__(self) -> None:
        check_id("fleet", self.fleet)

    @cached_property
    def prefix(self) -> str:
        """The common start of all topics, with its slash."""
        return f"gf/{PROTOCOL}/{self.fleet}/"

    def coordinator_state(self) -> str:
        """Retained by the coordinator; its last will."""
        return f"{self.prefix}coordinator/state"

    def agent_state(self, agent: str) -> str:
        """Retained by the agent; its birth certificate and last will."""
        return f"{self.prefix}agent/{agent}/state"

    def request(self, run: str) -> str:
        """Retained by the coordinator: the open round of `run`."""
        return f"{self.prefix}run/{run}/request"

    def contribution(self, agent: str) -> str:
        """Written by the agent: its answer, a part of it, or a refusal; the message names the run."""
        # One topic for all runs: with one for each, an agent could have a broker retain as many as it can name.
        return self.contributions(shard_of(agent), agent)

    def contributions(self, shard: int | str = "+", agent: str = "+") -> str:
        """Filter over the contributions of a shard, or of all."""
        return f"{self.prefix}agent/{agent}/contribution/{shard}"

    def receipt(self, agent: str) -> str:
        """Written by the coordinator: what became of a contribution."""
        return f"{self.prefix}agent/{agent}/receipt"

    def blob(self, digest: str, index: int) -> str:
        """Retained by the coordinator: one part of a large request or model."""
        return f"{self.prefix}blob/{digest}/{index}"

    def blobs(self, digest: str) -> str:
        """Filter over all parts of one large request or model."""
        return f"{self.prefix}blob/{digest}/+"

    def model_current(self, name: str) -> str:
        """Retained by the coordinator: which version is current."""
        return f"{self.prefix}model/{name}/current"

    def model_candidate(self, name: str) -> str:
        """Retained by the coordinator: which version is tried by a part of the fleet; empty: none."""
        return f"{self.prefix}model/{name}/candidate"

    def model_version(self, name: str, version: int) -> str:
        """Retained by the coordinator: the model record."""
        return f"{self.prefix}model/{name}/v/{version}"

    def model_versions(self, name: str) -> str:
        """Filter over all versions of a model."""
        return f"{self.prefix}model/{name}/v/+"

    def evaluation(self, agent: str) -> str:
        """Written by the agent: local test scores of a model version."""
        return f"{self.prefix}agent/{agent}/evaluation"

    def forecast(self, agent: str) -> str:
        """Written by the agent: live forecasts with their explanation."""
        return f"{self.prefix}agent/{agent}/forecast"

    def revoked(self) -> str:
        """Retained by the coordinator: the newest revocation list of the fleet's CA, PEM."""
        return f"{self.prefix}authority/revoked"

    def parse(self, topic: str) -> Address:
        """Parse a topic; raises WireError (``foreign-fleet`` or ``unknown-topic``) when it is not one of ours."""
        # Ids that are kept, by vehicle and round, are kept once.
        if not topic.startswith(self.prefix):
            raise WireError("foreign-fleet", "the topic is outside this fleet")
        match topic[len(self.prefix) :].split("/"):
            case [one, two] if (kind := _FIXED.get((one, two))) is not None:
                return Address(kind)
            case ["agent", agent, "state"] if _is_id(agent):
                return Address("agent-state", agent=intern(agent))
            case ["run", run, "request"] if _is_id(run):
                return Address("request", run=run)
            case ["agent", agent, "contribution", shard] if _is_id(agent) and shard in _SHARDS:
                return Address("contribution", agent=intern(agent), number=int(shard))
            case ["agent", agent, ("receipt" | "evaluation" | "forecast") as kind] if _is_id(agent):
                return Address(kind, agent=intern(agent))
            case ["blob", digest, index] if _DIGEST.fullmatch(digest) and _is_number(index):
                return Address("blob", digest=digest, number=int(index))
            case ["model", name, ("current" | "candidate") as alias] if _is_id(name):
                return Address(f"model-{alias}", name=name)
            case ["model", name, "v", version] if _is_id(name) and _is_number(version):
                return Address("model-version", name=name, number=int(version))
        raise WireError("unknown-topic", "no such topic in this protocol")


def matches(pattern: str, topic: str) -> bool:
    """Whether an MQTT topic filter with ``+`` and ``#`` matches `topic`."""
    wanted, levels = pattern.split("/"), topic.split("/")
    for index, part in enumerate(wanted):
        if part == "#":
            return True
        if index >= len(levels) or part not in ("+", levels[index]):
            return False
    return len(wanted) == len(levels)


def _is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def _is_number(text: str) -> bool:
    # One spelling for each number: "07" would be a second topic for the same thing.
    return text.isascii() and text.isdigit() and len(text) <= 9 and (text == "0" or text[0] != "0")
