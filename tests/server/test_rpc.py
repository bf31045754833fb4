"""`POST /rpc`: the `worker/*` methods of plugins, over all workers. Shapes are checked against schemas of the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from tests.server.engine_server import engine_server, wait_for_status, write_workers
from tests.server.server import RunningServer
from tests.timeouts import wait_until

from shopfloor.log import is_run_id, new_run_id
from shopfloor.record import Storage
from shopfloor.server.limits import BODY_DEPTH, RPC_BATCH

TEXT = {"type": "string"}
TEXT_OR_NULL = {"type": ["string", "null"]}
STATUS = {"enum": ["running", "completed", "failed", "cancelled"]}


def closed(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def nullable_list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": ["array", "null"], "items": items, "minItems": 1}


DECISION = closed(question=TEXT, decision=TEXT, reasoning=TEXT)
SCHEMAS = {
    "worker/dispatch": closed(jobId={"type": "string", "minLength": 1, "pattern": "^[0-9a-f-]+$"}),
    "worker/list": closed(jobs={"type": "array", "items": closed(jobId=TEXT, status=STATUS)}),
    "detailed": closed(
        jobs={"type": "array", "items": closed(jobId=TEXT, status=STATUS, description=TEXT, summary=TEXT_OR_NULL)}
    ),
    "worker/status": closed(
        jobId=TEXT,
        status=STATUS,
        description=TEXT,
        summary=TEXT_OR_NULL,
        questions=nullable_list(TEXT),
        decisions=nullable_list(DECISION),
        error=TEXT_OR_NULL,
        startedAt={"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"},
        completedAt=TEXT_OR_NULL,
    ),
    "worker/result": closed(jobId=TEXT, output=TEXT, artifacts=nullable_list(TEXT)),
    "worker/cancel": closed(jobId=TEXT, status=STATUS),
    "worker/delete": closed(jobId=TEXT, deleted={"const": True}),
}
"""The results of the methods, as the protocol of plugins has them."""
ERROR = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {"code": {"type": "integer"}, "message": {"type": "string", "minLength": 1}, "data": {}},
    "additionalProperties": False,
}
RESPONSE = {
    "type": "object",
    "required": ["jsonrpc", "id"],
    "properties": {"jsonrpc": {"const": "2.0"}, "id": {"type": ["string", "integer", "null"]}},
    "oneOf": [
        {"required": ["result"], "not": {"required": ["error"]}},
        {"required": ["error"], "not": {"required": ["result"]}, "properties": {"error": ERROR}},
    ],
}
REPORTER = """
input:
  TOPIC: {type: string}
steps:
  Begin: {block: tool-call, tool: update_summary, input: {summary: "Reading about {{TOPIC}}"}, output: A}
  Decide:
    block: tool-call
    tool: record_decision
    input: {question: "Which year?", decision: This year., reasoning: The task names none.}
    output: B
  Wonder: {block: tool-call, tool: log_question, input: {question: "Is the archive public?"}, output: C}
  Say it: {block: terminal, output: "About {{TOPIC}}"}
"""
SUBMITTER = """
steps:
  Submit:
    block: tool-call
    tool: submit_result
    input: {text: The report., artifacts: [{name: table.csv, content: "1,2"}, {name: notes.md, content: "# Notes"}]}
    output: A
"""
TWO_TEXTS = """
input:
  FROM: {type: string}
  TO: {type: string}
  COUNT: {type: integer, default: 2}
steps:
  Say it: {block: terminal, output: "{{FROM}} to {{TO}}, {{COUNT}} times"}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("rpc")
    workers = write_workers(folder / "workers")
    for slug, text in (("reporter", REPORTER), ("submitter", SUBMITTER), ("two-texts", TWO_TEXTS)):
        (workers / slug).mkdir()
        (workers / slug / "worker.yaml").write_text(text)
    with engine_server(Storage(folder / "storage"), workers) as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def post(http: httpx.Client, method: str, params: Any = None) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, **({} if params is None else {"params": params})}
    got = http.post("/rpc", json=body)
    assert got.status_code == 200, got.text
    response = got.json()
    jsonschema.validate(response, RESPONSE)
    assert response["id"] == 7
    return response


