"""Approvals over HTTP: what would be done, the decision, and the rules of calls that are always approved."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from tests.server.engine_server import engine_server, wait_for_status
from tests.server.server import RunningServer
from tests.server.test_run_actions import detail, start_run

from shopfloor.client import Client, Question, WorkerResult
from shopfloor.record import Storage

PUSH = """
input: {WORD: {type: string}}
steps:
  Push: {block: command, command: "echo {{WORD}}", approve: [command], output: SAID}
output: "{{SAID}}"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("approvals")
    worker: Path = folder / "workers" / "push" / "worker.yaml"
    worker.parent.mkdir(parents=True)
    worker.write_text(PUSH)
    with engine_server(Storage(folder / "storage"), folder / "workers") as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def answer(client: httpx.Client, run_id: str, **body: Any) -> httpx.Response:
    (call,) = detail(client, run_id)["awaits"]
    return client.post(f"/api/runs/{run_id}/answer", json={"call_id": call["call_id"], **body})


@pytest.mark.req("SF-56", "SF-57")
def test_a_call_is_approved_for_always_until_the_rule_is_revoked(client: httpx.Client, server: RunningServer) -> None:
    run_id = start_run(client, "push", input={"WORD": "a"})
    wait_for_status(client, run_id, "waiting")
    (call,) = detail(client, run_id)["awaits"]
    assert (call["kind"], call["name"], call["until"] is not None) == ("approval", "approval", True)
    assert call["input"]["input"]["command"] == 'echo "${VALUE_WORD}"'
    assert answer(client, run_id, answer="maybe").status_code == 400
    assert answer(client, run_id, answer={"decision": "approve", "scope": "forever"}).status_code == 400
    assert answer(client, run_id, answer={"decision": "approve", "scope": "always"}).status_code == 200
    wait_for_status(client, run_id, "done")
    unasked = start_run(client, "push", input={"WORD": "b"})
    wait_for_status(client, unasked, "done")
    (rule,) = client.get("/api/approvals").json()["approvals"]
    assert (rule["worker"], rule["pattern"], rule["run_id"]) == ("push", "command", run_id)
    with server.client("viewer") as viewer:
        assert viewer.get("/api/approvals").status_code == 200
        assert viewer.delete(f"/api/approvals/{rule['id']}").status_code == 403
    assert client.delete(f"/api/approvals/{rule['id'][:8]}").json() == rule
    assert client.delete(f"/api/approvals/{rule['id']}").status_code == 404
    asked = start_run(client, "push", input={"WORD": "c"})
    wait_for_status(client, asked, "waiting")
    assert answer(client, asked, error="no").status_code == 200
    wait_for_status(client, asked, "failed")
    assert detail(client, asked)["error"]["code"] == "approval_denied"


def test_the_sdk_gets_an_approval_as_a_question_and_answers_it(server: RunningServer) -> None:
    async def run() -> tuple[list[Question], Any]:
        questions: list[Question] = []
        output: Any = None
        with server.client() as plain:
            token = plain.headers["authorization"].removeprefix("Bearer ")
        async with Client(server.url, token) as client:
            async for event in client.workers.execute("push", {"WORD": "hello"}):
                if isinstance(event, Question):
                    questions.append(event)
                    await client.workers.answer(event.execution_id, event.call_id, "approve")
                elif isinstance(event, WorkerResult):
                    output = event.output
        return questions, output

    (question,), output = anyio.run(run)
    assert question.question.splitlines() == [
        'approval of command: echo "${VALUE_WORD}" with VALUE_WORD=hello',
        "always approve holds for command of push",
    ]
    assert question.options == ["approve", "approve for this run", "always approve", "deny"]
    assert output == "hello"
