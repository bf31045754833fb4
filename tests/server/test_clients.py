"""The client of a run: the program that dispatched it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.server.engine_server import engine_server, execute, wait_for_status, write_workers
from tests.server.engine_server import start as start_execution
from tests.server.server import RunningServer
from tests.server.test_bad_input import problem

from shopfloor.limits import FILTER_MAX_CHARS
from shopfloor.record import Storage

pytestmark = pytest.mark.req("SF-46")
CLIENT = {"name": "claude-code", "version": "2.1.0", "session_id": "5f3a"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("clients")
    with engine_server(Storage(folder / "storage"), write_workers(folder / "workers")) as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def start(http: httpx.Client, **more: Any) -> str:
    got = http.post("/api/runs", json={"worker": "echo", "input": {"TEXT": "hi"}, **more})
    assert got.status_code == 200, got.text
    return got.json()["run_id"]


def detail(client: httpx.Client, run_id: str) -> dict[str, Any]:
    return client.get("/api/agents/workers/detail", params={"worker_id": run_id}).json()


def first_event(client: httpx.Client, run_id: str) -> dict[str, Any]:
    return client.get(f"/api/runs/{run_id}/log").json()["events"][0]["payload"]


@pytest.mark.parametrize("sent", [CLIENT, {"name": "cursor"}], ids=["all fields", "a name"])
def test_a_run_records_the_client_that_dispatched_it(client: httpx.Client, sent: dict[str, str]) -> None:
    run_id = start(client, client=sent)
    assert detail(client, run_id)["client"] == sent
    wait_for_status(client, run_id, "done")
    assert detail(client, run_id)["client"] == sent
    assert first_event(client, run_id)["client"] == sent
    listed = client.get("/api/agents/workers").json()["workers"]
    assert next(run for run in listed if run["id"] == run_id)["client"] == sent


def test_a_run_without_a_known_client_has_none(client: httpx.Client) -> None:
    run_id = start(client)
    wait_for_status(client, run_id, "done")
    assert detail(client, run_id)["client"] is None
    assert "client" not in first_event(client, run_id)


def test_execute_records_the_client_too(client: httpx.Client) -> None:
    first, *_ = execute(client, "echo", start_execution({"TEXT": "hi"}, client=CLIENT))
    run_id = first.data["executionId"]
    assert detail(client, run_id)["client"] == CLIENT


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        ({}, "name"),
        ({"name": ""}, "client.name"),
        ({"name": "x" * (FILTER_MAX_CHARS + 1)}, "client.name"),
        ({"name": "x", "version": 2}, "client.version"),
        ({"name": "x", "session_id": "x" * (FILTER_MAX_CHARS + 1)}, "client.session_id"),
        ({"name": "x", "session": "y"}, "session"),
        ("claude-code", "client"),
    ],
)
def test_a_malformed_client_is_refused(client: httpx.Client, sent: Any, named: str) -> None:
    refused = client.post("/api/runs", json={"worker": "echo", "input": {"TEXT": "hi"}, "client": sent})
    assert named in problem(refused, 400, "invalid_parameter")["message"]


def test_a_sub_run_names_its_parent_instead_of_a_client(client: httpx.Client) -> None:
    got = client.post("/api/runs", json={"worker": "asks-below", "client": CLIENT})
    parent = got.json()["run_id"]
    wait_for_status(client, parent, "waiting")
    (child,) = client.get("/api/agents/workers", params={"parent": parent}).json()["workers"]
    assert (child["client"], child["parent_run_id"]) == (None, parent)
