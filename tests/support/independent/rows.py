"""Rows, hashes, condensing, packing, discovery (docs/reference/protocol-rows.md).

It imports nothing of Glassfleet, and was written from the pages alone.
"""

# mypy: ignore-errors

# ruff: noqa: C901, PLR0912, B023 - it shows how short it can be

import csv
import hashlib
import math
from pathlib import Path

import numpy as np

from tests.support.independent.encoding import Refused


class Table:
    def __init__(self, path):
        with Path(path).open(newline="", encoding="utf-8") as file:
            lines = [line for line in csv.DictReader(file) if line.get("split", "train") == "train"]
        names = [name for name in lines[0] if name != "split"]
        self.features, self.target, self.columns, self.texts = names[:-1], names[-1], {}, {}
        for name in names:
            cells = [line[name] for line in lines]
            try:
                self.columns[name] = np.array([float(cell) if cell else math.nan for cell in cells])
            except ValueError:
                self.columns[name] = np.array([cell or "missing" for cell in cells])
                self.texts[name] = sorted(set(self.columns[name].tolist()))
        self.rows = len(lines)


def of_text(texts):
    return np.array([int.from_bytes(hashlib.sha256(t.encode()).digest()[:8], "little") for t in texts], np.uint64)


def hashes(columns):
    state = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        bits = column if column.dtype == np.uint64 else (column + 0.0).view(np.uint64)
        state = (state ^ bits) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state


def inputs_of(domain):
    inputs = [{**each, "at": at, "is": "feature"} for at, each in enumerate(domain["features"])]
    gaps = [
        {"at": at, "is": "gap", "low": 0.0, "high": 1.0, "categories": ["given", "missing"]}
        for at, each in enumerate(domain["features"])
        if "missing" in each
    ]
    far = []
    for at, each in enumerate(domain["features"]):
        low, high = each["low"], each["high"]
        if low < high and each.get("lowest", low) < low:
            far.append({"at": at, "is": "below", "low": 0.0, "high": abs(each["lowest"] - low)})
        if low < high and each.get("highest", high) > high:
            far.append({"at": at, "is": "above", "low": 0.0, "high": abs(each["highest"] - high)})
    return inputs + gaps + far


def completed(domain, own):
    """Own columns of features to columns of inputs."""
    filled = [np.where(np.isnan(x), each["missing"], x) if "missing" in each else x
              for each, x in zip(domain["features"], own, strict=True)]  # fmt: skip
    out = []
    for each in inputs_of(domain):
        at, feature = each["at"], domain["features"][each["at"]]
        out.append({"feature": lambda: filled[at], "gap": lambda: np.isnan(own[at]).astype(float),
                    "below": lambda: np.maximum(feature["low"] - filled[at], 0.0),
                    "above": lambda: np.maximum(filled[at] - feature["high"], 0.0)}[each["is"]]())  # fmt: skip
    return out


def scaled(each, x):
    width = each["high"] - each["low"]
    most = 10.0 if each.get("is") in ("below", "above") else 1.0
    return np.minimum(np.maximum((x - each["low"]) / width, 0.0), most) if width > 0 else np.zeros(len(x))


def place_of(text, categories):
    at = sum(each < text for each in categories)
    return float(at) if text in categories else at - 0.5


