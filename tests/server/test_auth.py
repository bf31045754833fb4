"""Authentication and authorization on every route, unknown paths included."""

import re
import socket
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import pytest
from starlette.datastructures import Headers
from starlette.routing import Route, WebSocketRoute
from tests.login import StorageAccess
from tests.server.recorded_runs import RecordedRuns, record, run_completed, run_started
from tests.server.server import RunningServer, open_server
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.adapters.memory import MemoryTokens
from shopfloor.errors import Forbidden
from shopfloor.record import Storage
from shopfloor.server import AccessControl
from shopfloor.server.auth import LOGIN_PATH, LOGOUT_PATH, RPC_PATH, TRPC_PATH, AuthMiddleware, LoginLimiter
from shopfloor.server.html_pages import STYLESHEET_PATH

NOWHERE = [("GET", "/nowhere"), ("GET", "/api/nowhere"), ("POST", "/api/runs"), ("DELETE", "/api/health")]


def every_address(server: RunningServer, run_id: str) -> Iterator[tuple[str, str]]:
    """Return every method and path of the app, and some unknown ones."""
    for route in server.app.routes:
        if isinstance(route, WebSocketRoute):
            assert route.path == TRPC_PATH, "tests/server/test_websocket_limits.py covers this one alone"
            continue
        assert isinstance(route, Route), f"{route} is not covered here"
        for method in sorted(route.methods or ()):
            yield method, route.path.replace("{run_id}", run_id)
    yield from NOWHERE


def status(client: httpx.Client, method: str, address: str, headers: dict[str, str]) -> int:
    """Return the status of a response without reading its body, since a stream has no end."""
    params = {"worker_id": address} if "detail" in address else {}
    with client.stream(method, address, headers=headers, params=params) as got:
        if got.status_code >= 400 and method != "HEAD":
            body = read_json(got)
            if address.endswith("/execute"):
                assert set(body) == {"error", "code", "hint"}
            else:
                assert set(body["error"]) == {"code", "message", "hint"}
        for name in ("content-security-policy", "x-content-type-options", "referrer-policy"):
            assert name in got.headers, f"{method} {address} answers without {name}"
        return got.status_code


def read_json(got: httpx.Response) -> Any:
    got.read()
    return got.json()


@pytest.fixture
def anonymous_client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.anonymous_client() as client:
        yield client


def test_every_route_is_covered(server: RunningServer, runs: RecordedRuns) -> None:
    addresses = [address for _, address in every_address(server, runs.done)]
    for route_call in (
        "/",
        LOGIN_PATH,
        "/api/docs",
        "/api/openapi.json",
        "/api/stream",
        f"/api/runs/{runs.done}/stream",
    ):
        assert route_call in addresses


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic wrong"},
        {"Authorization": "nonsense"},
        {"Cookie": "{cookie}=wrong"},
        {"Cookie": "{cookie}={token}"},
        {"Cookie": "other=1; {broken"},
    ],
    ids=str,
)
def test_without_a_valid_token_every_route_refuses_except_the_login_style_sheet(
    server: RunningServer, runs: RecordedRuns, anonymous_client: httpx.Client, headers: dict[str, str]
) -> None:
    known = {"{cookie}": server.tokens.cookie, "{token}": server.tokens.admin_token()}
    for word, meaning in known.items():
        headers = {name: text.replace(word, meaning) for name, text in headers.items()}
    server.app.state.login_limiter = LoginLimiter()
    answers = {
        route_call: status(anonymous_client, *route_call, headers) for route_call in every_address(server, runs.done)
    }
    assert {route_call for route_call, body in answers.items() if body != 401} == {
        ("GET", STYLESHEET_PATH),
        ("HEAD", STYLESHEET_PATH),
    }


@pytest.mark.parametrize(
    "host",
    [
        *(
            "evil.example",
            "evil.example:{port}",
            "localhost",
            "localhost:1",
            "127.0.0.1",
            "127.0.0.1.nip.io:{port}",
            "",
        ),
        # Names that resolve to this machine, addresses of it at which the request did not arrive, and odd spellings.
        *("localhost.:{port}", "evil.localhost:{port}", "0.0.0.0:{port}", "127.0.0.2:{port}", "[::]:{port}", "[::1]"),
        *(
            "::1:{port}",
            "2130706433:{port}",
            "evil@127.0.0.1:{port}",
            "127.0.0.1:{port}.evil.example",
            "127.0.0.1:0{port}",
        ),
    ],
)
def test_every_route_refuses_another_host_name(
    server: RunningServer, runs: RecordedRuns, client: httpx.Client, host: str
) -> None:
    headers = {"Host": host.format(port=server.host.rpartition(":")[2])}
    answers = {route_call: status(client, *route_call, headers) for route_call in every_address(server, runs.done)}
    assert {route_call for route_call, body in answers.items() if body != 403} == set()


