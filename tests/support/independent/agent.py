"""A vehicle in plain Python: ``python -m tests.support.independent.agent BROKER FLEET ID DATA.csv``.

It imports nothing of Glassfleet, and was written from the pages alone. msgpack, paho and numpy are all that it needs.
"""

# mypy: ignore-errors

# ruff: noqa: C901, PLR0912 - it shows how short it can be

import hashlib
import hmac
import math
import os
import queue
import random
import sys
import time
import zlib
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgpack
import paho.mqtt.client as mqtt

from tests.support.independent.encoding import Refused, enc, pack, rich, unpack
from tests.support.independent.private import Private
from tests.support.independent.rows import Table, discovery
from tests.support.independent.schemes import frt, tree

PART = 100_000
LIMIT = 128 * 1024


def kept_secret(agent):
    """Return the secret by which rows are named and condensed: the same after a restart."""
    path = Path(f"{sys.argv[4]}.{agent}.secret")
    if not path.exists():
        path.write_bytes(os.urandom(32))
    return path.read_bytes()


class Agent:
    def __init__(self, url, fleet, agent, table):
        self.fleet, self.id, self.table, self.incoming = fleet, agent, table, queue.Queue()
        self.secret, self.incarnation, self.started = kept_secret(agent), os.urandom(8).hex(), time.time()
        self.runs, self.wanted, self.seen, self.born, self.due, self.online = {}, {}, "", 0.0, False, False
        self.mine, self.prefix = f"gf/1/{fleet}/agent/{agent}/", f"gf/1/{fleet}/"
        at = urlsplit(url)
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, f"independent-{fleet}-{agent}", clean_session=False)
        if at.username:
            self.client.username_pw_set(unquote(at.username), unquote(at.password or ""))
        self.client.will_set(self.mine + "state", self.state("down"), 1, retain=True)
        self.client.on_connect = lambda *_: self.incoming.put(("up", b"", False))
        self.client.on_disconnect = lambda *_: self.incoming.put(("down", b"", False))
        self.client.on_message = lambda _, __, message: self.incoming.put(
            (message.topic, message.payload, message.retain)
        )
        self.client.reconnect_delay_set(1, 3)
        self.client.connect_async(at.hostname, at.port or 1883, keepalive=10)
        self.client.loop_start()

    def envelope(self, kind, body, run="", when=None, **more):
        head = {
            "v": 1, "fleet": self.fleet, "agent": self.id, "run": run, "round": 0, "attempt": 0, "scheme": "",
            "signature": b"",
        }  # fmt: skip
        return enc({**head, **more, "kind": kind, "body": body, "time": time.time() if when is None else when})

    def state(self, status):
        body = {"status": status, "incarnation": self.incarnation, "software": "independent"}
        if status == "up":
            kinds = [
                "words" if name in self.table.texts else "numbers" for name in [*self.table.features, self.table.target]
            ]
            body |= {
                "schemes": ["tree"] if self.table.texts else ["frt", "tree"],
                "features": self.table.features,
                "target": self.table.target,
            }
            body |= {"kinds": kinds} if self.table.texts else {}
        return self.envelope("agent-state", body, when=self.started)

    def birth(self):
        self.due = time.monotonic() - self.born < 0.25
        if not self.due:
            self.born = time.monotonic()
            self.client.publish(self.mine + "state", self.state("up"), 1, retain=True)

    def loop(self):
        while True:
            try:
                self.take(*self.incoming.get(timeout=0.1))
            except queue.Empty:
                pass
            except (ValueError, KeyError, TypeError, AttributeError, IndexError, msgpack.exceptions.UnpackException):
                pass  # what cannot be read changes nothing
            if self.due and self.online:
                self.birth()
            for run in self.runs.values():
                for each in run["sending"].values():
                    if self.online and each["due"] <= time.monotonic():
                        self.send(each)

    def take(self, topic, payload, retained):
        if topic == "up":
            self.online = True
            own = [
                self.mine + "receipt",
                self.mine + "state",
                self.prefix + "coordinator/state",
                self.prefix + "run/+/request",
            ]
            self.client.subscribe([(each, 1) for each in own])
            self.birth()
        elif topic == "down":
            self.online = False
        elif topic == self.mine + "state":
            if payload != self.state("up"):
                self.birth()
        elif "/blob/" in topic and payload:
            self.blob(topic, payload)
        elif topic.endswith("/request") and not payload:
            self.runs.pop(topic.split("/")[-2], None)
        elif payload:
            message = rich(msgpack.unpackb(payload))
            if message["v"] != 1 or message["fleet"] != self.fleet or len(message) > 11:
                raise ValueError("not for us")
            if topic == self.prefix + "coordinator/state" and message["body"]["status"] == "up":
                if message["body"]["incarnation"] != self.seen:
                    self.seen = message["body"]["incarnation"]
                    self.birth()
            elif topic == self.mine + "receipt":
                self.receipt(message["body"])
            elif topic.endswith("/request") and message["kind"] == "manifest":
                self.wanted[message["body"]["digest"]] = (
                    message["body"],
                    {},
                    lambda content: self.request(rich(msgpack.unpackb(content))),
                )
                self.client.subscribe(f"{self.prefix}blob/{message['body']['digest']}/+", 1)
            elif topic.endswith(f"/{message['run']}/request") and message["kind"] == "request":
                self.request(message)

    def blob(self, topic, payload):
        name, index = topic.split("/")[-2:]
        body, parts, use = self.wanted[name]
        parts[int(index)] = payload
        if len(parts) == body["count"]:
            packed = b"".join(parts[at] for at in range(body["count"]))
            del self.wanted[name]
            self.client.unsubscribe(f"{self.prefix}blob/{name}/+")
            if hashlib.sha256(packed).hexdigest() == name:
                use(unpack(packed))

    def receipt(self, body):
        run = self.runs.get(body["run"])
        if run and run["sending"].pop(body["task_digest"], None):
            run["ended"].add(body["task_digest"])
            run["outside"] |= body["reason"] in ("not-asked", "left-out")

    def request(self, message):
        body, name, task = message["body"], message["run"], message["body"]["task"]
        run = self.runs.setdefault(
            name, {"sending": {}, "kept": {}, "ended": set(), "outside": False, "time": 0.0, "private": None}
        )
        run["table"] = run.get("table", self.table)
        sample, named = body.get("sample"), body.get("asked")
        if named is not None and self.id not in named:
            return
        if named is None and (run["outside"] or self.id in (body.get("without") or [])):
            return
        if sample and hashlib.sha256(f"{sample['salt']}/{self.id}".encode()).hexdigest() > sample["last"]:
            return
        known = task["scheme"] in ("domain", "private", "frt", "tree")
        if not known and named is None and not run["kept"]:
            return
        if body["task_digest"] in run["ended"] or message["time"] < run["time"]:
            return
        if body.get("rosters") and run["private"] and run["private"].group(body["private"]) is None:
            self.fetch_roster(message, body["rosters"], run["private"].place())
            return
        run["time"] = message["time"]
        run["sending"] = {key: each for key, each in run["sending"].items() if key == body["task_digest"]}
        kept = run["kept"].get(body["task_digest"])
        if kept is None or kept["refused"]:
            kept = run["kept"][body["task_digest"]] = self.answer(name, run, message, body, task)
        run["sending"][body["task_digest"]] = kept
        if kept["refused"]:
            self.send(kept)

    def fetch_roster(self, message, rosters, place):
        at = next((at for at, last in enumerate(rosters["last"]) if last >= place), None)
        if at is not None:
            name, count = rosters["digests"][at].hex(), -(-rosters["sizes"][at] // rosters["piece"])

            def use(content):
                private = [rich(msgpack.unpackb(content))]
                self.request({**message, "body": {**message["body"], "private": private, "rosters": None}})

            self.wanted[name] = ({"count": count}, {}, use)
            self.client.subscribe(f"{self.prefix}blob/{name}/+", 1)

    def answer(self, name, run, message, body, task):
        head = {"run": name, "round": message["round"], "attempt": message["attempt"], "scheme": task["scheme"]}
        try:
            counted, given = self.computed(name, run, body, task)
            data = hmac.new(self.secret, name.encode(), "sha256").hexdigest()
            contribution = {
                "task_digest": body["task_digest"],
                "rows": counted,
                "data_digest": data,
                "contribution": given,
            }
            payload, refused = self.envelope("contribution", contribution, **head), False
        except (Refused, ValueError, KeyError, TypeError, AttributeError, IndexError) as fault:
            reason = (
                str(fault) if isinstance(fault, Refused) else f"the task cannot be read: {type(fault).__name__} {fault}"
            )
            payload, refused = (
                self.envelope("refusal", {"task_digest": body["task_digest"], "reason": reason[:500]}, **head),
                True,
            )
        return {"payload": payload, "due": 0.0, "wait": 2.0, "refused": refused}

    def computed(self, name, run, body, task):
        scheme, private = task["scheme"], run["private"]
        if scheme == "private":
            data = hmac.new(self.secret, name.encode(), "sha256").hexdigest()
            tag = hmac.new(self.secret, b"rows", "sha256").hexdigest()[:16]
            run["private"] = private = private or Private(self.id, task["body"], data, tag)
            return 0, {"kind": "keys", "rows": 0, "sums": {}, "values": private.own, "nullified": 0}
        if (private is None) != (body.get("private") is None):
            raise Refused("not-private")
        group = None
        if private is not None:
            group = private.group(body["private"])
            if group is None:
                raise Refused("not-member")
            if private.roster is None:
                private.meet(group, self.fleet)
            private.edition(group)
        key = hmac.new(self.secret, b"condense", "sha256").digest()
        if scheme == "domain":
            if task["kind"] != "histogram":
                raise Refused(f"no question of discovery: {task['kind']}")
            counted, given = discovery(task["body"], run["table"])
        else:
            counted, given = {"frt": frt, "tree": tree}[scheme](task["kind"], task["body"], run["table"], key)
        return (counted, given) if private is None else (0, private.mask(task, group, given))

    def send(self, each):
        each["due"] = time.monotonic() + each["wait"] * (1.0 - 0.5 * random.random())
        each["wait"] = min(60.0, 2.0 * each["wait"])
        if each["refused"]:
            each["due"] = math.inf
        payload, topic = each["payload"], self.mine + f"contribution/{zlib.crc32(self.id.encode()) % 8}"
        if len(payload) <= LIMIT:
            self.client.publish(topic, payload, 1)
            return
        packed, message = pack(payload), msgpack.unpackb(payload)
        pieces = [packed[at : at + PART] for at in range(0, len(packed), PART)]
        for index, piece in enumerate(pieces):
            part = {"digest": hashlib.sha256(packed).hexdigest(), "index": index, "count": len(pieces), "data": piece}
            self.client.publish(topic, self.envelope("part", part, message["run"]), 1)


if __name__ == "__main__":
    Agent(*sys.argv[1:4], Table(sys.argv[4])).loop()
