"""`GET /api/waiting` and `POST /api/runs/{id}/dismiss`: failures and held runs that wait for a person."""

from __future__ import annotations

import pytest
from tests.server.recorded_runs import record, run_completed, run_started
from tests.server.server import open_server

from shopfloor.log import Awaits, BasedOn, RunError, ToolCall
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
