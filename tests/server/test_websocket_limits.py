"""The limits of WebSockets: what a client may send, how long it may be silent, and how many there may be."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import msgspec
import pytest
import uvicorn
from tests.timeouts import TIMEOUT_SECONDS, wait_until
from tests.trpc.fleet_server import FleetServer, fleet_server, host_event
from uvicorn.server import ServerState
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from shopfloor.record import Storage
from shopfloor.server import ConnectionLimits, fleet_feed, trpc_socket, uvicorn_server
from shopfloor.server.connections import Connections
from shopfloor.server.limits import WEBSOCKET_MESSAGE_BYTES
from shopfloor.server.websocket_protocol import LimitedWebSocket, websocket_class

SUBSCRIBE = {"id": 1, "method": "subscription", "params": {"path": "stream.workerEvents"}}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FleetServer]:
    with fleet_server(Storage(tmp_path / "storage")) as server:
        yield server


def open_socket(
    server: FleetServer, *, token: str | None = "", path: str = "/trpc", **options: Any
) -> ClientConnection:
    """Open a WebSocket; by default with the admin's token, with None without a token."""
    headers = {} if token is None else {"Authorization": f"Bearer {token or server.token}"}
    address = f"{server.url.replace('http', 'ws')}{path}"
    return connect(address, additional_headers=headers, proxy=None, open_timeout=TIMEOUT_SECONDS, **options)


def receive(client: ClientConnection) -> Any:
    return json.loads(client.recv(TIMEOUT_SECONDS))


def closed(client: ClientConnection) -> tuple[int, str]:
    """Wait until the server closes the connection, and return code and reason."""
    with suppress(ConnectionClosed):
        while True:
            client.recv(TIMEOUT_SECONDS)
    assert client.close_code is not None
    return client.close_code, client.close_reason or ""


@pytest.mark.req("FE-51")
def test_a_client_that_sends_no_token_is_closed_after_a_time(
    server: FleetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trpc_socket, "WEBSOCKET_AUTH_SECONDS", 0.2)
    with open_socket(server, token=None) as client:
        error = receive(client)
        assert (error["id"], error["error"]["data"]["code"]) == (None, "TIMEOUT")
        assert closed(client) == (1008, "the token must arrive within 0.2 seconds")


@pytest.mark.req("FE-51")
@pytest.mark.parametrize("is_in_request", [True, False])
def test_a_token_that_cannot_be_checked_is_an_error_with_a_code(server: FleetServer, *, is_in_request: bool) -> None:
    token = server.token
    server.storage.tokens.write_bytes(b"damaged")
    with open_socket(server, token=token if is_in_request else None) as client:
        if not is_in_request:
            client.send(json.dumps({"method": "connectionParams", "data": {"token": token}}))
            assert receive(client)["error"]["data"]["errorCode"] == "storage_failed"
        client.send(json.dumps(SUBSCRIBE))
        error = receive(client)
        assert (error["id"], error["error"]["data"]["errorCode"]) == (1, "storage_failed")
        assert closed(client)[0] == 1008


@pytest.mark.req("FE-52")
def test_an_idle_connection_is_closed_and_one_with_a_subscription_is_not(tmp_path: Path) -> None:
    limits = ConnectionLimits(websocket_idle_seconds=0.3)
    with (
        fleet_server(Storage(tmp_path / "storage"), limits=limits) as server,
        open_socket(server) as busy,
    ):
        busy.send(json.dumps(SUBSCRIBE))
        assert receive(busy) == {"id": 1, "result": {"type": "started"}}
        with open_socket(server) as idle:
            assert closed(idle) == (1000, "the connection was idle")
        server.append(host_event(1))
        assert receive(busy)["result"]["data"]["payload"]["workerId"] == "host-1"


@pytest.mark.req("FE-52")
@pytest.mark.parametrize("is_refused", [True, False])
def test_a_connection_is_idle_again_when_its_subscription_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    limits = ConnectionLimits(websocket_idle_seconds=0.3)
    if is_refused:
        monkeypatch.setattr(fleet_feed, "FLEET_SUBSCRIPTIONS_MAX", 0)
    with (
        fleet_server(Storage(tmp_path / "storage"), limits=limits) as server,
        open_socket(server) as client,
    ):
        client.send(json.dumps(SUBSCRIBE))
        assert ("error" in receive(client)) is is_refused
        if not is_refused:
            client.send(json.dumps({"id": 1, "method": "subscription.stop"}))
        assert closed(client) == (1000, "the connection was idle")


@pytest.mark.req("FE-52")
def test_a_message_that_is_too_long_closes_the_connection(server: FleetServer) -> None:
    with open_socket(server) as client:
        client.send("x" * (WEBSOCKET_MESSAGE_BYTES + 1))
        assert closed(client)[0] == 1009


def test_binary_messages_are_refused(server: FleetServer) -> None:
    with open_socket(server) as client:
        client.send(b"PING")
        assert closed(client) == (1003, "messages must be text")


def test_pings_of_both_kinds_are_answered(server: FleetServer) -> None:
    with open_socket(server) as client:
        client.send("PING")
        assert client.recv(TIMEOUT_SECONDS) == "PONG"
        assert client.ping().wait(TIMEOUT_SECONDS)


@pytest.mark.req("FE-52")
def test_connections_without_a_token_make_room_for_others(tmp_path: Path) -> None:
    limits = ConnectionLimits(connections=3)
    with (
        fleet_server(Storage(tmp_path / "storage"), limits=limits) as server,
        open_socket(server) as known,
        open_socket(server, token=None),
        open_socket(server, token=None),
    ):
        for _ in range(4):
            with open_socket(server) as other:
                other.send("PING")
                assert other.recv(TIMEOUT_SECONDS) == "PONG"
        known.send("PING")
        assert known.recv(TIMEOUT_SECONDS) == "PONG"