def call(http: httpx.Client, method: str, schema: str | None = None, **params: Any) -> dict[str, Any]:
    """Call a method and return its result, which must have the shape of the protocol."""
    response = post(http, method, params)
    assert "error" not in response, response
    jsonschema.validate(response["result"], SCHEMAS[schema or method])
    return response["result"]


def refusal(http: httpx.Client, method: str, code: int = -32602, **params: Any) -> str:
    """Call a method that must fail with this code, and return its message."""
    error = post(http, method, params)["error"]
    assert error["code"] == code, error
    return error["message"]


def dispatch(http: httpx.Client, worker: str = "echo", task: str = "hello", **more: Any) -> str:
    return call(http, "worker/dispatch", description="Say it", task=task, worker=worker, **more)["jobId"]


def start(client: httpx.Client, worker: str, **more: Any) -> str:
    return call(client, "worker/dispatch", description="Do it", worker=worker, input={}, **more)["jobId"]


def ended(client: httpx.Client, job_id: str, status: str = "done") -> str:
    wait_for_status(client, job_id, status)
    return job_id


# Dispatch


@pytest.mark.req("REQ-WD-3", "REQ-WD-5", "REQ-WD-6", "REQ-WD-7")
def test_a_job_is_dispatched_and_its_result_is_that_of_the_run(client: httpx.Client) -> None:
    job_id = dispatch(client, task="hello there")
    assert is_run_id(job_id)
    ended(client, job_id)
    result = call(client, "worker/result", jobId=job_id)
    assert result == {"jobId": job_id, "output": "hello there", "artifacts": None}
    detail = client.get("/api/agents/workers/detail", params={"worker_id": job_id}).json()
    assert (detail["task"], detail["name"], detail["channel_id"]) == ("Say it", "echo", "rpc")


def test_the_config_of_a_job_has_the_other_inputs_of_its_worker(client: httpx.Client) -> None:
    job_id = dispatch(client, "two-texts", task="Rome", config={"FROM": "Paris", "COUNT": 3})
    ended(client, job_id)
    assert call(client, "worker/result", jobId=job_id)["output"] == "Paris to Rome, 3 times"


def test_a_job_can_have_its_inputs_by_name(client: httpx.Client) -> None:
    job_id = call(
        client, "worker/dispatch", description="Go", worker="two-texts", input={"FROM": "Paris", "TO": "Rome"}
    )["jobId"]
    ended(client, job_id)
    assert call(client, "worker/result", jobId=job_id)["output"] == "Paris to Rome, 2 times"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"task": "x"}, "description"),
        ({"description": "", "task": "x", "worker": "echo"}, "description"),
        ({"description": "x", "worker": "echo"}, "task: missing"),
        ({"description": "x", "task": 7, "worker": "echo"}, "task"),
        ({"description": "x", "task": "x", "worker": "echo", "config": []}, "config"),
        ({"description": "x", "task": "x", "worker": "echo", "priority": 1}, "priority"),
        ({"description": "x", "task": "x", "worker": "echo", "input": {"TEXT": "y"}}, "not both"),
        ({"description": "x", "input": {"TEXT": "y"}, "worker": "echo", "config": {"a": 1}}, "config"),
        (
            {"description": "x", "task": "x", "worker": "nobody"},
            "there is no worker `nobody`; available workers: asker",
        ),
        ({"description": "x", "task": "x"}, "worker: missing, and there is not exactly one worker; the workers are"),
        ({"description": "x", "task": "x", "worker": "sleeper"}, "has no single text input"),
        ({"description": "x", "task": "x", "worker": "two-texts"}, "FROM (string, required), TO (string, required)"),
        ({"description": "x", "task": "x", "worker": "echo", "config": {"OTHER": 1}}, "OTHER"),
        ({"description": "x", "task": "x", "worker": "unreadable"}, "unreadable"),
        ({"description": "x", "task": "x", "worker": "echo", "client": {"name": ""}}, "client.name"),
    ],
)
def test_a_dispatch_that_cannot_work_says_why(client: httpx.Client, params: dict[str, Any], message: str) -> None:
    assert message in refusal(client, "worker/dispatch", **params)


