"""Who is let in: on every route that there is, and on those that are not."""

import re
import socket
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import pytest
from starlette.routing import Route
from tests.login import StorageAccess
from tests.patience import PATIENCE
from tests.server.runs import Runs, begun, ended, record
from tests.server.shop import Shop, opened

from shopfloor.adapters.memory import MemoryTokens
from shopfloor.record import Storage
from shopfloor.server import AccessControl
from shopfloor.server.auth import LOGIN, LOGOUT, Gate
from shopfloor.server.login_limiter import LoginLimiter
from shopfloor.server.page_style import STYLE

NOWHERE = [("GET", "/nowhere"), ("GET", "/api/nowhere"), ("POST", "/api/runs"), ("DELETE", "/api/health")]


def every_address(shop: Shop, run_id: str) -> Iterator[tuple[str, str]]:
    """All that the app answers to, and some that it does not."""
    for route in shop.app.routes:
        assert isinstance(route, Route), f"{route} is not looked at here"
        for method in sorted(route.methods or ()):
            yield method, route.path.replace("{run_id}", run_id)
    yield from NOWHERE


def status(client: httpx.Client, method: str, address: str, headers: dict[str, str]) -> int:
    """Only the status: a stream has no end."""
    asked = {"worker_id": address} if "detail" in address else {}
    with client.stream(method, address, headers=headers, params=asked) as got:
        if got.status_code >= 400 and method != "HEAD":
            said = read_json(got)
            if address.endswith("/execute"):
                assert set(said) == {"error", "code", "hint"}
            else:
                assert set(said["error"]) == {"code", "message", "hint"}
        for name in ("content-security-policy", "x-content-type-options", "referrer-policy"):
            assert name in got.headers, f"{method} {address} answers without {name}"
        return got.status_code


def read_json(got: httpx.Response) -> Any:
    got.read()
    return got.json()


@pytest.fixture
def stranger(shop: Shop) -> Iterator[httpx.Client]:
    with shop.stranger() as client:
        yield client


def test_every_route_is_looked_at(shop: Shop, runs: Runs) -> None:
    addresses = [address for _, address in every_address(shop, runs.done)]
    for one in ("/", LOGIN, "/api/docs", "/api/openapi.json", "/api/stream", f"/api/runs/{runs.done}/stream"):
        assert one in addresses


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
def test_without_a_right_token_every_route_refuses_but_the_look_of_the_page_that_says_so(
    shop: Shop, runs: Runs, stranger: httpx.Client, headers: dict[str, str]
) -> None:
    known = {"{cookie}": shop.tokens.cookie, "{token}": shop.tokens.admin_token()}
    for word, meaning in known.items():
        headers = {name: text.replace(word, meaning) for name, text in headers.items()}
    shop.app.state.logins = LoginLimiter()
    answers = {one: status(stranger, *one, headers) for one in every_address(shop, runs.done)}
    assert {one for one, said in answers.items() if said != 401} == {("GET", STYLE), ("HEAD", STYLE)}


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "localhost", "localhost:1", "127.0.0.1", "127.0.0.1.nip.io:{port}", ""],
)
def test_under_another_name_every_route_refuses(shop: Shop, runs: Runs, client: httpx.Client, host: str) -> None:
    headers = {"Host": host.format(port=shop.host.rpartition(":")[2])}
    answers = {one: status(client, *one, headers) for one in every_address(shop, runs.done)}
    assert {one for one, said in answers.items() if said != 403} == set()


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1", "http://localhost:1", "file://", "http://[", "{host}"]
)
def test_from_pages_of_another_site_every_route_refuses(
    shop: Shop, runs: Runs, client: httpx.Client, origin: str
) -> None:
    headers = {"Origin": origin.format(host=shop.host)}
    answers = {one: status(client, *one, headers) for one in every_address(shop, runs.done)}
    assert {one for one, said in answers.items() if said != 403} == set()


def test_the_name_and_the_origin_are_looked_at_before_the_token(stranger: httpx.Client) -> None:
    assert status(stranger, "GET", "/api/health", {"Host": "evil.example"}) == 403
    assert status(stranger, "GET", "/api/health", {"Origin": "http://evil.example"}) == 403


