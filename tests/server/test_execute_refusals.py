"""Invalid executions are refused with a status and a reason, and nothing runs."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.sample_events import RUN_ID
from tests.sdk.vocabulary import http_error_type, http_message
from tests.server.engine_server import continue_request, engine_server, execute, start, write_workers
from tests.server.server import RunningServer

from shopfloor.limits import REQUEST_BYTES
from shopfloor.record import Storage
from shopfloor.server.limits import BODY_DEPTH


@pytest.fixture(scope="module")
def executing_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("busy")
    with engine_server(Storage(folder / "storage"), write_workers(folder / "workers")) as server:
        yield server


@pytest.fixture
def client(executing_server: RunningServer) -> Iterator[httpx.Client]:
    with executing_server.client() as client:
        yield client


def refused(got: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Return the body of a refusal, after checking its status and code."""
    assert (got.status_code, got.headers["content-type"]) == (status, "application/json"), got.text
    body = got.json()
    assert body["code"] == code
    assert http_message(body) == body["error"] != ""
    assert set(body) == {"error", "code", "hint"}
    return body


@pytest.mark.req("SDK-30", "SDK-41")
def test_an_unknown_worker_is_not_found(client: httpx.Client) -> None:
    error = refused(client.post("/api/agents/nobody/execute", json=start()), 404, "not_found_error")
    assert http_error_type(404) == "not_found_error"
    assert "nobody" in error["error"]
    assert "echo" in error["hint"]


def test_a_slug_with_a_line_break_gets_the_same_error_shape(client: httpx.Client) -> None:
    response = client.post("/api/agents/a%0Ab/execute", json={"type": "start"})
    assert response.status_code == 404
    assert isinstance(response.json()["error"], str)


@pytest.mark.parametrize("slug", ["%00", "..%2Fecho", "x" * 200, "ec ho", "é"])
def test_an_invalid_slug_is_not_found(client: httpx.Client, slug: str) -> None:
    got = client.post(f"/api/agents/{slug}/execute", json=start())
    if "%2F" in slug:
        # A slash makes this another path.
        assert got.status_code == 404
    else:
        refused(got, 404, "not_found_error")


def test_a_name_that_is_far_too_long_is_refused(client: httpx.Client) -> None:
    refused(client.post(f"/api/agents/{'x' * 201}/execute", json=start()), 400, "invalid_parameter")


@pytest.mark.req("SDK-29", "SDK-41")
@pytest.mark.parametrize("input_values", [{}, {"TEXT": 1}, {"TEXT": "x", "MORE": 1}, {"TEXT": None}])
def test_input_that_does_not_fit_is_refused(client: httpx.Client, input_values: dict[str, Any]) -> None:
    refused(client.post("/api/agents/echo/execute", json=start(input_values)), 400, "validation_error")
    assert http_error_type(400) == "validation_error"
    assert client.get("/api/agents/workers", params={"agent_id": "echo"}).json()["total"] == 0


DEEP = b'{"type": "start", "input": ' + b'{"x":' * BODY_DEPTH + b"1" + b"}" * BODY_DEPTH + b"}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        b'{"type": "begin"}',
        b'{"type": "start", "input": []}',
        b'{"type": "start", "input": {"TEXT": "\\ud800"}}',
        b'{"type": "start", "input": {"TEXT": NaN}}',
        b'{"type": "start", "input": {"TEXT": "x"}, "detach": "yes"}',
        b'{"type": "start", "input": {"TEXT": "x"}, "owner": ""}',
        b'{"type": "start", "input": {"TEXT": "x"}, "cwd": "here"}',
        b'{"type": "start", "input": {"TEXT": "x"}, "cwd": "/a\\u0000b"}',
        b'{"type": "continue"}',
        b'{"type": "continue", "executionId": "%b", "toolResults": []}' % RUN_ID.encode(),
        b'{"type": "continue", "executionId": "%b", "toolResults": [1]}' % RUN_ID.encode(),
        b'{"type": "continue", "executionId": "%b", "toolResults": [{"result": 1}]}' % RUN_ID.encode(),
        DEEP,
        b'{"type": "start", "input": ' + b"[" * 100_000,
    ],
    ids=lambda body: body[:60].decode(errors="replace"),
)
def test_a_malformed_body_is_refused(client: httpx.Client, body: bytes) -> None:
    got = client.post("/api/agents/echo/execute", content=body, headers={"Content-Type": "application/json"})
    assert "body" in refused(got, 400, "invalid_parameter")["error"]


def test_a_body_of_another_type_is_refused(client: httpx.Client) -> None:
    got = client.post("/api/agents/echo/execute", content=b'{"type": "start"}', headers={"Content-Type": "text/plain"})
    refused(got, 400, "invalid_parameter")