@pytest.mark.req("SF-46")
def test_a_job_records_its_client(client: httpx.Client) -> None:
    job_id = dispatch(client, client={"name": "guild-hall", "version": "1"})
    detail = client.get("/api/agents/workers/detail", params={"worker_id": job_id}).json()
    assert detail["client"] == {"name": "guild-hall", "version": "1"}


def test_the_only_worker_needs_no_name(tmp_path: Path) -> None:
    (tmp_path / "workers" / "echo").mkdir(parents=True)
    (tmp_path / "workers" / "echo" / "worker.yaml").write_text(
        "input:\n  TEXT: {type: string}\nsteps:\n  Say it: {block: terminal, output: '{{TEXT}}'}\n"
    )
    with engine_server(Storage(tmp_path / "storage"), tmp_path / "workers") as server, server.client() as client:
        job_id = call(client, "worker/dispatch", description="Say it", task="hello")["jobId"]
        ended(client, job_id)
        assert call(client, "worker/result", jobId=job_id)["output"] == "hello"
        examples = {worker["slug"]: worker["example"] for worker in client.get("/api/workers").json()["workers"]}
        assert examples == dict.fromkeys(examples, True) | {"echo": False}


# List, status and result


@pytest.mark.req("REQ-WD-8", "REQ-WD-9", "REQ-WD-10")
def test_jobs_are_listed_newest_first_and_filtered_by_a_glob_on_descriptions(client: httpx.Client) -> None:
    job_ids: list[str] = []
    for description in ("Tidy: kitchen", "Tidy: hall", "tidy: [attic]"):
        job = call(client, "worker/dispatch", description=description, task="x", worker="echo")
        job_ids.append(ended(client, job["jobId"]))
    listed = call(client, "worker/list")["jobs"]
    assert [job["jobId"] for job in listed[:3]] == job_ids[::-1]

    def found(pattern: str) -> set[str]:
        detailed = call(client, "worker/list", "detailed", detail="detailed", filter=pattern)["jobs"]
        assert {job["jobId"] for job in call(client, "worker/list", filter=pattern)["jobs"]} == {
            job["jobId"] for job in detailed
        }
        return {job["description"] for job in detailed}

    assert found("Tidy: *") == {"Tidy: kitchen", "Tidy: hall"}
    assert found("*: h?ll") == {"Tidy: hall"}
    assert found("tidy: [[]attic]") == {"tidy: [attic]"}
    assert found("Tidy") == set()


def test_a_list_can_be_limited_to_a_worker_and_leaves_out_sub_runs(client: httpx.Client) -> None:
    parent = ended(client, start(client, "asks-below"), "waiting")
    jobs = call(client, "worker/list", worker="asks-below")["jobs"]
    assert jobs == [{"jobId": parent, "status": "running"}]
    (child,) = client.get("/api/agents/workers", params={"parent": parent}).json()["workers"]
    assert child["id"] not in {job["jobId"] for job in call(client, "worker/list")["jobs"]}
    assert call(client, "worker/list", worker="nobody")["jobs"] == []
    call(client, "worker/cancel", jobId=parent)


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"detail": "full"}, "detail"),
        ({"filter": 7}, "filter"),
        ({"cursor": "x"}, "cursor"),
        ({"status": "x"}, "status"),
    ],
)
def test_a_malformed_list_request_is_refused(client: httpx.Client, params: dict[str, Any], named: str) -> None:
    assert named in refusal(client, "worker/list", **params)


@pytest.mark.req("REQ-WD-11", "REQ-WD-12", "REQ-WD-13")
def test_the_status_has_what_the_worker_reported(client: httpx.Client) -> None:
    job_id = ended(client, dispatch(client, "reporter", task="tea"))
    status = call(client, "worker/status", jobId=job_id)
    assert (status["status"], status["description"], status["error"]) == ("completed", "Say it", None)
    assert status["summary"] == "Reading about tea"
    assert status["questions"] == ["Is the archive public?"]
    assert status["decisions"] == [
        {"question": "Which year?", "decision": "This year.", "reasoning": "The task names none."}
    ]
    assert status["startedAt"] <= status["completedAt"]
    (listed,) = call(client, "worker/list", "detailed", detail="detailed", worker="reporter")["jobs"]
    assert listed["summary"] == "Reading about tea"


