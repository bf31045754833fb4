"""Executing a worker over HTTP: start or continue a run, and stream its events."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.server.engine_server import (
    ExecutionEvent,
    continue_request,
    engine_server,
    execute,
    start,
    status,
    stream_execution,
    wait_for_status,
    write_workers,
)
from tests.server.server import RunningServer
from tests.server.sse import SseEvent, read_stream
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.record import Storage

GRACE = 0.3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with an engine, and a short grace period for runs whose client disconnected."""
    folder = tmp_path_factory.mktemp("busy")
    storage = Storage(folder / "storage")
    with engine_server(
        storage, write_workers(folder / "workers"), execute_grace_seconds=GRACE, heartbeat_seconds=0.2
    ) as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def detail(client: httpx.Client, run_id: str) -> dict[str, Any]:
    return client.get("/api/agents/workers/detail", params={"worker_id": run_id}).json()


def types(events: list[ExecutionEvent]) -> list[str]:
    return [event.type for event in events]


@pytest.mark.req("SDK-2", "SDK-12", "SDK-13", "SDK-14", "SDK-15", "SDK-17", "SDK-19")
def test_a_worker_is_executed_and_streamed(client: httpx.Client) -> None:
    events = execute(client, "echo", start({"TEXT": "hello"}))
    assert types(events) == ["start", "worker-start", "block-start", "block-end", "worker-result", "finish"]
    first, worker, block, _, result, finish = (event.data for event in events)
    run_id = first["executionId"]
    assert worker == {
        "type": "worker-start",
        "workerId": run_id,
        "workerSlug": "echo",
        "description": "Says what it is told.",
    }
    assert block["blockName"] == "Say it"
    assert result.pop("durationMs") >= 0
    assert result == {"type": "worker-result", "workerId": run_id, "output": "hello"}
    assert finish == {"type": "finish", "finishReason": "stop", "reason": "stop"}
    wait_for_status(client, run_id, "done")


def test_an_id_is_the_seq_up_to_which_the_stream_is_complete(client: httpx.Client) -> None:
    events = execute(client, "echo", start({"TEXT": "hello"}))
    run_id = events[0].data["executionId"]
    log = client.get(f"/api/runs/{run_id}/log").json()["events"]
    assert [event.id for event in events] == [None, 1, 2, 3, None, 4]
    assert [event["seq"] for event in log] == [1, 2, 3, 4]
    rest = read_stream(client, f"/api/runs/{run_id}/stream?after=3")
    assert [event.id for event in rest if isinstance(event, SseEvent) and event.id] == ["4"]


@pytest.mark.req("SDK-3", "SDK-18")
def test_text_is_streamed_as_it_is_generated(client: httpx.Client) -> None:
    with stream_execution(client, "talker", start()) as stream:
        events: list[tuple[float, ExecutionEvent]] = [
            (time.monotonic(), event) for event in stream if isinstance(event, ExecutionEvent)
        ]
    deltas = [(at, event) for at, event in events if event.type == "text-delta"]
    assert len(deltas) > 1
    # Deltas are not events of the log and have no id.
    assert all(event.id is None for _, event in deltas[:-1])
    text = "".join(event.data["delta"] for _, event in deltas)
    assert text == next(event.data["output"] for _, event in events if event.type == "worker-result")
    assert [event.type for _, event in events].count("text-start") == 1


@pytest.mark.req("SDK-16", "SDK-27", "SDK-28", "SDK-33")
def test_a_failed_worker_sends_a_result_and_an_error(client: httpx.Client) -> None:
    events = execute(client, "breaker", start())
    error, result, finish = (event.data for event in events[-3:])
    assert (error["type"], error["errorType"]) == ("error", "execution_error")
    assert error["retryable"] is False
    assert result["error"] == error["message"]
    assert finish["finishReason"] == "error"


def test_the_same_key_returns_the_same_run(client: httpx.Client) -> None:
    body = start({"TEXT": "once"}, idempotencyKey="the key", owner="ada", channelId="c:1", task="Say it")
    first, again = execute(client, "echo", body), execute(client, "echo", body)
    assert first == again
    got = client.get("/api/agents/workers", params={"agent_id": "ada"}).json()
    assert [(event["task"], event["channel_id"]) for event in got["workers"]] == [("Say it", "c:1")]


def test_a_silent_stream_sends_heartbeats(client: httpx.Client) -> None:
    with stream_execution(client, "sleeper", start()) as stream:
        assert next(event for event in stream if isinstance(event, str)) == ": heartbeat"


# Continue


def requested_calls(events: list[ExecutionEvent]) -> tuple[str, list[str]]:
    """Return the run and the calls that it requests."""
    request, finish = events[-2].data, events[-1].data
    assert (request["type"], finish["reason"]) == ("tool-request", "tool-calls")
    return events[0].data["executionId"], [event["toolCallId"] for event in request["toolCalls"]]


