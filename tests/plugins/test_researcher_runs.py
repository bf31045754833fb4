"""The researcher as a worker of Shopfloor: the started server, the command and the SDK, real agents, a scripted model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agents.agent_environment import agent_environment
from tests.model_server.script import ReplyPart, Text, ToolUse, Turn
from tests.model_server.server import ModelServer
from tests.plugins.plugin_server import Server, Site
from tests.plugins.test_researcher import INTERNAL, READ_ONLY, internal
from tests.timeouts import wait_until

from shopfloor.client import Client

RESEARCHER = "researcher"
REPORT = "# Report\n\nIt is so."
TITLE = Turn(say=[Text(text="A title")], tools=False, times=0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model_server_thread: ModelServer) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("researcher")
    site = Site(folder, agent_environment("claude-code", model_server_thread.url, folder / "home"))
    site.add_template(RESEARCHER)
    with site.up("--slots", "2") as server:
        server.wait_for_plugin(RESEARCHER)
        yield server
    site.wait_until_gone()


def script(model: ModelServer, *turns: Sequence[ReplyPart]) -> None:
    model.say(TITLE, *(Turn(say=list(say), tools=True) for say in turns))


def prompts(model: ModelServer) -> list[str]:
    """Return the system prompts of the agent's requests so far."""
    return [str(request.body["system"]) for request in model.requests() if request.body.get("tools")]


def job_folder(server: Server, run_id: str, plugin: str = RESEARCHER) -> Path:
    return server.site.plugins / plugin / "jobs" / run_id


@pytest.mark.req("REQ-WD-2", "REQ-WD-41")
@pytest.mark.req("REQ-WD-11", "REQ-WD-12", "REQ-WD-13", "REQ-WD-15", "REQ-WD-20")
def test_what_a_job_reports_is_in_the_record_the_api_and_the_commands(
    server: Server, model_server: ModelServer
) -> None:
    script(
        model_server,
        [internal("update_summary", summary="I look for sources.")],
        [internal("record_decision", question="Which year?", decision="2026", reasoning="The task names none.")],
        [internal("log_question", question="May I contact the author?")],
        [internal("submit_result", text=REPORT, artifacts=[{"name": "data.csv", "content": "a,b\n"}])],
        [Text(text="done")],
    )
    run_id = server.dispatch(RESEARCHER, "What is it?", description="Find out what it is")
    found = server.wait_for(run_id)
    assert (found["status"], found["worker_type"], found["task"]) == ("done", "plugin", "Find out what it is")
    # The whole report, not the last words of the agent; and never `waiting`, although there is a question.
    assert found["result"] == REPORT
    assert (found["waits_for"], found["asks"], found["awaits"]) == (None, None, [])
    assert found["cost_usd"] > 0
    decision = {"question": "Which year?", "decision": "2026", "reasoning": "The task names none."}
    assert (found["summary"], found["questions"]) == ("I look for sources.", ["May I contact the author?"])
    assert (found["decisions"], [each["name"] for each in found["artifacts"]]) == ([decision], ["artifacts/data.csv"])
    folder = job_folder(server, run_id)
    assert json.loads((folder / "meta.json").read_text())["costUsd"] == pytest.approx(found["cost_usd"])
    assert (folder / "artifacts" / "data.csv").read_text() == "a,b\n"

    site = server.site
    assert site.notes(run_id, "update_summary") == [{"summary": "I look for sources."}]
    assert site.notes(run_id, "record_decision") == [decision]
    assert site.notes(run_id, "log_question") == [{"question": "May I contact the author?"}]
    assert site.notes(run_id, "submit_result") == [{"artifacts": [{"name": "artifacts/data.csv"}]}]

    shown = site.run("show", run_id).stdout
    for text in ("I look for sources.", "2026", "May I contact the author?", "artifacts/data.csv", "It is so."):
        assert text in shown
    status = site.run("status", run_id).stdout
    assert "I look for sources." in status
    assert f"{found['cost_usd']:.4f} USD" in status
    assert site.run("result", run_id).stdout == f"{REPORT}\n"
    rows = server.http.get("/api/agents/workers/events", params={"worker_id": run_id}).json()["events"]
    assert {"event_type": "status", "text": "I look for sources."} in [
        {"event_type": row["event_type"], "text": row["data"].get("status") or row["data"].get("summary")}
        for row in rows
    ]
    (listed,) = [each for each in json.loads(site.run("list", "--json").stdout)["workers"] if each["id"] == run_id]
    assert (listed["status"], listed["task"]) == ("done", "Find out what it is")


