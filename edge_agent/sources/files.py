"""Files of a table: CSV with the standard library's parser, plain or gzip-compressed, and Parquet."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any, Final

from numpy.typing import NDArray

from edge_agent.sources.cells import column_names, header
from edge_agent.sources.location import Location, Reader
from edge_agent.sources.window import ENDING as WINDOW
from schemas.errors import DataError

BLOCK: Final = 512
"""Rows that are read and turned into numbers at once."""

_KINDS: Final = (
    (b"SQLite format 3\0", "an SQLite database", "Name its rows: sqlite:///{path}?table=NAME, or ?query=SELECT ..."),
    (b"PAR1", "a Parquet file", "Let its name end in .parquet"),
    (b"\x1f\x8b", "a file compressed with gzip", "Let its name end in .csv.gz"),
    (b"PK\x03\x04", "a spreadsheet or a zip archive", "Save the table as CSV"),
)
"""How files that are taken for CSV by mistake begin, what they are, and the way out."""

_JSON: Final = re.compile(rb'(\xef\xbb\xbf)?\s*(\{\s*["}]|\[\s*[\[{])')
"""How JSON begins: an object, or a list of objects or lists."""


@contextmanager
def _csv_rows(place: Location) -> Iterator[tuple[tuple[str, ...], Iterator[list[list[str]]]]]:
    with opened(Path(place.text)) as text:
        reader = csv.reader(text)
        names = header(place.text, next(reader, []))
        yield names, in_blocks(reader)


def _csv_lines(place: Location) -> Iterator[tuple[int, list[str]]]:
    with opened(Path(place.text)) as text:
        reader, begins = csv.reader(text), 1
        for cells in reader:
            if cells:
                yield begins, cells
            # A cell in quotes may go over several lines.
            begins = reader.line_num + 1


@contextmanager
def opened(path: Path) -> Iterator[io.TextIOWrapper]:
    """Open a text file, plain or compressed; raises DataError that says what it is instead, also while it is read."""
    begin = b""
    try:
        with path.open("rb") as raw:
            packed = path.suffix.lower() == ".gz"
            file: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            begin = file.peek(1)
            if _JSON.match(begin):
                raise _json(path, begin)
            with io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
                yield text
    except FileNotFoundError as fault:
        raise DataError("there is no such file", "Check its name and its folder", str(path)) from fault
    except IsADirectoryError as fault:
        raise DataError("it is a directory", "Name one vehicle's file", str(path)) from fault
    except gzip.BadGzipFile as fault:
        mend = "Rename it to .csv if it is plain, or compress it with gzip"
        raise DataError("not a gzip file, in spite of its name", mend, str(path)) from fault
    except (EOFError, zlib.error) as fault:
        raise DataError(f"the gzip file is damaged or cut short ({fault})", "Copy it again", str(path)) from fault
    except UnicodeDecodeError as fault:
        raise _not_text(path, begin, fault.start) from fault
    except csv.Error as fault:
        mend = "Look for a quote that is not closed, and that it is text at all"
        raise DataError(f"not a CSV file ({fault})", mend, str(path)) from fault
    except OSError as fault:
        raise DataError(f"cannot be read ({fault.strerror})", where=str(path)) from fault


def _json(path: Path, begin: bytes) -> DataError:
    """Say that a file is JSON, and how its rows become CSV, or lines in a window."""
    what, mend = "JSON, not a CSV file", "Save the table as CSV"
    text = begin.removeprefix(codecs.BOM_UTF8).lstrip()
    first, end, _ = text.partition(b"\n")
    is_array, is_packed = text.startswith(b"["), path.suffix.lower() == ".gz"
    if is_array:
        what = "a JSON array, not a CSV file"
        if text[1:].lstrip().startswith(b"["):
            return DataError(what, mend, str(path))  # its rows name no fields
    lines = path.with_suffix("") if is_packed else path
    lines = lines.with_suffix(".lines")
    given, made = quote(str(path)), quote(str(lines))
    if is_array or (end and not first.rstrip().endswith(b"}")):
        how = "jq -c '.[]'" if is_array else "jq -c ."
        make = f"gzip -dc {given} | {how} > {made} && " if is_packed else f"{how} {given} > {made} && "
    elif is_packed:
        make = f"gzip -dc {given} > {made} && "
    elif path.suffix.lower() == ".csv":  # by which it would be taken for a table there, too
        make = f"cp {given} {made} && "
    else:
        make, made = "", given
    collect = f"glassfleet data collect --source {made} --store {quote(lines.stem + WINDOW)}"
    return DataError(what, f"{mend}, or keep its rows in a window: {make}{collect}", str(path))


def in_blocks(reader: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    """Yield rows in blocks; blank lines (an editor's last one, say) are skipped."""
    filled = (cells for cells in reader if cells)
    while block := list(islice(filled, BLOCK)):
        yield block


def _not_text(path: Path, begin: bytes, at: int) -> DataError:
    """Say what a file is instead, as far as its first bytes tell, and the way out."""
    for mark, what, mend in _KINDS:
        if begin.startswith(mark):
            return DataError(f"{what}, not a CSV file", mend.format(path=path), str(path))
    wide = begin[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    name = "UTF-16" if wide else "WINDOWS-1252"
    how = f", for example with: iconv -f {name} -t UTF-8 {quote(path.name)} > utf8.csv" if path.suffix != ".gz" else ""
    return DataError(f"not UTF-8 text (byte {at})", f"Save it as UTF-8 CSV{how}", str(path))


def _parquet_columns(place: Location) -> tuple[tuple[str, ...], list[NDArray[Any]]]:
    """Return names and columns of a Parquet file; points and spans of time become seconds, as from a database."""
    path = Path(place.text)
    if not path.exists():
        raise DataError("there is no such file", "Check its name and its folder", str(path))
    try:
        # Optional, and large: an agent that reads CSV must not pay for it.
        from pyarrow import ArrowException, parquet  # noqa: PLC0415

        from edge_agent.sources.arrow import column_of  # noqa: PLC0415
    except ImportError as fault:
        mend = "Install it with: pip install 'glassfleet[parquet]', or convert the file to CSV"
        raise DataError("reading Parquet needs pyarrow", mend, str(path)) from fault
    try:
        if path.is_file():  # before its rows: two columns of one name are a fault that pyarrow tells on many lines
            column_names(str(path), parquet.read_schema(path).names)
        table = parquet.read_table(path)
        names = column_names(str(path), table.column_names)
        return names, [column_of(str(path), name, column) for name, column in zip(names, table.columns, strict=True)]
    except (ArrowException, OSError) as fault:
        reason = str(fault).partition("\n")[0].partition(". ")[0]
        raise DataError(f"not a readable Parquet file ({reason})", "Write or copy it again", str(path)) from fault


@contextmanager
def _parquet_rows(place: Location) -> Iterator[tuple[tuple[str, ...], Iterator[list[list[Any]]]]]:
    names, columns = _parquet_columns(place)
    yield names, iter([[list(row) for row in zip(*columns, strict=True)]])


CSV: Final = Reader("a table with a header row", _csv_rows, endings=(".csv", ".csv.gz"), lines=_csv_lines)
PARQUET: Final = Reader("the same; needs pyarrow", _parquet_rows, endings=(".parquet",), columns=_parquet_columns)