@pytest.mark.req("SDK-9", "SDK-11", "SDK-20", "SDK-21")
def test_a_run_that_requests_a_tool_waits_and_continues_with_its_result(client: httpx.Client) -> None:
    run_id, (call,) = requested_calls(execute(client, "asker", start()))
    wait_for_status(client, run_id, "waiting")
    result = {"toolCallId": call, "toolName": "look-up", "result": "a stone"}
    second = execute(client, "asker", continue_request(run_id, result))
    assert types(second)[:2] == ["start", "tool-output-available"]
    assert second[0].data == {"type": "start", "executionId": run_id}
    assert second[1].data["output"] == "a stone"
    assert second[-2].data["toolCalls"][0]["args"] == {"word": "a stone"}
    _, (more,) = requested_calls(second)
    third = execute(client, "asker", continue_request(run_id, {"toolCallId": more, "error": "no such word"}))
    assert third[1].data["error"] == "no such word"
    assert third[-1].data["type"] == "finish"


def test_continuing_twice_with_the_same_results_is_idempotent(client: httpx.Client) -> None:
    run_id, (call,) = requested_calls(execute(client, "asker", start()))
    body = continue_request(run_id, {"toolCallId": call, "result": "a stone"})
    first = execute(client, "asker", body)
    assert execute(client, "asker", body) == first
    other = client.post(
        "/api/agents/asker/execute", json=continue_request(run_id, {"toolCallId": call, "result": "cheese"})
    )
    assert other.status_code == 409
    assert "answered already" in other.text
    log = client.get(f"/api/runs/{run_id}/log").json()["events"]
    assert [event["payload"]["output"] for event in log if event["type"] == "tool.result"] == ["a stone"]


def test_calls_without_a_result_are_requested_again(client: httpx.Client) -> None:
    run_id, calls = requested_calls(execute(client, "asks-twice", start()))
    assert len(calls) == 2
    second = execute(client, "asks-twice", continue_request(run_id, {"toolCallId": calls[1], "result": 1}))
    assert requested_calls(second) == (run_id, [calls[0]])
    third = execute(client, "asks-twice", continue_request(run_id, {"toolCallId": calls[0], "result": 2}))
    assert third[-1].data["finishReason"] == "stop"


def test_a_waiting_run_lists_its_pending_calls(client: httpx.Client) -> None:
    run_id, (call,) = requested_calls(execute(client, "asker", start(detach=True)))
    wait_for_status(client, run_id, "waiting")
    body = {"call_id": call, "kind": "client_tool", "name": "look-up", "input": {"word": "moon"}, "until": None}
    assert detail(client, run_id)["awaits"] == [{"run_id": run_id, **body, "answered": False}]
    assert client.post(f"/api/runs/{run_id}/answer", json={"call_id": call, "answer": "a stone"}).json() == {
        "run_id": run_id
    }
    until = time.monotonic() + TIMEOUT_SECONDS
    while (awaits := detail(client, run_id)["awaits"]) == [] or awaits[0]["call_id"] == call:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert awaits[0]["input"] == {"word": "a stone"}


# Disconnect


@pytest.mark.req("SDK-25")
def test_closing_the_connection_cancels_the_run(client: httpx.Client) -> None:
    with stream_execution(client, "sleeper", start()) as stream:
        run_id = read_until_started(stream)
    wait_for_status(client, run_id, "cancelled")
    assert detail(client, run_id)["error"]["message"] == "its client disconnected"


def read_until_started(stream: Iterator[ExecutionEvent | str]) -> str:
    """Read until the first step starts, and return the run's id."""
    return next(event.data["blockId"] and run for run, event in with_run_id(stream) if event.type == "block-start")


def with_run_id(stream: Iterator[ExecutionEvent | str]) -> Iterator[tuple[str, ExecutionEvent]]:
    run_id = ""
    for event in stream:
        if isinstance(event, ExecutionEvent):
            run_id = event.data.get("executionId", run_id)
            yield run_id, event


def test_a_detached_run_continues_without_its_client(client: httpx.Client) -> None:
    with stream_execution(client, "sleeper", start(detach=True)) as stream:
        run_id = read_until_started(stream)
    time.sleep(0.8)
    assert status(client, run_id) == "running"
    client.post(f"/api/runs/{run_id}/cancel")
    wait_for_status(client, run_id, "cancelled")


def test_a_run_that_waits_for_its_client_outlives_the_connection(client: httpx.Client) -> None:
    with stream_execution(client, "asker", start()) as stream:
        run_id = next(run for run, event in with_run_id(stream) if event.type == "tool-request")
    wait_for_status(client, run_id, "waiting")
    time.sleep(0.8)
    assert status(client, run_id) == "waiting"


def test_another_watcher_keeps_an_execution_alive(client: httpx.Client) -> None:
    body = start(idempotencyKey="kept alive")
    with stream_execution(client, "sleeper", body) as other:
        with stream_execution(client, "sleeper", body) as stream:
            run_id = read_until_started(stream)
        read_until_started(other)
        time.sleep(0.8)
        assert status(client, run_id) == "running"
    wait_for_status(client, run_id, "cancelled")


def test_a_client_that_returns_within_the_grace_period_keeps_the_run(client: httpx.Client) -> None:
    for attempt in range(100):
        body = start(idempotencyKey=f"came back {attempt}")
        with stream_execution(client, "sleeper", body) as stream:
            run_id = read_until_started(stream)
            left = time.monotonic()
        with stream_execution(client, "sleeper", body) as stream:
            is_in_time = time.monotonic() - left < GRACE
            assert read_until_started(stream) == run_id
            if is_in_time:
                time.sleep(0.8)
                assert status(client, run_id) == "running"
        wait_for_status(client, run_id, "cancelled")
        # A busy machine may be late.
        if is_in_time:
            return
    pytest.fail("never came back within the grace")