def test_a_parameter_is_refused(client: httpx.Client) -> None:
    got = client.post("/api/agents/echo/execute?detach=1", json=start({"TEXT": "x"}))
    assert "detach" in refused(got, 400, "invalid_parameter")["error"]


def test_a_body_that_is_too_large_is_refused(client: httpx.Client) -> None:
    got = client.post("/api/agents/echo/execute", json=start({"TEXT": "x" * REQUEST_BYTES}))
    refused(got, 413, "body_too_large")


def test_another_method_is_refused(client: httpx.Client) -> None:
    refused(client.get("/api/agents/echo/execute"), 405, "method_not_allowed")


@pytest.mark.req("SDK-41")
def test_an_invalid_worker_is_refused_with_its_problems(client: httpx.Client) -> None:
    error = refused(client.post("/api/agents/unreadable/execute", json=start()), 422, "invalid_worker")
    assert "steps" in error["error"]


@pytest.mark.req("SDK-41")
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
def test_a_request_without_a_token_is_refused(executing_server: RunningServer, headers: dict[str, str]) -> None:
    with executing_server.anonymous_client(headers=headers) as anonymous_client:
        refused(anonymous_client.post("/api/agents/echo/execute", json=start({"TEXT": "x"})), 401, "unauthorized")
    assert http_error_type(401) == "authentication_error"


def test_an_unknown_host_name_is_refused(client: httpx.Client) -> None:
    got = client.post("/api/agents/echo/execute", json=start({"TEXT": "x"}), headers={"Host": "elsewhere.example"})
    refused(got, 403, "forbidden")


def test_a_read_only_server_refuses(client: httpx.Client, server: RunningServer) -> None:
    with server.client() as reader:
        refused(reader.post("/api/agents/echo/execute", json=start()), 403, "forbidden")


@pytest.mark.req("SDK-41")
def test_the_same_key_for_another_request_is_a_conflict(client: httpx.Client) -> None:
    execute(client, "asker", start(idempotencyKey="taken"))
    got = client.post("/api/agents/echo/execute", json=start({"TEXT": "x"}, idempotencyKey="taken"))
    refused(got, 409, "conflict")


def test_a_viewer_may_not_execute(executing_server: RunningServer) -> None:
    with executing_server.client("viewer") as viewer:
        refused(viewer.post("/api/agents/echo/execute", json=start({"TEXT": "x"})), 403, "forbidden")


# Continue


@pytest.fixture(scope="module")
def waiting(executing_server: RunningServer) -> tuple[str, str]:
    """A waiting run, and the call that it waits for."""
    with executing_server.client() as client:
        events = execute(client, "asker", start())
    return events[0].data["executionId"], events[-2].data["toolCalls"][0]["toolCallId"]


def test_continuing_an_unknown_run_is_not_found(client: httpx.Client) -> None:
    got = client.post("/api/agents/asker/execute", json=continue_request(RUN_ID, {"toolCallId": "c", "result": 1}))
    refused(got, 404, "run_not_found")


def test_continuing_a_run_of_another_worker_is_not_found(client: httpx.Client, waiting: tuple[str, str]) -> None:
    run_id, call = waiting
    got = client.post("/api/agents/echo/execute", json=continue_request(run_id, {"toolCallId": call, "result": 1}))
    assert "echo" in refused(got, 404, "run_not_found")["error"]
    got = client.post("/api/agents/echo/execute", json=continue_request("x", {"toolCallId": call, "result": 1}))
    assert "'x'" in refused(got, 404, "run_not_found")["error"]


def test_a_result_for_an_unknown_call_is_refused(client: httpx.Client, waiting: tuple[str, str]) -> None:
    run_id, call = waiting
    got = client.post("/api/agents/asker/execute", json=continue_request(run_id, {"toolCallId": "other", "result": 1}))
    assert call in refused(got, 409, "unknown_call")["hint"]


@pytest.mark.parametrize(
    ("more", "code"),
    [({"result": 1, "toolName": "other"}, "validation_error"), ({"error": 1}, "invalid_parameter")],
)
def test_an_invalid_result_is_refused(
    client: httpx.Client, waiting: tuple[str, str], more: dict[str, Any], code: str
) -> None:
    run_id, call = waiting
    got = client.post("/api/agents/asker/execute", json=continue_request(run_id, {"toolCallId": call, **more}))
    refused(got, 400, code)


def test_two_results_for_one_call_are_refused(client: httpx.Client, waiting: tuple[str, str]) -> None:
    run_id, call = waiting
    result = {"toolCallId": call, "result": 1}
    refused(
        client.post("/api/agents/asker/execute", json=continue_request(run_id, result, result)), 400, "validation_error"
    )
