"""Files of state: private whatever the umask is, whole or not there, refused where others could have changed them."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from broker.servers.process import kept_password, prepare_state_dir
from coordinator.authority.store import Authority
from coordinator.config import CoordinatorConfig
from coordinator.http.api import read_or_make_token
from coordinator.journal.port import Entry
from coordinator.journal.sql import SqlJournal
from coordinator.main import build
from edge_agent.forecast.log import ForecastLog
from edge_agent.session.outbox import Outbox
from edge_agent.session.snapshots import Snapshots
from edge_agent.storage import FolderLock, load_secret, make_directory
from glassfleet.data.dataset import Dataset
from schemas.errors import StorageError
from schemas.log import Log, LogWriter
from schemas.private_files import kept_secret, private_folder


@pytest.fixture(autouse=True)
def lax_umask() -> Iterator[None]:
    former = os.umask(0o022)
    yield
    os.umask(former)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_others(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): oct(mode(path)) for path in folder.rglob("*") if mode(path) & 0o077}


def journal(folder: Path) -> object:
    made = SqlJournal(f"sqlite:///{folder / 'journal.sqlite'}")
    made.append([Entry("r", "kind", 1.0, 1.0, b"body")])
    assert (folder / "journal.sqlite-wal").exists()
    return made


def agent(folder: Path) -> object:
    make_directory(folder)
    lock = FolderLock(folder, "v1")
    Snapshots(folder / "runs", load_secret(folder)).of_run("r1", Dataset(("a",), "y", np.zeros((9, 1)), np.zeros(9)))
    outbox = Outbox(folder / "outbox.sqlite")
    outbox.put("r1", "d" * 64, b"answer")
    assert (folder / "outbox.sqlite-wal").exists()
    return lock, outbox


def forecasts(folder: Path) -> None:
    log = ForecastLog(folder)
    log.append({"forecast": 0.5})
    log.keep_model("d" * 64, b"{}")


def authority(folder: Path) -> None:
    Authority.create(folder, "CA")


PUBLIC = {"ca.pem", "crl.pem"}
"""What the authority hands out."""


@pytest.mark.parametrize("who", [journal, agent, forecasts, authority, prepare_state_dir], ids=lambda who: who.__name__)
def test_state_is_private_down_to_the_first_folder_that_was_made(tmp_path: Path, who: Callable[[Path], object]) -> None:
    # Kept: a journal that is closed meanwhile takes its side files away.
    opened = who(tmp_path / "a" / "b" / "state")
    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700
    assert {name for name in open_to_others(tmp_path) if Path(name).name not in PUBLIC} == set()
    del opened


def test_lax_files_of_a_former_version_are_made_private_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Log, "write", LogWriter())  # as in a command, whatever a test before this one set
    state = tmp_path / "state"
    url = f"sqlite:///{state / 'journal.sqlite'}"
    SqlJournal(url).close()
    reader = sqlite3.connect(state / "journal.sqlite")
    reader.execute("SELECT * FROM records")  # as a backup that is running: the side files are there
    for path in (state, *state.glob("journal.sqlite*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    private_folder(state)
    SqlJournal(url).close()
    assert mode(state) == 0o700
    assert set(open_to_others(state)) == {"journal.sqlite.lock"}  # nothing is in it
    output = capsys.readouterr()
    assert "0755" in output.err
    assert "0644" in output.err
    assert output.out == ""


@pytest.mark.parametrize("who", [agent, forecasts, prepare_state_dir], ids=lambda who: who.__name__)
def test_state_folder_that_others_can_write_is_refused_with_the_way_out(
    tmp_path: Path, who: Callable[[Path], object]
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o777)
    with pytest.raises(StorageError, match=f"chmod 700 {state}"):
        who(state)
    assert list(state.iterdir()) == []


def test_coordinator_and_authority_refuse_a_folder_that_others_can_write(tmp_path: Path) -> None:
    state, ca = tmp_path / "state", tmp_path / "ca"
    authority(ca)
    for folder in (state, ca):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
    with pytest.raises(StorageError, match="every user of this machine can write"):
        build(CoordinatorConfig(state_dir=state, broker="mqtt://127.0.0.1:1"))
    with pytest.raises(StorageError, match="every user of this machine can write"):
        SqlJournal(f"sqlite:///{state / 'journal.sqlite'}")
    with pytest.raises(StorageError, match="every user of this machine can write"):
        Authority(ca)


def test_group_that_nobody_else_is_in_is_no_danger(tmp_path: Path) -> None:
    # As Kubernetes leaves a volume (fsGroup), and Debian a folder under umask 002.
    os.chown(tmp_path, -1, 54321 if os.geteuid() == 0 else -1)
    tmp_path.chmod(0o2770)
    private_folder(tmp_path)
    assert mode(tmp_path) & 0o777 == 0o700


SECRETS: list[Callable[[Path], object]] = [read_or_make_token, kept_password]


@pytest.mark.parametrize("read", SECRETS, ids=lambda read: read.__name__)
def test_secret_is_made_once_or_not_at_all_when_the_disk_is_full(tmp_path: Path, read: Callable[[Path], str]) -> None:
    program = f"""
        import resource, signal
        from pathlib import Path
        from {read.__module__} import {read.__name__}
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        try:
            {read.__name__}(Path({str(tmp_path)!r}))
        except Exception as fault:
            print(type(fault).__name__)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert done.stdout == "StorageError\n"
    assert list(tmp_path.iterdir()) == []
    secret = read(tmp_path)
    assert len(secret) >= 22
    assert read(tmp_path) == secret
    assert open_to_others(tmp_path) == {}
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 0
    assert signal.getsignal(signal.SIGXFSZ) is not None


@pytest.mark.parametrize("text", ["", "\n", "short", "x" * 21, "é" * 40])
def test_secret_that_can_be_guessed_is_refused_with_the_way_out(tmp_path: Path, text: str) -> None:
    path = tmp_path / "api-token"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(StorageError, match=f"{path} .* delete the file"):
        read_or_make_token(tmp_path)


def test_secret_that_others_could_have_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    kept_secret(path, lambda: "s" * 32)
    path.chmod(0o666)
    with pytest.raises(StorageError, match=f"chmod 600 {path}"):
        kept_secret(path, lambda: "s" * 32)