@pytest.mark.req("REQ-WD-12")
@pytest.mark.parametrize("worker", ["asks-a-person", "asks-a-person-below"])
def test_a_job_that_waits_is_running_and_has_its_question(client: httpx.Client, worker: str) -> None:
    job_id = ended(client, start(client, worker), "waiting")
    # A run waits as soon as its sub-run has started; the question comes a little later.
    wait_until(lambda: call(client, "worker/status", jobId=job_id)["questions"], "a question")
    status = call(client, "worker/status", jobId=job_id)
    assert (status["status"], status["questions"], status["completedAt"]) == ("running", ["Shall I?"], None)
    call(client, "worker/cancel", jobId=job_id)


@pytest.mark.req("REQ-WD-44")
def test_a_failed_job_has_its_error(client: httpx.Client) -> None:
    job_id = ended(client, start(client, "breaker"), "failed")
    status = call(client, "worker/status", jobId=job_id)
    assert status["status"] == "failed"
    assert "exit code 3" in status["error"]


@pytest.mark.req("REQ-WD-14")
def test_a_job_that_is_not_completed_has_no_result(client: httpx.Client) -> None:
    failed = ended(client, start(client, "breaker"), "failed")
    assert "it is failed: " in refusal(client, "worker/result", jobId=failed)
    sleeping = start(client, "sleeper")
    assert "it is running; worker/status shows where it is" in refusal(client, "worker/result", jobId=sleeping)
    call(client, "worker/cancel", jobId=sleeping)
    assert "it is cancelled" in refusal(client, "worker/result", jobId=sleeping)


@pytest.mark.req("REQ-WD-15")
def test_the_result_names_the_artifacts(client: httpx.Client) -> None:
    job_id = ended(client, start(client, "submitter"))
    result = call(client, "worker/result", jobId=job_id)
    assert (result["output"], sorted(result["artifacts"])) == ("The report.", ["notes.md", "table.csv"])


@pytest.mark.req("REQ-WD-46")
@pytest.mark.parametrize("method", ["worker/status", "worker/result", "worker/cancel", "worker/delete"])
def test_an_unknown_job_is_an_error(client: httpx.Client, method: str) -> None:
    for job_id in (new_run_id(), "", "../../etc/passwd", "x" * 1000):
        assert "there is no job" in refusal(client, method, jobId=job_id)
    assert "jobId" in refusal(client, method)
    assert "jobId" in refusal(client, method, jobId=7)
    assert "job_id" in refusal(client, method, job_id=new_run_id())


# Cancel and delete


@pytest.mark.req("REQ-WD-16")
@pytest.mark.parametrize("worker", ["sleeper", "asks-a-person"])
def test_a_cancelled_job_has_ended_when_the_answer_arrives(client: httpx.Client, worker: str) -> None:
    job_id = start(client, worker)
    assert call(client, "worker/cancel", jobId=job_id) == {"jobId": job_id, "status": "cancelled"}
    assert call(client, "worker/status", jobId=job_id)["status"] == "cancelled"


@pytest.mark.req("REQ-WD-16")
def test_cancelling_a_job_that_has_ended_changes_nothing(client: httpx.Client) -> None:
    for worker, shown, status in (("echo", "done", "completed"), ("breaker", "failed", "failed")):
        job_id = dispatch(client) if worker == "echo" else start(client, worker)
        ended(client, job_id, shown)
        before = call(client, "worker/status", jobId=job_id)
        assert call(client, "worker/cancel", jobId=job_id) == {"jobId": job_id, "status": status}
        assert call(client, "worker/status", jobId=job_id) == before
    job_id = start(client, "sleeper")
    assert [call(client, "worker/cancel", jobId=job_id)["status"] for _ in range(2)] == ["cancelled", "cancelled"]


