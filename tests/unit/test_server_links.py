"""Where a server is reached, by the address that it listens on."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from shopfloor.wiring.server_links import accepted_hosts, is_shared, public_url

URL = "http://127.0.0.1:7420"


@pytest.mark.req("SF-62")
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *(("127.0.0.1", False), ("localhost", False), ("::1", False), ("127.0.0.2", False)),
        *(("0.0.0.0", True), ("::", True), ("192.168.1.5", True), ("2001:db8::5", True), ("fe80::1", True)),
    ],
)
def test_a_server_is_shared_if_it_listens_beyond_loopback(host: str, expected: bool) -> None:
    assert is_shared(host) is expected


@pytest.mark.req("SF-62")
@pytest.mark.parametrize(
    ("host", "allowed", "expected"),
    [
        ("127.0.0.1", (), None),
        # A proxy in front of it has a URL of its own.
        ("127.0.0.1", ("shop.example",), None),
        ("192.168.1.5", (), None),
        ("0.0.0.0", ("shop.example", "other.example"), "http://shop.example:7420"),
        ("192.168.1.5", ("shop.example:80",), "http://shop.example:80"),
    ],
)
def test_links_have_the_name_under_which_others_reach_the_server(
    host: str, allowed: tuple[str, ...], expected: str | None
) -> None:
    assert public_url(host, URL, allowed) == expected


def test_without_a_route_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unrouted(socket.socket):
        def connect(self, address: Any) -> None:
            raise OSError(f"no route to {address}")

    monkeypatch.setattr(socket, "socket", Unrouted)
    assert public_url("0.0.0.0", URL) is None
    assert is_shared("0.0.0.0")


def test_the_name_that_a_server_listens_on_is_accepted_and_no_wildcard() -> None:
    assert accepted_hosts("my-machine", ("shop.example",)) == ("shop.example", "my-machine")
    assert accepted_hosts("0.0.0.0", ()) == ()
    assert accepted_hosts("::1", ("shop.example",)) == ("shop.example",)
