"""The kinds of files that become tables, each as a text that is judged like any other."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from edge_agent.imports.opened import ARROW, BEGIN, CUT, PARQUET, Text, opened
from edge_agent.imports.plan import Plan
from schemas.errors import FREE, DataError, StorageError, os_faults_as

_JSON: Final = re.compile(r'\ufeff?\s*(\{\s*["}]|\[\s*[\[{])')  # an object, or a list of objects or lists
_JSON_NAME: Final = re.compile(r"\.(json|jsonl|ndjson)(\.gz|\.zip)?$", re.IGNORECASE)
_LARGEST_ARRAY: Final = 1 << 26
_MOST_FIELDS: Final = 2_000


def as_text(source: Path, scratch: Path, plan: Plan | None) -> Text:
    """Return a file's text; JSON, Parquet and Arrow become a CSV text.

    Raises
    ------
    DataError
        It is of a kind that is read elsewhere, or damaged.
    """
    if not source.exists():
        what = "there is no such file"
        raise DataError(what, "Check its name and its folder", str(source), what)
    with os_faults_as(DataError, f"{source}: cannot be read", ". Check its name, its folder and its rights"):
        begin = b"" if source.is_dir() else source.open("rb").read(8)
    if begin.startswith((PARQUET, ARROW)):
        return _of_arrow(source, scratch, is_parquet=begin.startswith(PARQUET))
    text = opened(source, scratch, "" if plan is None else plan.csv.encoding)
    if _JSON.match(text.begin[:4096].decode("utf-8", "replace")) or _JSON_NAME.search(source.name):
        return _of_json(text, scratch)
    return text


def _of_arrow(source: Path, scratch: Path, *, is_parquet: bool) -> Text:
    """Write a table of Parquet or Arrow as CSV; what pandas numbers the rows with is left out."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import csv as texts  # noqa: PLC0415
        from pyarrow import ipc, parquet  # noqa: PLC0415
    except ImportError as fault:
        mend = "Install it with: pip install 'glassfleet[parquet]'"
        raise DataError("reading Parquet and Arrow needs pyarrow", mend, str(source)) from fault
    copy = scratch / "table"
    text = Text(copy, str(source), notes=["Parquet" if is_parquet else "Arrow"])
    try:
        file = parquet.ParquetFile(source) if is_parquet else ipc.open_file(source)
        schema = file.schema_arrow if is_parquet else file.schema
        kept = without_index(schema)
        nested = [name for name in kept if pa.types.is_nested(schema.field(name).type)]
        if nested:
            raise DataError(
                f"the column {nested[0]!r} holds lists or objects", "Write its values as columns", str(source)
            )
        batches = file.iter_batches(columns=kept) if is_parquet else map(file.get_batch, range(file.num_record_batches))
        first = pa.Table.from_batches([], schema=pa.schema([schema.field(name) for name in kept]))
        with texts.CSVWriter(copy, _plain(first).schema) as out:
            for batch in batches:
                out.write_table(_plain(pa.Table.from_batches([batch]).select(kept)))
    except (pa.ArrowException, OSError, KeyError) as fault:
        reason = str(fault).partition("\n")[0][:200]
        if "No space left" in reason:
            raise StorageError(f"No space left on device. {FREE}") from fault
        raise DataError(
            f"not a readable table of Parquet or Arrow ({reason})", "Write or copy it again", str(source)
        ) from fault
    text.begin = copy.open("rb").read(BEGIN)
    return text


def without_index(schema: Any) -> list[str]:
    """Return the columns but for what pandas numbers the rows with: it says nothing of a drive."""
    index = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    return [name for name in schema.names if name not in index and not re.fullmatch(r"__index_level_\d+__", name)]


def _plain(table: Any) -> Any:
    """Return a table of Arrow whose words are no codes, and whose times of UTC say so."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    fields = []
    for field in table.schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_timestamp(kind) and kind.tz:
            kind = pa.timestamp(kind.unit, "UTC")
        if pa.types.is_decimal(kind) or pa.types.is_duration(kind):
            kind = pa.float64() if pa.types.is_decimal(kind) else pa.int64()
        fields.append(pa.field(field.name, kind))
    return table.cast(pa.schema(fields))


def _of_json(text: Text, scratch: Path) -> Text:
    """Write JSON objects as CSV: their fields are the columns, those of inner objects with a point between."""
    fields: list[str] = []
    for document in _objects(text):
        if len({*fields, *document}) > _MOST_FIELDS:
            raise DataError(f"its objects have more than {_MOST_FIELDS:,} fields", "Is it a table?", text.source)
        if not document.keys() <= set(fields):
            fields = _merged(fields, list(document))
    if not fields:
        raise DataError("it holds no JSON object with a field", "Write one object a line", text.source)
    copy = scratch / "json"
    with copy.open("w", encoding="utf-8", errors="backslashreplace", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(fields)
        text.left_out.clear()
        for document in _objects(text):
            writer.writerow([document.get(name, "") for name in fields])
    text.notes.append("JSON, one object a row")
    text.path, text.is_torn, text.begin = copy, False, copy.open("rb").read(BEGIN)
    return text


def _merged(fields: list[str], others: list[str]) -> list[str]:
    """Return fields with others among them, each behind the one that it follows: the last one of objects stays last."""
    merged, at = list(fields), 0
    for name in others:
        if name in merged:
            at = merged.index(name) + 1
        else:
            merged.insert(at, name)
            at += 1
    return merged


def _objects(text: Text) -> Iterator[dict[str, str]]:
    """Yield each object as the texts of its cells."""
    text.left_out.pop(CUT, None)
    with text.path.open(encoding="utf-8-sig") as lines:
        if text.begin.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            if text.path.stat().st_size > _LARGEST_ARRAY:
                raise DataError(
                    "a large JSON array", "Write one object a line: jq -c '.[]' FILE > FILE.jsonl", text.source
                )
            documents = _decoded(lines.read(), 1, text)
            for number, document in enumerate(documents if isinstance(documents, list) else [documents], 1):
                yield _flat(document, number, text)
            return
        last = None
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            if last is not None:
                yield _flat(_decoded(last[1], last[0], text), last[0], text)
            last = number, line
        if last is None:
            return
        try:
            document = json.loads(last[1])
        except (ValueError, RecursionError):
            if not text.is_torn or last[0] == 1:
                document = _decoded(last[1], last[0], text)
            else:
                text.left_out[CUT] = 1
                return
        yield _flat(document, last[0], text)


def _decoded(line: str, number: int, text: Text) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as fault:
        mend = "Write one JSON object a line (jq -c . FILE), and nothing else"
        number += getattr(fault, "lineno", 1) - 1
        raise DataError(f"line {number} is no JSON ({getattr(fault, 'msg', fault)})", mend, text.source) from fault


def _flat(document: Any, number: int, text: Text) -> dict[str, str]:
    if not isinstance(document, dict):
        raise DataError(f"object {number} is {json.dumps(document)[:40]}, no JSON object", "Write objects", text.source)
    cells: dict[str, str] = {}

    def put(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                put(f"{name}.{key}" if name else str(key), inner)
        elif isinstance(value, list):
            what = f"object {number}: the field {name!r} is a list"
            raise DataError(what, "Write its values as fields of their own", text.source)
        elif name:
            cells[name] = "" if value is None else json.dumps(value) if isinstance(value, bool) else str(value)

    put("", document)
    return cells