@pytest.mark.req("REQ-WD-6", "REQ-WD-14")
def test_a_job_is_dispatched_by_the_command_and_by_the_sdk(server: Server, model_server: ModelServer) -> None:
    model_server.say(Turn(say=[Text(text="The answer.")], times=0))
    site = server.site
    ran = site.run("run", "-q", RESEARCHER, "--plugins", str(site.plugins), "-i", "task=What is it?")
    assert (ran.returncode, ran.stdout) == (0, "The answer.\n"), ran.stderr
    dispatched = site.run("dispatch", RESEARCHER, "-i", "task=What else?", "-i", "description=Something else")
    assert dispatched.returncode == 0, dispatched.stderr
    found = server.wait_for(dispatched.stdout.split()[-1])
    assert (found["status"], found["result"], found["task"]) == ("done", "The answer.", "Something else")

    async def execute() -> list[Any]:
        async with Client(server.url, server.token) as client:
            return [event async for event in client.workers.execute(RESEARCHER, {"task": "And this?"})]

    assert "The answer." in str(anyio.run(execute))
    asked = [str(request.body["messages"][0]) for request in model_server.requests() if request.body.get("tools")]
    for task in ("What is it?", "What else?", "And this?"):
        assert any(task in each for each in asked)


@pytest.mark.req("REQ-WD-31", "REQ-WD-34")
def test_the_agent_gets_the_tools_and_the_instructions_of_a_worker_and_nothing_of_the_server(
    server: Server, model_server: ModelServer
) -> None:
    script(model_server, [Text(text="The answer.")])
    assert server.wait_for(server.dispatch(RESEARCHER))["status"] == "done"
    offered = [
        {tool["name"] for tool in request.body["tools"]} - {"DeferredToolPlaceholder"}
        for request in model_server.requests()
        if request.body.get("tools")
    ]
    assert offered
    assert all(names == READ_ONLY | {f"mcp__worker__{name}" for name in INTERNAL} for names in offered)
    for prompt in prompts(model_server):
        for tool in ("update_summary", "record_decision", "log_question", "store_memory"):
            assert f"`{tool}`" in prompt


@pytest.mark.req("REQ-WD-31")
def test_what_a_worker_must_not_do_is_refused_in_a_run_too(
    server: Server, model_server: ModelServer, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("the secret word")
    calls = [
        ToolUse(name="Write", input={"file_path": f"{tmp_path}/written", "content": "x"}),
        ToolUse(name="Edit", input={"file_path": f"{tmp_path}/secret", "old_string": "secret", "new_string": "x"}),
        ToolUse(name="Bash", input={"command": f"touch {tmp_path}/written"}),
        ToolUse(name="Read", input={"file_path": f"{tmp_path}/secret"}),
        ToolUse(name="Read", input={"file_path": str(server.site.storage.tokens)}),
        internal("store_memory", key="../outside", content="x"),
    ]
    script(model_server, *[[call] for call in calls], [Text(text="I could not.")])
    found = server.wait_for(server.dispatch(RESEARCHER))
    assert (found["status"], found["result"]) == ("done", "I could not.")
    last = next(request for request in reversed(model_server.requests()) if request.body.get("tools"))
    results = [
        block
        for message in last.body["messages"]
        for block in (message["content"] if isinstance(message["content"], list) else [])
        if block["type"] == "tool_result"
    ]
    assert len(results) == len(calls)
    assert all(block.get("is_error") for block in results)
    assert "the secret word" not in str(last.body)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"secret": "the secret word"}
    assert not (server.site.plugins / RESEARCHER / "outside.md").exists()


@pytest.mark.req("REQ-WD-27", "REQ-WD-28", "REQ-WD-29")
def test_a_later_run_gets_the_memories_of_an_earlier_one(server: Server, model_server: ModelServer) -> None:
    script(model_server, [internal("store_memory", key="sources", content="Ask the library.")], [Text(text="done")])
    server.wait_for(server.dispatch(RESEARCHER))
    assert "Ask the library." not in prompts(model_server)[0]
    script(model_server, [Text(text="done")])
    server.wait_for(server.dispatch(RESEARCHER))
    assert "Ask the library." in prompts(model_server)[0]
    assert (server.site.plugins / RESEARCHER / "memory" / "sources.md").read_text() == "Ask the library."


