"""Credentials that follow their folder, and lists that only grow."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.credentials import FolderCredentials
from broker.identity import save_identity
from broker.port import Message
from broker.servers.revocation import install_crl
from broker.signed import RefusalLog
from schemas.envelope import Envelope
from schemas.errors import UsageError, WireError
from schemas.messages import AgentState, CoordinatorState
from schemas.topics import Topics
from schemas.trust.owner import Owner
from schemas.trust.signing import Verifier
from tests.support.authorities import Clock, FleetCa, TestCa, look, number_in, renew

TOPICS = Topics("fleet")
CLOUD = (Owner("coordinator", "*"),)


def test_renewed_certificate_is_taken_over_and_nothing_is_read_in_between(ca, clock):
    folder = ca.identity("agent", "v1")
    credentials = FolderCredentials(folder, clock=clock)
    before = credentials.signer
    assert not look(credentials, clock)
    renew(ca, folder, "v1")
    assert not credentials.refresh()
    assert credentials.signer is before
    assert look(credentials, clock)
    assert credentials.signer.certificate != before.certificate
    assert not look(credentials, clock)


@pytest.mark.parametrize("broken", ["half a certificate", "the key of another one", "no key", "unreadable"])
def test_half_renewed_identity_is_not_taken_over_until_it_is_whole(ca, clock, broken):
    folder = ca.identity("agent", "v1")
    other = ca.identity("agent", "v2")
    credentials = FolderCredentials(folder, clock=clock)
    before, whole = credentials.signer, {name: (folder / name).read_bytes() for name in ("key.pem", "cert.pem")}
    match broken:
        case "half a certificate":
            (folder / "cert.pem").write_bytes(whole["cert.pem"][:200])
        case "the key of another one":
            (folder / "key.pem").write_bytes((other / "key.pem").read_bytes())
        case "no key":
            (folder / "key.pem").unlink()
        case "unreadable":
            (folder / "key.pem").unlink()
            (folder / "key.pem").mkdir()
    assert not look(credentials, clock)
    assert credentials.signer is before
    if broken == "unreadable":
        (folder / "key.pem").rmdir()
    for name, content in whole.items():
        (folder / name).write_bytes(content)
    assert look(credentials, clock)
    assert credentials.signer.certificate == before.certificate


LISTS = 5
"""Lists that the authority makes one after the other; from the one in the middle on, they revoke the coordinator."""

PUTS = (*range(LISTS), "nothing", "half a list", "another fleet's")
STEPS = st.lists(
    st.tuples(st.just("put"), st.sampled_from(PUTS))
    | st.tuples(st.just("hear"), st.integers(0, LISTS - 1))
    | st.tuples(st.sampled_from(["look", "restart"]), st.just(0)),
    max_size=12,
)


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, bytes], list[bytes], bytes]:
    """An agent's identity, what the coordinator sealed, the lists of the fleet, and one of another fleet."""
    ca, other = (FleetCa(tmp_path_factory.mktemp(name)) for name in ("ca", "other"))
    folder, sealed = ca.identity("agent", "v1"), sealed_birth(ca.identity("coordinator", "cloud"), "cloud")
    made = [ca.authority.crl_pem]
    for number in range(1, LISTS):
        if number == LISTS // 2:
            ca.authority.revoke("cloud", "stolen")
        else:
            ca.authority.refresh_crl()
        made.append(ca.authority.crl_pem)
    return folder, sealed, made, other.authority.crl_pem


