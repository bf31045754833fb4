"""Artifacts and notes of runs over HTTP, of workers that a real engine executes."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from tests.server.engine_server import engine_server, wait_for_status
from tests.server.recorded_runs import record, run_completed, run_started
from tests.server.server import open_server

from shopfloor.adapters.local import LocalBlobs
from shopfloor.log import ToolCall, new_run_id
from shopfloor.record import Storage

DETAIL = "/api/agents/workers/detail"
HOSTILE = "<script>alert(1)</script>"


SUBMITS = f"""
steps:
  Submit:
    block: tool-call
    tool: submit_result
    input:
      text: The report.
      artifacts:
        - {{name: page.html, content: "{HOSTILE}"}}
        - {{name: data.json, content: "[1, 2]"}}
"""


def note(name: str, **arguments: object) -> ToolCall:
    return ToolCall(name=name, call_id=name, input=arguments, output=None, fidelity="agent_emitted")


def get_json(client: httpx.Client, address: str, **params: str) -> dict[str, object]:
    got = client.get(address, params=params)
    assert got.status_code == 200, got.text
    return got.json()


@pytest.mark.req("SF-45")
def test_artifacts_are_listed_downloaded_and_deleted_with_their_run(own_storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "workers" / "submits").mkdir(parents=True)
    (tmp_path / "workers" / "submits" / "worker.yaml").write_text(SUBMITS)
    with engine_server(own_storage, tmp_path / "workers") as server, server.client() as client:
        run_id = client.post("/api/runs", json={"worker": "submits"}).json()["run_id"]
        wait_for_status(client, run_id, "done")
        detail = get_json(client, DETAIL, worker_id=run_id)
        sizes = [{"name": "data.json", "size_bytes": 6}, {"name": "page.html", "size_bytes": len(HOSTILE)}]
        assert (detail["result"], detail["artifacts"]) == ("The report.", sizes)
        assert get_json(client, f"/api/runs/{run_id}/artifacts") == {"artifacts": sizes}
        with server.client("viewer") as viewer:
            page = viewer.get(f"/api/runs/{run_id}/artifacts/page.html")
        missing = client.get(f"/api/runs/{run_id}/artifacts/other.md")
        assert client.delete(f"/api/runs/{run_id}").status_code == 200
        gone = client.get(f"/api/runs/{run_id}/artifacts/page.html")
        with server.anonymous_client() as anonymous:
            assert anonymous.get(f"/api/runs/{run_id}/artifacts/page.html").status_code == 401
    assert page.text == HOSTILE
    assert page.headers["content-type"] == "text/plain; charset=utf-8"
    assert page.headers["content-disposition"] == 'attachment; filename="page.html"'
    assert page.headers["x-content-type-options"] == "nosniff"
    assert missing.json()["error"]["hint"] == "its artifacts are data.json, page.html"
    assert gone.json()["error"]["code"] == "run_not_found"
    assert not (own_storage.blobs / "artifacts" / run_id).exists()


@pytest.mark.req("SF-45")
def test_the_artifacts_of_a_plugins_job_are_listed_and_stay_with_the_plugin(own_storage: Storage) -> None:
    submitted = note("submit_result", artifacts=[{"name": "artifacts/report.md"}])
    run_id = record(own_storage, run_started(worker_type="plugin"), submitted, run_completed())
    with open_server(own_storage, blobs=LocalBlobs(own_storage.blobs)) as server, server.client() as client:
        listed = get_json(client, f"/api/runs/{run_id}/artifacts")
        assert listed == {"artifacts": [{"name": "artifacts/report.md", "size_bytes": None}]}
        refused = client.get(f"/api/runs/{run_id}/artifacts/artifacts/report.md")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "artifact_not_found")
    assert "the plugin" in refused.json()["error"]["message"]


@pytest.mark.req("SF-43")
def test_a_run_has_its_summary_questions_and_decisions(own_storage: Storage) -> None:
    decision = {"question": "Which year?", "decision": "2026", "reasoning": "It is the newest."}
    run_id = record(
        own_storage,
        run_started(),
        note("update_summary", summary="reading"),
        note("log_question", question="May I call?"),
        note("record_decision", **decision),
        run_completed(),
    )
    with open_server(own_storage) as server, server.client() as client:
        detail = get_json(client, DETAIL, worker_id=run_id)
    assert (detail["summary"], detail["questions"], detail["decisions"]) == ("reading", ["May I call?"], [decision])
    assert detail["artifacts"] == []


@pytest.mark.req("SF-45")
@pytest.mark.parametrize("name", ["..%2f..%2ftokens.json", "nothing.md", "%00", "a" * 300])
def test_only_what_the_run_submitted_can_be_fetched(own_storage: Storage, name: str) -> None:
    run_id = record(own_storage, run_started(), note("submit_result", text="t"), run_completed())
    with open_server(own_storage, blobs=LocalBlobs(own_storage.blobs)) as server, server.client() as client:
        refused = client.get(f"/api/runs/{run_id}/artifacts/{name}")
        unknown = client.get(f"/api/runs/{new_run_id()}/artifacts")
    assert refused.status_code in (400, 404)
    assert set(refused.json()["error"]) == {"code", "message", "hint"}
    assert unknown.json()["error"]["code"] == "run_not_found"