@pytest.mark.req("REQ-WD-44")
def test_a_job_over_its_limit_is_a_failed_run_with_the_reason(server: Server, model_server: ModelServer) -> None:
    script(model_server, *[[internal("update_summary", summary=f"step {number}")] for number in range(5)])
    run_id = server.dispatch(RESEARCHER, config={"max_turns": 1})
    found = server.wait_for(run_id)
    assert found["status"] == "failed"
    assert found["error"]["code"] == "plugin_error"
    assert found["error"]["message"] == "plugin researcher: the limit of turns was reached"
    assert found["cost_usd"] > 0
    # The plugin refuses to delete a failed job; the run is deleted all the same.
    assert server.site.run("delete", run_id).returncode != 0
    assert server.site.run("delete", "--force", run_id).returncode == 0
    assert job_folder(server, run_id).is_dir()


@pytest.mark.req("REQ-WD-5")
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "task"),
        ({"task": "x", "config": "text"}, "config"),
        ({"task": "x", "config": {"folders": ["relative"]}}, "config.folders must be absolute paths"),
    ],
)
def test_a_bad_dispatch_is_refused_with_the_reason(server: Server, values: dict[str, Any], message: str) -> None:
    answer = server.http.post("/api/runs", json={"worker": RESEARCHER, "input": values})
    if answer.status_code == 200:
        found = server.wait_for(answer.json()["run_id"])
        assert found["status"] == "failed"
        assert message in found["error"]["message"]
    else:
        assert answer.status_code == 400
        assert message in answer.json()["error"]["message"]


def test_a_question_of_a_job_cannot_be_answered(server: Server, model_server: ModelServer) -> None:
    model_server.say(
        TITLE,
        Turn(say=[internal("log_question", question="May I?")], tools=True),
        Turn(say=[Text(text="late")], tools=True, hang_after=0, times=0),
    )
    run_id = server.dispatch(RESEARCHER)
    wait_until(lambda: server.site.notes(run_id, "log_question"), "the question")
    assert server.detail(run_id)["status"] == "running"
    answered = server.site.run("answer", run_id, "yes")
    assert answered.returncode != 0
    assert "takes no answers: a job is one-shot" in answered.stderr
    refused = server.http.post(f"/api/runs/{run_id}/answer", json={"call_id": "x", "answer": "yes"})
    assert (refused.status_code, "one-shot" in refused.json()["error"]["message"]) == (409, True)
    server.post(f"/api/runs/{run_id}/cancel")
    assert server.wait_for(run_id)["status"] == "cancelled"


@pytest.mark.req("REQ-WD-17", "REQ-WD-18", "REQ-WD-19")
def test_deleting_a_run_deletes_its_job(server: Server, model_server: ModelServer) -> None:
    model_server.say(Turn(say=[Text(text="The answer.")], times=0))
    kept, deleted, over_http = [server.dispatch(RESEARCHER) for _ in range(3)]
    for run_id in (kept, deleted, over_http):
        server.wait_for(run_id)
        assert job_folder(server, run_id).is_dir()
    assert server.site.run("delete", deleted).returncode == 0
    assert server.http.delete(f"/api/runs/{over_http}").json() == {"deleted": [over_http]}
    assert not job_folder(server, deleted).exists()
    assert not job_folder(server, over_http).exists()
    assert job_folder(server, kept).is_dir()


@pytest.mark.req("REQ-WD-40", "REQ-WD-43")
def test_a_copy_made_by_the_command_is_a_worker_at_once_and_pruned_with_its_runs(
    server: Server, model_server: ModelServer
) -> None:
    site = server.site
    made = site.run("plugins", "new", "reviewer")
    assert made.returncode == 0, made.stderr
    folder = site.project / "plugins" / "reviewer"
    (folder / "prompt.md").write_text("You review texts.")
    assert server.plugin("reviewer")["status"] == "stopped"
    assert "reviewer" in [worker["slug"] for worker in server.http.get("/api/workers").json()["workers"]]
    script(model_server, [Text(text="A good text.")])
    run_id = server.dispatch("reviewer")
    assert server.wait_for(run_id)["result"] == "A good text."
    assert "You review texts." in prompts(model_server)[0]
    assert server.plugin("reviewer")["status"] == "ready"
    assert (folder / "jobs" / run_id / "result.md").read_text() == "A good text."
    assert not (site.plugins / RESEARCHER / "jobs" / run_id).exists()
    pruned = site.run("prune", "--older-than", "0s", "--yes")
    assert pruned.returncode == 0, pruned.stderr
    assert not (folder / "jobs" / run_id).exists()