class Rows:
    """The rows of a run: scaled inputs, and the scaled target or the class's place."""

    def __init__(self, table, body, min_rows, key):
        domain = body["domain"]
        self.domain, self.inputs = domain, inputs_of(domain)
        chosen = None
        target = domain["target"]["name"] if "target" in domain else domain["label"]
        if table.target != target:
            raise Refused(f"the target here is {table.target!r}")
        if (target in table.texts) != ("label" in domain):
            raise Refused("the target is of the other kind here")
        most = body.get("max_rows_each", 0)
        names = [each["name"] for each in domain["features"]]
        if missing := [name for name in names if name not in table.features]:
            raise Refused(f"column {missing[0]!r} is missing here")
        if most and table.rows > most:
            parts = [
                of_text(table.columns[n].tolist()) if n in table.texts else table.columns[n] for n in [*names, target]
            ]
            chosen = np.sort(np.argsort(hashes(parts), kind="stable")[:most])
        own = []
        for each in domain["features"]:
            x = table.columns[each["name"]]
            if ("categories" in each) != (each["name"] in table.texts):
                raise Refused(f"column {each['name']!r} holds something else here")
            if "categories" in each:
                x = np.array([place_of(text, each["categories"]) for text in x.tolist()])
            elif np.isnan(x).any() and "missing" not in each:
                raise Refused(f"column {each['name']!r} has empty cells here")
            own.append(x if chosen is None else x[chosen])
        y = table.columns[target] if chosen is None else table.columns[target][chosen]
        self.counted = len(y)
        if "label" in domain:
            y = np.array([domain["classes"].index(c) if c in domain["classes"] else -1 for c in y.tolist()])
            own, y = [x[y >= 0] for x in own], y[y >= 0]
        if min_rows > 1:
            own, y = condensed(domain, own, y, min_rows, key)
        self.own = completed(domain, own)
        self.scaled = [scaled(each, x) for each, x in zip(self.inputs, self.own, strict=True)]
        self.y = y if "label" in domain else scaled(domain["target"], y)
        self.x = np.minimum(np.array(self.scaled), 1.0)
        self.hash = hashes([*self.scaled, self.y.astype(float)])
        self.count = len(self.y)


def condensed(domain, own, y, min_rows, key):
    inputs, full = inputs_of(domain), completed(domain, own)
    points = [np.minimum(scaled(each, x), 1.0) for each, x in zip(inputs, full, strict=True)]
    texts = [at for at, each in enumerate(inputs) if each.get("categories")]
    for at in texts:
        points[at] = np.where(full[at] == np.rint(full[at]), full[at] + 1.0, 0.0) / len(inputs[at]["categories"])
    is_class = "label" in domain
    p = np.array(points if is_class else [*points, scaled(domain["target"], y)]).T
    parts = [(p[y == c], c) for c in range(len(domain["classes"]))] if is_class else [(p, 0)]
    excess = [at for at, each in enumerate(inputs) if each["is"] in ("below", "above")]
    made, classes = [np.zeros((0, p.shape[1]))], []
    for part, c in parts:
        far = (part[:, excess] > 0).any(axis=1)
        for some, cols in ((part[~far], []), (part[far], [e for e in excess if (part[far][:, e] > 0).any()])):
            keep = [at for at in range(p.shape[1]) if at not in excess or at in cols]
            wide = np.zeros((0, p.shape[1]))
            if len(some):
                new = condense(some[:, keep], min_rows, key, texts)
                wide = np.zeros((len(new), p.shape[1]))
                wide[:, keep] = new
            made.append(wide)
            classes += [c] * len(wide)
    p = np.concatenate(made)
    x = [each["low"] + p[:, at] * (each["high"] - each["low"]) for at, each in enumerate(inputs)]
    for at in texts:
        place = np.rint(p[:, at] * len(inputs[at]["categories"])) - 1
        x[at] = np.where(place < 0, -0.5, place)
    back = x[: len(domain["features"])]
    for at, each in enumerate(inputs):
        if each["is"] in ("below", "above"):
            back[each["at"]] = back[each["at"]] + (x[at] if each["is"] == "above" else -x[at])
    for at, each in enumerate(inputs):
        if each["is"] == "gap":
            back[each["at"]] = np.where(x[at] == 1.0, np.nan, back[each["at"]])
    if is_class:
        return back, np.array(classes, dtype=int)
    t = domain["target"]
    return back, t["low"] + p[:, -1] * (t["high"] - t["low"])