@pytest.mark.req("REQ-WD-17", "REQ-WD-18")
def test_completed_and_cancelled_jobs_are_deleted_for_good(server: RunningServer, client: httpx.Client) -> None:
    completed = ended(client, dispatch(client))
    cancelled = start(client, "sleeper")
    call(client, "worker/cancel", jobId=cancelled)
    for job_id in (completed, cancelled):
        assert server.storage.log_path(job_id).exists()
        assert call(client, "worker/delete", jobId=job_id) == {"jobId": job_id, "deleted": True}
        assert not server.storage.log_path(job_id).exists()
        assert "there is no job" in refusal(client, "worker/status", jobId=job_id)


@pytest.mark.req("REQ-WD-17")
def test_running_and_failed_jobs_are_not_deleted(client: httpx.Client) -> None:
    failed = ended(client, start(client, "breaker"), "failed")
    assert "is failed: only completed and cancelled jobs" in refusal(client, "worker/delete", jobId=failed)
    sleeping = start(client, "sleeper")
    assert "is running: only completed and cancelled jobs" in refusal(client, "worker/delete", jobId=sleeping)
    assert call(client, "worker/status", jobId=failed)["status"] == "failed"
    call(client, "worker/cancel", jobId=sleeping)


# JSON-RPC


def send(client: httpx.Client, content: bytes | str) -> httpx.Response:
    return client.post("/rpc", content=content, headers={"Content-Type": "application/json"})


@pytest.mark.parametrize(
    ("content", "code", "request_id"),
    [
        ("", -32700, None),
        ("{", -32700, None),
        ("[1,", -32700, None),
        (b"\xff\xfe", -32700, None),
        ('{"jsonrpc": "2.0", "id": 1, "method": "\ud800"}'.encode("utf-8", "surrogatepass"), -32700, None),
        ("[" * 100_000, -32700, None),
        ("null", -32600, None),
        ("7", -32600, None),
        ("{}", -32600, None),
        ("[]", -32600, None),
        ('{"jsonrpc": "1.0", "id": 1, "method": "worker/list"}', -32600, 1),
        ('{"id": 1, "method": "worker/list"}', -32600, 1),
        ('{"jsonrpc": "2.0", "id": "a", "method": 1}', -32600, "a"),
        ('{"jsonrpc": "2.0", "id": 1, "method": "worker/list", "params": ["simple"]}', -32600, 1),
        ('{"jsonrpc": "2.0", "id": {"a": 1}, "method": "worker/list"}', -32600, None),
        ('{"jsonrpc": "2.0", "id": 1, "method": "worker/pause"}', -32601, 1),
        ('{"jsonrpc": "2.0", "id": 1, "method": "initialize"}', -32601, 1),
        ('{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}', -32601, 1),
        ('{"jsonrpc": "2.0", "id": null, "method": "worker/pause"}', -32601, None),
    ],
)
def test_what_is_no_valid_request_gets_the_code_of_json_rpc(
    client: httpx.Client, content: bytes | str, code: int, request_id: Any
) -> None:
    got = send(client, content)
    assert got.status_code == 200, got.text
    jsonschema.validate(got.json(), RESPONSE)
    assert (got.json()["error"]["code"], got.json()["id"]) == (code, request_id)


def test_params_that_are_nested_too_deep_are_refused(client: httpx.Client) -> None:
    deep = "[" * BODY_DEPTH + "]" * BODY_DEPTH
    params = f'{{"description": "x", "worker": "echo", "input": {{"TEXT": {deep}}}}}'
    got = send(client, f'{{"jsonrpc": "2.0", "id": 1, "method": "worker/dispatch", "params": {params}}}')
    assert got.json()["error"]["code"] == -32602
    assert "nested too deep" in got.json()["error"]["message"]


def test_a_body_of_another_type_is_refused(client: httpx.Client) -> None:
    got = client.post("/rpc", content=b"{}", headers={"Content-Type": "text/plain"})
    assert (got.status_code, got.json()["error"]["code"]) == (400, "invalid_parameter")
    assert client.get("/rpc").status_code == 405