@settings(max_examples=150)
@given(STEPS)
def test_newest_list_that_was_heard_or_seen_counts_and_is_in_the_folder_whatever_is_put_there(lists, steps):
    folder, sealed, made, foreign = lists
    path, clock = folder / "crl.pem", Clock()
    odd = {"nothing": b"", "half a list": made[-1][:80], "another fleet's": foreign}
    path.write_bytes(made[0])
    credentials = FolderCredentials(folder, clock=clock)
    known = there = 0  # the newest that the process knows, and that is in the folder; -1: none
    for step, which in steps:
        if step == "put":
            path.unlink(missing_ok=True)
            if content := made[which] if isinstance(which, int) else odd[which]:
                path.write_bytes(content)
            there = which if isinstance(which, int) else -1
        elif step == "hear":
            assert credentials.update_crl(made[which]) == (which > known)
            if which > known:
                known = which
                there = max(known, there)
        elif step == "look":
            look(credentials, clock)
            known = there = max(known, there)
        else:
            credentials, known = FolderCredentials(folder, clock=clock), there
        assert credentials.crl == (made[known] if known >= 0 else b"")
        assert revokes(credentials, sealed) == (known >= LISTS // 2)
        if step != "put" and there >= 0:
            assert made[there] in path.read_bytes()


def revokes(credentials: FolderCredentials, sealed: tuple[str, bytes]) -> bool:
    """Whether a process refuses what the coordinator's stolen identity sealed."""
    try:
        credentials.verifier.open(*sealed, CLOUD)
    except WireError as fault:
        return fault.code == "revoked-certificate"
    return False


def revoked_after_restart(folder: Path, sealed: tuple[str, bytes]) -> bool:
    """The same of a process that starts now."""
    return revokes(FolderCredentials(folder), sealed)


def test_lists_of_a_new_ca_are_kept_though_their_numbers_begin_anew_when_the_ca_was_changed(ca, clock, tmp_path):
    folder, other = ca.identity("agent", "v1"), FleetCa(tmp_path / "other")
    for _ in range(5):
        ca.authority.refresh_crl()
    save_identity(folder, crl=ca.authority.crl_pem)
    credentials = FolderCredentials(folder, clock=clock)
    fresh, stolen = other.identity("agent", "v1"), other.identity("coordinator", "cloud")
    key, certificate = ((fresh / name).read_bytes() for name in ("key.pem", "cert.pem"))
    save_identity(
        folder, key=key, certificate=certificate, ca=other.authority.ca_pem, crl=(first := other.authority.crl_pem)
    )
    assert look(credentials, clock)
    assert credentials.crl == first
    assert (folder / "crl.pem").read_bytes() == first
    other.authority.revoke("cloud", "stolen")
    assert number_in(other.authority.crl_pem) < number_in(ca.authority.crl_pem)
    assert credentials.update_crl(other.authority.crl_pem)
    assert (folder / "crl.pem").read_bytes() == other.authority.crl_pem
    assert not credentials.update_crl(first)
    assert revoked_after_restart(folder, sealed_birth(stolen, "cloud"))


def sealed_birth(folder: Path, name: str) -> tuple[str, bytes]:
    signer = FolderCredentials(folder).signer
    if signer.owner.role == "coordinator":
        body, topic = CoordinatorState(status="up", incarnation="i", software="test"), TOPICS.coordinator_state()
        return topic, signer.seal(topic, Envelope(fleet="fleet", body=body).to_bytes())
    state, topic = AgentState(status="up", incarnation="i"), TOPICS.agent_state(name)
    return topic, signer.seal(topic, Envelope(fleet="fleet", body=state, agent=name).to_bytes())


def test_private_file_is_never_written_through_what_lies_there(tmp_path):
    # In a folder that others can write to, a link waits under the draft's former name and under the name itself.
    target = tmp_path / "victim"
    target.write_bytes(b"precious")
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / f".key.pem.{os.getpid()}.tmp").symlink_to(target)
    (folder / "key.pem").symlink_to(target)
    save_identity(folder, key=b"secret")
    assert target.read_bytes() == b"precious"
    assert (folder / "key.pem").read_bytes() == b"secret"
    assert not (folder / "key.pem").is_symlink()
    assert (folder / "key.pem").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in folder.iterdir()) == [f".key.pem.{os.getpid()}.tmp", "key.pem"]