def condense(points, min_rows, key, texts):
    d = points.shape[1]
    g, count = np.unique(np.rint(points * 2.0**20).astype("<i8"), axis=0, return_counts=True)
    least = max(min_rows, d + 1)
    if len(g) < least:
        return np.zeros((0, d))
    stack, made = [np.arange(len(g))], []
    while stack:
        at = stack.pop()
        m, parts = len(at), len(at) // least
        if parts < 2:
            at = np.sort(at)
            made.append(drawn(g[at], count[at].astype("<i8"), key, texts))
            continue
        u = (g[at] - g[at[0]]).astype(float)
        total = u.sum(axis=0)
        s = u.T @ u - np.multiply.outer(total, total) / m
        e = np.zeros(d)
        for line in s:
            e = e + line * line
        var = np.diagonal(s)
        column = int(np.argmax(np.where(var >= 1.0, e / np.maximum(var, 1.0), 0.0)))
        at = at[np.argsort(g[at, column], kind="stable")]
        cut = m * (parts // 2) // parts
        stack += [at[:cut], at[cut:]]
    return np.concatenate(made)


def drawn(g, c, key, texts):
    n, d = int(c.sum()), g.shape[1]
    total = (c[:, None] * g).sum(axis=0)
    centre, rest = total // n, total % n
    u = g - centre
    q = np.array(
        [[float((c * u[:, i] * u[:, j]).sum()) - float(rest[i] * rest[j]) / n for j in range(d)] for i in range(d)]
    )
    for i in range(d):
        q[i, i] = max(q[i, i], n * 4096.0**2)
    given = (
        b"glassfleet-condense/1"
        + len(key).to_bytes(8, "little")
        + key
        + c.tobytes()
        + np.ascontiguousarray(g).tobytes()
    )
    words = np.frombuffer(hashlib.shake_256(given).digest(48 * n * d), "<u4").reshape(n, d, 12)
    draws = words.sum(axis=2, dtype=np.uint64).astype(float) / 2.0**32 - 6
    w, x = q.copy(), np.repeat((centre + rest / n)[None], n, axis=0)
    for k in range(d):
        line = np.zeros(d)
        if w[k, k] > max(2.0**-30 * q[k, k], 2.0**-20):
            line[k:] = w[k:, k] / math.sqrt(w[k, k])
        w = w - np.multiply.outer(line, line)
        x = x + draws[:, k : k + 1] * (line / math.sqrt(n))
    for column in [t for t in texts if t < d]:
        x[:, column] = np.repeat(g[:, column], c)[np.argsort(draws[:, column], kind="stable")]
    return np.minimum(np.maximum(x / 2.0**20, 0.0), 1.0)


def pairs(z):
    """P: products of all pairs of columns on the grid, packed; shape (pairs, n)."""
    return np.array([np.rint(z[i] * (z[j] * 2.0**20)) for i in range(len(z)) for j in range(i, len(z))])


def weighed(weight, terms):
    return (terms.astype(np.int64) * np.rint(weight * 2.0**20).astype(np.int64)).sum(axis=1)


def grid(terms, bits):
    return np.rint(terms * 2.0**bits).astype(np.int64)


def cell(x, cells):
    return np.floor(np.minimum(x * cells, cells - 1)).astype(int)


def histogram(columns, cells):
    return np.array([np.bincount(cell(x, cells), minlength=cells) for x in columns]).astype(np.int64)


def edges_of(recipe):
    low, high, bins, left, right = recipe
    if not bins:
        positive = sorted([2.0**k for k in range(-30, 55)] + [1.5 * 2.0**k for k in range(-30, 54)])
        return np.array([-e for e in reversed(positive)] + [-(2.0**-1000), 2.0**-1000, *positive])
    edges = low + np.arange(bins + 1) * ((high - low) / bins)
    edges[-1] = high
    return edges if left + right >= bins else np.concatenate([edges[: left + 1], edges[bins - right :]])


def join_small(count, m):
    small, n = int(((count > 0) & (count < m)).sum()), int(count.sum())
    if not small or n < m:
        return (count if not small else count * 0), small
    middle = int(np.argmax(np.cumsum(count) >= (n + 1) // 2))
    for path in (range(middle), range(len(count) - 1, middle, -1)):
        carried = 0
        for at in path:
            carried += int(count[at])
            count[at], carried = (carried, 0) if carried >= m else (0, carried)
        count[middle] += carried
    if count[middle] < m:
        others = [at for at in np.flatnonzero(count).tolist() if at != middle]
        nearest = min(others, key=lambda at: (abs(at - middle), at))
        count[nearest], count[middle] = count[nearest] + count[middle], 0
    return count, small


def discovery(body, table):
    m, names, hidden = body["min_count"], sorted(body["columns"]), 0
    counts, outside, gaps, reached = [], [], [], []
    for name in names:
        if name not in table.columns or (name == body["target"]) != (name == table.target):
            raise Refused(f"column {name!r} is missing here")
        x, recipe = table.columns[name], body["columns"][name]
        if name in table.texts:
            if not body.get("categories") or name == table.target:
                raise Refused(f"column {name!r} holds text here")
            x = np.array([float(table.texts[name].index(text)) for text in x.tolist()])
        gaps.append(int(np.isnan(x).any()))
        if gaps[-1] and not body.get("missing"):
            raise Refused(f"column {name!r} has empty cells here")
        x, edges = x[~np.isnan(x)], edges_of(recipe)
        at = np.minimum(np.maximum(np.searchsorted(edges, x, side="right") - 1, 0), len(edges) - 2)
        count, small = join_small(np.bincount(at, minlength=len(edges) - 1), m)
        hidden += small
        tails = [int((x < edges[0]).sum()), int((x > edges[-1]).sum())] if body["round"] == 1 else [0, 0]
        for side in (0, 1):
            rest = int(count[-side]) - tails[side]
            if tails[side] and m > 1 and (tails[side] < m or (rest != 0 and rest < m)):
                hidden, tails[side] = hidden + 1, 0
        counts.append(count)
        outside.append(tails)
        bins, left = recipe[2], recipe[3]
        place = [p if p <= left or len(count) == bins else p + bins - len(count) for p in range(len(count))]
        starts = [
            p for p in range(len(count)) if bins <= 32 or not p or place[p] * 32 // bins != place[p - 1] * 32 // bins
        ]
        reached += [int(part.sum() > 0) for part in np.split(count, starts[1:])]
    sums, values = {"counts": np.concatenate(counts).astype(np.int64), "outside": np.array(outside, np.int64)}, {}
    if any(gaps):
        sums["gaps"] = np.array(gaps, np.int64)
    if body.get("guarded"):
        sums["vehicles"] = np.array(reached, np.int64)
        if body["round"] == 1:
            begins = sorted({(8 + i) * 2**k // 8 for i in range(8) for k in range(32)})
            sums["row_counts"] = np.zeros(len(begins) - 1, np.int64)
            if table.rows:
                sums["row_counts"][sum(b <= table.rows for b in begins) - 1] = 1
    for what in ("labels", "categories"):
        if what == "labels" and body.get("labels"):
            if table.target not in table.texts and body["labels"] is True:
                raise Refused("the target is a number here")
            counted = (
                np.unique(table.columns[table.target], return_counts=True) if table.target in table.texts else ([], [])
            )
            enough = [(str(t), int(n)) for t, n in zip(*counted, strict=True) if n >= m]
            hidden += len(counted[0]) - len(enough)
            values = {"labels": [t for t, _ in enough], "label_rows": np.array([n for _, n in enough], np.int64)}
        if what == "categories" and body.get("categories"):
            values["categories"] = {}
            for name in [n for n in names if n in table.texts]:
                rows = {text: int((table.columns[name] == text).sum()) for text in table.texts[name]}
                values["categories"][name] = [text for text, n in rows.items() if n >= max(m, 1)]
                hidden += sum(0 < n < m for n in rows.values())
    return table.rows, {"kind": "histogram", "rows": table.rows, "sums": sums, "values": values, "nullified": hidden}
