"""Actions on runs over HTTP: start, cancel, answer and resume."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from tests.sample_events import RUN_ID
from tests.server.engine_server import engine_server, execute, start, wait_for_status, write_workers
from tests.server.server import RunningServer, open_server
from tests.server.test_bad_input import problem
from tests.server.test_openapi import CHECKS
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.adapters.bus import InProcessBus
from shopfloor.adapters.memory import (
    MemoryHosts,
    MemoryProviderHealth,
    MemoryStorage,
    MemoryStore,
    MemoryTokens,
    MemoryWatchers,
)
from shopfloor.fleet import ProviderMonitor
from shopfloor.limits import WORKER_NAME_MAX_CHARS
from shopfloor.log import is_run_id
from shopfloor.ports import Capabilities, ProviderInfo
from shopfloor.record import Storage
from shopfloor.server import AccessControl, Services, create_app


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("busy")
    with engine_server(
        Storage(folder / "storage"), write_workers(folder / "workers"), execute_grace_seconds=0.3
    ) as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def start_run(client: httpx.Client, worker: str, **more: Any) -> str:
    got = client.post("/api/runs", json={"worker": worker, **more})
    assert got.status_code == 200, got.text
    assert list(got.json()) == ["run_id"]
    return got.json()["run_id"]


def detail(client: httpx.Client, run_id: str) -> dict[str, Any]:
    return client.get("/api/agents/workers/detail", params={"worker_id": run_id}).json()


def test_a_run_is_started_and_listed_at_once(client: httpx.Client) -> None:
    fields = {"task": "Say it", "owner": "ada", "channel_id": "discord:1", "channel_name": "#general"}
    run_id = start_run(client, "echo", input={"TEXT": "hello"}, **fields)
    assert detail(client, run_id)["status"] in ("queued", "running", "done")
    wait_for_status(client, run_id, "done")
    got = detail(client, run_id)
    assert (got["result"], got["task"], got["agent_id"]) == ("hello", "Say it", "ada")
    assert (got["channel_id"], got["channel_name"], got["awaits"]) == ("discord:1", "#general", [])


def test_a_run_uses_the_requested_working_directory(client: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1234")
    run_id = start_run(client, "file-report", input={"FILE": "x"}, cwd=str(tmp_path))
    wait_for_status(client, run_id, "done")
    assert '"beginning": "1234"' in detail(client, run_id)["result"]


def test_the_same_key_returns_the_same_run_and_conflicts_for_another_request(client: httpx.Client) -> None:
    fields = {"input": {"TEXT": "once"}, "idempotency_key": "a key"}
    assert start_run(client, "echo", **fields) == start_run(client, "echo", **fields)
    other = {"worker": "echo", "input": {"TEXT": "twice"}, "idempotency_key": "a key"}
    problem(client.post("/api/runs", json=other), 409, "conflict")


def test_a_run_is_cancelled_with_the_given_reason(client: httpx.Client) -> None:
    run_id = start_run(client, "sleeper")
    got = client.post(f"/api/runs/{run_id}/cancel", json={"reason": "enough"})
    assert got.status_code == 200
    assert got.json()["run_id"] == run_id
    assert got.json()["status"] in ("queued", "running", "cancelled")
    wait_for_status(client, run_id, "cancelled")
    assert detail(client, run_id)["error"]["message"] == "enough"
    problem(client.post(f"/api/runs/{run_id}/cancel", json={}), 409, "run_ended")


def test_a_cancel_needs_no_body(client: httpx.Client) -> None:
    run_id = start_run(client, "sleeper")
    assert client.post(f"/api/runs/{run_id}/cancel").status_code == 200
    wait_for_status(client, run_id, "cancelled")


def test_an_answer_continues_a_run_and_the_first_one_counts(client: httpx.Client) -> None:
    run_id = start_run(client, "asker")
    wait_for_status(client, run_id, "waiting")
    call = detail(client, run_id)["awaits"][0]["call_id"]
    address = f"/api/runs/{run_id}/answer"
    assert client.post(address, json={"call_id": call, "answer": None}).json() == {"run_id": run_id}
    assert client.post(address, json={"call_id": call, "answer": None}).json() == {"run_id": run_id}
    problem(client.post(address, json={"call_id": call, "error": "too late"}), 409, "conflict")
    problem(client.post(address, json={"call_id": "other", "answer": 1}), 409, "unknown_call")
    problem(client.post(address, json={"call_id": call}), 400, "invalid_parameter")
    problem(client.post(address, json={"call_id": call, "answer": 1, "error": "x"}), 400, "invalid_parameter")


def test_an_answer_can_be_an_error(client: httpx.Client) -> None:
    events = execute(client, "asker", start())
    run_id, call = events[0].data["executionId"], events[-2].data["toolCalls"][0]["toolCallId"]
    assert client.post(f"/api/runs/{run_id}/answer", json={"call_id": call, "error": "no such word"}).status_code == 200
    wait_for_status(client, run_id, "failed")
    assert "no such word" in detail(client, run_id)["error"]["message"]


def test_a_run_with_a_host_and_an_ended_run_are_not_resumed(client: httpx.Client) -> None:
    waiting_run, ended = start_run(client, "asker"), start_run(client, "echo", input={"TEXT": "x"})
    wait_for_status(client, waiting_run, "waiting")
    wait_for_status(client, ended, "done")
    assert problem(client.post(f"/api/runs/{waiting_run}/resume"), 409, "run_running")["hint"]
    assert problem(client.post(f"/api/runs/{ended}/resume"), 409, "run_ended")["hint"]


def test_a_run_without_a_host_is_resumed(tmp_path: Path) -> None:
    storage, workers = Storage(tmp_path / "storage"), write_workers(tmp_path / "workers")
    with engine_server(storage, workers) as server, server.client() as client:
        run_id = start_run(client, "asker")
        wait_for_status(client, run_id, "waiting")
    with engine_server(storage, workers) as server, server.client() as client:
        assert detail(client, run_id)["attempt"] == 1
        assert client.post(f"/api/runs/{run_id}/resume").json() == {"run_id": run_id}
        until = time.monotonic() + TIMEOUT_SECONDS
        while detail(client, run_id)["attempt"] != 2:
            assert time.monotonic() < until, "the run was not resumed"
            time.sleep(0.02)
        wait_for_status(client, run_id, "waiting")
        problem(client.post(f"/api/runs/{run_id}/resume"), 409, "run_running")


def test_workers_are_listed_with_their_inputs(client: httpx.Client) -> None:
    found = {item["slug"]: item for item in client.get("/api/workers").json()["workers"]}
    assert found["echo"]["description"] == "Says what it is told."
    assert found["echo"]["input_schema"]["required"] == ["TEXT"]
    assert (found["asker"]["tools"], found["asker"]["client_tools"]) == (["look-up"], ["look-up"])


def test_providers_are_listed_with_their_inputs(client: httpx.Client) -> None:
    found = client.get("/api/workers").json()
    providers = {item["slug"]: item for item in found["providers"]}
    assert set(providers) >= {"claude-code", "codex", "openai"}
    assert not set(providers) & {item["slug"] for item in found["workers"]}
    schema = providers["claude-code"]["input_schema"]
    assert schema["required"] == ["prompt"]
    assert all(field["description"] for field in schema["properties"].values())


def test_usable_providers_are_named(own_storage: Storage) -> None:
    common: dict[str, Any] = {"install": "set a key", "capabilities": Capabilities()}
    found = [
        ProviderInfo(name="openai", kind="api", login="KEY", **common),
        ProviderInfo(name="codex", kind="agent", login="KEY", **common),
    ]
    health = MemoryProviderHealth(MemoryStore())
    providers = ProviderMonitor(health, InProcessBus(), MemoryHosts(MemoryStorage()), lambda _: found)
    with open_server(own_storage, providers=providers) as server, server.client() as client:
        got = client.get("/api/providers").json()
        client.post("/api/providers/openai/disable").raise_for_status()
        disabled = client.get("/api/providers").json()
    assert ([item["name"] for item in got["providers"]], got["usable"]) == (["codex", "openai"], ["openai"])
    assert [item["status"] for item in disabled["providers"]] == ["unavailable", "disabled"]
    assert disabled["usable"] == []


# Refusals


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"worker": 1}',
        b'{"worker": ""}',
        b'{"worker": "echo", "input": "x"}',
        b'{"worker": "echo", "input": {"TEXT": "x"}, "more": 1}',
        b'{"worker": "echo", "input": {"TEXT": "x"}, "cwd": "here"}',
        b'{"worker": "echo", "input": {"TEXT": "x"}, "task": ""}',
        b'{"worker": "echo", "input": {"TEXT": "x"}, "run_id": "x"}',
    ],
)
def test_a_malformed_body_of_an_action_is_refused(client: httpx.Client, body: bytes) -> None:
    got = client.post("/api/runs", content=body, headers={"Content-Type": "application/json"})
    assert "body" in problem(got, 400, "invalid_parameter")["message"]


def test_an_unknown_worker_and_invalid_input_are_different_errors(client: httpx.Client) -> None:
    problem(client.post("/api/runs", json={"worker": "nobody"}), 404, "not_found_error")
    problem(client.post("/api/runs", json={"worker": "echo"}), 400, "validation_error")


@pytest.mark.parametrize(("what", "body"), [("cancel", {}), ("resume", {}), ("answer", {"call_id": "c", "answer": 1})])
def test_actions_on_an_unknown_run_are_not_found(client: httpx.Client, what: str, body: Any) -> None:
    problem(client.post(f"/api/runs/{RUN_ID}/{what}", json=body), 404, "run_not_found")
    problem(client.post(f"/api/runs/x/{what}", json=body), 404, "run_not_found")


def test_a_viewer_may_not_start_cancel_or_answer_runs(server: RunningServer, client: httpx.Client) -> None:
    run_id = start_run(client, "asker")
    with server.client("viewer") as viewer:
        problem(viewer.post("/api/runs", json={"worker": "sleeper"}), 403, "forbidden")
        problem(viewer.post(f"/api/runs/{run_id}/cancel"), 403, "forbidden")
        problem(viewer.post(f"/api/runs/{run_id}/resume"), 403, "forbidden")
        problem(viewer.post(f"/api/runs/{run_id}/answer", json={"call_id": "c", "answer": 1}), 403, "forbidden")
        assert viewer.get("/api/workers").status_code == 200


def test_a_read_only_server_refuses_actions(own_storage: Storage) -> None:
    with open_server(own_storage) as server, server.client() as client:
        problem(client.post("/api/runs", json={"worker": "echo"}), 403, "forbidden")
        problem(client.post(f"/api/runs/{RUN_ID}/cancel"), 403, "forbidden")
        assert client.post("/api/agents/echo/execute", json=start()).status_code == 403
        assert client.get("/api/workers").json() == {"workers": [], "providers": []}


# Schemathesis, with an engine

NOTHING: Any = None
_SERVED = Services(
    store=MemoryStore(),
    logs=NOTHING,
    changes=NOTHING,
    access=AccessControl(MemoryTokens()),
    watchers=MemoryWatchers(),
    version="1",
)
API = schemathesis.openapi.from_dict(create_app(_SERVED).state.openapi()).include(
    path_regex="^/api/(runs|runs/.*/(cancel|answer|resume)|agents/.*/execute|workers)$"
)


@API.parametrize()
@settings(
    max_examples=settings().max_examples // 5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_response_conforms_to_the_openapi_document(case: Any, server: RunningServer, waiting_run: str) -> None:
    # Generated names belong to nothing: replace a valid one by that of an existing run or worker.
    parameters = case.path_parameters or {}
    if is_run_id(str(parameters.get("run_id"))):
        parameters["run_id"] = waiting_run
    if _could_be_a_worker(parameters.get("slug")):
        parameters["slug"] = "asker"
    if isinstance(case.body, dict) and _could_be_a_worker(case.body.get("worker")):
        case.body["worker"] = "asker"
    headers = {"Authorization": f"Bearer {server.tokens.admin_token()}"}
    case.call_and_validate(base_url=server.url, headers=headers, checks=CHECKS)


def _could_be_a_worker(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= WORKER_NAME_MAX_CHARS


@pytest.fixture(scope="module")
def waiting_run(server: RunningServer) -> str:
    with server.client() as client:
        return execute(client, "asker", start())[0].data["executionId"]
