"""Addresses of brokers: taken apart, wrong ones told, and no plain MQTT to another machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.tls import Tls
from broker.url import BrokerAddress, parse_url, safe_address, urls_of
from schemas.errors import UsageError


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