def test_a_batch_gets_its_responses_in_order_and_none_for_notifications(client: httpx.Client) -> None:
    job_id = ended(client, dispatch(client))
    batch = [
        {"jsonrpc": "2.0", "id": "a", "method": "worker/status", "params": {"jobId": job_id}},
        {"jsonrpc": "2.0", "method": "worker/status", "params": {"jobId": "unknown"}},
        7,
        {"jsonrpc": "2.0", "id": 3, "method": "worker/status", "params": {"jobId": "unknown"}},
        {"jsonrpc": "2.0", "id": 4, "method": "nothing"},
        {"jsonrpc": "2.0", "id": 5, "method": "worker/result", "params": {"jobId": job_id}},
    ]
    got = client.post("/rpc", json=batch)
    assert got.status_code == 200
    for response in got.json():
        jsonschema.validate(response, RESPONSE)
    assert [response["id"] for response in got.json()] == ["a", None, 3, 4, 5]
    codes = [response.get("error", {}).get("code") for response in got.json()]
    assert codes == [None, -32600, -32602, -32601, None]


def test_notifications_are_executed_and_get_no_response(client: httpx.Client) -> None:
    def notify(*descriptions: str) -> httpx.Response:
        calls = [
            {
                "jsonrpc": "2.0",
                "method": "worker/dispatch",
                "params": {"description": text, "task": text, "worker": "echo"},
            }
            for text in descriptions
        ]
        return client.post("/rpc", json=calls if len(calls) > 1 else calls[0])

    for got in (notify("silent one"), notify("silent two", "silent three")):
        assert (got.status_code, got.content) == (204, b"")
    found = call(client, "worker/list", "detailed", detail="detailed", filter="silent *")["jobs"]
    assert {job["description"] for job in found} == {"silent one", "silent two", "silent three"}


def test_a_batch_has_a_limit(client: httpx.Client) -> None:
    one = {"jsonrpc": "2.0", "id": 1, "method": "worker/status", "params": {"jobId": "x"}}
    assert len(client.post("/rpc", json=[one] * RPC_BATCH).json()) == RPC_BATCH
    refused = client.post("/rpc", json=[one] * (RPC_BATCH + 1)).json()
    assert refused["error"] == {
        "code": -32600,
        "message": f"a batch must have 1 to {RPC_BATCH} requests, got {RPC_BATCH + 1}",
    }


def test_the_message_of_an_error_has_the_hint_and_its_data_has_the_code(client: httpx.Client) -> None:
    error = post(client, "worker/status", {"jobId": "x"})["error"]
    assert error == {
        "code": -32602,
        "message": "there is no job 'x'; worker/list lists the jobs",
        "data": {"code": "run_not_found", "hint": "worker/list lists the jobs"},
    }


# Access


def test_a_viewer_may_read_jobs_but_change_nothing(server: RunningServer, client: httpx.Client) -> None:
    job_id = ended(client, dispatch(client))
    with server.client("viewer") as viewer:
        assert call(viewer, "worker/list")["jobs"]
        assert call(viewer, "worker/status", jobId=job_id)["status"] == "completed"
        assert call(viewer, "worker/result", jobId=job_id)["output"] == "hello"
        for method, params in (
            ("worker/dispatch", {"description": "x", "task": "x", "worker": "echo"}),
            ("worker/cancel", {"jobId": job_id}),
            ("worker/delete", {"jobId": job_id}),
        ):
            assert "the role viewer may not change anything here" in refusal(viewer, method, -32001, **params)
    assert call(client, "worker/status", jobId=job_id)["status"] == "completed"


def test_without_a_token_there_is_no_answer(server: RunningServer) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "worker/list"}
    assert httpx.post(f"{server.url}/rpc", json=body).status_code == 401


def test_what_methods_change_is_in_the_audit_log(server: RunningServer, client: httpx.Client) -> None:
    job_id = dispatch(client, "echo")
    ended(client, job_id)
    call(client, "worker/delete", jobId=job_id)
    cancelled = start(client, "sleeper")
    call(client, "worker/cancel", jobId=cancelled)
    entries = [json.loads(line) for line in server.storage.audit.read_text().splitlines()]
    actions = [(entry["action"], entry["run_id"]) for entry in entries if entry.get("run_id") in (job_id, cancelled)]
    assert actions == [
        ("run.dispatched", job_id),
        ("run.deleted", job_id),
        ("run.dispatched", cancelled),
        ("run.cancelled", cancelled),
    ]
