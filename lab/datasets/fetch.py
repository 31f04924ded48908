"""Fetches a dataset's file, brings it into one form, checks shape and digest, and only then puts it in place."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.datasets.known import Known, Source, how_to_get
from schemas.errors import DataError, StorageError, UsageError, VerificationError, os_faults_as
from schemas.private_files import replace_private

MAX_BYTES = 256 << 20
"""Most bytes of a file: more cannot be one of these datasets."""

TIMEOUT = 30.0
"""Seconds without a byte until a server counts as silent."""

_CHUNK = 1 << 16

Arrived = Callable[[int, int | None], object]
"""Hears how many bytes came, and how many were announced."""


@dataclass(frozen=True)
class Check:
    """What a file in the data folder is.

    Attributes
    ----------
    known : Known
    state : {"same", "missing", "differs", "unreadable"}
    words : str
        What differs, and what to do.
    """

    known: Known
    state: str
    words: str


def download(url: str, arrived: Arrived) -> bytes:
    """Return what is at an http(s) address; `arrived` is told how much came.

    Raises
    ------
    UsageError
        The address is not http or https.
    DataError
        The server cannot be reached, refuses, is silent, or sends too much.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise UsageError(f"{url}: only http and https addresses are fetched")
    request = urllib.request.Request(url, headers={"User-Agent": "glassfleet"})  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310 - checked above
            parts, size = [], 0
            announced = answer.headers.get("Content-Length")
            while chunk := answer.read(_CHUNK):
                size += len(chunk)
                arrived(size, None if announced is None else int(announced))
                if size > MAX_BYTES:
                    raise DataError(f"{url} sends more than {MAX_BYTES} bytes; that cannot be the dataset")
                parts.append(chunk)
            if announced is not None and int(announced) != size:
                raise DataError(f"{url} broke off after {size} of {announced} bytes; try again")
    except urllib.error.HTTPError as fault:
        raise DataError(f"{url} answers {fault.code} {fault.reason}; fetch the file by hand from its home") from fault
    except OSError as fault:
        raise DataError(f"{url} cannot be fetched ({fault}); check the network, or fetch the file by hand") from fault
    return b"".join(parts)


def shipped(name: str) -> RawTable:
    """Return a set that scikit-learn ships: original values, classes by their names, the target last."""
    from sklearn import datasets  # the extra `experiments`, and slow to import

    load = getattr(datasets, f"load_{name}")
    whole = load(scaled=False) if name == "diabetes" else load()
    classes = whole.get("target_names")
    target = whole.target if classes is None else classes[whole.target]
    names = [str(each).replace(" ", "_") for each in whole.feature_names]
    rows = [[*map(repr, row), str(last)] for row, last in zip(whole.data.tolist(), target.tolist(), strict=True)]
    return RawTable((*names, "progression" if classes is None else "class"), rows)


def table_of(source: Source, files: Sequence[tuple[str, bytes]]) -> RawTable:
    """Return the one table that fetched files, (name, bytes) each, make.

    Raises
    ------
    DataError
        They are not what the source says.
    """
    tables = []
    for name, data in files:
        tables.append(read_csv(data.decode("utf-8-sig"), source.names) if source.names else read_any(name, data))
    first = tables[0]
    if any(table.names != first.names for table in tables):
        raise DataError("the files do not have the same columns")
    whole = RawTable(first.names, [row for table in tables for row in table.rows])
    whole = whole.select([name for name in whole.names if name not in source.without])
    if source.target:
        whole = whole.with_last(source.target)
    if source.strip_last:
        whole = replace(whole, rows=[[*row[:-1], row[-1].removesuffix(source.strip_last)] for row in whole.rows])
    return whole


def difference(known: Known, table: RawTable) -> str:
    """Return what is not as known, in words; empty when the values are the known ones."""
    if (len(table.rows), table.features) != (known.rows, known.features):
        return (
            f"{len(table.rows)} rows and {table.features} inputs, expected {known.rows} and {known.features}; "
            "this is another dataset or another version"
        )
    digest = table.digest()
    if digest != known.digest:
        return f"the values differ (digest {digest[:16]}..., expected {known.digest[:16]}...): rows changed or moved"
    return ""


def fetch(known: Known, folder: Path, arrived: Arrived = lambda _size, _of: None) -> Path:
    """Fetch a dataset into `folder`; return its path. Nothing is put in place that is not as known.

    Parameters
    ----------
    known : Known
    folder : Path
    arrived : callable
        Is told how much of each file came.

    Raises
    ------
    UsageError
        The dataset cannot be fetched; the text says why.
    DataError, StorageError
        The network, the format, the disk.
    VerificationError
        The values are not the known ones.
    """
    if known.source is None:
        raise UsageError(f"{known.name} cannot be fetched: {known.note}. Its home is {known.home}")
    if known.source.shipped:
        table = shipped(known.source.shipped)
    else:
        urls = known.source.urls
        files = [(Path(urllib.parse.urlsplit(url).path).name, download(url, arrived)) for url in urls]
        table = table_of(known.source, files)
    if words := difference(known, table):
        raise VerificationError(f"{known.name}: {words}. Nothing was written")
    table = replace(table, names=(*table.names[:-1], known.target))
    path = folder / known.file
    with os_faults_as(StorageError, f"cannot write {path}", ". Make room, or choose another --data-dir"):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_private(path, as_csv_gz(table), 0o644)
    return path


