"""`GET /api/waiting` and `POST /api/runs/{id}/dismiss`: failures and held runs that wait for a person."""

from __future__ import annotations

import httpx
import pytest
from tests.server.recorded_runs import open_announced_log, record, run_completed, run_started
from tests.server.server import RunningServer, open_server

from shopfloor.adapters.sqlite import SqliteQueue
from shopfloor.log import Awaits, BasedOn, CallStarted, RunError, ToolCall, new_run_id, now
from shopfloor.ports import ControlMessage
from shopfloor.record import Storage

LOGIN = RunError(code="authentication_error", message="codex is signed out", hint="run `codex login`")


@pytest.mark.req("SF-67", "SF-68")
def test_operators_dismiss_a_failure_and_viewers_only_see_it(own_storage: Storage) -> None:
    run_id = record(own_storage, run_started(task="Nightly\nupdate"), run_completed("failed", error=LOGIN))
    other = record(own_storage, run_started(), run_completed("failed", error=RunError(code="x", message="y")))
    with open_server(own_storage) as server, server.client("operator") as operator, server.client("viewer") as viewer:
        (item,) = viewer.get("/api/waiting").json()["items"]
        ended = viewer.get("/api/agents/workers/detail", params={"worker_id": run_id}).json()["completed_at"]
        assert item == {
            "run_id": run_id,
            "root_run_id": run_id,
            "title": "Nightly update",
            "worker": "tester",
            "kind": "failure",
            "call_id": None,
            "text": "codex is signed out",
            "error_code": "authentication_error",
            "hint": "run `codex login`",
            "actions": ["rerun", "dismiss"],
            "options": None,
            "since": ended,
            "until": None,
        }
        tiles = viewer.get("/api/stats").json()["tiles"]
        assert (tiles["waiting"], tiles["longest_waiting_since"]) == (1, ended)
        assert viewer.post(f"/api/runs/{run_id}/dismiss").status_code == 403
        refused = operator.post(f"/api/runs/{other}/dismiss")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
        unknown = operator.post("/api/runs/7a0c7cd0-2a4c-4c3a-9b3a-3f0c7f1f1a11/dismiss")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "run_not_found")
        for _ in range(2):
            got = operator.post(f"/api/runs/{run_id}/dismiss")
            assert (got.status_code, got.json()) == (200, {"run_id": run_id})
            assert viewer.get("/api/waiting").json() == {"items": [], "total": 0}
        assert viewer.get("/api/stats").json()["tiles"]["waiting"] == 0


@pytest.mark.req("SF-67")
@pytest.mark.parametrize("kind", ["rerun", "reply", "fork"])
def test_a_failure_with_a_later_run_no_longer_waits(own_storage: Storage, kind: str) -> None:
    run_id = record(own_storage, run_started(), run_completed("failed", error=LOGIN))
    record(own_storage, run_started(based_on=BasedOn(run_id=run_id, kind=kind)), run_completed())  # type: ignore[arg-type] - a parameter of the test
    with open_server(own_storage) as server, server.client() as client:
        assert client.get("/api/waiting").json()["total"] == 0


@pytest.mark.req("SF-67")
def test_a_run_that_is_held_because_its_worker_changed_waits_for_a_person(own_storage: Storage) -> None:
    held = ToolCall(
        name="definition_changed",
        call_id="d",
        input={"message": "`note` of the worker `asks` changed"},
        output=None,
        fidelity="router",
        awaits=Awaits(kind="definition_changed"),
    )
    run_id = record(own_storage, run_started(), held)
    with open_server(own_storage) as server, server.client() as client:
        (item,) = client.get("/api/waiting").json()["items"]
        assert (item["run_id"], item["kind"], item["call_id"]) == (run_id, "definition_changed", None)
        assert "`note` of the worker `asks` changed" in item["text"]
        assert "cancel" in item["actions"]
        assert client.get("/api/stats").json()["tiles"]["waiting"] == 1


def question(call_id: str = "q") -> ToolCall:
    return ToolCall(
        name="ask",
        call_id=call_id,
        input={"question": "Which?"},
        output=None,
        fidelity="router",
        awaits=Awaits(kind="question"),
    )


