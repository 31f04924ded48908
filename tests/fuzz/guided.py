"""Fuzzing led by coverage (atheris, libFuzzer): ``make fuzz-guided``, or ``python -m tests.fuzz.guided --list``.

Each target is fuzzed in a process of its own, one after the other, with an equal share of the time. What is tried is
kept in a folder when it reached new lines; every other mutation changes values and not bytes (`tests.fuzz.mutate`).
What is not documented is written down with the input, and the fuzzing goes on. Exit code 1 when there was any.

atheris is no part of the locked environment: nothing but this file needs it.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parents[2]
OURS = ["schemas", "glassfleet", "broker", "coordinator", "edge_agent"]
"""Packages whose lines count as reached."""

MOST_BYTES = 64 * 1024
PATIENCE = 20
"""Seconds that libFuzzer lets one input take; the longest that is not a fault takes one."""


@dataclass(frozen=True)
class Guided:
    """A target.

    Attributes
    ----------
    seeds : list of bytes
        Where it begins.
    feed : callable
        Takes an input; raises what is not documented.
    mutate : callable or None
        Changes values instead of bytes.
    """

    seeds: list[bytes]
    feed: Callable[[bytes], object]
    mutate: Callable[[random.Random, bytes], bytes] | None = None


def mutate_msgpack(rng: random.Random, data: bytes) -> bytes:
    """Change values of a message."""
    from schemas import codec  # after the instrumentation
    from tests.fuzz.mutate import mutate

    return mutate(rng, codec.decode(data), data)


def mutate_json(rng: random.Random, data: bytes) -> bytes:
    """Change values of a JSON document."""
    from tests.fuzz.mutate import edited  # after the instrumentation

    return json.dumps(edited(rng, json.loads(data))).encode()


def _codec() -> Guided:
    from tests.fuzz.targets import Codec, envelopes

    return Guided([envelope.to_bytes() for envelope in envelopes()], Codec.take, mutate_msgpack)


def _envelope() -> Guided:
    from tests.fuzz.targets import Envelopes, envelopes

    return Guided([envelope.to_bytes() for envelope in envelopes()], Envelopes.take, mutate_msgpack)


def _parts() -> Guided:
    from schemas.envelope import Envelope, frames_for_contribution, pack, read_model, unpack
    from schemas.errors import WireError
    from schemas.messages import Manifest, Part
    from schemas.topics import Topics
    from schemas.trust.joining import Assembler, BlobStore
    from tests.fuzz.targets import DIGEST, FLEET, envelopes

    topics = Topics(FLEET)
    assembler = Assembler(max_bytes=2**20, total_bytes=2**21)
    store = BlobStore(topics, max_bytes=2**20)

    def feed(data: bytes) -> None:
        with contextlib.suppress(WireError):
            unpack(data, max_bytes=2**20)
        with contextlib.suppress(WireError):
            read_model(data, fleet=FLEET)
        with contextlib.suppress(WireError):
            envelope = Envelope.from_bytes(data, fleet=FLEET)
            if isinstance(envelope.body, Part):
                assembler.add(envelope)
            elif isinstance(envelope.body, Manifest):
                store.want(envelope.body)
        with contextlib.suppress(WireError):
            store.add(topics.blob(DIGEST, 0), data)
        assert assembler.kept_bytes <= 2**21 + 2**20
        assert len(store.open_digests) <= 4

    whole = envelopes()[3]
    cut = [frame.payload for frame in frames_for_contribution(whole, topics, 2048)]
    plain, packed = b"\0" + whole.to_bytes(), pack(whole.to_bytes())
    return Guided([packed, plain, *cut, *(envelope.to_bytes() for envelope in envelopes())], feed, mutate_msgpack)


def _signed() -> Guided:
    from broker.signed import writers
    from schemas.errors import WireError
    from schemas.topics import Topics
    from tests.fuzz.targets import FLEET, envelopes
    from tests.support.authorities import TestCa

    topics, ca = Topics(FLEET), TestCa()
    verifier = ca.verifier()
    lines = {topics.contribution("a"): ca.agent("a").signer(), topics.request("r"): ca.coordinator().signer()}
    true = {topic: [signer.seal(topic, each.to_bytes()) for each in envelopes()] for topic, signer in lines.items()}
    foreign = TestCa().agent("a").signer()
    topic = topics.contribution("a")
    wrong = [foreign.seal(topic, envelopes()[3].to_bytes()), envelopes()[3].to_bytes()]

    def feed(data: bytes) -> None:
        for topic, sealed in true.items():
            with contextlib.suppress(WireError):
                verifier.open(topic, data, writers(topics.parse(topic)))
                assert data in sealed, "a message that nobody sealed is taken"

    return Guided([*(each for sealed in true.values() for each in sealed), *wrong], feed)


def _revocations() -> Guided:
    import datetime as dt

    from broker.servers.revocation import check_crl
    from coordinator.authority.store import Authority
    from schemas.errors import UsageError, WireError
    from schemas.trust.certificates import number_of, read_list
    from schemas.trust.identity import load_key, new_key, read_request
    from schemas.trust.identity import make_request as ask
    from schemas.trust.owner import Owner
    from schemas.trust.signing import Verifier

    with tempfile.TemporaryDirectory() as folder:
        authority = Authority.create(Path(folder) / "ca", "fuzz")
        key = new_key()
        authority.issue(Owner("agent", "a"), load_key(key).public_key())
        authority.revoke("a", "stolen")
        ca, crl = authority.ca_pem, authority.crl_pem
    now = dt.datetime.now(dt.UTC).timestamp()

    def feed(data: bytes) -> None:
        _ = None if (given := read_list(data)) is None else number_of(given)
        verifier = Verifier(ca, lambda: now)
        with contextlib.suppress(WireError):
            verifier.update_crl(data)
            assert len(verifier.revoked) == 1, "a list that the authority did not sign is taken"
        with contextlib.suppress(UsageError):
            check_crl(data, ca, crl)
        with contextlib.suppress(WireError):
            read_request(data)
        with contextlib.suppress(UsageError):
            load_key(data)

    return Guided([ca, crl, ask(key, Owner("agent", "a")), key], feed)


def _record() -> Guided:
    from tests.fuzz.targets import Records, record_of

    return Guided([record_of(name).to_bytes() for name in ("frt", "frbc", "tsk")], Records.take, mutate_json)


def _document() -> Guided:
    from glassfleet.contract import catalogue
    from tests.fuzz.targets import Documents, benches

    names = set(catalogue.names())
    models = [bench.outcome(bench.parameters).model for bench in benches().values()]

    def feed(data: bytes) -> None:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            return
        name = document.get("scheme") if isinstance(document, dict) else None
        if isinstance(name, str) and name in names:
            Documents.take(catalogue.load(name), document)

    return Guided([json.dumps(model.to_document()).encode() for model in models], feed, mutate_json)


def _config() -> Guided:
    from coordinator.config import CoordinatorConfig
    from edge_agent.config import AgentConfig
    from schemas.errors import UsageError
    from tests.fuzz.targets import named

    folder = Path(tempfile.mkdtemp(prefix="glassfleet-fuzz-"))
    file = folder / "settings.toml"

    def feed(data: bytes) -> None:
        file.write_bytes(data)
        for load in (AgentConfig.load, CoordinatorConfig.load):
            try:
                load(file)
            except UsageError as fault:
                named(fault, "refused")

    texts = (
        'fleet = "north"\n[agent]\nid = "v"\ndata = "d.csv"\nkeepalive = 30\nresend_first = 2.0\nevaluate = false\n',
        '[coordinator]\nstate_dir = "/tmp/x"\napi = true\napi_port = 0\njournal_url = "sqlite:///x"\n',
        '[agent]\nid = ""\nslow = inf\nkeepalive = "x"\n[[agent.data]]\n',
    )
    return Guided([text.encode() for text in texts], feed)


def _topics() -> Guided:
    from schemas.topics import Topics
    from tests.fuzz.targets import DIGEST, FLEET, TopicNames

    topics = Topics(FLEET)
    result = (topics.request("r"), topics.contribution("a"), topics.blob(DIGEST, 3), topics.model_version("m", 7))
    seeds = [topic.encode() for topic in (*result, topics.receipt("a"), topics.revoked())]
    return Guided(seeds, lambda data: TopicNames.take(data.decode("utf-8", errors="surrogateescape")))


TARGETS: dict[str, Callable[[], Guided]] = {
    "codec": _codec,
    "envelope": _envelope,
    "parts": _parts,
    "signed": _signed,
    "revocations": _revocations,
    "record": _record,
    "document": _document,
    "config": _config,
    "topics": _topics,
}


def run_target(name: str, seconds: float, folder: Path, findings: Path) -> None:
    """Fuzz one target in this process; libFuzzer ends it."""
    atheris = importlib.import_module("atheris")  # not installed where nobody fuzzes this way

    warnings.simplefilter("ignore")
    with atheris.instrument_imports(include=OURS, enable_loader_override=False):
        target = TARGETS[name]()
    corpus = folder / name
    corpus.mkdir(parents=True, exist_ok=True)
    for index, seed in enumerate(target.seeds):
        (corpus / f"seed-{index:02d}").write_bytes(seed)
    known: set[str] = set()

    def test(data: bytes) -> None:
        try:
            target.feed(data)
        except Exception as fault:  # noqa: BLE001 - whatever it is, it is what we look for
            frames = traceback.extract_tb(fault.__traceback__)[-3:]
            place = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
            key = f"{type(fault).__name__} {place[-1]}"
            if key not in known:
                known.add(key)
                result: dict[str, Any] = {"target": name, "fault": f"{type(fault).__name__}: {fault}"[:300]}
                result |= {"place": place, "input": base64.b64encode(data).decode("ascii")}
                with findings.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if target.mutate is not None and rng.random() < 0.5:
            with contextlib.suppress(Exception):
                return target.mutate(rng, data)[:max_size]
        return bytes(atheris.Mutate(data, max_size))

    options = [f"-max_total_time={max(1, int(seconds))}", f"-max_len={MOST_BYTES}", f"-timeout={PATIENCE}"]
    options += ["-rss_limit_mb=2048", "-verbosity=1", f"-artifact_prefix={findings.parent}/"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], test, custom_mutator=mutate)
    atheris.Fuzz()


def main() -> int:
    """Fuzz all targets, or one."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="in all")
    parser.add_argument("--only", choices=sorted(TARGETS), help="one target")
    parser.add_argument("--corpus", type=Path, help="folder that keeps what reached new lines; default: a new one")
    parser.add_argument("--list", action="store_true", help="name the targets")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(TARGETS))
        return 0
    folder = chosen.corpus or Path(tempfile.mkdtemp(prefix="glassfleet-guided-"))
    folder.mkdir(parents=True, exist_ok=True)
    findings = folder / "findings.jsonl"
    names = [chosen.only] if chosen.only else list(TARGETS)
    if chosen.here:
        run_target(names[0], chosen.seconds, folder, findings)
        return 0
    is_clean = True
    for name in names:
        command = [sys.executable, "-m", "tests.fuzz.guided", "--here", "--only", name, "--corpus", str(folder)]
        command += ["--seconds", str(chosen.seconds / len(names))]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, errors="replace")
        log = folder / f"{name}.log"
        log.write_text(done.stderr, encoding="utf-8")
        if done.returncode != 0:
            is_clean = False
            print(f"{name}: ended with exit code {done.returncode}, see {log}: {done.stderr[-300:]}")
        last = next((line for line in reversed(done.stderr.splitlines()) if " cov: " in line), "nothing was reached")
        print(f"{name}: {last}", flush=True)
    result = findings.read_text(encoding="utf-8").splitlines() if findings.exists() else []
    for line in result:
        print(f"FINDING {line[:400]}")
    print(f"{len(result)} findings; corpus and logs in {folder}")
    return 1 if result or not is_clean else 0


if __name__ == "__main__":
    sys.exit(main())
