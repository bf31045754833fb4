"""Client tools of sub-runs are requested from the client that executes the root run."""

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
    wait_for_status,
    write_workers,
)
from tests.server.server import RunningServer
from tests.server.sse import SseEvent, open_stream

from shopfloor.record import Storage


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("busy")
    with engine_server(Storage(folder / "storage"), write_workers(folder / "workers"), heartbeat_seconds=0.2) as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def requested(events: list[ExecutionEvent]) -> tuple[str, list[dict[str, Any]]]:
    """Return the run and the calls that its stream ends with."""
    request, finish = events[-2].data, events[-1].data
    assert request["type"] == "tool-request", [event.data for event in events]
    assert finish["finishReason"] == "tool-calls"
    return events[0].data["executionId"], request["toolCalls"]


def result_of(call: dict[str, Any], value: Any) -> dict[str, Any]:
    return {"toolCallId": call["toolCallId"], "toolName": call["toolName"], "result": value}


@pytest.mark.req("SDK-34")
@pytest.mark.parametrize("worker", ["asks-below", "asks-far-below"])
def test_a_tool_of_a_sub_run_is_requested_and_answered_through_the_root_run(client: httpx.Client, worker: str) -> None:
    run_id, [call] = requested(execute(client, worker, start()))
    assert (call["toolName"], call["args"]) == ("look-up", {"word": "moon"})
    second = execute(client, worker, continue_request(run_id, result_of(call, "a stone")))
    assert second[0].data == {"type": "start", "executionId": run_id}
    again, [more] = requested(second)
    assert (again, more["args"]) == (run_id, {"word": "a stone"})
    third = execute(client, worker, continue_request(run_id, result_of(more, "granite")))
    results = [event.data for event in third if event.type == "worker-result"]
    assert [(event["workerId"], event["output"]) for event in results] == [
        (run_id, {"first": "a stone", "second": "granite"})
    ]
    wait_for_status(client, run_id, "done")


@pytest.mark.req("SDK-34")
def test_calls_of_a_run_and_of_several_sub_runs_reach_the_right_run(client: httpx.Client) -> None:
    """Each round answers one call with its own input; calls without a result are requested again."""
    body, answered, rounds = start(), set[str](), 0
    while (events := execute(client, "asks-everywhere", body))[-1].data["finishReason"] == "tool-calls":
        run_id, calls = requested(events)
        assert not {call["toolCallId"] for call in calls} & answered
        # Answer one call per round, so that the others wait through several rounds.
        call, rounds = calls[-1], rounds + 1
        answered.add(call["toolCallId"])
        body = continue_request(run_id, result_of(call, f"{call['args']['word']}-{rounds}"))
    [result] = [event.data for event in events if event.type == "worker-result"]
    assert rounds == len(answered) == 5
    log = client.get(f"/api/runs/{events[0].data['executionId']}/log").json()["events"]
    assert [event["payload"]["call_id"] in answered for event in log if event["type"] == "tool.result"] == [True]
    output = result["output"]
    assert output["here"].startswith("here-")
    assert {output[name].split("-")[0] for name in ("below", "beside")} == {"moon"}
    assert output["below"] != output["beside"]


@pytest.mark.req("SDK-34")
def test_calls_of_several_waiting_runs_are_requested_in_one_event(client: httpx.Client) -> None:
    run_id, first = requested(execute(client, "asks-everywhere", start()))
    # The run's own call may have been requested before its sub-runs waited.
    calls = {call["toolCallId"]: call for call in first}
    own = next(call for call in first if call["args"] == {"word": "here"})
    _, rest = requested(execute(client, "asks-everywhere", continue_request(run_id, result_of(own, 1))))
    calls |= {call["toolCallId"]: call for call in rest}
    assert [call["args"] for call in rest] == [{"word": "moon"}, {"word": "moon"}]
    assert len(calls) == 3
    results = [result_of(call, call["toolCallId"][:8]) for call in rest]
    _, more = requested(execute(client, "asks-everywhere", continue_request(run_id, *results)))
    assert sorted(call["args"]["word"] for call in more) == sorted(call["toolCallId"][:8] for call in rest)


@pytest.mark.req("SDK-34")
def test_continuing_twice_with_the_result_for_a_sub_run_is_idempotent(client: httpx.Client) -> None:
    run_id, [call] = requested(execute(client, "asks-below", start()))
    _, [more] = requested(execute(client, "asks-below", continue_request(run_id, result_of(call, "a stone"))))
    last = continue_request(run_id, result_of(more, "granite"))
    assert execute(client, "asks-below", last) == execute(client, "asks-below", last)


def test_a_result_for_an_unknown_call_is_refused_with_the_pending_calls_of_sub_runs(client: httpx.Client) -> None:
    run_id, [call] = requested(execute(client, "asks-below", start()))
    got = client.post(
        "/api/agents/asks-below/execute", json=continue_request(run_id, {"toolCallId": "other", "result": 1})
    )
    assert got.status_code == 409
    assert call["toolCallId"] in got.text


def test_a_result_for_a_run_of_another_tree_is_refused(client: httpx.Client) -> None:
    run_id, [call] = requested(execute(client, "asks-below", start()))
    other, _ = requested(execute(client, "asks-below", start()))
    got = client.post(f"/api/runs/{other}/answer", json={"call_id": call["toolCallId"], "answer": 1})
    assert got.json()["error"]["code"] == "unknown_call"
    answered = client.post(f"/api/runs/{run_id}/answer", json={"call_id": call["toolCallId"], "answer": 1})
    assert answered.json() == {"run_id": run_id}


@pytest.mark.req("SDK-34")
def test_a_reader_of_the_log_gets_the_calls_of_sub_runs_once(client: httpx.Client) -> None:
    run_id, calls = requested(execute(client, "asks-below", start()))
    with open_stream(client, f"/api/runs/{run_id}/stream") as stream:
        events = (event for event in stream if isinstance(event, SseEvent) and event.event in ("requests", "end"))
        assert next(events).json == {"toolCalls": calls}
        client.post(f"/api/runs/{run_id}/cancel")
        assert [event.json for event in events] in ([{"toolCalls": []}, {}], [{}])