@pytest.mark.parametrize(
    "origin",
    [
        *("http://evil.example", "null", "http://127.0.0.1", "http://localhost:1", "file://", "http://[", "{host}", ""),
        *("http://evil@{host}", "http://{host}.evil.example", "ftp://{host}", "http://[::1]:{port}", "//{host}"),
    ],
)
def test_every_route_refuses_requests_from_pages_of_other_sites(
    server: RunningServer, runs: RecordedRuns, client: httpx.Client, origin: str
) -> None:
    headers = {"Origin": origin.format(host=server.host, port=server.host.rpartition(":")[2])}
    answers = {route_call: status(client, *route_call, headers) for route_call in every_address(server, runs.done)}
    assert {route_call for route_call, body in answers.items() if body != 403} == set()


def test_host_and_origin_are_checked_before_the_token(anonymous_client: httpx.Client) -> None:
    assert status(anonymous_client, "GET", "/api/health", {"Host": "evil.example"}) == 403
    assert status(anonymous_client, "GET", "/api/health", {"Origin": "http://evil.example"}) == 403


def test_a_viewer_reads_everything_and_changes_nothing(server: RunningServer, runs: RecordedRuns) -> None:
    with server.client("viewer") as viewer:
        answers = {route_call: status(viewer, *route_call, {}) for route_call in every_address(server, runs.done)}
    reading = ("GET", "HEAD")
    # The role that a request at /rpc needs depends on its method: see test_rpc.
    open_paths = (LOGOUT_PATH, RPC_PATH)
    acting = {route_call for route_call in answers if route_call[0] not in reading and route_call[1] not in open_paths}
    assert {route_call for route_call in acting if answers[route_call] != 403} == set()
    # The addresses of hooks are for admins: they may contain secrets.
    refused = {route_call for route_call, body in answers.items() if route_call not in acting and body == 403}
    assert refused == {("GET", "/api/hooks")}


def test_a_token_of_the_host_role_is_refused(server: RunningServer, runs: RecordedRuns) -> None:
    with server.client("host") as host:
        answers = {
            route_call: status(host, *route_call, {})
            for route_call in every_address(server, runs.done)
            if route_call[1] not in (LOGIN_PATH, STYLESHEET_PATH)
        }
    assert set(answers.values()) == {403}


@pytest.mark.parametrize("role", ["operator", "admin"])
def test_operators_and_admins_may_act(own_storage: Storage, role: Any) -> None:
    run_id = record(own_storage, run_started(), run_completed())
    with open_server(own_storage) as server, server.client(role) as client:
        assert client.post(f"/api/runs/{run_id}/pin", json={"pinned": True}).status_code == 200


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "LOCALHOST", "[::1]"])
def test_this_machine_is_accepted_under_each_of_its_names(
    server: RunningServer, client: httpx.Client, name: str
) -> None:
    host = f"{name}:{server.host.rpartition(':')[2]}"
    assert status(client, "GET", "/api/health", {"Host": host, "Origin": f"http://{host}"}) == 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("shop.example", 200),
        ("Shop.Example:8443", 200),
        ("other.example:8443", 200),
        ("other.example", 403),
        ("other.example:1", 403),
        ("evil.example", 403),
    ],
)
def test_allowed_host_names_are_accepted(own_storage: Storage, host: str, expected: int) -> None:
    with (
        open_server(own_storage, allowed_hosts=("shop.example", "other.example:8443")) as server,
        server.client() as client,
    ):
        assert status(client, "GET", "/api/health", {"Host": host, "Origin": f"https://{host}"}) == expected


def test_the_refusal_of_a_host_name_says_how_to_allow_it(client: httpx.Client) -> None:
    error = client.get("/api/health", headers={"Host": "shop.example"}).json()["error"]
    assert "shop.example" in error["message"]
    assert "shopfloor up --allow-host NAME" in error["hint"]


