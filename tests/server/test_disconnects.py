"""A client that hangs up ends what it executes; a stream that the server ended waits for the client, but not for ever."""

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
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("busy")
    with engine_server(
        Storage(folder / "storage"),
        write_workers(folder / "workers"),
        execute_grace_seconds=GRACE,
        client_wait_seconds=1.0,
    ) as server:
        yield server


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a server that waits for it as long as a busy machine may need."""
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
def client(busy: RunningServer) -> Iterator[httpx.Client]:
    with busy.client() as client:
        yield client


def detail(client: httpx.Client, run_id: str) -> dict[str, Any]:
    return client.get("/api/agents/workers/detail", params={"worker_id": run_id}).json()


def waiting_call(told: list[ExecutionEvent]) -> tuple[str, str]:
    assert told[-1].data["finishReason"] == "tool-calls"
    return told[0].data["executionId"], told[-2].data["toolCalls"][0]["toolCallId"]


@contextmanager
def begun(client: httpx.Client, slug: str, body: Any) -> Iterator[str]:
    """An execution that has begun its first step; leaving it hangs up."""
    with stream_execution(client, slug, body) as stream:
        told = (one for one in stream if isinstance(one, ExecutionEvent))
        run_id = next(told).data["executionId"]
        assert next(one for one in told if one.type == "block-start")
        yield run_id


@pytest.mark.req("SDK-35")
def test_disconnecting_during_continue_cancels_the_run(patient: httpx.Client) -> None:
    run_id, call = waiting_call(execute(patient, "looks-up-then-sleeps", start()))
    with begun(patient, "looks-up-then-sleeps", continue_request(run_id, {"toolCallId": call, "result": 1})):
        pass
    wait_for_status(patient, run_id, "cancelled")
    assert detail(patient, run_id)["error"]["message"] == "its client disconnected"


@pytest.mark.req("SDK-35")
def test_a_reader_of_the_log_does_not_keep_an_abandoned_run_alive(client: httpx.Client) -> None:
    with ExitStack() as readers:
        with begun(client, "sleeper", start()) as run_id:
            stream = readers.enter_context(open_stream(client, f"/api/runs/{run_id}/stream"))
            next(stream)
        wait_for_status(client, run_id, "cancelled")
        assert [one.event for one in stream if isinstance(one, SseEvent)][-1] == "end"


@pytest.mark.req("SDK-35")
def test_a_reader_of_the_log_that_disconnects_does_not_cancel_the_run(client: httpx.Client) -> None:
    with begun(client, "sleeper", start()) as run_id:
        with open_stream(client, f"/api/runs/{run_id}/stream") as stream:
            next(stream)
        time.sleep(GRACE * 3)
        assert status(client, run_id) == "running"
    wait_for_status(client, run_id, "cancelled")


@pytest.mark.req("SDK-35")
def test_a_client_that_attaches_replaces_the_one_that_disconnected(busy: RunningServer, client: httpx.Client) -> None:
    with ExitStack() as attached:
        with begun(client, "sleeper", start()) as run_id:
            answer = attached.enter_context(client.stream("POST", f"/api/runs/{run_id}/attach"))
            assert answer.status_code == 200
        time.sleep(GRACE * 3)
        assert status(client, run_id) == "running"
    wait_for_status(client, run_id, "cancelled")
    with busy.client("viewer") as reader:
        assert reader.post(f"/api/runs/{run_id}/attach").status_code == 403


@pytest.mark.req("SDK-36")
@pytest.mark.parametrize("worker", ["asker", "asks-below", "asks-far-below"])
def test_a_run_that_its_client_does_not_continue_is_cancelled_with_a_reason(client: httpx.Client, worker: str) -> None:
    run_id, _ = waiting_call(execute(client, worker, start()))
    wait_for_status(client, run_id, "cancelled")
    [until] = {one["payload"]["awaits"]["until"] for one in calls_of(client, run_id)}
    said = f"its client did not continue it: 'look-up' waited until {until}"
    assert detail(client, run_id)["error"]["message"] == said


def calls_of(client: httpx.Client, run_id: str) -> list[dict[str, Any]]:
    """The calls of a run and of those below it, as their logs have them."""
    events = client.get(f"/api/runs/{run_id}/log").json()["events"]
    below = [one["child_run_id"] for one in events if one["type"] == "step.call_workflow.started"]
    own = [one for one in events if one["type"] == "tool.call"]
    return own + [one for child in below for one in calls_of(client, child)]


@pytest.mark.req("SDK-36")
def test_a_continued_run_has_the_full_timeout_for_its_next_call(patient: httpx.Client) -> None:
    run_id, call = waiting_call(execute(patient, "asker", start()))
    wait_for_status(patient, run_id, "waiting")
    [first] = detail(patient, run_id)["awaits"]
    time.sleep(0.3)
    _, more = waiting_call(
        execute(patient, "asker", continue_request(run_id, {"toolCallId": call, "result": "a stone"}))
    )
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while [one["call_id"] for one in detail(patient, run_id)["awaits"]] != [more] and time.monotonic() < deadline:
        time.sleep(0.02)
    [second] = detail(patient, run_id)["awaits"]
    later = datetime.fromisoformat(second["until"]) - datetime.fromisoformat(first["until"])
    assert later >= timedelta(seconds=0.3)
    told = execute(patient, "asker", continue_request(run_id, {"toolCallId": more, "result": "granite"}))
    assert told[-1].data["finishReason"] == "stop"


@pytest.mark.req("SDK-36")
def test_detached_runs_wait_without_limit(client: httpx.Client) -> None:
    detached, _ = waiting_call(execute(client, "asker", start(detach=True)))
    dispatched = client.post("/api/runs", json={"worker": "asks-below"}).json()["run_id"]
    wait_for_status(client, dispatched, "waiting")
    time.sleep(1.5)
    assert [status(client, run_id) for run_id in (detached, dispatched)] == ["waiting", "waiting"]
    assert [one["until"] for one in detail(client, detached)["awaits"]] == [None]


@pytest.mark.req("SDK-36")
def test_a_question_waits_without_limit(client: httpx.Client) -> None:
    told = execute(client, "asks-a-person", start())
    run_id = told[0].data["executionId"]
    time.sleep(1.5)
    assert status(client, run_id) == "waiting"
    [question] = detail(client, run_id)["awaits"]
    assert (question["kind"], question["until"]) == ("question", None)


@pytest.mark.req("SDK-35")
def test_a_server_that_stops_does_not_cancel_its_runs(tmp_path: Path) -> None:
    storage, workers = Storage(tmp_path / "storage"), write_workers(tmp_path / "workers")
    with ExitStack() as streams, engine_server(storage, workers, execute_grace_seconds=0.0) as server:
        client = streams.enter_context(server.client())
        run_id = streams.enter_context(begun(client, "asks-a-person-below", start()))
        question = _question(client, run_id)
    with engine_server(storage, workers) as server, server.client() as client:
        answer = {"call_id": question["call_id"], "answer": "yes"}
        client.post(f"/api/runs/{question['run_id']}/answer", json=answer)
        wait_for_status(client, question["run_id"], "done")
        events = client.get(f"/api/runs/{run_id}/log").json()["events"]
        assert [one["payload"]["status"] for one in events if one["type"] == "run.completed"] in ([], ["completed"])


def _question(client: httpx.Client, run_id: str) -> dict[str, Any]:
    """What a person is asked by a run below this one, once it waits."""
    until = time.monotonic() + TIMEOUT_SECONDS
    while not (awaits := detail(client, run_id)["awaits"]):
        assert time.monotonic() < until
        time.sleep(0.02)
    return awaits[0]
