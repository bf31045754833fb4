"""The researcher, started as a host starts it: the real Agent SDK with its CLI, and a model that follows a script."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.model_server.script import ReplyPart, Text, ToolUse, Turn
from tests.model_server.server import ModelServer
from tests.plugins.plugin_process import PluginProcess, RpcFailure
from tests.timeouts import wait_until

TITLE = Turn(say=[Text(text="A title")], tools=False, times=0)
INTERNAL = {"update_summary", "record_decision", "log_question", "store_memory", "submit_result"}
READ_ONLY = {"Read", "Grep", "Glob", "WebSearch", "WebFetch"}


def internal(tool: str, **arguments: object) -> ToolUse:
    return ToolUse(name=f"mcp__worker__{tool}", input=arguments)


def files_of(*folders: Path) -> set[Path]:
    """All files but those of jobs."""
    files = {path for folder in folders for path in folder.rglob("*")}
    return {path for path in files if not {"jobs", "__pycache__"} & set(path.parts)}


def script(model: ModelServer, *turns: Sequence[ReplyPart]) -> None:
    model.say(TITLE, *(Turn(say=list(say), tools=True) for say in turns))


@pytest.mark.req(
    "REQ-WD-3",
    "REQ-WD-6",
    "REQ-WD-11",
    "REQ-WD-12",
    "REQ-WD-13",
    "REQ-WD-14",
    "REQ-WD-15",
    "REQ-WD-19",
    "REQ-WD-20",
    "REQ-WD-21",
)
@pytest.mark.req("REQ-WD-22", "REQ-WD-23", "REQ-WD-24", "REQ-WD-25", "REQ-WD-30")
def test_a_job_reports_progress_decisions_and_questions_and_returns_what_was_submitted(
    researcher: PluginProcess, model_server: ModelServer
) -> None:
    script(
        model_server,
        [internal("update_summary", summary="I look for sources.")],
        [internal("record_decision", question="Which year?", decision="2026", reasoning="The task names none.")],
        [internal("log_question", question="May I contact the author?")],
        [internal("submit_result", text="# Report\n\nIt is so.", artifacts=[{"name": "data.csv", "content": "a,b\n"}])],
        [Text(text="done")],
    )
    plugin = researcher.start()
    job_id = plugin.dispatch("What is it?", "Find out what it is")
    status = plugin.wait_for(job_id)
    assert status["status"] == "completed"
    assert status["error"] is None
    assert status["summary"] == "I look for sources."
    assert status["questions"] == ["May I contact the author?"]
    decision = {"question": "Which year?", "decision": "2026", "reasoning": "The task names none."}
    assert status["decisions"] == [decision]
    assert plugin.call("worker/result", jobId=job_id) == {
        "jobId": job_id,
        "output": "# Report\n\nIt is so.",
        "artifacts": ["artifacts/data.csv"],
    }
    folder = plugin.folder / "jobs" / job_id
    assert (folder / "task.md").read_text() == "What is it?"
    files = {path.name for path in folder.iterdir()}
    expected = {"task.md", "config.json", "meta.json", "status.md", "result.md", "questions.md", "decisions.json"}
    assert files == {*expected, "artifacts"}


@pytest.mark.req("REQ-WD-31", "REQ-WD-33")
def test_the_agent_is_offered_the_internal_and_the_read_only_tools_and_nothing_else(
    researcher: PluginProcess, model_server: ModelServer
) -> None:
    script(model_server, [Text(text="The answer.")])
    plugin = researcher.start()
    plugin.wait_for(plugin.dispatch())
    # The placeholder is how the CLI keeps its prompt cache; it has no function, and a call of it is refused like any other.
    offered = [
        {tool["name"] for tool in request.body["tools"]} - {"DeferredToolPlaceholder"}
        for request in model_server.requests()
        if request.body.get("tools")
    ]
    assert offered
    expected = READ_ONLY | {f"mcp__worker__{name}" for name in INTERNAL}
    assert [sorted(names) for names in offered] == [sorted(expected)] * len(offered)


@pytest.mark.parametrize(
    "call",
    [
        ToolUse(name="Write", input={"file_path": "{outside}/written", "content": "x"}),
        ToolUse(name="Edit", input={"file_path": "{outside}/secret", "old_string": "secret", "new_string": "x"}),
        ToolUse(name="Bash", input={"command": "touch {outside}/written"}),
        ToolUse(name="Read", input={"file_path": "{outside}/secret"}),
        ToolUse(name="Grep", input={"pattern": "word", "path": "{outside}", "output_mode": "content"}),
        ToolUse(name="Glob", input={"pattern": "{outside}/*"}),
        ToolUse(name="Glob", input={"pattern": "../../../../outside/*"}),
        internal("store_memory", key="../outside", content="x"),
        internal("submit_result", text="x", artifacts=[{"name": "../../outside", "content": "x"}]),
    ],
    ids=lambda call: f"{call.name.removeprefix('mcp__worker__')}-{len(str(call.input))}",
)
def test_what_a_worker_must_not_do_is_refused_and_nothing_outside_is_touched(
    shared_researcher: PluginProcess, model_server: ModelServer, tmp_path: Path, call: ToolUse
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("the secret word")
    arguments = json.loads(json.dumps(call.input).replace("{outside}", str(outside)))
    script(
        model_server,
        [ToolUse(name=call.name, input=arguments)],
        [Text(text="I could not.")],
    )
    plugin = shared_researcher
    before = files_of(plugin.folder, tmp_path)
    job_id = plugin.dispatch()
    assert plugin.wait_for(job_id)["status"] == "completed"
    sent = str([request.body for request in model_server.requests()])
    assert "the secret word" not in sent
    assert "is_error" in sent
    assert files_of(plugin.folder, tmp_path) == before
    assert (outside / "secret").read_text() == "the secret word"


@pytest.mark.req("REQ-WD-46")
def test_an_unknown_job_is_an_error_that_helps(shared_researcher: PluginProcess) -> None:
    plugin = shared_researcher
    for method in ("status", "result", "cancel", "delete"):
        with pytest.raises(RpcFailure, match="unknown job 'nope'") as failure:
            plugin.call(f"worker/{method}", jobId="nope")
        assert failure.value.code == -32602


# Jobs


def slow(model: ModelServer) -> None:
    """A model whose answer takes longer than any test."""
    model.say(TITLE, Turn(say=[Text(text="late")], tools=True, hang_after=0, times=0))


def processes_of(plugin: PluginProcess) -> list[int]:
    """The processes that the plugin started."""
    assert plugin.process is not None
    children = Path(f"/proc/{plugin.process.pid}/task/{plugin.process.pid}/children")
    threads = children.parents[1].glob("*/children")
    return [int(pid) for thread in threads for pid in thread.read_text().split()]


@pytest.mark.req("REQ-WD-16")
def test_cancel_ends_the_session_and_its_process_and_stays(
    researcher: PluginProcess, model_server: ModelServer
) -> None:
    slow(model_server)
    plugin = researcher.start()
    job_id = plugin.dispatch()
    wait_until(lambda: any(request.body.get("tools") for request in model_server.requests()), "the agent's request")
    assert processes_of(plugin)
    assert plugin.call("worker/cancel", jobId=job_id) == {"jobId": job_id, "status": "cancelled"}
    wait_until(lambda: processes_of(plugin) == [], "the end of the agent's process")
    assert plugin.call("worker/cancel", jobId=job_id)["status"] == "cancelled"
    with pytest.raises(RpcFailure, match="was cancelled"):
        plugin.call("worker/result", jobId=job_id)
    assert plugin.call("worker/delete", jobId=job_id) == {"jobId": job_id, "deleted": True}
    assert not (plugin.folder / "jobs" / job_id).exists()


@pytest.mark.req("REQ-WD-17", "REQ-WD-18", "REQ-WD-47")
def test_running_and_failed_jobs_cannot_be_deleted(researcher: PluginProcess, model_server: ModelServer) -> None:
    slow(model_server)
    plugin = researcher.start()
    job_id = plugin.dispatch()
    with pytest.raises(RpcFailure, match="is running; only completed and cancelled jobs can be deleted"):
        plugin.call("worker/delete", jobId=job_id)
    with pytest.raises(RpcFailure, match="is still running"):
        plugin.call("worker/result", jobId=job_id)
    meta = plugin.folder / "jobs" / job_id / "meta.json"
    plugin.kill()
    assert json.loads(meta.read_text())["status"] == "running"
    plugin.start()
    status = plugin.call("worker/status", jobId=job_id)
    assert (status["status"], status["error"][:11]) == ("failed", "interrupted")
    assert json.loads(meta.read_text())["status"] == "failed"
    limit = "still shows as `running` until the plugin\nrestarts"
    assert limit in (plugin.folder / "README.md").read_text()
    with pytest.raises(RpcFailure, match="is failed; only completed and cancelled jobs can be deleted") as failure:
        plugin.call("worker/delete", jobId=job_id)
    assert failure.value.code == -32602


@pytest.mark.req("REQ-WD-32", "REQ-WD-44")
@pytest.mark.parametrize(
    ("config", "reason"),
    [({"max_turns": 1}, "the limit of turns was reached"), ({"max_budget_usd": 0.0001}, "the budget was exceeded")],
)
def test_a_job_over_its_limits_fails_with_the_reason(
    researcher: PluginProcess, model_server: ModelServer, config: dict[str, Any], reason: str
) -> None:
    script(model_server, *[[internal("update_summary", summary=f"step {n}")] for n in range(5)])
    plugin = researcher.start()
    job_id = plugin.dispatch(**config)
    status = plugin.wait_for(job_id)
    assert (status["status"], status["error"]) == ("failed", reason)
    assert json.loads((plugin.folder / "jobs" / job_id / "meta.json").read_text())["error"] == reason
    with pytest.raises(RpcFailure, match=reason):
        plugin.call("worker/result", jobId=job_id)


@pytest.mark.req("REQ-WD-8", "REQ-WD-9", "REQ-WD-10")
def test_jobs_are_listed_by_a_glob_on_their_descriptions(researcher: PluginProcess, model_server: ModelServer) -> None:
    slow(model_server)
    plugin = researcher.start()
    bees, birds = plugin.dispatch(description="Study bees"), plugin.dispatch(description="Study birds")
    other = plugin.dispatch(description="Count trees")
    assert [job["jobId"] for job in plugin.call("worker/list")["jobs"]] == [bees, birds, other]
    assert plugin.call("worker/list", filter="Study b*s")["jobs"] == [
        {"jobId": bees, "status": "running"},
        {"jobId": birds, "status": "running"},
    ]
    detailed = plugin.call("worker/list", detail="detailed", filter="*trees")["jobs"]
    assert detailed == [{"jobId": other, "status": "running", "description": "Count trees", "summary": None}]
    with pytest.raises(RpcFailure, match="detail must be") as failure:
        plugin.call("worker/list", detail="all")
    assert failure.value.code == -32602


@pytest.mark.req("REQ-WD-27", "REQ-WD-28", "REQ-WD-29")
def test_a_job_gets_the_memories_of_earlier_ones_newest_first(
    researcher: PluginProcess, model_server: ModelServer
) -> None:
    script(
        model_server,
        [internal("store_memory", key="sources", content="Ask the library first.")],
        [internal("store_memory", key="sources", content="The library has moved.")],
        [internal("store_memory", key="style", content="Reports are short.")],
        [Text(text="done")],
    )
    plugin = researcher.start()
    plugin.wait_for(plugin.dispatch())
    old = plugin.folder / "memory" / "old.md"
    old.write_text("x" * 31_990)
    os.utime(old, (1, 1))
    script(model_server, [Text(text="done")])
    plugin.wait_for(plugin.dispatch())
    prompt = str(next(request.body["system"] for request in model_server.requests() if request.body.get("tools")))
    assert "Ask the library first." not in prompt
    assert prompt.index("Reports are short.") < prompt.index("The library has moved.")
    # Over the size that fits: the oldest is left out.
    assert "xxxx" not in prompt


def fill_memory(plugin: PluginProcess, **settings: str) -> Path:
    """Give a plugin one memory above the limit from which memories are condensed."""
    path = plugin.folder / "plugin" / "settings.py"
    text = path.read_text()
    for name, value in {"COMPACT_TOKENS": "20", **settings}.items():
        text, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        assert count == 1
    path.write_text(text)
    memory = plugin.folder / "memory"
    memory.mkdir()
    (memory / "first.md").write_text("The first fact. " * 10)
    return memory


CONDENSED = Turn(say=[Text(text="Condensed facts.")], match="The first fact", tools=False, times=0)


@pytest.mark.req("REQ-WD-26")
def test_memories_above_the_limit_are_condensed_by_a_model_before_the_next_job(
    researcher: PluginProcess, model_server: ModelServer
) -> None:
    memory = fill_memory(researcher)
    store = internal("store_memory", key="second", content="The second fact.")
    model_server.say(
        CONDENSED, TITLE, Turn(say=[store], tools=True), Turn(say=[Text(text="done")], tools=True, times=0)
    )
    plugin = researcher.start()
    condensing = plugin.wait_for(plugin.dispatch())
    assert condensing["status"] == "completed"
    assert {path.name: path.read_text() for path in memory.glob("*.md")} == {
        "compacted.md": "Condensed facts.",
        "second.md": "The second fact.",
    }
    prompts = [str(request.body["system"]) for request in model_server.requests() if request.body.get("tools")]
    assert "Condensed facts." in prompts[0]
    assert "The first fact" not in prompts[0]


@pytest.mark.req("REQ-WD-26", "REQ-WD-32")
def test_condensing_is_part_of_the_cost_and_the_budget_of_the_job(
    researcher: PluginProcess, model_server: ModelServer
) -> None:
    fill_memory(researcher)
    model_server.say(CONDENSED, TITLE, Turn(say=[Text(text="done")], tools=True, times=0))
    plugin = researcher.start()
    status = plugin.wait_for(plugin.dispatch(max_budget_usd=0.0000001))
    assert (status["status"], status["error"]) == ("failed", "the budget was exceeded")
    assert status["costUsd"] > 0
    assert not [request for request in model_server.requests() if request.body.get("tools")]


@pytest.mark.req("REQ-WD-26")
def test_a_model_that_does_not_answer_leaves_the_memories_and_the_job_starts(
    researcher: PluginProcess, model_server: ModelServer
) -> None:
    memory = fill_memory(researcher, COMPACT_SECONDS="1.0")
    hanging = Turn(say=[Text(text="late")], match="The first fact", tools=False, hang_after=0, times=0)
    model_server.say(hanging, TITLE, Turn(say=[Text(text="done")], tools=True, times=0))
    plugin = researcher.start()
    assert plugin.wait_for(plugin.dispatch())["status"] == "completed"
    assert [path.name for path in memory.glob("*.md")] == ["first.md"]


@pytest.mark.req("REQ-WD-40", "REQ-WD-43")
def test_a_copy_with_another_prompt_and_name_is_a_worker_of_its_own(model_server: ModelServer, tmp_path: Path) -> None:
    copy = PluginProcess.copy_of("researcher", tmp_path, model_server, copy_name="reviewer")
    (copy.folder / "prompt.md").write_text("You review texts.")
    manifest = copy.folder / "guild-member.json"
    manifest.write_text(manifest.read_text().replace('"researcher"', '"reviewer"'))
    script(model_server, [Text(text="A good text.")])
    try:
        copy.start()
        assert copy.call("initialize")["serverInfo"]["name"] == "reviewer"
        job_id = copy.dispatch()
        assert copy.wait_for(job_id)["status"] == "completed"
        assert copy.call("worker/result", jobId=job_id)["output"] == "A good text."
        assert "You review texts." in str(model_server.requests()[-1].body["system"])
    finally:
        copy.stop()


# Dispatch


@pytest.mark.req("REQ-WD-5", "REQ-WD-7")
def test_a_hundred_dispatches_at_once_are_answered_before_any_agent_has(
    researcher: PluginProcess, model_server: ModelServer
) -> None:
    slow(model_server)
    plugin = researcher.start()
    with ThreadPoolExecutor(20) as pool:
        ids = list(pool.map(lambda n: plugin.dispatch(description=f"job {n}"), range(100)))
    assert len(set(ids)) == 100
    jobs = plugin.call("worker/list")["jobs"]
    assert {job["jobId"] for job in jobs} == set(ids)
    assert {job["status"] for job in jobs} == {"running"}


def test_a_dispatch_that_names_its_run_is_one_job_however_often_it_comes(
    researcher: PluginProcess, model_server: ModelServer
) -> None:
    slow(model_server)
    plugin = researcher.start()
    assert [plugin.dispatch(run_id="run-1") for _ in range(3)] == ["run-1"] * 3
    assert len(plugin.call("worker/list")["jobs"]) == 1
    with pytest.raises(RpcFailure, match="exists already, with another description"):
        plugin.dispatch(description="Another", run_id="run-1")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "description must be a text that is not empty"),
        ({"description": "x"}, "task must be a text that is not empty"),
        ({"description": "x", "task": " "}, "task must be a text that is not empty"),
        ({"description": "x", "task": "x", "config": []}, "config must be an object"),
        ({"description": "x", "task": "x", "config": {"run_id": "../x"}}, "config.run_id must be safe as a file name"),
        (
            {"description": "x", "task": "x", "config": {"folders": ["relative"]}},
            "config.folders must be absolute paths",
        ),
        ({"description": "x", "task": "x", "config": {"max_turns": -1}}, "must be positive numbers"),
    ],
)
def test_a_bad_dispatch_says_what_is_wrong_and_creates_nothing(
    shared_researcher: PluginProcess, params: dict[str, object], message: str
) -> None:
    plugin = shared_researcher
    before = list((plugin.folder / "jobs").iterdir())
    with pytest.raises(RpcFailure, match=message) as failure:
        plugin.call("worker/dispatch", **params)
    assert failure.value.code == -32602
    assert list((plugin.folder / "jobs").iterdir()) == before


# The protocol


@pytest.mark.req("REQ-WD-42")
def test_it_has_no_tools_of_its_own(shared_researcher: PluginProcess) -> None:
    plugin = shared_researcher
    assert plugin.call("tools/list") == {"tools": []}
    with pytest.raises(RpcFailure, match="there is no tool 'x'"):
        plugin.call("tools/call", name="x", arguments={})


def test_bad_requests_get_the_errors_of_json_rpc(shared_researcher: PluginProcess) -> None:
    plugin = shared_researcher
    codes = [
        plugin.post(body).json()["error"]["code"]
        for body in (b"{", b"[]", b'"text"', {"jsonrpc": "2.0", "id": 1}, {"jsonrpc": "2.0", "id": 1, "method": "no"})
    ]
    assert codes == [-32700, -32600, -32600, -32600, -32601]
    assert plugin.post({"jsonrpc": "2.0", "id": 7, "method": "ping", "params": [1]}).json()["error"]["code"] == -32602
    assert plugin.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
    assert "larger than" in plugin.post(b" " * 11_000_000).json()["error"]["message"]


def test_a_request_without_the_secret_is_refused_and_agents_do_not_get_it(
    researcher: PluginProcess, model_server: ModelServer
) -> None:
    slow(model_server)
    plugin = researcher.start()
    request = {"jsonrpc": "2.0", "id": 1, "method": "worker/list"}
    assert [plugin.post(request, secret).status_code for secret in (None, "wrong")] == [401, 401]
    plugin.dispatch()
    wait_until(lambda: processes_of(plugin), "the agent's process")

    def has_secret() -> bool:
        environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in processes_of(plugin)]
        assert environments
        return any(b"SHOPFLOOR_PLUGIN_SECRET" in each for each in environments)

    # A process that was only just forked has the environment of its parent for a moment.
    wait_until(lambda: not has_secret(), "the agent's processes to have an environment without the secret")


def test_a_port_that_is_taken_is_exit_code_2(shared_researcher: PluginProcess) -> None:
    plugin = shared_researcher
    port = plugin.url.rsplit(":", 1)[1].removesuffix("/mcp")
    command = [sys.executable, "-m", "plugin", "--port", port]
    done = subprocess.run(command, cwd=plugin.folder, env=plugin.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"cannot listen on port {port}" in done.stderr