def test_an_address_of_the_network_is_accepted_where_the_request_arrived(own_storage: Storage) -> None:
    async def inside(scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError

    app = AuthMiddleware(inside, access=AccessControl(MemoryTokens()), allowed_hosts=())

    def is_accepted(host: str, server: tuple[str, int]) -> bool:
        scope = {"type": "http", "path": "/", "server": server, "headers": [(b"host", host.encode())]}
        try:
            app._check_host(scope, Headers(scope=scope))
        except Forbidden:
            return False
        return True

    assert is_accepted("192.168.1.5:7420", ("192.168.1.5", 7420))
    assert is_accepted("[2001:db8::5]:7420", ("2001:db8::5", 7420))
    assert is_accepted("192.168.1.5", ("192.168.1.5", 80))
    assert not is_accepted("192.168.1.5:7420", ("192.168.1.6", 7420))
    assert not is_accepted("[2001:db8::5]", ("2001:db8::5", 7420))
    assert not is_accepted("2001:db8::5:7420", ("2001:db8::5", 7420))
    assert not is_accepted("evil.example:7420", ("192.168.1.5", 7420))


def test_a_session_changes_something_only_for_a_page_of_this_server(
    server: RunningServer, runs: RecordedRuns, anonymous_client: httpx.Client
) -> None:
    cookie = {"Cookie": f"{server.tokens.cookie}={server.tokens.log_in_by_token(server.tokens.admin_token())}"}
    answers = {
        (method, address): status(anonymous_client, method, address, cookie)
        for method, address in every_address(server, runs.done)
        if method not in ("GET", "HEAD")
    }
    assert {route_call for route_call, body in answers.items() if body != 403} == set()
    # Reading needs none: a link of another page may lead here.
    assert status(anonymous_client, "GET", "/api/health", cookie) == 200
    # The others share the run, so it stays as it is.
    pin = {"pinned": False}
    address = f"/api/runs/{runs.done}/pin"
    same = cookie | {"Origin": server.url}
    assert anonymous_client.post(address, headers=same, json=pin).status_code == 200
    other_port = cookie | {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"}
    assert anonymous_client.post(address, headers=other_port, json=pin).status_code == 403


def test_two_host_headers_are_refused(server: RunningServer) -> None:
    host, _, port = server.host.partition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(
            b"GET / HTTP/1.1\r\nHost: %b\r\nHost: evil\r\nConnection: close\r\n\r\n" % server.host.encode()
        )
        assert re.match(rb"HTTP/1.1 40[03] ", connection.recv(4096))


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/other", {}, ["websocket.close"]),
        ("/other", {"authorization": "Bearer {token}", "origin": "http://evil.example"}, ["websocket.close"]),
        ("/other", {"authorization": "Bearer {token}"}, ["let in"]),
        # Its client may send the token as the first message.
        (TRPC_PATH, {}, ["let in"]),
        (TRPC_PATH, {"host": "evil.example"}, ["websocket.close"]),
        (TRPC_PATH, {"authorization": "Bearer {token}", "origin": "http://evil.example"}, ["websocket.close"]),
        (TRPC_PATH, {"cookie": "{cookie}", "origin": "http://evil.example"}, ["websocket.close"]),
        (TRPC_PATH, {"cookie": "{cookie}", "origin": "http://localhost:1"}, ["websocket.close"]),
        (TRPC_PATH, {"cookie": "{cookie}", "origin": "null"}, ["websocket.close"]),
        (TRPC_PATH, {"host": "localhost.:7420", "cookie": "{cookie}"}, ["websocket.close"]),
        ("/other", {"cookie": "{cookie}"}, ["websocket.close"]),
        ("/other", {"cookie": "{cookie}", "origin": "http://localhost:7420"}, ["let in"]),
    ],
)
def test_a_websocket_is_checked_the_same_way(path: str, headers: dict[str, str], expected: list[str]) -> None:
    access = AccessControl(MemoryTokens())
    token = anyio.run(access.admin_token)
    cookie = f"{access.cookie}={anyio.run(access.log_in_by_token, token)}"
    body = {"host": "localhost:7420"} | {
        name: text.format(token=token, cookie=cookie) for name, text in headers.items()
    }
    scope = {"type": "websocket", "path": path, "server": ("127.0.0.1", 7420)}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in body.items()]
    sent: list[str] = []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        sent.append("let in")

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    anyio.run(AuthMiddleware(inside, access=access, allowed_hosts=()), scope, receive, send)
    assert sent == expected


def test_a_refusal_explains_how_to_log_in(anonymous_client: httpx.Client) -> None:
    got = anonymous_client.get("/api/health")
    assert got.headers["www-authenticate"] == "Bearer"
    assert "login link" in got.json()["error"]["hint"]


def test_a_revoked_token_is_refused(own_storage: Storage) -> None:
    with open_server(own_storage) as server, server.client("operator") as client:
        assert client.get("/api/health").status_code == 200
        (own_storage.root / "tokens.json").unlink()
        assert client.get("/api/health").status_code == 401


def test_no_response_may_be_framed_or_run_inline_scripts(client: httpx.Client) -> None:
    got = client.get("/api/health")
    policy = dict(part.strip().split(" ", 1) for part in got.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'self'"
    assert policy["script-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["referrer-policy"] == "no-referrer"
    assert got.headers["cache-control"] == "no-store"


def test_tokens_of_another_storage_are_refused(
    server: RunningServer, anonymous_client: httpx.Client, own_storage: Storage
) -> None:
    other = StorageAccess(own_storage.tokens).admin_token()
    assert anonymous_client.get("/api/health", headers={"Authorization": f"Bearer {other}"}).status_code == 401
