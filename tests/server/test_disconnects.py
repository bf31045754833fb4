"""Disconnecting cancels a run; a run that waits for its client after the server ended the stream has a time limit."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
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
from tests.server.sse import SseEvent, open_stream
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.record import Storage

GRACE = 0.3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("busy")
    with engine_server(
        Storage(folder / "storage"),
        write_workers(folder / "workers"),
        execute_grace_seconds=GRACE,
        client_wait_seconds=1.0,
    ) as server:
        yield server


@pytest.fixture(scope="module")
def patient_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a server with long timeouts, for tests that must not time out on a busy machine."""
    folder = tmp_path_factory.mktemp("patient")
    with (
        engine_server(
            Storage(folder / "storage"),
            write_workers(folder / "workers"),
            execute_grace_seconds=GRACE,
            client_wait_seconds=TIMEOUT_SECONDS,
        ) as server,
        server.client() as client,
    ):
        yield client


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def detail(client: httpx.Client, run_id: str) -> dict[str, Any]:
    return client.get("/api/agents/workers/detail", params={"worker_id": run_id}).json()


def waiting_call(events: list[ExecutionEvent]) -> tuple[str, str]:
    assert events[-1].data["finishReason"] == "tool-calls"
    return events[0].data["executionId"], events[-2].data["toolCalls"][0]["toolCallId"]


@contextmanager
def start_execution(client: httpx.Client, slug: str, body: Any) -> Iterator[str]:
    """Start an execution and wait for its first step. Leaving the context disconnects."""
    with stream_execution(client, slug, body) as stream:
        events = (event for event in stream if isinstance(event, ExecutionEvent))
        run_id = next(events).data["executionId"]
        assert next(event for event in events if event.type == "block-start")
        yield run_id


@pytest.mark.req("SDK-35")
def test_disconnecting_during_continue_cancels_the_run(patient_client: httpx.Client) -> None:
    run_id, call = waiting_call(execute(patient_client, "looks-up-then-sleeps", start()))
    with start_execution(
        patient_client, "looks-up-then-sleeps", continue_request(run_id, {"toolCallId": call, "result": 1})
    ):
        pass
    wait_for_status(patient_client, run_id, "cancelled")
    assert detail(patient_client, run_id)["error"]["message"] == "its client disconnected"


@pytest.mark.req("SDK-35")
def test_a_reader_of_the_log_does_not_keep_an_abandoned_run_alive(client: httpx.Client) -> None:
    with ExitStack() as readers:
        with start_execution(client, "sleeper", start()) as run_id:
            stream = readers.enter_context(open_stream(client, f"/api/runs/{run_id}/stream"))
            next(stream)
        wait_for_status(client, run_id, "cancelled")
        assert [event.event for event in stream if isinstance(event, SseEvent)][-1] == "end"


@pytest.mark.req("SDK-35")
def test_a_reader_of_the_log_that_disconnects_does_not_cancel_the_run(client: httpx.Client) -> None:
    with start_execution(client, "sleeper", start()) as run_id:
        with open_stream(client, f"/api/runs/{run_id}/stream") as stream:
            next(stream)
        time.sleep(GRACE * 3)
        assert status(client, run_id) == "running"
    wait_for_status(client, run_id, "cancelled")


@pytest.mark.req("SDK-35")
def test_a_client_that_attaches_replaces_the_one_that_disconnected(server: RunningServer, client: httpx.Client) -> None:
    with ExitStack() as attached:
        with start_execution(client, "sleeper", start()) as run_id:
            answer = attached.enter_context(client.stream("POST", f"/api/runs/{run_id}/attach"))
            assert answer.status_code == 200
        time.sleep(GRACE * 3)
        assert status(client, run_id) == "running"
    wait_for_status(client, run_id, "cancelled")
    with server.client("viewer") as reader:
        assert reader.post(f"/api/runs/{run_id}/attach").status_code == 403


