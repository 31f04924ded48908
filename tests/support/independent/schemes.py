"""frt and tree ("On the wire" of their pages).

It imports nothing of Glassfleet, and was written from the pages alone.
"""

# mypy: ignore-errors

# ruff: noqa: C901, PLR0912, PLR0915 - it shows how short it can be

import numpy as np

from tests.support.independent.encoding import Refused
from tests.support.independent.rows import Rows, cell, grid, histogram, pairs, weighed


def frt(kind, body, table, key):
    p = body["parameters"]
    rows = Rows(table, body, p["min_rows"] if p["nullify"] else 1, key)
    if rows.count > body["max_rows"] or len(rows.inputs) > len(body["domain"]["features"]):
        raise Refused("too many rows, or empty cells")
    x, y, t, bits, f = rows.x, rows.y, p["n_sets"], p["fraction_bits"], len(rows.x)
    different = np.zeros(rows.count, bool)
    different[np.unique(rows.hash, return_index=True)[1]] = True
    tree = {name: body["tree"][name].tolist() for name in ("parent", "feature", "set")}
    nodes, size = body["nodes"].tolist(), len(tree["parent"])
    position = x * (t - 1.0)
    lower = np.minimum(np.floor(position), t - 2.0)
    upper = position - lower

    def degree(feature, j):
        return np.where(
            lower[feature] == j, 1.0 - upper[feature], np.where(lower[feature] == j - 1, upper[feature], 0.0)
        )

    w, used, depth = [np.ones(rows.count)], [set()], [0]
    for node in range(1, size):
        above, feature = tree["parent"][node], tree["feature"][node]
        w.append(w[above] * degree(feature, tree["set"][node]))
        used.append(used[above] | {feature})
        depth.append(depth[above] + 1)
    support, order, m = p.get("support", 0), p["order"], len(nodes)
    k = (f if order else 0) + 2
    counted = max(support, k)
    sums, nullified = {}, 0
    if kind == "columns":
        sums["rows"] = histogram([*x[:, different], y[different]], 256)
    elif kind == "support" and "common" in body:
        layers = [different] + [different & (cell(y if c == f else x[c], 256) != at) for c, at in body["common"]]
        least = [counted] + [max(3, support)] * len(body["common"])
        lines = [[min(int((layer & there).sum()), most) for there in (w[n] >= 1 / 64, (w[n] > 0) & (w[n] < 1 / 64))]
                 for n in nodes for layer, most in zip(layers, least, strict=True)]  # fmt: skip
        sums["rows"] = np.array(lines, np.int64).reshape(-1, 2)
    elif kind == "support":
        cells = [[[int(((np.rint((w[n] * 2.0**bits) * degree(i, j)) > 0) & different).sum()) * (i not in used[n])
                   for j in range(t)] for i in range(f)] for n in nodes]  # fmt: skip
        sums["rows"] = np.minimum(np.array(cells, np.int64), counted)
    elif kind == "level":
        held = body.get("held", np.zeros((m, f), bool))
        cells, own = np.zeros((5, m, f, t), np.int64), np.zeros((4, m), np.int64)

        def terms(s):
            return (s > 0).sum(), np.rint(s).sum(), np.rint(s * y).sum(), np.rint((s * y) * y).sum()

        for line, n in enumerate(nodes):
            own[:, line] = terms(w[n] * 2.0**bits)
            for i in [i for i in range(f) if i not in used[n] and not held[line, i]]:
                for j in range(t):
                    s = (w[n] * 2.0**bits) * degree(i, j)
                    cells[[0, 2, 3, 4], line, i, j] = terms(s)
                    cells[1, line, i, j] = (s[s > 0] >= 0.5 ** (depth[n] + 1) * 2.0**bits).sum()
        if p["nullify"] and p["min_rows"] == 1:
            few = (own[0] >= 1) & (own[0] <= 2)
            nullified += int(few.sum())
            own[:, few] = 0
            for line, i, j in np.ndindex(m, f, t):
                count, ws = cells[0, line, i], cells[2, line, i]
                alone = ws[j] > 0 and not (j > 0 and ws[j - 1] > 0) and not (j + 1 < t and ws[j + 1] > 0)
                whole = nodes[line] == 0 and count[j] > 0 and ws[j] == count[j] << bits
                if 1 <= count[j] <= 2 or whole or alone:
                    nullified += 1
                    cells[:, line, i, j] = 0
        sums |= {f"cell_{name}": cells[at] for at, name in enumerate(("count", "strong", "ws", "wls", "wss"))}
        sums |= {f"node_{name}": own[at] for at, name in enumerate(("count", "ws", "wls", "wss"))}
    elif kind == "leaves":
        b, high, low = p["gram_bits"], [], []
        ws, count = np.zeros(m, np.int64), np.zeros(m, np.int64)
        columns = np.array([*(x if order else []), np.ones(rows.count), y])
        for line, n in enumerate(nodes):
            some, has = w[n] > 0, body.get("columns")
            if has is not None and not has[line, -1]:
                some = np.zeros(rows.count, bool)
            c = grid(columns[:, some] * np.sqrt(w[n][some]), b)
            if has is not None:
                c[:-2][~has[line, :-1]] = 0
            whole = [sum((c[i].astype(object) * c[j]).tolist()) for i in range(k) for j in range(i, k)]
            high.append([each >> 2 * (b // 2) for each in whole])
            low.append([each & ((1 << 2 * (b // 2)) - 1) for each in whole])
            ws[line], count[line] = grid(w[n][some], bits).sum(), some.sum()
        sums = {"gram_high": np.array(high, np.int64), "gram_low": np.array(low, np.int64), "ws": ws, "count": count}
    elif kind == "weights":
        ws, wq = np.zeros(m, np.int64), np.zeros(m, np.int64)
        for line, n in enumerate(nodes):
            some, g = w[n] > 0, body["coefficients"][line]
            out = np.full(some.sum(), g[f])
            for i in range(f):
                out = out + g[i] * x[i, some]
            q = 1.0 - np.minimum(np.abs(out - y[some]), 1.0)
            ws[line], wq[line] = grid(w[n][some], bits).sum(), grid(w[n][some] * q, bits).sum()
        sums = {"ws": ws, "wq": wq}
    else:
        raise Refused(f"no question of frt: {kind}")
    return rows.counted, {"kind": kind, "rows": rows.count, "sums": sums, "values": {}, "nullified": nullified}


def exponential(x):
    x = np.maximum(x, -40.0)
    n = np.rint(x * 1.4426950408889634)
    r = (x - n * 0.693145751953125) - n * 1.42860682030941723212e-6
    v = np.ones(x.shape)
    for i in range(13, 0, -1):
        v = 1.0 + (r * v) / i
    return v * 2.0**n


class Grown:
    """Splits, the degrees to which rows reach all nodes, and the leaves in order."""

    def __init__(self, value, x, first=None):
        self.splits = list(zip(value["places"].tolist()[:first], value["ramps"].tolist()[:first], strict=True))
        self.w, split_of = [np.ones(x.shape[1])], {}
        for at, ((node, f), (low, high)) in enumerate(self.splits):
            mu = np.minimum(np.maximum((high - x[f]) / (high - low), 0.0), 1.0)
            self.w += [self.w[node] * mu, self.w[node] * (1.0 - mu)]
            split_of[node] = at
        stack, self.leaves = [0], []
        while stack:
            node = stack.pop()
            if node in split_of:
                stack += [2 * split_of[node] + 2, 2 * split_of[node] + 1]
            else:
                self.leaves.append(node)

    def span(self, leaf):
        spans = {}
        while leaf:
            (above, f), (low, high) = self.splits[(leaf - 1) // 2]
            own = spans.setdefault(f, [None, None])
            side = leaf % 2  # 1: a lower side, of which the last high counts
            own[side] = own[side] if own[side] is not None else (high if side else low)
            leaf = above
        return {f: (-1.0 if low is None else low, 2.0 if high is None else high) for f, (low, high) in spans.items()}

    def blend(self, start, lines, x, sign):
        for leaf, of_targets in zip(self.leaves, lines, strict=True):
            some = np.flatnonzero(self.w[leaf])
            for target, line in enumerate(of_targets):
                out = np.full(len(some), line[0])
                for at in np.flatnonzero(line[1:]):
                    out = out + line[1 + at] * x[at, some]
                start[target, some] += sign * (self.w[leaf][some] * out)
        return start


def tree(kind, body, table, key):
    p, domain = body["parameters"], body["domain"]
    rows = Rows(table, body, p["min_rows"], key)
    if rows.count > body["max_rows"] or p.get("support"):
        raise Refused("too many rows, or a question of private runs with support")
    held = (rows.hash >> np.uint64(11)).astype(float) < p["holdout"] * 2.0**53
    x, train, n = rows.x.copy(), np.flatnonzero(~held), rows.count
    for at, line in enumerate(body.get("levels", [])):
        if line:
            code, known = rows.own[at], (rows.own[at] >= 0) & (rows.own[at] == np.rint(rows.own[at]))
            x[at] = np.array(line)[np.where(known, code + 1, 0).astype(int)]
    classes = len(domain.get("classes", []))
    y = rows.y[None] if not classes else np.array([rows.y == c for c in range(classes)][classes == 2 :], float)
    parts, sums = (train, np.flatnonzero(held)), {}
    if kind == "levels":
        texts = [
            (at, c)
            for at, each in enumerate(rows.inputs)
            for c in range(len(each.get("categories", []) if each["is"] == "feature" else []))
        ]
        numbers = [at for at, each in enumerate(rows.inputs) if each["is"] != "feature" or not each.get("categories")]
        t = rows.y[None] if not classes else np.array([rows.y == c for c in range(1, classes)], float)
        there = np.array([rows.own[at] == c for at, c in texts]).astype(np.int64)
        counted = [
            np.ones((1, n)),
            *([t] if len(texts) > 256 else [t, np.minimum(np.array(rows.scaled)[numbers], 1.0)]),
        ]
        sums["categories"] = (
            there @ np.concatenate([grid(each, 20) if i else each.astype(np.int64) for i, each in enumerate(counted)]).T
        )
        if len(texts) <= 256:
            sums["categories"] = np.concatenate([sums["categories"], there @ there.T], axis=1)
            sums["numbers"] = pairs(np.concatenate([np.ones((1, n)), counted[2], t])).sum(axis=1).astype(np.int64)
        return rows.counted, {"kind": kind, "rows": n, "sums": sums, "values": {}, "nullified": 0}
    if kind == "scan":
        z = np.concatenate([np.ones((1, n)), x, y])
        sums["histogram"] = histogram(x, 512)
        sums["gram"] = np.array([weighed(np.ones(len(part)), pairs(z[:, part])) for part in parts])
        sums["rows"] = np.array([len(part) for part in parts], np.int64)
        return rows.counted, {"kind": kind, "rows": n, "sums": sums, "values": {}, "nullified": 0}
    inputs = x[body["regressors"]] if body["regressors"] else np.zeros((0, n))
    z, k, lines = np.concatenate([np.ones((1, n)), inputs]), 1 + len(inputs), body["coefficients"]
    if kind == "newton":
        start, squares, expected, observed, weight, errors, first = 0, [], [], [], [], [], None
        some = np.arange(n) if body["of_all"] else train
        rest = np.arange(0) if body["of_all"] else parts[1]
        for splits in body["sizes"]:
            grown = Grown(body["tree"], x, splits)
            scores = grown.blend(np.zeros(y.shape), lines[start : start + splits + 1], inputs, 1.0)
            start += splits + 1
            scores = np.concatenate([np.zeros((1, n)), scores]) if len(y) == 1 else scores
            e = exponential(scores - scores.max(axis=0))
            total = e[0].copy()
            for part in e[1:]:
                total = total + part
            chance = (e / total)[-len(y) :]
            apart = np.zeros(len(rest))
            for a in range(len(y)):
                apart = apart + (y[a, rest] - chance[a, rest]) * (y[a, rest] - chance[a, rest])
            first = apart if first is None else first
            errors.append([int(grid(apart, 28).sum()), int(grid((apart - first) * (apart - first), 28).sum())])
            for leaf in grown.leaves:
                at = some[grown.w[leaf][some] > 0]
                w, c, own = grown.w[leaf][at], chance[:, at], z[:, at]
                curves = [w * np.maximum(a * (1.0 - a), 1e-5) for a in c]
                curves += [w * (c[a] * c[b]) for a in range(len(c)) for b in range(a + 1, len(c))]
                squares.append([weighed(each, pairs(own)) for each in curves])
                expected.append([weighed(w * each, grid(own, 20)) for each in c])
                observed.append([weighed(w * each, grid(own, 20)) for each in y[:, at]])
                weight.append(int(weighed(w, grid(own[:1], 20))[0]))
        sums = {
            "squares": squares,
            "expected": expected,
            "observed": observed,
            "weight": weight,
            "errors": np.array(errors).T,
        }
        sums = {name: np.array(each, np.int64) for name, each in sums.items()}
        return rows.counted, {"kind": kind, "rows": n, "sums": sums, "values": {}, "nullified": 0}
    grown = Grown(body["tree"], x)
    r = np.minimum(np.maximum(grown.blend(y.copy(), lines, inputs, -1.0), -2.0), 2.0)
    if kind == "ramps":
        squares, scores = [], []
        for (leaf, f), (low, high) in zip(body["places"].tolist(), body["ramps"].tolist(), strict=True):
            at = train[grown.w[leaf][train] > 0]
            w, own = grown.w[leaf][at], z[:, at]
            side = np.minimum(np.maximum((high - x[f, at]) / (high - low), 0.0), 1.0) * w
            squares.append([weighed(side * side, pairs(own)), weighed(side * (w - side), pairs(own))])
            scores.append(weighed(side, grid(np.concatenate([*(own * each for each in r[:, at]), own[:1]]), 20)))
        sums = {"squares": np.array(squares), "scores": np.array(scores)}
    elif kind == "bins":
        if body["latest"]:
            least, spans = (
                2 * len(grown.splits) + 1 - 2 * body["latest"],
                {leaf: grown.span(leaf) for leaf in grown.leaves},
            )
            new, both = [leaf for leaf in sorted(spans) if leaf >= least], []
            for i, j in [(i, j) for i in sorted(spans) for j in sorted(spans) if i <= j]:
                a, b = spans[i], spans[j]
                meet = all(max(a[f][0], b[f][0]) < min(a[f][1], b[f][1]) for f in a.keys() & b.keys())
                if meet and any(leaf in new and leaf % 2 for leaf in (i, j)):
                    both.append((i, j))
            gram = [[weighed((grown.w[i] * grown.w[j])[part], pairs(z[:, part])) for i, j in both] for part in parts]
            of_y = grid(np.concatenate([np.concatenate([z, t[None]]) * t for t in y]), 20)
            target = [[weighed(grown.w[leaf][part], of_y[:, part]) for leaf in new] for part in parts]
            sums["gram"] = np.array(gram).reshape(2, len(both), k * (k + 1) // 2)
            sums["target"] = np.array(target).reshape(2, len(new), len(y) * (k + 1))
        if body["leaves"]:
            bins, together = (32, 4) if p["compact"] else (64, 1)
            shape = (len(body["leaves"]), len(body["features"]))
            scores, slopes = (
                np.zeros((*shape, bins, 1 + len(y)), np.int64),
                np.zeros((*shape, bins // together, len(y) * (k - 1)), np.int64),
            )
            means = np.zeros((*shape, bins // 4, k), np.int64)
            for a, leaf in enumerate(body["leaves"]):
                at = train[grown.w[leaf][train] > 0]
                w, own = grown.w[leaf][at], z[:, at]
                s = grid(np.array([w, *(w * t for t in r[:, at])]), 28).T
                slope = grid(np.concatenate([own[1:] * (w * t) for t in r[:, at]]), 28).T
                mean = grid(own * (w * w), 28).T
                for b, f in enumerate(body["features"]):
                    bin_of = np.searchsorted(body["edges"][f][1:-1], x[f, at], side="right")
                    np.add.at(scores[a, b], bin_of, s)
                    np.add.at(slopes[a, b], bin_of // together, slope)
                    np.add.at(means[a, b], bin_of // 4, mean)
            sums |= {"scores": scores, "slopes": slopes, "means": means}
    else:
        raise Refused(f"no question of tree: {kind}")
    return rows.counted, {"kind": kind, "rows": n, "sums": sums, "values": {}, "nullified": 0}
