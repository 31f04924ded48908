"""The page of all topics and messages, from ``docs/reference/asyncapi.yaml``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from schemas.text import described_attributes


def page(path: Path) -> str:
    """Return the reference of messages as Markdown."""
    described = yaml.safe_load(path.read_text(encoding="utf-8"))
    schemas = described["components"]["schemas"]
    lines = [
        "# Topics and messages",
        "",
        "Made from [asyncapi.yaml](asyncapi.yaml), which a test keeps equal to the code.",
        "[The wire protocol](protocol.md) says how to read and write them.",
        "",
        described["info"]["description"],
        "",
        "## Topics",
        "",
        "| topic | writer | retained | what | messages |",
        "|---|---|---|---|---|",
    ]
    for channel in described["channels"].values():
        names = ", ".join(f"[{name}](#{name})" for name in channel["messages"])
        retained = "yes" if channel["x-retained"] else "no"
        address = channel["address"].replace("/", "/<wbr>")
        lines.append(f"| <code>{address}</code> | {channel['x-writer']} | {retained} | {channel['title']} | {names} |")
    for name, schema in _shown(described["components"]["messages"], schemas).items():
        lines += ["", f"## {name} {{ #{name} }}", "", *_table(schema, schemas)]
    lines += ["", "## Limits", "", "| limit | value |", "|---|---:|"]
    lines += [f"| `{name}` | {value} |" for name, value in described["x-limits"].items()]
    return "\n".join(lines) + "\n"


def _shown(messages: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    shown = {"envelope": schemas["envelope"]} if "envelope" in schemas else {}
    for name, message in messages.items():
        reference = message.get("payload", {}).get("$ref", "")
        shown[name] = schemas.get(reference.rpartition("/")[2], message)
    return shown


def _table(schema: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    schema = _whole(schema, schemas)
    text = schema.get("description", "")
    summary = " ".join(text.partition("Attributes\n----------\n")[0].replace("``", "`").split())
    descriptions = described_attributes(text)
    lines = [summary, ""] if summary else []
    fields = schema.get("properties", {})
    if not fields:
        return [*lines, f"Content: `{schema.get('contentType', schema.get('type', 'any'))}`."]
    required = set(schema.get("required", ()))
    lines += ["| field | type | must be there | what |", "|---|---|---|---|"]
    for name, entry in fields.items():
        what = " ".join(str(entry.get("description", descriptions.get(name, ""))).split()).replace("|", "\\|")
        lines.append(f"| `{name}` | {_type(entry)} | {'yes' if name in required else ''} | {what} |")
    return lines


def _whole(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Follow references, and join what `allOf` adds up."""
    if "$ref" in schema:
        return _whole(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "allOf" not in schema:
        return schema
    joined: dict[str, Any] = {"properties": {}, "required": []}
    for part in [*schema["allOf"], {key: value for key, value in schema.items() if key != "allOf"}]:
        whole = _whole(part, schemas)
        joined["properties"] |= whole.get("properties", {})
        joined["required"] += whole.get("required", [])
        joined |= {key: value for key, value in whole.items() if key not in {"properties", "required"}}
    return joined


def _type(entry: dict[str, Any]) -> str:
    """Return a field's type in a few words."""
    if "$ref" in entry:
        return f"`{entry['$ref'].rpartition('/')[2]}`"
    if "const" in entry:
        return f"`{entry['const']!r}`".replace("'", '"')
    if "enum" in entry:
        return ", ".join(f"`{value}`" for value in entry["enum"])
    for key in ("anyOf", "oneOf"):
        if key in entry:
            return " or ".join(dict.fromkeys(_type(one) for one in entry[key]))
    kind = entry.get("type", "any")
    if kind == "array":
        return f"list of {_type(entry['items'])}" if isinstance(entry.get("items"), dict) else "list"
    bounds = [f"{words} {entry[key]}" for key, words in _BOUNDS.items() if key in entry]
    return " ".join([str(kind if not isinstance(kind, list) else " or ".join(kind)), *bounds])


_BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "maxLength": "of at most"}
