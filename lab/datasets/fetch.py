"""Fetches a dataset's file, brings it into one form, checks shape and digest, and only then puts it in place."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.datasets.formats import RawTable, as_csv_gz, read_any, read_plain_csv
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
        if source.names or source.delimiter != ",":
            table = read_plain_csv(data.decode("utf-8-sig"), names=source.names, delimiter=source.delimiter)
        else:
            table = read_any(name, data)
        tables.append(table)
    first = tables[0]
    if any(table.names != first.names for table in tables):
        raise DataError("the files do not have the same columns")
    whole = RawTable(first.names, [row for table in tables for row in table.rows]).without(source.without)
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
    if len(table.names) == known.features + 1 and table.names[-1] != known.target:
        table = table.renamed([*table.names[:-1], known.target])
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