def test_folder_that_cannot_be_written_to_still_refuses_who_was_revoked(ca, clock, monkeypatch):
    agent = ca.identity("agent", "v1")
    credentials = FolderCredentials(agent, clock=clock)
    ca.identity("coordinator", "cloud")
    ca.authority.revoke("cloud")

    def full(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("broker.identity.replace_private", full)
    assert credentials.update_crl(ca.authority.crl_pem)
    assert len(credentials.verifier.revoked) == 1


def test_verifier_keeps_its_authorities_when_the_new_ones_cannot_be_read():
    ca = TestCa()
    verifier = ca.verifier()
    with pytest.raises(UsageError, match="PEM"):
        verifier.trust(b"nonsense")
    assert verifier.owner(ca.agent("v1").certificate.public_bytes(Encoding.DER)) == Owner("agent", "v1")


def test_list_is_not_lost_when_a_process_keeps_another_one_at_the_same_moment(ca, clock, monkeypatch):
    folder = ca.identity("agent", "v1")
    credentials = FolderCredentials(folder, clock=clock)
    heard, newest = ca.authority.refresh_crl(), ca.authority.refresh_crl()
    begun, joined = threading.Event(), []

    def operator() -> None:
        begun.set()
        install_crl(folder, newest)

    def slowly(where: Path, **files: bytes) -> None:
        # Between what was read and what is written, an operator's command begins.
        joined.append(threading.Thread(target=operator))
        joined[0].start()
        begun.wait()
        joined[0].join(0.3)  # as it was, the command ends here, and what it wrote is overwritten
        save_identity(where, **files)

    monkeypatch.setattr("broker.credentials.save_identity", slowly)
    assert credentials.update_crl(heard)
    joined[0].join()
    assert (folder / "crl.pem").read_bytes() == newest
    assert look(credentials, clock)
    assert credentials.crl == newest


def test_list_is_kept_and_publishing_goes_on_when_somebody_never_leaves_the_folder(ca, clock, monkeypatch):
    folder, waited = ca.identity("agent", "v1"), Clock()
    credentials = FolderCredentials(folder, clock=clock)
    ca.identity("agent", "v2")
    ca.authority.revoke("v2", "stolen")

    def pause(seconds: float) -> None:
        waited.now += seconds

    monkeypatch.setattr("broker.identity.monotonic", waited)
    monkeypatch.setattr("broker.identity.sleep", pause)
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        heard = threading.Thread(target=credentials.update_crl, args=(ca.authority.crl_pem,), daemon=True)
        heard.start()
        heard.join(60)
        assert not heard.is_alive(), "it waits for ever, and with it whoever publishes"
    finally:
        os.close(held)
    assert 1000 + 1 < waited.now < 1000 + 3
    assert (folder / "crl.pem").read_bytes() == credentials.crl == ca.authority.crl_pem
    renew(ca, folder, "v1")
    assert look(credentials, clock)


def test_certificate_that_a_new_ca_has_revoked_is_not_believed_for_a_moment_when_both_are_put_into_the_folder(
    ca, clock, tmp_path, monkeypatch
):
    folder, other = ca.identity("agent", "v1"), FleetCa(tmp_path / "other")
    stolen = sealed_birth(other.identity("coordinator", "cloud"), "cloud")
    other.authority.revoke("cloud", "stolen")
    credentials, codes = FolderCredentials(folder, clock=clock), []
    take_over = Verifier.trust

    def meanwhile(verifier: Verifier, *args: bytes) -> None:
        take_over(verifier, *args)
        with pytest.raises(WireError) as refused:
            verifier.open(*stolen, CLOUD)  # another thread's message
        codes.append(refused.value.code)

    monkeypatch.setattr(Verifier, "trust", meanwhile)
    save_identity(folder, ca=other.authority.ca_pem, crl=other.authority.crl_pem)
    assert look(credentials, clock)
    assert codes == ["revoked-certificate"]


def test_refusal_log_shows_no_control_characters_of_a_forged_topic():
    lines: list[str] = []
    log = RefusalLog(lambda _name: None, lambda topic, *_: lines.append(topic))
    log(Message("gf/1/fleet/\x1b[2Jmodel\nINFO all is well" + "x" * 1000, b"x"), WireError("unknown-topic", "why"))
    assert lines[0].isprintable()
    assert len(lines[0]) < 300
