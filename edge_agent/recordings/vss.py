"""Names, units and limits of a catalogue of the Vehicle Signal Specification (VSS), as vss-tools export it to JSON."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from edge_agent.recordings import units
from edge_agent.recordings.signals import Signal
from glassfleet.data.cells import truth_of
from schemas.errors import DataError, os_faults_as

MOST_BYTES: Final = 1 << 26
_INTEGERS: Final = {f"{sign}int{bits}": (sign, bits) for sign in ("", "u") for bits in (8, 16, 32, 64)}
_OVERLAYS: Final = ("dbc2vss", "dbc")
"""Under these, overlays of a catalogue name the signal that a leaf is, as KUKSA's CAN provider has them."""


@dataclass(frozen=True)
class Leaf:
    """What a catalogue says of one signal.

    Attributes
    ----------
    path : str
        ``Vehicle.Speed``
    datatype : str
    unit : str
        Empty: it has none.
    low, high : float or None
        The least and the greatest that it can be, also by its type.
    allowed : tuple of str
        Words that it can be; empty: it is no word, or any.
    codes : mapping of str to int
        Words that stand for numbers.
    description : str
    words : mapping of str to str
        Of an overlay: what it makes of a signal's words and numbers.
    """

    path: str
    datatype: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    allowed: tuple[str, ...] = ()
    codes: Mapping[str, int] = field(default_factory=dict)
    description: str = ""
    words: Mapping[str, str] = field(default_factory=dict)