@pytest.mark.req("FE-50")
def test_an_id_of_a_subscription_changes_no_frame_of_a_stream(server: FleetServer) -> None:
    headers = {"Authorization": f"Bearer {server.token}"}
    with (
        open_socket(server) as client,
        httpx.stream("GET", f"{server.url}/api/events/stream", headers=headers, timeout=TIMEOUT_SECONDS) as stream,
    ):
        lines = stream.iter_lines()
        assert "event: ready" in [next(lines) for _ in range(4)]
        client.send(json.dumps({**SUBSCRIBE, "id": "sse"}))
        assert receive(client) == {"id": "sse", "result": {"type": "started"}}
        server.append(host_event(1))
        assert receive(client)["result"]["data"]["payload"]["workerId"] == "host-1"
        data = next(line for line in lines if line.startswith("data: ") and line != "data: {}")
        assert json.loads(data.removeprefix("data: "))["payload"]["workerId"] == "host-1"


@pytest.mark.req("FE-52")
def test_a_client_that_does_not_read_is_closed_for_that_and_not_for_an_unanswered_ping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn_server, "WEBSOCKET_PING_SECONDS", 0.2)
    # Long enough to read what was sent before the connection is aborted without a reason.
    limits = ConnectionLimits(stalled_seconds=5.0)
    with (
        fleet_server(Storage(tmp_path / "storage"), limits=limits) as server,
        open_socket(server, ping_interval=None, max_queue=1) as client,
    ):
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        client.send(json.dumps(SUBSCRIBE))
        assert receive(client) == {"id": 1, "result": {"type": "started"}}
        reason = {"reason": "x" * 5_000}
        events = [msgspec.structs.replace(host_event(1), payload=reason) for _ in range(500)]
        for _ in range(4):
            server.append(*events)
        wait_until(lambda: not server.fleet.subscriptions, "the client to be closed")
        assert closed(client) == (1013, "the client reads too slowly; connect again to resume")


def test_a_silent_client_that_answers_no_ping_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_server, "WEBSOCKET_PING_SECONDS", 0.2)
    with fleet_server(Storage(tmp_path / "storage")) as server, open_socket(server) as client:
        monkeypatch.setattr(client.protocol, "receive_data", lambda _: None)
        wait_until(lambda: client.socket.fileno() == -1, "the connection to be closed")


@pytest.mark.anyio
async def test_many_frames_are_written_in_parts() -> None:
    config = uvicorn.Config(cast("Any", object()))
    protocol = websocket_class(Connections(1, 1), ConnectionLimits())(config, ServerState(), {})
    transport = protocol.transport = FullTransport(protocol)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(protocol.send_frames, [bytes(100_000)] * 10)
        for parts in range(1, 5):
            await anyio.wait_all_tasks_blocked()
            assert transport.sizes == [300_000, 300_000, 300_000, 100_000][:parts]
            protocol.resume_writing()


class FullTransport(asyncio.Transport):
    """A transport whose buffer is full after each write."""

    def __init__(self, protocol: LimitedWebSocket) -> None:
        super().__init__()
        self._protocol = protocol
        self.sizes: list[int] = []

    def write(self, data: Any) -> None:
        self.sizes.append(len(data))
        self._protocol.pause_writing()

    def is_closing(self) -> bool:
        return False


def test_a_connection_that_breaks_off_ends_its_subscriptions(server: FleetServer) -> None:
    with open_socket(server) as client:
        client.send(json.dumps(SUBSCRIBE))
        assert receive(client) == {"id": 1, "result": {"type": "started"}}
        assert server.fleet.subscriptions == 1
        client.socket.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: not server.fleet.subscriptions, "the subscription to end")


@pytest.mark.req("FE-1")
def test_a_server_that_stops_asks_its_clients_to_reconnect(tmp_path: Path) -> None:
    with ExitStack() as clients:
        with fleet_server(Storage(tmp_path / "storage")) as server:
            client = clients.enter_context(open_socket(server))
            client.send(json.dumps(SUBSCRIBE))
            assert receive(client) == {"id": 1, "result": {"type": "started"}}
        assert receive(client) == {"id": None, "method": "reconnect"}
        assert closed(client)[0] == 1012


@pytest.mark.parametrize("path", ["/", "/api/events", "/nothing"])
def test_other_addresses_have_no_websocket(server: FleetServer, path: str) -> None:
    with pytest.raises(InvalidStatus) as raised:
        open_socket(server, path=path)
    assert raised.value.response.status_code == 403


def test_a_foreign_host_name_is_refused(server: FleetServer) -> None:
    with pytest.raises(InvalidStatus) as raised:
        connect(
            f"{server.url.replace('http', 'ws')}/trpc",
            additional_headers={"Host": "example.com", "Authorization": f"Bearer {server.token}"},
            proxy=None,
        )
    assert raised.value.response.status_code == 403


@pytest.mark.req("FE-6")
def test_a_stopped_subscription_frees_its_id(server: FleetServer) -> None:
    with open_socket(server) as client:
        for _ in range(3):
            client.send(json.dumps(SUBSCRIBE))
            assert receive(client) == {"id": 1, "result": {"type": "started"}}
            client.send(json.dumps({"id": 1, "method": "subscription.stop"}))
            assert receive(client) == {"id": 1, "result": {"type": "stopped"}}
