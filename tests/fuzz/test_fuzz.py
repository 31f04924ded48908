"""Hostile messages: a seeded selection of the fuzzer (`make fuzz` is the long run), and those that have a name.

Each of these is refused with its reason: what the fuzzer found, and what is well known.

An entry of ``corpus/*.json`` has its bytes as ``hex``, repeated ``times`` and followed by ``tail``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas import codec
from schemas.envelope import Envelope, unpack
from schemas.errors import UsageError, WireError
from schemas.record import ModelRecord
from schemas.topics import Topics
from schemas.trust.certificates import read_list
from schemas.trust.identity import load_key, read_request
from tests.fuzz.targets import FLEET
from tests.fuzz.worlds import CoordinatorWorld
from tests.support.authorities import TestCa

INPUTS = 4_000
FOLDER = Path(__file__).parent / "corpus"
READERS: dict[str, Callable[[bytes], Any]] = {
    "codec": codec.decode,
    "envelope": lambda data: Envelope.from_bytes(data, fleet=FLEET),
    "packed": lambda data: unpack(data, max_bytes=2**20),
    "record": ModelRecord.from_bytes,
    "request": read_request,
    "crl": lambda data: TestCa().verifier().update_crl(data),
}


def entries(name: str) -> list[Any]:
    result = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return [pytest.param(entry, id=entry["name"]) for entry in result]


def bytes_of(entry: dict[str, Any]) -> bytes:
    head, tail = bytes.fromhex(entry["hex"]), bytes.fromhex(entry.get("tail", ""))
    times: int = entry.get("times", 1)
    return head * times + tail


@pytest.mark.parametrize(("reader", "entry"), [(n, *e.values) for n in READERS for e in entries(n)])
def test_reader_refuses_each_message_of_the_corpus(reader, entry):
    with pytest.raises(WireError) as refusal:
        READERS[reader](bytes_of(entry))
    assert refusal.value.code == entry["expect"], entry["name"]


@pytest.mark.parametrize("entry", entries("key"))
def test_key_that_cannot_be_read_is_misuse(entry):
    with pytest.raises(UsageError, match="cannot be read"):
        load_key(bytes_of(entry))


@pytest.mark.parametrize("entry", entries("crl"))
def test_list_that_cannot_be_read_is_passed_over(entry):
    assert read_list(bytes_of(entry)) is None


@pytest.fixture(scope="module")
def world() -> CoordinatorWorld:
    return CoordinatorWorld("frt")


@pytest.mark.parametrize("entry", entries("contribution"))
def test_coordinator_answers_each_message_of_the_corpus_and_changes_nothing(world, entry):
    outcome, *reason = entry["expect"].split()
    assert world.replay(Topics(FLEET).contribution("vehicle-2"), bytes_of(entry)) == outcome
    assert [text.partition(":")[0] for text in world.reasons if text] == reason


def test_journal_does_not_grow_for_ever_when_one_peer_repeats_itself():
    world = CoordinatorWorld("frt")
    assert world.flood(100) <= 2, "that the peer is not waited for, and nothing else"


def test_nothing_breaks_when_peers_send_broken_messages() -> None:
    """In a process of its own with bounded memory."""
    command = [sys.executable, "-m", "tests.fuzz", "--inputs", str(INPUTS), "--seed", "20261121", "--json"]
    result = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert result.stdout, result.stderr[-2000:]
    report = json.loads(result.stdout)
    again = "python -m tests.fuzz --seed 20261121 --replay TARGET --index INDEX"
    assert report["findings"] == [], f"make one again with: {again}"
    assert report["inputs"] >= INPUTS - 100
    assert report["grown_mb"] < 400, "memory of one target: a 64 MiB message, joined and decompressed"
    # The selection reaches what it means to reach: refusals by reason, and answers that pass.
    outcomes = report["outcomes"]
    assert outcomes["frt/coordinator"]["rejected"] > 15
    assert outcomes["frt/check"]["rejected"] > 30
    assert outcomes["parts"]["oversize"] > 2
    assert outcomes["agent"]["refusal"] > 15
