"""Rerun, reply and fork over HTTP: new runs that are based on earlier ones."""

from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import pytest
from tests.sample_events import RUN_ID
from tests.server.engine_server import engine_server, wait_for_status, write_workers
from tests.server.server import RunningServer
from tests.server.test_run_actions import detail, start_run
from tests.timeouts import wait_until

from shopfloor.client import Client
from shopfloor.errors import ConflictError
from shopfloor.record import Storage


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("again")
    with engine_server(Storage(folder / "storage"), write_workers(folder / "workers")) as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def again(client: httpx.Client, run_id: str, action: str, **body: Any) -> str:
    got = client.post(f"/api/runs/{run_id}/{action}", json=body)
    assert got.status_code == 200, got.text
    assert list(got.json()) == ["run_id"]
    return got.json()["run_id"]


def refusal(client: httpx.Client, run_id: str, action: str, **body: Any) -> tuple[int, str]:
    got = client.post(f"/api/runs/{run_id}/{action}", json=body)
    return got.status_code, got.json()["error"]["message"]


@pytest.mark.req("SF-53")
def test_a_rerun_has_the_same_input_and_both_runs_name_each_other(client: httpx.Client) -> None:
    run_id = start_run(client, "echo", input={"TEXT": "hello"}, owner="ada", channel_id="discord:1")
    wait_for_status(client, run_id, "done")
    second = again(client, run_id, "rerun", input=None)
    third = again(client, run_id, "rerun", input={"TEXT": "goodbye"})
    wait_for_status(client, second, "done")
    wait_for_status(client, third, "done")
    got = detail(client, third)
    assert got["based_on"] == {"run_id": run_id, "kind": "rerun", "seq": None}
    assert got["result"] == "goodbye"
    assert (got["agent_id"], got["channel_id"], got["root_run_id"]) == ("ada", "discord:1", third)
    assert detail(client, second)["result"] == "hello"
    assert "goodbye" in got["task"]
    later = [{"run_id": third, "kind": "rerun"}, {"run_id": second, "kind": "rerun"}]
    assert (detail(client, run_id)["continued_by"], detail(client, run_id)["based_on"]) == (later, None)


def test_the_sdk_makes_new_runs_from_earlier_ones(server: RunningServer, client: httpx.Client) -> None:
    run_id = start_run(client, "echo", input={"TEXT": "hello"})
    wait_for_status(client, run_id, "done")

    async def make() -> tuple[str, str]:
        token = client.headers["authorization"].removeprefix("Bearer ")
        async with Client(server.url, token) as sdk:
            with pytest.raises(ConflictError, match="not an agent's session"):
                await sdk.runs.reply(run_id, "and now?")
            return await sdk.runs.rerun(run_id, {"TEXT": "again"}), await sdk.runs.fork(run_id, 1)

    rerun, fork = anyio.run(make)
    wait_for_status(client, rerun, "done")
    wait_for_status(client, fork, "done")
    assert (detail(client, rerun)["result"], detail(client, fork)["result"]) == ("again", "hello")


def test_a_task_that_was_given_stays(client: httpx.Client) -> None:
    run_id = start_run(client, "echo", input={"TEXT": "hello"}, task="Say it")
    wait_for_status(client, run_id, "done")
    assert detail(client, again(client, run_id, "rerun", input={"TEXT": "no"}))["task"] == "Say it"


def test_a_request_with_the_same_key_is_one_run_and_another_request_with_it_a_conflict(client: httpx.Client) -> None:
    run_id = start_run(client, "echo", input={"TEXT": "hello"}, idempotency_key="first-of-all")
    wait_for_status(client, run_id, "done")
    first = again(client, run_id, "rerun", idempotency_key="again-1")
    assert first != run_id
    assert again(client, run_id, "rerun", idempotency_key="again-1") == first
    status, message = refusal(client, run_id, "fork", at=2, idempotency_key="again-1")
    assert status == 409
    assert "again-1" in message


def test_a_run_that_waits_below_is_forked_and_the_old_run_goes_on_waiting(client: httpx.Client) -> None:
    run_id = start_run(client, "asker")
    wait_for_status(client, run_id, "waiting")
    before = client.get(f"/api/runs/{run_id}/log").json()["events"]
    forked = again(client, run_id, "fork", at=before[-1]["seq"])
    wait_for_status(client, forked, "waiting")
    assert client.get(f"/api/runs/{run_id}/log").json()["events"] == before
    (call,) = detail(client, forked)["awaits"]
    answer = {"call_id": call["call_id"], "answer": "cheese"}
    assert client.post(f"/api/runs/{forked}/answer", json=answer).status_code == 200
    (old_call,) = detail(client, run_id)["awaits"]
    assert (old_call["call_id"] != call["call_id"], old_call["answered"]) == (True, False)
    assert detail(client, forked)["based_on"] == {"run_id": run_id, "kind": "fork", "seq": before[-1]["seq"]}


def test_what_cannot_be_used_again_is_refused_with_the_reason(client: httpx.Client, server: RunningServer) -> None:
    assert refusal(client, RUN_ID, "rerun")[0] == 404
    run_id = start_run(client, "echo", input={"TEXT": "hello"})
    wait_for_status(client, run_id, "done")
    assert refusal(client, run_id, "rerun", input={"WORD": "x"})[0] == 400
    assert refusal(client, run_id, "reply", text="and now?") == (
        409,
        f"the run {run_id} is a run of the worker 'echo', not an agent's session",
    )
    assert refusal(client, run_id, "fork", at=0)[0] == 400
    assert refusal(client, run_id, "fork", at=10_000)[0] == 400
    assert client.post(f"/api/runs/{run_id}/reply", json={}).status_code == 400
    deleted = server.storage.root.parent / "workers" / "breaker" / "worker.yaml"
    broken = start_run(client, "breaker")
    wait_for_status(client, broken, "failed")
    deleted.unlink()
    got = client.post(f"/api/runs/{broken}/rerun", json={})
    assert (got.status_code, got.json()["error"]["message"]) == (404, "there is no worker `breaker`")
    assert str(deleted.parent) in got.json()["error"]["hint"]


def test_a_sub_run_is_run_again_on_its_own(client: httpx.Client) -> None:
    run_id = start_run(client, "asks-a-person-below")
    wait_until(lambda: detail(client, run_id)["awaits"], "the question of the sub-run")
    child = detail(client, run_id)["awaits"][0]["run_id"]
    second = again(client, child, "rerun")
    wait_for_status(client, second, "waiting")
    got = detail(client, second)
    assert (got["parent_run_id"], got["root_run_id"], got["based_on"]["run_id"]) == (None, second, child)
