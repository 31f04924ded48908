"""``glassfleet model sign`` against a coordinator's HTTP API: it asks first, and signs what it showed."""

from __future__ import annotations

import json
import os
import pty
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker.identity import save_identity
from console.main import run
from coordinator.http.api import ApiServer
from tests.support.fleet import FleetCa
from tests.support.processes import eventually
from tests.support.resigning_bench import Cloud, authorities, is_believed, record_of

Call = Callable[..., tuple[int, str, str]]
UNSIGNED = "unsigned: the record of m carries no signature"


@pytest.fixture
def ca(tmp_path: Path) -> FleetCa:
    return authorities(tmp_path, "one")[0]


@pytest.fixture
def cloud(ca: FleetCa, tmp_path: Path) -> Iterator[Cloud]:
    made = Cloud(ca.identity("coordinator", "cloud"))
    made.register(record_of(), record_of(2, software="a\x1b[2Jb"), record_of(3).to_bytes()[:-9])
    made.start()
    (tmp_path / "state").mkdir()
    service = made.service(tmp_path / "state")
    server = ApiServer(service.config)
    server.start(service)
    eventually((tmp_path / "state" / "api-url").exists)
    yield made
    server.stop()


@pytest.fixture
def call(cloud: Cloud, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    del cloud  # it is up

    def said(*arguments: str, typed: str | None = None) -> tuple[int, str, str]:
        main, side = pty.openpty()
        os.write(main, (typed or "").encode())
        with os.fdopen(side if typed is not None else os.open(os.devnull, os.O_RDONLY)) as stdin, capture_logs():
            monkeypatch.setattr(sys, "stdin", stdin)
            code = run(["model", "sign", *arguments, "--state-dir", str(tmp_path / "state")])
        os.close(main)
        if typed is None:
            os.close(side)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return said


def test_operator_is_shown_the_record_and_asked_before_it_is_signed(call: Call, cloud: Cloud, ca: FleetCa) -> None:
    code, out, err = call("m@2", typed="n\n")
    assert code != 0
    assert not is_believed(cloud.stored(2), ca)
    assert record_of(2).digest in err
    assert "from run r2" in err
    assert "learned from v1" in err
    assert "signed, as it says, by nobody" in err
    assert "\x1b" not in err, "control characters of a record are shown as escapes"
    code, out, err = call("m@2", "--reason", "compared", typed="y\n")
    assert (code, out) == (0, f"m v2  {record_of(2).digest[:12]}: signed by coordinator cloud (before: {UNSIGNED})\n")
    assert is_believed(cloud.stored(2), ca)


def test_operator_who_cannot_be_asked_says_yes_or_nothing_is_signed(call: Call, cloud: Cloud, ca: FleetCa) -> None:
    code, _, err = call("m@1")
    assert code == 2
    assert "then say --yes" in err
    assert not is_believed(cloud.stored(), ca)
    code, out, _ = call("m", "--yes", "--json")
    assert (code, out) == (2, "")
    code, out, err = call("m@3", "--yes")
    assert code == 2
    assert "version 3 is not signed" in err
    code, out, _ = call("m@1", "--yes", "--json")
    assert code == 0
    assert json.loads(out) == {
        "name": "m", "version": 1, "digest": record_of().digest, "signer": "coordinator cloud", "former": UNSIGNED,
        "signed": True,
    }  # fmt: skip
    assert is_believed(cloud.stored(), ca)
    assert call("m@1", "--yes")[1].endswith("its signature is good, nothing was done\n")


def test_operator_is_told_that_a_good_record_of_another_authority_was_signed(
    call: Call, cloud: Cloud, ca: FleetCa, tmp_path: Path
) -> None:
    assert call("m@1", "--yes")[0] == 0
    (after,) = authorities(tmp_path, "two")
    fresh = after.identity("coordinator", "cloud")
    files = {"key": (fresh / "key.pem").read_bytes(), "certificate": (fresh / "cert.pem").read_bytes()}
    save_identity(cloud.folder, **files, ca=ca.authority.ca_pem + after.authority.ca_pem)
    cloud.credentials.refresh()
    code, out, _ = call("m@1", "--yes")
    assert (code, out.partition(": ")[2]) == (
        0,
        "signed by coordinator cloud (before: good, under another authority)\n",
    )
    assert is_believed(cloud.stored(), after)
    assert call("m@1", "--yes")[1].endswith("its signature is good, nothing was done\n")
