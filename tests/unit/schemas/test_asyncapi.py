"""docs/reference/asyncapi.yaml says what the code does; ``python tests/unit/schemas/test_asyncapi.py`` renews it."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path
from typing import Any

import yaml

from broker.servers.mosquitto import AclRule, agent_rules, coordinator_rules
from schemas import limits
from schemas.envelope import Envelope
from schemas.messages import BODIES
from schemas.record import ModelRecord
from schemas.topics import PASSING, Topics, matches, shard_of

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "asyncapi.yaml"
MARK = "\n  schemas:\n"
SAMPLE = {
    "fleet": "f",
    "agent": "a1",
    "run": "r1",
    "name": "m1",
    "digest": "0" * 64,
    "index": "0",
    "version": "1",
    "shard": str(shard_of("a1")),
}
TOPICS = Topics("f")


def page() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(PAGE.read_text(encoding="utf-8"))
    return loaded


def without_titles(schema: Any) -> Any:
    """Pydantic's titles repeat the names; and it takes no references to other files."""
    if isinstance(schema, dict):
        if "x-ref" in schema:
            return {"$ref": schema["x-ref"]}
        return {
            key: without_titles(value)
            for key, value in schema.items()
            if not (key == "title" and isinstance(value, str))
        }
    if isinstance(schema, list):
        return [without_titles(item) for item in schema]
    return schema


def expected_schemas() -> dict[str, Any]:
    """Schemas as the models have them."""
    envelope = {
        "description": "The map around every body; `body` is what the kind says.",
        "type": "object",
        "required": ["v", "kind", "fleet", "body"],
        "properties": {
            "v": {"const": 1},
            "kind": {"enum": sorted(BODIES)},
            "body": {"type": "object"},
            **{
                field.name: {
                    "type": {"str": "string", "int": "integer", "float": "number", "bytes": "string"}[str(field.type)]
                }
                for field in dataclasses.fields(Envelope)
                if field.name != "body"
            },
        },
        "additionalProperties": False,
    }
    schemas = {
        kind: body.model_json_schema(ref_template=f"#/components/schemas/{kind}/$defs/{{model}}")
        for kind, body in BODIES.items()
    }
    schemas["model-record"] = ModelRecord.model_json_schema(
        ref_template="#/components/schemas/model-record/$defs/{model}"
    )
    return {"envelope": envelope, **without_titles(schemas)}


def rendered() -> str:
    dumped = yaml.safe_dump(expected_schemas(), sort_keys=False, width=110, allow_unicode=True)
    return textwrap.indent(dumped, "    ")


def test_schemas_are_those_of_the_code():
    assert page()["components"]["schemas"] == expected_schemas(), f"renew them: python {Path(__file__)}"


def test_limits_are_those_of_the_code():
    ours = {name: value for name, value in vars(limits).items() if name.isupper() and isinstance(value, int)}
    assert page()["x-limits"] == ours


def channels() -> dict[str, Any]:
    channels: dict[str, Any] = page()["channels"]
    return channels


def test_channels_are_topics_of_the_code():
    for name, channel in channels().items():
        address = channel["address"]
        assert TOPICS.parse(address.format(**SAMPLE)).kind == name
        parameters = {part[1:-1] for part in address.split("/") if part.startswith("{")}
        assert set(channel["parameters"]) == parameters, name


def test_every_topic_of_the_code_is_a_channel():
    built = [
        TOPICS.coordinator_state(),
        TOPICS.agent_state("a1"),
        TOPICS.request("r1"),
        TOPICS.contribution("a1"),
        TOPICS.receipt("a1"),
        TOPICS.blob("0" * 64, 0),
        TOPICS.model_current("m1"),
        TOPICS.model_candidate("m1"),
        TOPICS.model_version("m1", 1),
        TOPICS.evaluation("a1"),
        TOPICS.forecast("a1"),
        TOPICS.revoked(),
    ]
    filters = {"blobs", "contributions", "model_versions", "parse", "prefix"}
    methods = {name for name in vars(Topics) if not name.startswith("_") and name != "fleet"} - filters
    assert len(built) == len(methods), "a topic was added: add it here and to asyncapi.yaml"
    assert {TOPICS.parse(topic).kind for topic in built} == set(channels())


def test_writer_of_a_channel_is_the_one_that_the_access_rules_allow():
    def may_write(rules: list[AclRule], topic: str) -> bool:
        return any(rule.access != "read" and matches(rule.pattern, topic) for rule in rules)

    known = {"coordinator": coordinator_rules(TOPICS), "agent": agent_rules(TOPICS, "a1")}
    for name, channel in channels().items():
        topic = channel["address"].format(**SAMPLE)
        clears = {"coordinator"} if name in PASSING else set()
        assert {who for who, rules in known.items() if may_write(rules, topic)} == {channel["x-writer"], *clears}, name


def test_every_kind_of_message_travels_on_some_channel():
    carried = {message for channel in channels().values() for message in channel["messages"]}
    assert carried == {*BODIES, "model-record", "revocation-list", "blob"}
    assert set(page()["components"]["messages"]) == carried


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text.split(MARK)[0] + MARK + rendered(), encoding="utf-8")
