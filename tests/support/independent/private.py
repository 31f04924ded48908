"""Private runs (docs/reference/protocol-private.md).

It imports nothing of Glassfleet, and was written from the pages alone.
"""

# mypy: ignore-errors

import hashlib
import hmac
import math
import os

import msgpack
import numpy as np

from tests.support.independent.encoding import Refused, digest, enc, rich


def x25519(secret, public):
    """RFC 7748."""
    prime, a24 = 2**255 - 19, 121665
    scalar = int.from_bytes(secret, "little") & ~7 & ~(128 << 8 * 31) | 64 << 8 * 31
    u = int.from_bytes(public, "little")
    x2, z2, x3, z3 = 1, 0, u, 1
    for bit in reversed(range(255)):
        if scalar >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a, b * b, d * a, c * b
        x3, z3 = (da + cb) ** 2 % prime, u * (da - cb) ** 2 % prime
        x2, z2 = aa * bb % prime, (aa - bb) * (aa + a24 * (aa - bb)) % prime
        if scalar >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, prime - 2, prime) % prime).to_bytes(32, "little")


def chacha20(key, size):
    """RFC 8439, counter and nonce 0: `size` words of 64 bits."""
    blocks = -(-size // 8)
    head = np.frombuffer(b"expand 32-byte k" + key + bytes(16), "<u4")
    start = np.repeat(head[:, None], blocks, axis=1)
    start[12] = np.arange(blocks)
    s = start.copy()

    def quarter(a, b, c, d):
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[x] += s[y]
            s[z] ^= s[x]
            s[z] = s[z] << np.uint32(turn) | s[z] >> np.uint32(32 - turn)

    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return np.ascontiguousarray((s + start).T).astype("<u4").view("<u8").ravel()[:size]


def h(label, *parts):
    return hashlib.sha256(label.encode() + b"\x00" + b"".join(parts)).digest()


class Private:
    """This vehicle's part in one private run."""

    def __init__(self, agent, terms, data_digest, rows_tag):
        self.agent, self.terms, self.secret, self.answered = agent, terms, os.urandom(32), {}
        key = x25519(self.secret, (9).to_bytes(32, "little"))
        self.own = dict.fromkeys(("anchor", "new_rows", "new_tests", "new_digest"), "") | {"totals": [], "heard": []}
        self.own |= {"key": key, "floor": 8, "left": 1, "rows": rows_tag, "era": rows_tag, "tests": "0" * 16}
        self.message = {**self.own, "agent": agent, "data_digest": data_digest}
        self.digest, self.roster, self.members, self.number = h("glassfleet-terms/1", enc(terms)), None, None, 0

    def place(self):
        """Where it stands in the order in which groups are cut; it has no anchor."""
        return int.from_bytes(hashlib.sha256(self.digest + self.agent.encode()).digest()[:6], "big") // 2 + 2**47

    def group(self, groups):
        """Return its own among the groups of a request, or None."""
        known = None if self.roster is None else self.at
        return next(
            (g for g in groups if self.agent in g["members"] or (not g["members"] and g["group"] == known)), None
        )

    def meet(self, group, fleet):
        founders = []
        for packed in group["founders"]:
            message = rich(msgpack.unpackb(packed))
            values = {
                **message["body"]["contribution"]["values"],
                "data_digest": message["body"]["data_digest"],
                "agent": message["agent"],
            }
            if message["fleet"] != fleet or message["run"] != self.terms["run"]:
                raise Refused(f"bad-member: {message['agent']}")
            founders.append(values)
        ids = [each["agent"] for each in founders]
        if ids != sorted(set(ids)) or len({each["key"] for each in founders}) < len(ids):
            raise Refused("bad-member")
        if self.message not in founders:
            raise Refused("not-member")
        if group["totals"]:
            raise Refused("single-out")  # it knows no earlier run: others' would have to be looked into
        value = [self.digest, group["group"], founders, group["renews"]]
        self.roster, self.members, self.number = h("glassfleet-roster/1", enc(value)), ids, -1
        self.at, self.founders, salt = group["group"], len(ids), h("glassfleet-pair/1", self.digest)
        self.pairs = {}
        for each in founders:
            if each["agent"] != self.agent:
                shared = x25519(self.secret, each["key"])
                if int.from_bytes(each["key"], "little") >= 2**255 - 19 or shared == bytes(32):
                    raise Refused(f"bad-member: {each['agent']}")
                self.pairs[each["agent"]] = hmac.digest(salt, shared, "sha256")

    def edition(self, group):
        number, members = group["number"], group["members"] or self.members
        if (number, members) == (self.number, self.members):
            return
        if self.agent not in members:
            raise Refused("not-member")
        first = self.number < 0 and members == self.members
        if not first and (number <= self.number or not set(members) < set(self.members)):
            raise Refused("other-edition")
        if not first and len(self.members) - len(members) < self.terms["company"]:
            raise Refused("single-out")
        if len(members) < max(8, self.terms["floor"], math.ceil((self.founders + self.terms["company"]) / 2)):
            raise Refused("too-few")
        self.number, self.members = number, members

    def mask(self, task, group, counted):
        parameters = task["body"].get("parameters", {})
        known = task["scheme"] == "domain" or (
            task["scheme"] == self.terms["scheme"] and digest(parameters) == self.terms["parameters"]
        )
        if not known or task.get("nonce") != self.terms["nonce"] or task["body"].get("max_rows_each"):
            raise Refused("not-private")
        edition = h("glassfleet-edition/1", enc([self.roster, self.number, self.members]))
        sums, task_digest = counted["sums"], bytes.fromhex(digest(task))
        layout = hashlib.sha256(
            enc({"kind": task["kind"], "shapes": [[n, list(sums[n].shape)] for n in sorted(sums)]})
        ).digest()
        question = h("glassfleet-question/1", edition, task_digest, layout).hex()
        if question != group["question"]:
            raise Refused("other-layout")
        words = (
            np.concatenate([[counted["rows"], int(counted["rows"] > 0)], *(sums[n].ravel() for n in sorted(sums))])
            .astype("<i8")
            .view("<u8")
        )
        for other in [each for each in self.members if each != self.agent]:
            low, high = sorted([self.agent.encode(), other.encode()])
            message = b"glassfleet-mask/1\x00" + edition + task_digest + len(low).to_bytes(2, "big") + low + high
            stream = chacha20(hmac.digest(self.pairs[other], message, "sha256"), len(words))
            words = words + stream if self.agent.encode() == low else words - stream
        return {"kind": task["kind"], "rows": 0, "sums": {"masked": words.view("<i8")}, "values": {}, "nullified": 0}