class Catalogue:
    """Some catalogues as one: what a later one says of a path counts.

    Raises DataError where a file cannot be read.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._where = ", ".join(map(str, paths))
        self._leaves: dict[str, Leaf] = {}
        self._sources: dict[str, str] = {}
        nodes: dict[str, dict[str, Any]] = {}
        for path in paths:
            for name, node in _leaves(path, _loaded(path)):
                nodes[name] = {**nodes.get(name, {}), **node}
        for name, node in nodes.items():
            self._leaves[name] = _leaf(self._where, name, node)
            for key in _OVERLAYS:
                named = node.get(key)
                if isinstance(named, dict) and isinstance(named.get("signal"), str):
                    self._sources[named["signal"]] = name
        self._folded = {_folded(name): name for name in self._leaves}

    def __contains__(self, path: str) -> bool:
        return path in self._leaves

    def find(self, column: str) -> str | None:
        """Return the path of a column: by an overlay, or by its own name, also ``Vehicle/Speed``; None: there is none.

        Nothing is guessed: ``speed`` may be that of anything.
        """
        return self._sources.get(column) or self._folded.get(_folded(column))

    def leaf(self, path: str) -> Leaf:
        """Return what the catalogue says of a path; raises DataError where it has no signal of that path."""
        if path in self._leaves:
            return self._leaves[path]
        near = get_close_matches(path, self._leaves, n=3, cutoff=0.6)
        last = path.rpartition(".")[2].lower()
        near = near or [name for name in self._leaves if name.lower().endswith(f".{last}")][:3]
        mend = f"Did you mean {' or '.join(near)}?" if near else ""
        raise DataError(f"has no signal {path!r}", mend, self._where)


def fitted(signal: Signal, leaf: Leaf, unit: str = "", name: str = "") -> Signal:
    """Return a signal as the catalogue has it: with its unit, limits and description.

    Parameters
    ----------
    signal : Signal
    leaf : Leaf
    unit : str
        That of the values; empty: as the signal says, and as the catalogue says where that is empty too.
    name : str
        A short name; empty: the path.

    Raises
    ------
    DataError
        A value is none that the signal can be, or the unit is none of what it measures.
    """
    try:
        value, low, high = signal.value, signal.low, signal.high
        if leaf.words:
            value = _worded(value, leaf.words)
        if leaf.allowed or leaf.codes or leaf.datatype == "string":
            value, low, high = _as_words(value, leaf), None, None
        else:
            value = _as_numbers(value, leaf)
            factor, offset = (1.0, 0.0) if leaf.datatype == "boolean" else _conversion(unit or signal.unit, leaf)
            value = value * factor + offset if (factor, offset) != (1.0, 0.0) else value
            ends = [None if end is None else end * factor + offset for end in (low, high)]
            low, high = (ends[1], ends[0]) if factor < 0 else (ends[0], ends[1])
            low = low if leaf.low is None else leaf.low if low is None else max(low, leaf.low)
            high = high if leaf.high is None else leaf.high if high is None else min(high, leaf.high)
            _check_range(value, leaf)
    except DataError as fault:
        what = f"column {signal.name!r} cannot be {leaf.path}: {fault.what}"
        raise DataError(what, fault.mend) from fault
    return replace(
        signal,
        name=name or leaf.path,
        unit=leaf.unit or ("" if leaf.datatype in ("boolean", "string") or leaf.codes else unit or signal.unit),
        value=value,
        low=low,
        high=high,
        description=leaf.description or signal.description,
    )


def _conversion(unit: str, leaf: Leaf) -> tuple[float, float]:
    return units.conversion(unit, leaf.unit) if unit and leaf.unit else (1.0, 0.0)


def _as_numbers(value: NDArray[Any], leaf: Leaf) -> NDArray[np.float64]:
    if leaf.datatype.endswith("[]"):
        raise DataError("the signal is a list of values in each sample")
    if value.dtype.kind != "O":
        return value
    given = list(dict.fromkeys(word for word in value.tolist() if word is not None))
    codes: Mapping[str, float] | None = truth_of(given)
    if codes is None:
        raise DataError(f"it holds words ({_some(given)}), and the signal is a {leaf.datatype}")
    return np.array([np.nan if word is None else codes[word] for word in value.tolist()])


def _as_words(value: NDArray[Any], leaf: Leaf) -> NDArray[Any]:
    if value.dtype.kind == "f":
        if not leaf.codes:
            raise DataError(f"it holds numbers, and the signal is one of words ({_some(leaf.allowed) or 'any'})")
        by_code: dict[float, str] = {float(code): word for word, code in leaf.codes.items()}
        strange = [number for number in np.unique(value[~np.isnan(value)]).tolist() if number not in by_code]
        if strange:
            raise DataError(f"{_some(map(str, strange))} stands for none of its words ({_some(leaf.codes)})")
        return np.array([by_code.get(number) for number in value.tolist()], dtype=object)
    known = {_plain(word): word for word in (*leaf.allowed, *leaf.codes)}
    if not known:
        return value
    given = dict.fromkeys(word for word in value.tolist() if word is not None)
    strange = [word for word in given if _plain(word) not in known]
    if strange:
        raise DataError(f"{_some(strange)} is none of its words ({_some(known.values())})")
    return np.array([None if word is None else known[_plain(word)] for word in value.tolist()], dtype=object)


def _worded(value: NDArray[Any], words: Mapping[str, str]) -> NDArray[Any]:
    """Return what an overlay makes of values: numbers, where all of them are some."""
    as_text = [_text(each) for each in value.tolist()]
    strange = [text for text in dict.fromkeys(as_text) if text is not None and text not in words]
    if strange:
        raise DataError(f"{_some(strange)} is none of the words that the overlay translates ({_some(words)})")
    turned = [None if text is None else words[text] for text in as_text]
    try:
        return np.array([np.nan if text is None else float(text) for text in turned])
    except ValueError:
        return np.array(turned, dtype=object)


def _text(value: str | float | None) -> str | None:
    if isinstance(value, float):
        return None if np.isnan(value) else f"{value:g}"
    return value


def _check_range(value: NDArray[np.float64], leaf: Leaf) -> None:
    low = -np.inf if leaf.low is None else leaf.low
    high = np.inf if leaf.high is None else leaf.high
    slack = 1e-9 * max((abs(end) for end in (low, high) if np.isfinite(end)), default=0.0)  # of the conversion
    outside = (value < low - slack) | (value > high + slack)
    if leaf.datatype == "boolean":
        outside = ~np.isnan(value) & (value != 0.0) & (value != 1.0)
    if not outside.any():
        return
    found = Counter(value[outside].tolist())
    (most, number), unit = found.most_common(1)[0], f" {leaf.unit}" if leaf.unit else ""
    ends = " ".join(f"{word} {end:g}{unit}" for word, end in (("at least", low), ("at most", high)) if np.isfinite(end))
    can_be = "0 or 1" if leaf.datatype == "boolean" else ends.replace(" at most", ", at most")
    mend = "Where it stands for no value, or the unit is another, say so in the plan: missing, or unit, of this column"
    times = f"{number} times " if number > 1 else ""
    raise DataError(f"{int(outside.sum())} of its {len(value)} values are not {can_be}: {times}{most:g}{unit}", mend)


def _some(texts: Any) -> str:
    given = list(texts)
    return ", ".join(given[:5]) + (" ..." if len(given) > 5 else "")


def _plain(word: str) -> str:
    return "".join(sign for sign in word.casefold() if sign.isalnum())


def _folded(name: str) -> str:
    return name.strip().replace("/", ".").casefold()


def _loaded(path: Path) -> Any:
    mend = "Export one with vss-tools: vspec export json --vspec ... --output vss.json"
    try:
        with os_faults_as(DataError, f"{path}: cannot be read"), path.open("rb") as raw:
            content = raw.read(MOST_BYTES + 1)
            if content.startswith(b"\x1f\x8b"):
                unpacking = zlib.decompressobj(31)
                content = unpacking.decompress(content, MOST_BYTES + 1)
                if not unpacking.eof and len(content) <= MOST_BYTES:
                    raise ValueError("the gzip file is cut short")  # noqa: TRY301 - one fault of many here
        if len(content) > MOST_BYTES:
            raise DataError(f"more than {MOST_BYTES >> 20} MB; is it a catalogue?", mend, str(path))
        return json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError, zlib.error, gzip.BadGzipFile) as fault:
        raise DataError(f"is no catalogue of VSS in JSON ({fault})", mend, str(path)) from fault


def _leaves(path: Path, tree: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    waiting = [("", tree)]
    found = False
    while waiting:
        before, nodes = waiting.pop()
        if not isinstance(nodes, dict):
            raise DataError("is no catalogue of VSS: a branch is no object", where=str(path))
        for name, node in nodes.items():
            place = f"{before}.{name}" if before else name
            if not isinstance(node, dict):
                raise DataError(f"is no catalogue of VSS: {place} is no object", where=str(path))
            if "children" in node:
                waiting.append((place, node["children"]))
            else:
                found = True
                yield place, node
    if not found:
        raise DataError("is a catalogue without signals", where=str(path))


def _leaf(where: str, path: str, node: dict[str, Any]) -> Leaf:
    datatype = node.get("datatype", "")
    if not isinstance(datatype, str):
        raise DataError(f"{path} has no datatype", where=where)
    low, high = node.get("min"), node.get("max")
    if datatype in _INTEGERS:
        sign, bits = _INTEGERS[datatype]
        ends = (0, (1 << bits) - 1) if sign else (-(1 << bits - 1), (1 << bits - 1) - 1)
        low, high = ends[0] if low is None else low, ends[1] if high is None else high
    try:
        return Leaf(
            path,
            datatype,
            str(node.get("unit") or ""),
            None if low is None else float(low),
            None if high is None else float(high),
            tuple(str(word) for word in node.get("allowed", ())),
            {str(word): int(code) for word, code in node.get("enum", {}).items()},
            " ".join(str(node.get("description") or "").split()),
            _translation(where, path, node),
        )
    except (TypeError, ValueError, AttributeError) as fault:
        raise DataError(f"{path} cannot be understood ({fault})", where=where) from fault


def _translation(where: str, path: str, node: dict[str, Any]) -> dict[str, str]:
    for key in _OVERLAYS:
        transform = node.get(key, {}).get("transform") if isinstance(node.get(key), dict) else None
        if transform:
            pairs = transform.get("mapping") if isinstance(transform, dict) else None
            if pairs is None:
                mend = "Let the database scale the signal, or name its unit in the plan"
                raise DataError(f"{path} is computed by a formula in an overlay, which is not run", mend, where)
            return {str(pair["from"]): str(pair["to"]) for pair in pairs}
    return {}
