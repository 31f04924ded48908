"""What pages are made of: all topics and messages, from ``docs/reference/asyncapi.yaml``, and formulas as SVG."""

from __future__ import annotations

import re
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import Any

import yaml
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath

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


# --- formulas as inline SVG, drawn by matplotlib while the site is built: readers load no script and no font for them -
#
# Markdown's ``$...$`` becomes ``<span class="arithmatex">\(...\)</span>`` (pymdownx.arithmatex); that becomes a path.


_SIZE = 100
_MARKED = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_REPLACED = {r"\\big([\[\]])": r"\1", r"\\text\{": r"\\mathrm{", r"\\ ": r"\\;", r"\\le(?![a-z])": r"\\leq"}
"""What mathtext writes in another way: patterns."""


def replace(html: str) -> str:
    """Return a page with its formulas drawn; raises ValueError, naming the formula, for one that cannot be drawn."""
    return _MARKED.sub(lambda match: _element(unescape(match[3]), block=match[2] == "["), html)


def _element(formula: str, *, block: bool) -> str:
    # A displayed formula is several, side by side while there is room and one below the other on a phone.
    parts = re.split(r"\\qquad", formula) if block else [formula]
    drawn = "".join(_draw(part.strip().rstrip("\\").strip()) for part in parts if part.strip())
    return f'<div class="gf-formulas">{drawn}</div>' if block else drawn


@cache
def _draw(formula: str) -> str:
    text = formula.replace("\n", " ")
    for ours, theirs in _REPLACED.items():
        text = re.sub(ours, theirs, text)
    font = FontProperties(family="serif", math_fontfamily="stix", size=_SIZE)
    try:
        width, height, depth, _, _ = MathTextParser("path").parse(f"${text}$", dpi=72, prop=font)
        outline = TextPath((0, 0), f"${text}$", prop=font)
    except ValueError as fault:
        raise ValueError(f"the formula {formula!r} cannot be drawn: {fault}") from fault
    em = 1.1 / _SIZE
    return (
        f'<svg class="gf-formula" role="img" aria-label="{escape(formula)}" viewBox="0 {-height:.1f} {width:.1f} '
        f'{height + depth:.1f}" style="width:{width * em:.2f}em;height:{(height + depth) * em:.2f}em;'
        f'vertical-align:{-depth * em:.2f}em"><path d="{_path(outline)}"/></svg>'
    )


_COMMANDS = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CURVE4: "C"}


def _path(outline: Outline) -> str:
    """Return an outline in SVG's words; its y axis points down."""
    words = [
        "Z"
        if code == Outline.CLOSEPOLY
        else _COMMANDS[code] + " ".join(f"{x:.1f} {-y:.1f}" for x, y in points.reshape(-1, 2))
        for points, code in outline.iter_segments(curves=True, simplify=False)
    ]
    return "".join(words)