def test_a_viewer_reads_everything_and_changes_nothing(shop: Shop, runs: Runs) -> None:
    with shop.client("viewer") as viewer:
        answers = {one: status(viewer, *one, {}) for one in every_address(shop, runs.done)}
    reading = ("GET", "HEAD")
    acting = {one for one in answers if one[0] not in reading and one[1] != LOGOUT}
    assert {one for one in acting if answers[one] != 403} == set()
    assert {one for one, said in answers.items() if one not in acting and said == 403} == set()


def test_a_host_has_no_business_here_yet(shop: Shop, runs: Runs) -> None:
    with shop.client("host") as host:
        answers = {
            one: status(host, *one, {}) for one in every_address(shop, runs.done) if one[1] not in (LOGIN, STYLE)
        }
    assert set(answers.values()) == {403}


@pytest.mark.parametrize("role", ["operator", "admin"])
def test_operators_and_admins_may_act(own_storage: Storage, role: Any) -> None:
    run_id = record(own_storage, begun(), ended())
    with opened(own_storage) as shop, shop.client(role) as client:
        assert client.post(f"/api/runs/{run_id}/pin", json={"pinned": True}).status_code == 200


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "LOCALHOST", "[::1]"])
def test_this_machine_by_any_of_its_names_is_let_in(shop: Shop, client: httpx.Client, name: str) -> None:
    host = f"{name}:{shop.host.rpartition(':')[2]}"
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
def test_names_that_were_allowed_are_let_in(own_storage: Storage, host: str, expected: int) -> None:
    with opened(own_storage, allowed_hosts=("shop.example", "other.example:8443")) as shop, shop.client() as client:
        assert status(client, "GET", "/api/health", {"Host": host, "Origin": f"https://{host}"}) == expected


def test_two_names_at_once_are_none(shop: Shop) -> None:
    host, _, port = shop.host.partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(
            b"GET / HTTP/1.1\r\nHost: %b\r\nHost: evil\r\nConnection: close\r\n\r\n" % shop.host.encode()
        )
        assert re.match(rb"HTTP/1.1 40[03] ", connection.recv(4096))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, ["websocket.close"]),
        ({"authorization": "Bearer {token}", "origin": "http://evil.example"}, ["websocket.close"]),
        ({"authorization": "Bearer {token}"}, ["let in"]),
    ],
)
def test_a_websocket_passes_the_same_gate(headers: dict[str, str], expected: list[str]) -> None:
    access = AccessControl(MemoryTokens())
    token = anyio.run(access.admin_token)
    said = {"host": "localhost:7420"} | {name: text.format(token=token) for name, text in headers.items()}
    scope = {"type": "websocket", "path": "/trpc", "server": ("127.0.0.1", 7420)}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in said.items()]
    sent: list[str] = []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        sent.append("let in")

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    anyio.run(Gate(inside, access=access, allowed_hosts=()), scope, receive, send)
    assert sent == expected


def test_a_refusal_says_how_to_get_in(stranger: httpx.Client) -> None:
    got = stranger.get("/api/health")
    assert got.headers["www-authenticate"] == "Bearer"
    assert "login link" in got.json()["error"]["hint"]


def test_a_token_that_is_taken_away_counts_no_more(own_storage: Storage) -> None:
    with opened(own_storage) as shop, shop.client("operator") as client:
        assert client.get("/api/health").status_code == 200
        (own_storage.root / "tokens.json").unlink()
        assert client.get("/api/health").status_code == 401


def test_no_answer_may_be_framed_or_run_script_of_its_own(client: httpx.Client) -> None:
    got = client.get("/api/health")
    policy = dict(part.strip().split(" ", 1) for part in got.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'self'"
    assert policy["script-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["referrer-policy"] == "no-referrer"
    assert got.headers["cache-control"] == "no-store"


def test_the_tokens_of_another_storage_are_strange_here(
    shop: Shop, stranger: httpx.Client, own_storage: Storage
) -> None:
    other = StorageAccess(own_storage.tokens).admin_token()
    assert stranger.get("/api/health", headers={"Authorization": f"Bearer {other}"}).status_code == 401
