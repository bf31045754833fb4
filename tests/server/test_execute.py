"""Executing a worker over HTTP: made or gone on with, and told as it goes."""

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
from tests.server.sse import SseEvent, events
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.record import Storage

GRACE = 0.3


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that works, and is impatient with executions that nobody watches."""
    folder = tmp_path_factory.mktemp("busy")
    storage = Storage(folder / "storage")
    with engine_server(
        storage, write_workers(folder / "workers"), execute_grace_seconds=GRACE, heartbeat_seconds=0.2
    ) as server:
        yield server


@pytest.fixture
def client(busy: RunningServer) -> Iterator[httpx.Client]:
    with busy.client() as client:
        yield client


def detail(client: httpx.Client, run_id: str) -> dict[str, Any]:
    return client.get("/api/agents/workers/detail", params={"worker_id": run_id}).json()


def types(told: list[ExecutionEvent]) -> list[str]:
    return [one.type for one in told]


@pytest.mark.req("SDK-2", "SDK-12", "SDK-13", "SDK-14", "SDK-15", "SDK-17", "SDK-19")
def test_a_worker_is_executed_and_told(client: httpx.Client) -> None:
    told = execute(client, "echo", start({"TEXT": "hello"}))
    assert types(told) == ["start", "worker-start", "block-start", "block-end", "worker-result", "finish"]
    first, worker, block, _, result, finish = (one.data for one in told)
    run_id = first["executionId"]
    assert worker == {
        "type": "worker-start",
        "workerId": run_id,
        "workerSlug": "echo",
        "description": "Says what it is told.",
    }
    assert block["blockName"] == "Say it"
    assert result == {"type": "worker-result", "workerId": run_id, "output": "hello"}
    assert finish == {"type": "finish", "finishReason": "stop", "reason": "stop"}
    wait_for_status(client, run_id, "done")


def test_an_id_says_up_to_where_the_log_is_told(client: httpx.Client) -> None:
    told = execute(client, "echo", start({"TEXT": "hello"}))
    run_id = told[0].data["executionId"]
    log = client.get(f"/api/runs/{run_id}/log").json()["events"]
    assert [one.id for one in told] == [None, 1, 2, 3, None, 4]
    assert [one["seq"] for one in log] == [1, 2, 3, 4]
    rest = events(client, f"/api/runs/{run_id}/stream?after=3")
    assert [one.id for one in rest if isinstance(one, SseEvent) and one.id] == ["4"]


@pytest.mark.req("SDK-3", "SDK-18")
def test_text_comes_as_it_is_typed(client: httpx.Client) -> None:
    with stream_execution(client, "talker", start()) as stream:
        told: list[tuple[float, ExecutionEvent]] = [
            (time.monotonic(), one) for one in stream if isinstance(one, ExecutionEvent)
        ]
    deltas = [(at, one) for at, one in told if one.type == "text-delta"]
    assert len(deltas) > 1
    # Pieces are no events of the log.
    assert all(one.id is None for _, one in deltas[:-1])
    text = "".join(one.data["delta"] for _, one in deltas)
    assert text == next(one.data["output"] for _, one in told if one.type == "worker-result")
    assert [one.type for _, one in told].count("text-start") == 1


@pytest.mark.req("SDK-16", "SDK-27", "SDK-28", "SDK-33")
def test_a_worker_that_fails_says_so_in_its_result_and_as_an_error(client: httpx.Client) -> None:
    told = execute(client, "breaker", start())
    error, result, finish = (one.data for one in told[-3:])
    assert (error["type"], error["errorType"]) == ("error", "execution_error")
    assert error["retryable"] is False
    assert result["error"] == error["message"]
    assert finish["finishReason"] == "error"


def test_the_same_key_again_is_the_same_run(client: httpx.Client) -> None:
    asked = start({"TEXT": "once"}, idempotencyKey="the key", owner="ada", channelId="c:1", task="Say it")
    first, again = execute(client, "echo", asked), execute(client, "echo", asked)
    assert first == again
    got = client.get("/api/agents/workers", params={"agent_id": "ada"}).json()
    assert [(one["task"], one["channel_id"]) for one in got["workers"]] == [("Say it", "c:1")]


def test_a_stream_that_is_silent_shows_that_it_lives(client: httpx.Client) -> None:
    with stream_execution(client, "sleeper", start()) as stream:
        assert next(one for one in stream if isinstance(one, str)) == ": heartbeat"


# Going on.


def asked_for(told: list[ExecutionEvent]) -> tuple[str, list[str]]:
    """The run, and the calls that it asks for."""
    request, finish = told[-2].data, told[-1].data
    assert (request["type"], finish["reason"]) == ("tool-request", "tool-calls")
    return told[0].data["executionId"], [one["toolCallId"] for one in request["toolCalls"]]


@pytest.mark.req("SDK-9", "SDK-11", "SDK-20", "SDK-21")
def test_a_run_that_asks_for_a_tool_waits_and_goes_on_with_its_result(client: httpx.Client) -> None:
    run_id, (call,) = asked_for(execute(client, "asker", start()))
    wait_for_status(client, run_id, "waiting")
    result = {"toolCallId": call, "toolName": "look-up", "result": "a stone"}
    second = execute(client, "asker", continue_request(run_id, result))
    assert types(second)[:2] == ["start", "tool-output-available"]
    assert second[0].data == {"type": "start", "executionId": run_id}
    assert second[1].data["output"] == "a stone"
    assert second[-2].data["toolCalls"][0]["args"] == {"word": "a stone"}
    _, (more,) = asked_for(second)
    third = execute(client, "asker", continue_request(run_id, {"toolCallId": more, "error": "no such word"}))
    assert third[1].data["error"] == "no such word"
    assert third[-1].data["type"] == "finish"


def test_going_on_twice_with_the_same_is_going_on_once(client: httpx.Client) -> None:
    run_id, (call,) = asked_for(execute(client, "asker", start()))
    asked = continue_request(run_id, {"toolCallId": call, "result": "a stone"})
    first = execute(client, "asker", asked)
    assert execute(client, "asker", asked) == first
    other = client.post(
        "/api/agents/asker/execute", json=continue_request(run_id, {"toolCallId": call, "result": "cheese"})
    )
    assert other.status_code == 409
    assert "answered already" in other.text
    log = client.get(f"/api/runs/{run_id}/log").json()["events"]
    assert [one["payload"]["output"] for one in log if one["type"] == "tool.result"] == ["a stone"]


def test_calls_that_got_no_result_are_asked_for_again(client: httpx.Client) -> None:
    run_id, calls = asked_for(execute(client, "asks-twice", start()))
    assert len(calls) == 2
    second = execute(client, "asks-twice", continue_request(run_id, {"toolCallId": calls[1], "result": 1}))
    assert asked_for(second) == (run_id, [calls[0]])
    third = execute(client, "asks-twice", continue_request(run_id, {"toolCallId": calls[0], "result": 2}))
    assert third[-1].data["finishReason"] == "stop"


def test_a_waiting_run_has_the_kinds_of_its_waits(client: httpx.Client) -> None:
    run_id, (call,) = asked_for(execute(client, "asker", start(detach=True)))
    wait_for_status(client, run_id, "waiting")
    asked = {"call_id": call, "kind": "client_tool", "name": "look-up", "input": {"word": "moon"}, "until": None}
    assert detail(client, run_id)["awaits"] == [{"run_id": run_id, **asked, "answered": False}]
    assert client.post(f"/api/runs/{run_id}/answer", json={"call_id": call, "answer": "a stone"}).json() == {
        "run_id": run_id
    }
    until = time.monotonic() + TIMEOUT_SECONDS
    while (awaits := detail(client, run_id)["awaits"]) == [] or awaits[0]["call_id"] == call:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert awaits[0]["input"] == {"word": "a stone"}


# Leaving.


@pytest.mark.req("SDK-25")
def test_closing_the_connection_cancels_the_run(client: httpx.Client) -> None:
    with stream_execution(client, "sleeper", start()) as stream:
        run_id = _begun(stream)
    wait_for_status(client, run_id, "cancelled")
    assert detail(client, run_id)["error"]["message"] == "its client has gone"


def _begun(stream: Iterator[ExecutionEvent | str]) -> str:
    """Reads until the run does something."""
    return next(one.data["blockId"] and run for run, one in _with_run(stream) if one.type == "block-start")


def _with_run(stream: Iterator[ExecutionEvent | str]) -> Iterator[tuple[str, ExecutionEvent]]:
    run_id = ""
    for one in stream:
        if isinstance(one, ExecutionEvent):
            run_id = one.data.get("executionId", run_id)
            yield run_id, one


def test_a_detached_run_goes_on_without_its_client(client: httpx.Client) -> None:
    with stream_execution(client, "sleeper", start(detach=True)) as stream:
        run_id = _begun(stream)
    time.sleep(0.8)
    assert status(client, run_id) == "running"
    client.post(f"/api/runs/{run_id}/cancel")
    wait_for_status(client, run_id, "cancelled")


def test_a_run_that_waits_for_its_client_outlives_the_connection(client: httpx.Client) -> None:
    with stream_execution(client, "asker", start()) as stream:
        run_id = next(run for run, one in _with_run(stream) if one.type == "tool-request")
    wait_for_status(client, run_id, "waiting")
    time.sleep(0.8)
    assert status(client, run_id) == "waiting"


def test_another_watcher_keeps_an_execution_alive(client: httpx.Client) -> None:
    asked = start(idempotencyKey="kept alive")
    with stream_execution(client, "sleeper", asked) as other:
        with stream_execution(client, "sleeper", asked) as stream:
            run_id = _begun(stream)
        _begun(other)
        time.sleep(0.8)
        assert status(client, run_id) == "running"
    wait_for_status(client, run_id, "cancelled")


def test_who_comes_back_within_the_grace_finds_the_run_alive(client: httpx.Client) -> None:
    for attempt in range(100):
        asked = start(idempotencyKey=f"came back {attempt}")
        with stream_execution(client, "sleeper", asked) as stream:
            run_id = _begun(stream)
            left = time.monotonic()
        with stream_execution(client, "sleeper", asked) as stream:
            is_in_time = time.monotonic() - left < GRACE
            assert _begun(stream) == run_id
            if is_in_time:
                time.sleep(0.8)
                assert status(client, run_id) == "running"
        wait_for_status(client, run_id, "cancelled")
        # A busy machine may be late.
        if is_in_time:
            return
    pytest.fail("never came back within the grace")
