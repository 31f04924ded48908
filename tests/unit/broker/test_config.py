"""What brokers are configured with, their URLs, and files of an identity: whose they are, who can read them."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from broker.identity import load_identity, save_identity
from broker.servers.acl import mosquitto_acl
from broker.servers.mosquitto import MosquittoProcess
from broker.servers.rabbitmq import RabbitmqConfig
from broker.tls import Tls, ask_why, tls_of
from broker.trust import trust
from broker.url import BrokerAddress, parse_url, safe_address, urls_of
from console.main import run
from console.services.broker import broker
from schemas.errors import UsageError
from tests.support.authorities import FleetCa
from tests.support.processes import python


def config(*arguments: str) -> str:
    result = CliRunner().invoke(broker, ["config", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.mosquitto
def test_written_configuration_is_the_one_that_the_tests_run_with(tmp_path: Path) -> None:
    running = MosquittoProcess(tmp_path / "state", port=1999)
    tested = (tmp_path / "state" / "mosquitto.conf").read_text(encoding="utf-8")
    config("mosquitto", "--port", "1999", "--out", str(tmp_path / "state" / "other.conf"))
    written = (tmp_path / "state" / "other.conf").read_text(encoding="utf-8")
    # Started as root, ours stays root: it reads the files of the test, in whose folder nobody else may look.
    assert written == tested.replace("user root", "user mosquitto")
    assert f":{running.address.password}@" in running.url
    secret = (tmp_path / "state" / "secret").read_text(encoding="utf-8").strip()
    assert secret == running.address.password, "the password is kept, so that its agents still can sign in"


@pytest.mark.parametrize("program", ["mosquitto", "rabbitmq"])
def test_written_files_are_for_their_owner_alone(tmp_path: Path, program: str) -> None:
    config(program, "--out", str(tmp_path / "new" / "broker.conf"))
    files = sorted(path.name for path in (tmp_path / "new").iterdir())
    expected = {"mosquitto": ["acl", "passwords"], "rabbitmq": ["definitions.json", "enabled_plugins"]}[program]
    assert files == sorted(["broker.conf", "secret", *expected])
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").iterdir()}
    assert modes == {0o600}
    secret = (tmp_path / "new" / "secret").read_text(encoding="utf-8").strip()
    assert all(secret not in (tmp_path / "new" / name).read_text() for name in ["broker.conf", *expected])


@pytest.mark.parametrize("program", ["mosquitto", "rabbitmq"])
def test_network_without_tls_is_refused(program: str) -> None:
    with pytest.raises(UsageError, match="give --cert and --key"):
        config(program, "--host", "0.0.0.0")
    with pytest.raises(UsageError, match="both --cert and --key"):
        config(program, "--cert", __file__)


def test_configuration_for_a_network_has_tls() -> None:
    tls = ("--host", "0.0.0.0", "--port", "8883", "--cert", __file__, "--key", __file__)
    lines = config("mosquitto", *tls).splitlines()
    assert {"listener 8883 0.0.0.0", f"certfile {__file__}", f"keyfile {__file__}"} <= set(lines)
    lines = config("rabbitmq", *tls).splitlines()
    assert {"mqtt.listeners.tcp = none", "mqtt.listeners.ssl.1 = 0.0.0.0:8883"} <= set(lines)
    assert not [line for line in lines if line.startswith("mqtt.listeners.tcp.")]


def test_rabbitmq_user_may_use_our_topics_and_nothing_else(tmp_path: Path) -> None:
    config("rabbitmq", "--out", str(tmp_path / "rabbitmq.conf"))
    definitions = json.loads((tmp_path / "definitions.json").read_text(encoding="utf-8"))
    (topics,) = definitions["topic_permissions"]
    assert (topics["read"], topics["write"]) == ("^gf\\.1\\..*", "^gf\\.1\\..*")
    assert definitions["users"][0]["tags"] == []
    assert f"load_definitions = {tmp_path / 'definitions.json'}" in RabbitmqConfig(1883, tmp_path).render()


def test_user_name_that_would_break_out_of_its_line_is_misuse():
    with pytest.raises(UsageError):
        mosquitto_acl({"v1\ntopic readwrite #": []})


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("mqtt://host", BrokerAddress("host", 1883)),
        ("mqtts://host", BrokerAddress("host", 8883, tls=True)),
        ("mqtt://127.0.0.1:1234/", BrokerAddress("127.0.0.1", 1234)),
        ("mqtt://[::1]:1234", BrokerAddress("::1", 1234)),
        ("mqtt://user@host", BrokerAddress("host", 1883, username="user")),
        ("mqtt://user:p%40ss%2F@host:1", BrokerAddress("host", 1, username="user", password="p@ss/")),
        ("  mqtt://host\n", BrokerAddress("host", 1883)),
    ],
)
def test_url_is_taken_apart(url, address):
    assert parse_url(url) == address


def test_list_of_a_clusters_nodes_is_taken_apart():
    assert urls_of(" mqtt://u:a,b@host:1,mqtts://other\n") == ("mqtt://u:a,b@host:1", "mqtts://other")
    assert urls_of("mqtt://host") == ("mqtt://host",)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "no mqtt://"),
        ("host:1883", "no mqtt://"),
        ("http://host", "starts with http://"),
        ("mqtt://", "names no host"),
        ("mqtt://:1883", "names no host"),
        ("mqtt://host:0", "port 0"),
        ("mqtt://host:99999", "bad host or port"),
        ("mqtt://host:abc", "bad host or port"),
        ("mqtt://[::1", "bad host or port"),
        ("mqtt://host/path", "after the port"),
        ("mqtt://host?x=1", "after the port"),
        ("mqtt://user:pa/ss@host", "bad host or port|after the port"),
        ("mqtt://:secret@host", "no user"),
    ],
)
def test_wrong_url_says_what_is_wrong_and_how_to_write_it(url, says):
    with pytest.raises(UsageError, match=says) as caught:
        parse_url(url)
    assert "mqtt://[user[:password]@]host[:port]" in str(caught.value)
    assert "secret" not in str(caught.value)


@given(st.text(min_size=1, max_size=20), st.text(max_size=20), st.integers(1, 65535), st.booleans())
def test_url_with_any_password_is_written_and_read_back(user, password, port, tls):
    try:
        address = BrokerAddress("host", port, tls=tls, username=user, password=password)
        url = address.url
    except UnicodeEncodeError:
        return  # lone surrogates are no text
    assert parse_url(url) == address
    assert "@" not in address.public


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_plain_mqtt_on_this_machine_is_allowed(host):
    assert safe_address(f"mqtt://{host}").tls is False


@pytest.mark.parametrize("host", ["broker", "10.0.0.1", "0.0.0.0", "[::]", "localhost.example.org", "user:pw@b.org"])
def test_plain_mqtt_to_another_machine_is_refused_unless_somebody_says_so(host):
    with pytest.raises(UsageError, match="--insecure-plaintext") as caught:
        safe_address(f"mqtt://{host}")
    assert "mqtts://" in str(caught.value)
    assert "pw" not in str(caught.value)
    assert safe_address(f"mqtt://{host}", insecure_plaintext=True).tls is False
    assert safe_address(f"mqtts://{host}").tls is True


def test_certificate_that_would_not_be_used_is_misuse():
    tls = Tls("ca.pem", "cert.pem", "key.pem")
    with pytest.raises(UsageError, match="makes no use of the certificate"):
        safe_address("mqtt://localhost", tls)
    with pytest.raises(UsageError, match="both certificate and key"):
        Tls("ca.pem", "cert.pem")


def test_every_process_refuses_plain_mqtt_to_another_machine(tmp_path):
    (tmp_path / "rows.csv").write_text("a,y\n" + "".join(f"{n},{n}\n" for n in range(50)))
    lines = ["tap --count 1", "model list", "coordinator --no-api", f"agent --id v --data {tmp_path / 'rows.csv'}"]
    # In a process of their own: services set up logging for the whole process.
    more = f" --broker mqtt://10.255.255.1 --state-dir {tmp_path / 'state'}"
    done = python(RUN_LINES, *(line + more for line in lines))
    assert done.stdout.split() == ["2"] * len(lines)
    assert done.stderr.count("plain MQTT can be read and changed") == len(lines)


RUN_LINES = "import sys; from console.main import run; print(*(run(line.split()) for line in sys.argv[1:]))"


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
    other = FleetCa(tmp_path / "other", "other CA").authority
    trust(folder, other.ca_pem + other.crl_pem)
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


@pytest.mark.parametrize("only", [(), ("--only",)])
def test_no_folder_is_changed_when_one_of_several_cannot_trust_the_next_authority(tmp_path, capsys, only):
    ca, other = FleetCa(tmp_path), FleetCa(tmp_path / "other", "other CA").authority
    good, bad = ca.identity("agent", "v1"), tmp_path / "bad"
    bad.mkdir()
    (tmp_path / "next.pem").write_bytes(other.ca_pem + other.crl_pem)
    before = {path.name: path.read_bytes() for path in good.iterdir()}
    trusts = ["ca", "trust", str(tmp_path / "next.pem"), *only, "--into", str(good)]
    assert run([*trusts, "--into", str(bad)]) == 2
    errors = capsys.readouterr().err
    assert str(bad) in errors
    assert "nothing was changed" in errors
    assert {path.name: path.read_bytes() for path in good.iterdir()} == before
    assert run(trusts) == 0
    assert other.ca_pem in load_identity(good).ca