@pytest.mark.req("SDK-36")
@pytest.mark.parametrize("worker", ["asker", "asks-below", "asks-far-below"])
def test_a_run_that_its_client_does_not_continue_is_cancelled_with_a_reason(client: httpx.Client, worker: str) -> None:
    run_id, _ = waiting_call(execute(client, worker, start()))
    wait_for_status(client, run_id, "cancelled")
    [until] = {event["payload"]["awaits"]["until"] for event in calls_of(client, run_id)}
    message = f"the client did not answer 'look-up' by {until}"
    assert detail(client, run_id)["error"]["message"] == message


def calls_of(client: httpx.Client, run_id: str) -> list[dict[str, Any]]:
    """Return the calls in the logs of a run and its sub-runs."""
    events = client.get(f"/api/runs/{run_id}/log").json()["events"]
    below = [event["child_run_id"] for event in events if event["type"] == "step.call_workflow.started"]
    own = [event for event in events if event["type"] == "tool.call"]
    return own + [event for child in below for event in calls_of(client, child)]


@pytest.mark.req("SDK-36")
def test_a_continued_run_has_the_full_timeout_for_its_next_call(patient_client: httpx.Client) -> None:
    run_id, call = waiting_call(execute(patient_client, "asker", start()))
    wait_for_status(patient_client, run_id, "waiting")
    [first] = detail(patient_client, run_id)["awaits"]
    time.sleep(0.3)
    _, more = waiting_call(
        execute(patient_client, "asker", continue_request(run_id, {"toolCallId": call, "result": "a stone"}))
    )
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while [event["call_id"] for event in detail(patient_client, run_id)["awaits"]] != [
        more
    ] and time.monotonic() < deadline:
        time.sleep(0.02)
    [second] = detail(patient_client, run_id)["awaits"]
    later = datetime.fromisoformat(second["until"]) - datetime.fromisoformat(first["until"])
    assert later >= timedelta(seconds=0.3)
    events = execute(patient_client, "asker", continue_request(run_id, {"toolCallId": more, "result": "granite"}))
    assert events[-1].data["finishReason"] == "stop"


@pytest.mark.req("SDK-36")
def test_detached_runs_wait_without_limit(client: httpx.Client) -> None:
    detached, _ = waiting_call(execute(client, "asker", start(detach=True)))
    dispatched = client.post("/api/runs", json={"worker": "asks-below"}).json()["run_id"]
    wait_for_status(client, dispatched, "waiting")
    time.sleep(1.5)
    assert [status(client, run_id) for run_id in (detached, dispatched)] == ["waiting", "waiting"]
    assert [event["until"] for event in detail(client, detached)["awaits"]] == [None]


@pytest.mark.req("SDK-36")
def test_a_question_waits_without_limit(client: httpx.Client) -> None:
    events = execute(client, "asks-a-person", start())
    run_id = events[0].data["executionId"]
    time.sleep(1.5)
    assert status(client, run_id) == "waiting"
    [question] = detail(client, run_id)["awaits"]
    assert (question["kind"], question["until"]) == ("question", None)


@pytest.mark.req("SDK-35")
def test_a_server_that_stops_does_not_cancel_its_runs(tmp_path: Path) -> None:
    storage, workers = Storage(tmp_path / "storage"), write_workers(tmp_path / "workers")
    with ExitStack() as streams, engine_server(storage, workers, execute_grace_seconds=0.0) as server:
        client = streams.enter_context(server.client())
        run_id = streams.enter_context(start_execution(client, "asks-a-person-below", start()))
        question = _question(client, run_id)
    with engine_server(storage, workers) as server, server.client() as client:
        answer = {"call_id": question["call_id"], "answer": "yes"}
        client.post(f"/api/runs/{question['run_id']}/answer", json=answer)
        wait_for_status(client, question["run_id"], "done")
        events = client.get(f"/api/runs/{run_id}/log").json()["events"]
        assert [event["payload"]["status"] for event in events if event["type"] == "run.completed"] in (
            [],
            ["completed"],
        )


def _question(client: httpx.Client, run_id: str) -> dict[str, Any]:
    """Wait until a sub-run asks a person, and return the question."""
    until = time.monotonic() + TIMEOUT_SECONDS
    while not (awaits := detail(client, run_id)["awaits"]):
        assert time.monotonic() < until
        time.sleep(0.02)
    return awaits[0]
