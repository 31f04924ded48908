"""Files of an identity: whose they are, who can read them, and whom they trust."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from broker.identity import load_identity, next_key, save_identity
from broker.tls import ask_why, client_context, tls_of
from console.main import run
from schemas.trust.identity import load_key
from schemas.trust.owner import Owner
from tests.support.authorities import FleetCa

SOMEBODY = 54321
"""A user and group that nobody is: root may give files to any number."""


def owners(path: Path) -> tuple[int, int]:
    return path.stat().st_uid, path.stat().st_gid


def given_away(path: Path) -> tuple[int, int]:
    """Give a file to whom this user may give it: root to anybody, others to a group of theirs."""
    groups = [SOMEBODY] if os.geteuid() == 0 else [*set(os.getgroups()) - {os.getegid()}, os.getegid()]
    os.chown(path, SOMEBODY if os.geteuid() == 0 else -1, groups[0])
    return owners(path)


def test_identity_that_is_renewed_by_another_user_keeps_its_owner(tmp_path):
    ca = FleetCa(tmp_path)
    folder = ca.identity("broker", "b")
    whose = {path.name: given_away(path) for path in sorted(folder.iterdir())}
    before = (folder / "cert.pem").read_bytes()
    assert run(["ca", "renew", str(folder), "--ca-dir", str(ca.authority.folder)]) == 0
    assert (folder / "cert.pem").read_bytes() != before
    assert {path.name: owners(path) for path in sorted(folder.iterdir()) if path.name in whose} == whose


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_key_is_not_given_to_who_laid_a_file_in_its_place_where_strangers_can_write(tmp_path, mode):
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "key.pem").write_bytes(b"laid")
    laid = given_away(folder / "key.pem")
    folder.chmod(mode)
    save_identity(folder, key=b"secret")
    assert (folder / "key.pem").read_bytes() == b"secret"
    # Who is not root cannot play the stranger: the file is its own, as the folder is.
    assert (folder / "key.pem").stat().st_uid == os.geteuid()
    assert os.geteuid() != 0 or owners(folder / "key.pem") != laid


def test_verdict_on_a_certificate_is_left_open_while_its_key_is_replaced(tmp_path):
    # Asked on the thread that connects: a fault there would be the end of all connections of this process.
    ca = FleetCa(tmp_path)
    folder, fresh = ca.identity("agent", "v1"), ca.identity("agent", "v1", where="fresh")
    save_identity(folder, key=(fresh / "key.pem").read_bytes())
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert ask_why("127.0.0.1", server.getsockname()[1], tls_of(folder), 5.0, 3) is None


class _Killed:
    """Ends this process before its nth look at, or change of, a file."""

    def __init__(self, step: int) -> None:
        self.left = step

    def __call__(self, event: str, _arguments: object) -> None:
        if event in {"open", "os.rename", "os.remove"}:
            self.left -= 1
            if self.left < 0:
                os._exit(9)


def test_renewal_that_is_killed_at_any_moment_leaves_a_pair_and_the_next_one_completes_it(tmp_path):
    ca, steps = FleetCa(tmp_path), 0
    owner = Owner("agent", "v1")

    def renewed(folder: Path) -> bytes:
        key = next_key(folder)
        save_identity(folder, key=key, certificate=ca.authority.issue(owner, load_key(key).public_key()))
        return key

    while True:
        folder = ca.identity("agent", "v1", where=f"at-{steps}")
        before = load_identity(folder)
        if (child := os.fork()) == 0:
            sys.addaudithook(_Killed(steps))
            renewed(folder)
            os._exit(0)
        is_whole = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        between = load_identity(folder)
        client_context(tls_of(folder))
        assert (between.key == before.key) == (between.certificate == before.certificate), steps
        key = renewed(folder)
        assert load_identity(folder).key == key == (folder / "key.pem").read_bytes()
        assert key not in {before.key, between.key}
        assert not (folder / "key.next").exists()
        client_context(tls_of(folder))
        if is_whole:
            break
        steps += 1
    assert steps > 10
