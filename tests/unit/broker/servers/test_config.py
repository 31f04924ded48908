"""What brokers are configured with: as the tests run them, for their owner alone, with TLS on a network."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.servers.mosquitto import MosquittoProcess, mosquitto_acl
from console.services.broker import broker
from schemas.errors import UsageError


def config(*arguments: str) -> str:
    result = CliRunner().invoke(broker, ["config", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.needs("mosquitto")
def test_written_configuration_is_the_one_that_the_tests_run_with(tmp_path: Path) -> None:
    running = MosquittoProcess(tmp_path / "state", port=1999)
    tested = (tmp_path / "state" / "mosquitto.conf").read_text(encoding="utf-8")
    config("--port", "1999", "--out", str(tmp_path / "state" / "other.conf"))
    written = (tmp_path / "state" / "other.conf").read_text(encoding="utf-8")
    # Started as root, ours stays root: it reads the files of the test, in whose folder nobody else may look.
    assert written == tested.replace("user root", "user mosquitto")
    assert f":{running.address.password}@" in running.url
    secret = (tmp_path / "state" / "secret").read_text(encoding="utf-8").strip()
    assert secret == running.address.password, "the password is kept, so that its agents still can sign in"


def test_written_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    config("--out", str(tmp_path / "new" / "broker.conf"))
    files = sorted(path.name for path in (tmp_path / "new").iterdir())
    expected = ["acl", "passwords"]
    assert files == sorted(["broker.conf", "secret", *expected])
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").iterdir()}
    assert modes == {0o600}
    secret = (tmp_path / "new" / "secret").read_text(encoding="utf-8").strip()
    assert all(secret not in (tmp_path / "new" / name).read_text() for name in ["broker.conf", *expected])


def test_network_without_tls_is_refused() -> None:
    with pytest.raises(UsageError, match="give --cert and --key"):
        config("--host", "0.0.0.0")
    with pytest.raises(UsageError, match="both --cert and --key"):
        config("--cert", __file__)


def test_configuration_for_a_network_has_tls() -> None:
    tls = ("--host", "0.0.0.0", "--port", "8883", "--cert", __file__, "--key", __file__)
    lines = config(*tls).splitlines()
    assert {"listener 8883 0.0.0.0", f"certfile {__file__}", f"keyfile {__file__}"} <= set(lines)


def test_user_name_that_would_break_out_of_its_line_is_misuse():
    with pytest.raises(UsageError):
        mosquitto_acl({"v1\ntopic readwrite #": []})