def verify(known: Known, folder: Path) -> Check:
    """Compare a file of the data folder with what is known."""
    path = folder / known.file
    try:
        table = read_any(path.name, path.read_bytes())
    except FileNotFoundError:
        return Check(known, "missing", how_to_get([known.file], folder))
    except (DataError, OSError) as fault:
        return Check(known, "unreadable", str(fault))
    words = difference(known, table)
    return Check(known, "differs" if words else "same", words or f"{known.rows} rows, {known.features} inputs")


# --- ARFF and CSV as tables of text; and tables as the csv.gz files that everything here reads -------------


@dataclass(frozen=True)
class RawTable:
    """Names and cells as text, the target last.

    Attributes
    ----------
    names : tuple of str
    rows : list of list of str
    """

    names: tuple[str, ...]
    rows: list[list[str]]

    @property
    def features(self) -> int:
        """Number of inputs."""
        return len(self.names) - 1

    def select(self, names: Sequence[str]) -> RawTable:
        """Return the table with these columns, in this order; raises DataError when one is not there."""
        if unknown := [name for name in names if name not in self.names]:
            raise DataError(f"there is no column {unknown[0]!r}; the columns are {', '.join(self.names)}")
        places = [self.names.index(name) for name in names]
        return RawTable(tuple(names), [[row[place] for place in places] for row in self.rows])

    def with_last(self, target: str) -> RawTable:
        """Return the table with the column `target` moved to the end; raises DataError when there is none."""
        return self.select([*(name for name in self.names if name != target), target])

    def digest(self) -> str:
        """Return the SHA-256 (hex) of the cells, row after row: the same for the same values, whatever the format.

        A number counts as its shortest text, so that ``1.50`` and ``1.5`` are the same; names do not count.
        """
        digest = hashlib.sha256()
        for row in self.rows:
            digest.update((",".join(_plain(cell) for cell in row) + "\n").encode())
        return digest.hexdigest()


def _plain(cell: str) -> str:
    try:
        value = float(cell)
    except ValueError:
        return cell
    return repr(value) if math.isfinite(value) else cell


_ATTRIBUTE = re.compile(r"""@attribute\s+(?:'([^']+)'|"([^"]+)"|([^\s{]+))""", re.IGNORECASE)
"""``name type``, ``'a name' type`` or ``name{a,b}``."""


def read_arff(text: str) -> RawTable:
    """Read Weka's dense format: ``@attribute`` lines, then ``@data``; comments begin with %.

    Raises
    ------
    DataError
        The text is not of this format; the row is named.
    """
    lines = [line.strip() for line in text.splitlines()]
    begins = next((number for number, line in enumerate(lines, 1) if line.lower() == "@data"), None)
    if begins is None:
        raise DataError("there is no @data line: this is no ARFF")
    names = [next(filter(None, found.groups())) for line in lines if (found := _ATTRIBUTE.match(line))]
    data = [row for row in lines[begins:] if row and not row.startswith("%")]
    cells = csv.reader(data, skipinitialspace=True, quotechar="'")
    return _checked(tuple(names), [[cell.strip().strip('"') for cell in row] for row in cells], begins + 1)


def read_csv(text: str, names: Sequence[str] = ()) -> RawTable:
    """Read CSV; with `names` the text has no header row.

    Raises
    ------
    DataError
        Rows differ in length, or there are none.
    """
    lines = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text), skipinitialspace=True)]
    lines = [line for line in lines if any(line)]
    if not lines:
        raise DataError("there are no rows")
    header = tuple(names) or tuple(lines.pop(0))
    return _checked(header, lines, 1 if names else 2)


def _checked(names: tuple[str, ...], rows: list[list[str]], first: int) -> RawTable:
    if not rows:
        raise DataError("there are no rows")
    for offset, row in enumerate(rows):
        if len(row) != len(names):
            raise DataError(f"row {offset + first}: {len(row)} cells, there are {len(names)} columns")
    return RawTable(names, rows)


READERS: Mapping[str, Callable[[str], RawTable]] = {".arff": read_arff, ".csv": read_csv}
"""By ending."""


def read_any(name: str, data: bytes) -> RawTable:
    """Read a file by its ending: .arff or .csv, each also .gz.

    Raises
    ------
    DataError
        Another ending, or not what the ending says.
    """
    ending = name.lower()
    if ending.endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as fault:
            raise DataError(f"{name}: not a gzip file ({fault})") from fault
        ending = ending.removesuffix(".gz")
    reader = next((read for suffix, read in READERS.items() if ending.endswith(suffix)), None)
    if reader is None:
        raise DataError(f"{name}: unknown ending; known: {', '.join(READERS)}, each also with .gz")
    try:
        return reader(data.decode("utf-8-sig"))
    except UnicodeDecodeError as fault:
        raise DataError(f"{name}: not UTF-8 text (byte {fault.start})") from fault
    except DataError as fault:
        raise DataError(f"{name}: {fault}") from fault


def as_csv_gz(table: RawTable) -> bytes:
    """Return the table as a csv.gz file: header row, target last. The same table is the same bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.names)
    writer.writerows(table.rows)
    return gzip.compress(text.getvalue().encode(), mtime=0)
