"""Invalid requests are refused with an error that names the problem, always in the same format."""

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.sample_events import RUN_ID
from tests.server.recorded_runs import RecordedRuns, record, run_completed, run_started
from tests.server.server import open_server

from shopfloor.adapters.memory import MemoryStore
from shopfloor.limits import REQUEST_BYTES
from shopfloor.record import Storage

LIST, DETAIL, EVENTS = "/api/agents/workers", "/api/agents/workers/detail", "/api/agents/workers/events"
UNKNOWN = RUN_ID


def problem(got: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Return the error of a response, after checking its status, its code and that there is nothing else."""
    assert (got.status_code, got.headers["content-type"]) == (status, "application/json"), got.text
    assert list(got.json()) == ["error"]
    error = got.json()["error"]
    assert list(error) == ["code", "message", "hint"]
    assert error["code"] == code
    assert error["message"]
    return error


@pytest.mark.parametrize(
    ("address", "params", "name"),
    [
        (LIST, {"limit": 0}, "limit"),
        (LIST, {"limit": 501}, "limit"),
        (LIST, {"limit": "many"}, "limit"),
        (LIST, {"limit": ""}, "limit"),
        (LIST, {"limit": -1}, "limit"),
        (LIST, {"limit": 10**30}, "limit"),
        (LIST, {"offset": -1}, "offset"),
        (LIST, {"offset": 10**9}, "offset"),
        (LIST, {"status": "completed"}, "status"),
        (LIST, {"status": ""}, "status"),
        (LIST, {"agent_id": ""}, "agent_id"),
        (LIST, {"since": "yesterday"}, "since"),
        (LIST, {"since": "2026-02-30T00:00:00Z"}, "2026-02-30"),
        (LIST, {"until": "0001-01-01T00:00:00+23:59"}, "0001-01-01"),
        (LIST, {"until": "2026-02-20"}, "until"),
        (LIST, {"cursor": "nonsense"}, "nonsense"),
        (LIST, {"q": "x" * 1001}, "q"),
        (LIST, {"staus": "done"}, "staus"),
        (LIST, [("limit", 1), ("limit", 2)], "limit"),
        (DETAIL, {}, "worker_id"),
        (DETAIL, {"worker_id": UNKNOWN, "extra": 1}, "extra"),
        (EVENTS, {}, "worker_id"),
        (EVENTS, {"worker_id": UNKNOWN, "limit": 1001}, "limit"),
        (EVENTS, {"worker_id": UNKNOWN, "after": -1}, "after"),
        (f"/api/runs/{UNKNOWN}/log", {"limit": 1001}, "limit"),
        (f"/api/runs/{UNKNOWN}/log", {"after": 2**53}, "after"),
        (f"/api/runs/{UNKNOWN}/log", {"before": "x"}, "before"),
        (f"/api/runs/{UNKNOWN}/stream", {"after": "x"}, "after"),
        ("/api/stream", {"runs": "x"}, "runs"),
        ("/api/stream", {"runs": f"{UNKNOWN}:x"}, "runs"),
        ("/api/stream", {"runs": ",".join([UNKNOWN] * 17)}, "runs"),
        ("/api/channels", {"x": 1}, "x"),
        ("/api/health", {"x": 1}, "x"),
    ],
)
def test_a_bad_parameter_is_named(client: httpx.Client, address: str, params: Any, name: str) -> None:
    assert name in problem(client.get(address, params=params), 400, "invalid_parameter")["message"]


@pytest.mark.parametrize("time_text", ["yesterday", "2026-02-30T00:00:00Z", "2026-02-20", "2026-02-20T10:00:00Z\n"])
@pytest.mark.parametrize("name", ["since", "until"])
def test_an_invalid_time_is_refused_with_an_example(client: httpx.Client, name: str, time_text: str) -> None:
    error = problem(client.get(LIST, params={name: time_text}), 400, "invalid_parameter")
    assert error["message"] == f"{name}: must be an RFC 3339 time, e.g. 2026-02-23T10:30:00Z, got {time_text!r}"


@pytest.mark.parametrize("bad", ["x", "..%2F..%2Fetc", "%00", UNKNOWN.upper(), UNKNOWN[:-1], UNKNOWN + "0"])
@pytest.mark.parametrize(
    "address",
    [
        "/api/runs/{}/log",
        "/api/runs/{}/stream",
        DETAIL + "?worker_id={}",
        EVENTS + "?worker_id={}",
        LIST + "?parent={}",
    ],
)
def test_a_malformed_id_fails_as_an_unknown_one_does(client: httpx.Client, address: str, bad: str) -> None:
    if "%2F" in bad and "runs/" in address:
        problem(client.get(address.format(bad)), 404, "not_found")  # this is another path
    else:
        problem(client.get(address.format(bad)), 404, "run_not_found")


@pytest.mark.parametrize(
    "address", ["/api/runs/{}/log", "/api/runs/{}/stream", DETAIL + "?worker_id={}", EVENTS + "?worker_id={}"]
)
def test_an_unknown_run_is_not_found(client: httpx.Client, address: str) -> None:
    assert UNKNOWN in problem(client.get(address.format(UNKNOWN)), 404, "run_not_found")["message"]


@pytest.mark.parametrize("address", ["/api/nowhere", "/api", "/api/", "/api/agents/workers/", "/nowhere", "/x//"])
def test_an_unknown_path_is_not_found(client: httpx.Client, address: str) -> None:
    problem(client.get(address), 404, "not_found")


@pytest.mark.parametrize(
    ("method", "address"),
    [("POST", LIST), ("DELETE", "/api/health"), ("PUT", "/"), ("GET", f"/api/runs/{UNKNOWN}/pin")],
)
def test_a_method_that_is_not_allowed_is_named(client: httpx.Client, method: str, address: str) -> None:
    got = client.request(method, address)
    problem(got, 405, "method_not_allowed")
    assert got.headers["allow"]


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "²", str(2**53), "9" * 5000])
def test_a_stream_resumes_only_from_a_valid_event_id(client: httpx.Client, runs: RecordedRuns, last: str) -> None:
    headers = {b"Last-Event-ID": last.encode("latin-1")}
    assert (
        "Last-Event-ID"
        in problem(client.get(f"/api/runs/{runs.done}/stream", headers=headers), 400, "invalid_parameter")["message"]
    )


# Bodies


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"pinned": "yes"}',
        b'{"pinned": 1}',
        b'{"pinned": null}',
        b'{"pinned": true, "x": 1}',
        b"\xff",
    ],
)
def test_a_bad_body_is_refused(client: httpx.Client, body: bytes) -> None:
    got = client.post(f"/api/runs/{UNKNOWN}/pin", content=body, headers={"Content-Type": "application/json"})
    assert "body" in problem(got, 400, "invalid_parameter")["message"]


def test_a_body_of_another_type_is_refused(client: httpx.Client) -> None:
    got = client.post(f"/api/runs/{UNKNOWN}/pin", content=b'{"pinned": true}', headers={"Content-Type": "text/plain"})
    problem(got, 400, "invalid_parameter")


def test_pinning_an_unknown_run_is_not_found(client: httpx.Client) -> None:
    problem(client.post(f"/api/runs/{UNKNOWN}/pin", json={"pinned": True}), 404, "run_not_found")


def _pieces(size: int) -> Iterator[bytes]:
    for _ in range(0, size, 2**16):
        yield b" " * 2**16


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large_is_refused(client: httpx.Client, announced: bool) -> None:
    size = REQUEST_BYTES + 2**16
    content = b" " * size if announced else _pieces(size)
    problem(client.post(f"/api/runs/{UNKNOWN}/pin", content=content), 413, "body_too_large")


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_just_fits_is_read(own_storage: Storage, announced: bool) -> None:
    run_id = record(own_storage, run_started(), run_completed())
    text = b'{"pinned": true}'
    filling = b" " * (REQUEST_BYTES - len(text))
    content = text + filling if announced else iter((text, filling))
    with open_server(own_storage) as server, server.client() as client:
        got = client.post(f"/api/runs/{run_id}/pin", content=content, headers={"Content-Type": "application/json"})
        assert got.status_code == 200


# Internal errors


class BrokenStore(MemoryStore):
    """A store that raises an unexpected error."""

    async def channels(self) -> Any:
        raise ZeroDivisionError("the secret of the defect")


def test_an_internal_error_is_logged_and_sent_without_details(
    own_storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    with open_server(own_storage, store=BrokenStore()) as server, server.client() as client:
        with caplog.at_level(logging.ERROR):
            got = client.get("/api/channels")
        problem(got, 500, "unexpected")
        assert "secret" not in got.text
        assert "content-security-policy" in got.headers
        assert "the secret of the defect" in caplog.text
        assert client.get("/api/health").status_code == 200
