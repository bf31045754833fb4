"""Limits of connections: the size of a request, the time to send it, and the number of clients."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.server.recorded_runs import assistant, record, run_completed, run_started
from tests.server.server import RunningServer, open_server
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.record import Storage
from shopfloor.server import ConnectionLimits
from shopfloor.server.connections import Connections, peer_name
from shopfloor.server.limits import HEADERS_BYTES, HEADERS_MAX, REQUEST_LINE_BYTES

LIMITS = ConnectionLimits(connections=6, header_seconds=1.5, body_seconds=1.5, idle_seconds=1.5, stalled_seconds=2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with six connections and short timeouts."""
    storage = Storage(tmp_path_factory.mktemp("hasty") / "storage")
    record(storage, run_started(), run_completed())
    with open_server(storage, limits=LIMITS) as server:
        yield server


class Peer:
    """A client that sends arbitrary bytes."""

    def __init__(self, server: RunningServer) -> None:
        host, _, port = server.host.partition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS)
        self.head = b"Host: %b\r\nAuthorization: Bearer %b\r\n" % (
            server.host.encode(),
            server.tokens.admin_token().encode(),
        )

    def send(self, data: bytes) -> bool:
        """Send bytes. Return False if the server has closed the connection."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def drip(self, data: bytes, pause: float = 0.1) -> bytes:
        """Send byte by byte until the server closes or all is sent. Return the response."""
        for place in range(len(data)):
            if not self.send(data[place : place + 1]):
                break
            self.socket.settimeout(pause)
            try:
                if answer := self.socket.recv(65536):
                    return answer + self.read()
                break
            except TimeoutError:
                continue
            except OSError:
                break
        return b""

    def read(self) -> bytes:
        """Return everything that the server sends until it closes."""
        self.socket.settimeout(TIMEOUT_SECONDS)
        data = bytearray()
        while True:
            try:
                more = self.socket.recv(65536)
            except ConnectionError:
                break
            if not more:
                break
            data += more
        return bytes(data)

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def peer(server: RunningServer) -> Iterator[Peer]:
    with closing(Peer(server)) as connection:
        yield connection


def problem(answer: bytes, status: int, code: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert b"connection: close" in head.lower()
    error = json.loads(body)["error"]
    assert (error["code"], set(error)) == (code, {"code", "message", "hint"})


# Size


@pytest.mark.req("SF-13")
def test_an_address_that_is_too_long_is_refused(peer: Peer) -> None:
    peer.send(b"GET /%b HTTP/1.1\r\n%b\r\n" % (b"x" * REQUEST_LINE_BYTES, peer.head))
    problem(peer.read(), 414, "address_too_long")


@pytest.mark.req("SF-13")
@pytest.mark.parametrize(
    "headers",
    [b"x: y\r\n" * (HEADERS_MAX + 1), b"x: " + b"y" * HEADERS_BYTES + b"\r\n"],
    ids=["many", "large"],
)
def test_headers_that_are_too_large_are_refused(peer: Peer, headers: bytes) -> None:
    peer.send(b"GET /api/health HTTP/1.1\r\n%b%b\r\n" % (peer.head, headers))
    problem(peer.read(), 431, "headers_too_large")


@pytest.mark.parametrize("piece", [b"x: y\r\n", b"y"], ids=["headers", "one header"])
def test_a_head_without_an_end_is_cut_off(peer: Peer, piece: bytes) -> None:
    peer.send(b"GET / HTTP/1.1\r\nx: ")
    pieces = piece * (16 * 1024 // len(piece))
    sent = 0
    while peer.send(pieces):
        sent += len(pieces)
        assert sent < 50_000_000, "the server takes headers without an end"


@pytest.mark.parametrize(
    ("run_started", "piece"),
    [(b"1;", b"x"), (b"0\r\n", b"x: y\r\n"), (b"0\r\nx: ", b"y")],
    ids=["chunk extension", "trailers", "one trailer"],
)
def test_a_body_of_chunk_framing_only_is_cut_off(peer: Peer, run_started: bytes, piece: bytes) -> None:
    """Chunked bodies have extensions and trailers, which the limit of the body does not count."""
    # The server responds to a request without a token before it has read the body.
    peer.send(b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + run_started)
    pieces = piece * (16 * 1024 // len(piece))
    sent = 0
    while peer.send(pieces):
        sent += len(pieces)
        assert sent < 5_000_000, "the server takes a frame without an end"


def test_a_body_in_small_chunks_is_accepted(server: RunningServer, peer: Peer) -> None:
    run_id = next(iter(server.storage.run_ids()))
    body = b"".join(b"1\r\n%c\r\n" % byte for byte in b'{"pinned": false}' + b" " * 50_000)
    head = b"POST /api/runs/%b/pin HTTP/1.1\r\n%bContent-Type: application/json\r\n" % (run_id.encode(), peer.head)
    peer.send(head + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\nx: y\r\n\r\n")
    assert peer.read().startswith(b"HTTP/1.1 200 ")


def test_pipelined_requests_without_reading_responses_are_limited(server: RunningServer, peer: Peer) -> None:
    connection = b"GET /login HTTP/1.1\r\nHost: x\r\n\r\n"
    sent = 0
    while peer.send(connection * 1000):
        sent += 1000
        assert sent < 200_000, "the server keeps any number of requests of one connection"


def test_headers_up_to_the_limit_are_accepted(server: RunningServer) -> None:
    with server.client() as client:
        many = {f"x-{number}": "y" for number in range(HEADERS_MAX - 10)}
        assert client.get("/api/health", headers=many).status_code == 200
        assert client.get("/api/health", headers={"x": "y" * (HEADERS_BYTES - 1000)}).status_code == 200


def test_malformed_http_is_refused_with_json(peer: Peer) -> None:
    peer.send(b"\x16\x03\x01 hello\r\n\r\n")
    problem(peer.read(), 400, "malformed_request")


# Time


@pytest.mark.req("SF-14")
@pytest.mark.parametrize("run_started", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"], ids=["request line", "headers"])
def test_a_head_sent_too_slowly_is_cut_off(peer: Peer, run_started: bytes) -> None:
    peer.send(run_started)
    problem(peer.drip(b"GET /" + b"x" * 1000 if not run_started else b"x: " + b"y" * 1000), 408, "request_timeout")


def test_a_silent_connection_is_closed(peer: Peer) -> None:
    assert peer.read() == b""


@pytest.mark.req("SF-14")
def test_a_body_sent_too_slowly_is_cut_off_and_not_acted_upon(server: RunningServer, peer: Peer) -> None:
    run_id = next(iter(server.storage.run_ids()))
    peer.send(b"POST /api/runs/%b/pin HTTP/1.1\r\n%b" % (run_id.encode(), peer.head))
    # The JSON is complete; only white space is missing.
    peer.send(b'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"pinned": true}')
    problem(peer.drip(b" " * 900), 408, "request_timeout")
    with server.client() as client:
        assert client.get("/api/agents/workers").json()["workers"][0]["pinned"] is False


def test_without_a_token_a_body_is_not_waited_for(server: RunningServer, peer: Peer) -> None:
    peer.send(b"POST /api/runs HTTP/1.1\r\nHost: %b\r\nContent-Length: 1000\r\n\r\n{" % server.host.encode())
    peer.socket.settimeout(TIMEOUT_SECONDS)
    assert peer.socket.recv(65536).startswith(b"HTTP/1.1 401 ")
    peer.drip(b" " * 900)
    assert peer.read() == b""


@pytest.mark.req("SF-14")
@pytest.mark.parametrize("rest", [b"", b"GET /api/hea", b"\r\n"], ids=["silent", "half a request", "an empty line"])
def test_a_connection_between_two_requests_is_closed(peer: Peer, rest: bytes) -> None:
    peer.send(b"GET /api/health HTTP/1.1\r\n%b\r\n%b" % (peer.head, rest))
    answers = peer.read()
    assert answers.startswith(b"HTTP/1.1 200 ")
    assert (b"HTTP/1.1 408 " in answers) == bool(rest.strip())


def test_sequential_and_pipelined_requests_are_answered_in_order(peer: Peer) -> None:
    connection = b"GET /api/health HTTP/1.1\r\n%b\r\n" % peer.head
    last = b"GET /api/channels HTTP/1.1\r\n%bConnection: close\r\n\r\n" % peer.head
    peer.send(connection + connection)
    time.sleep(0.3)
    peer.send(connection + last)
    answers = peer.read()
    assert answers.count(b"HTTP/1.1 200 ") == 4
    assert answers.endswith(b'{"channels":[]}')


@pytest.mark.req("SF-14")
def test_a_client_that_does_not_read_is_cut_off(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "storage")
    run_id = record(storage, run_started(), assistant("x" * 8_000_000), run_completed())
    with open_server(storage, limits=LIMITS) as server, closing(Peer(server)) as peer:
        peer.send(b"GET /api/runs/%b/log.jsonl HTTP/1.1\r\n%b\r\n" % (run_id.encode(), peer.head))
        time.sleep(LIMITS.stalled_seconds * 2)
        assert len(peer.read()) < 8_000_000


# Number


@pytest.mark.req("SF-15")
def test_idle_clients_do_not_keep_others_out(server: RunningServer) -> None:
    peers = [Peer(server) for _ in range(30)]
    for connection in peers:
        connection.send(b"GET / HTTP/1.1\r\nHost:")
    with server.client() as client:
        assert client.get("/api/health").status_code == 200
    for connection in peers:
        connection.close()


@pytest.mark.req("SF-15")
def test_a_connection_is_refused_while_all_others_are_busy(server: RunningServer) -> None:
    peers = [Peer(server) for _ in range(LIMITS.connections)]
    for connection in peers:
        connection.send(b"GET /api/stream HTTP/1.1\r\n%b\r\n" % connection.head)
        connection.socket.settimeout(TIMEOUT_SECONDS)
        assert connection.socket.recv(4096).startswith(b"HTTP/1.1 200 ")
    with closing(Peer(server)) as extra:
        problem(extra.read(), 503, "too_many_connections")
    peers.pop().close()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with server.client() as client:
        while (got := client.get("/api/health")).status_code == 503 and time.monotonic() < deadline:
            time.sleep(0.05)
    assert got.status_code == 200
    for connection in peers:
        connection.close()


class Counted:
    """A connection that records whether it was evicted."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.is_evicted = False

    def evict(self) -> None:
        self.is_evicted = True
        self.connections.remove(self)

    def expire(self, now: float) -> None:
        del now


@pytest.mark.req("SF-15")
def test_another_machine_gets_its_share_and_this_machine_may_use_all() -> None:
    connections = Connections(10, per_address=3)
    theirs = [Counted(connections) for _ in range(4)]
    for connection in theirs[:3]:
        assert connections.admit(connection, "203.0.113.7")
        connections.mark_busy(connection)
    assert not connections.admit(theirs[3], "203.0.113.7")
    connections.mark_idle(theirs[1])
    assert connections.admit(theirs[3], "203.0.113.7")
    assert [connection.is_evicted for connection in theirs] == [False, True, False, False]
    ours = [Counted(connections) for _ in range(7)]
    for connection in ours:
        assert connections.admit(connection, "127.0.0.1")
        connections.mark_busy(connection)
    connections.mark_busy(theirs[3])
    assert not connections.admit(Counted(connections), "127.0.0.1")
    for connection in (*theirs, *ours):
        connections.remove(connection)
    assert len(connections) == 0
    assert connections._peers == {}


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("127.0.0.1", "loopback"),
        ("127.9.9.9", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        (None, ""),
    ],
)
def test_addresses_are_counted_per_client_network(address: str | None, name: str) -> None:
    assert peer_name(address) == name