def record_calling_root(storage: Storage, child: str) -> str:
    """Record a root that waits for a sub-run, and return its id."""
    with open_announced_log(storage, new_run_id()) as recorder:
        recorder.append(run_started())
        recorder.append(CallStarted(name="call", kind="call_workflow", try_=1), path="c", child_run_id=child)
    return recorder.run_id


def put_answer(server: RunningServer, run_id: str, call_id: str = "q") -> None:
    """Answer a call of a run that no process executes."""
    assert server.portal is not None
    body = {"call_id": call_id, "result": "yes"}
    message = ControlMessage(id=f"answer:{call_id}", run_id=run_id, kind="answer", body=body, created_at=now())
    server.portal.call(SqliteQueue(server.app.state.services.store).put_control_message, message)


def waiting_kinds(client: httpx.Client) -> dict[str, str]:
    """Return the kinds of what waits, by run. The statistics count the same, with the same longest wait."""
    found = client.get("/api/waiting").json()
    sinces = [item["since"] for item in found["items"]]
    assert (found["total"], sinces) == (len(sinces), sorted(sinces))
    filters: dict[str, str]
    for filters in ({}, {"worker": "tester"}, {"q": "suite"}):
        tiles = client.get("/api/stats", params=filters).json()["tiles"]
        assert (tiles["waiting"], tiles["longest_waiting_since"]) == (len(sinces), min(sinces, default=None)), filters
    return {item["run_id"]: item["kind"] for item in found["items"]}


@pytest.mark.req("SF-67")
def test_a_root_that_waits_for_its_sub_run_is_interrupted_once_no_process_executes_it(own_storage: Storage) -> None:
    child = new_run_id()
    root = record_calling_root(own_storage, child)
    with open_announced_log(own_storage, child, parent=root) as recorder:
        recorder.append(run_started(root_run_id=root))
    with open_server(own_storage) as server, server.client() as client:
        assert client.get("/api/agents/workers/detail", params={"worker_id": root}).json()["status"] == "waiting"
        assert waiting_kinds(client) == {root: "interrupted"}
        (item,) = client.get("/api/waiting").json()["items"]
        assert "no server is running" in item["text"]
        assert item["since"] == client.get(f"/api/runs/{root}/log").json()["events"][-1]["timestamp"]


@pytest.mark.req("SF-67")
def test_a_tree_with_a_question_waits_for_its_answer_and_then_for_a_process(own_storage: Storage) -> None:
    child = new_run_id()
    root = record_calling_root(own_storage, child)
    with open_announced_log(own_storage, child, parent=root) as recorder:
        recorder.append(run_started(root_run_id=root))
        recorder.append(question(), path="a")
        recorder.append(question("r"), path="b")
    with open_server(own_storage) as server, server.client() as client:
        assert [item["run_id"] for item in client.get("/api/waiting").json()["items"]] == [child, child]
        assert client.get("/api/stats").json()["tiles"]["waiting"] == 2
        put_answer(server, child)
        assert waiting_kinds(client) == {child: "question"}
        put_answer(server, child, "r")
        assert waiting_kinds(client) == {root: "interrupted"}


@pytest.mark.req("SF-67")
def test_an_answered_run_that_a_process_executes_does_not_wait(own_storage: Storage) -> None:
    with open_announced_log(own_storage, new_run_id()) as recorder:
        recorder.append(run_started())
        recorder.append(question(), path="a")
        with open_server(own_storage) as server, server.client() as client:
            assert waiting_kinds(client) == {recorder.run_id: "question"}
            put_answer(server, recorder.run_id)
            assert waiting_kinds(client) == {}
            recorder.close()
            assert waiting_kinds(client) == {recorder.run_id: "interrupted"}


@pytest.mark.req("SF-67")
def test_of_too_many_runs_those_that_wait_longest_are_listed_and_all_are_counted(
    own_storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shopfloor.server.waiting.WAITING_RUNS_MAX", 2)
    asking = [record(own_storage, run_started(), question()) for _ in range(3)]
    failed = [record(own_storage, run_started(), run_completed("failed", error=LOGIN)) for _ in range(3)]
    with open_server(own_storage) as server, server.client() as client:
        found = client.get("/api/waiting").json()
        assert ([item["run_id"] for item in found["items"]], found["total"]) == ([*asking[:2], *failed[:2]], 6)
        assert client.get("/api/stats").json()["tiles"]["waiting"] == 6
