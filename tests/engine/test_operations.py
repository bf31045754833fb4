"""Operation steps: tools of plugins that are started for real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.engine.harness import EngineHarness
from tools.docs_blocks_text import BLOCK_EXAMPLES

from shopfloor.log import Event, StepCompleted, StepStarted, ToolCall, ToolResult

pytestmark = pytest.mark.anyio

TOOLS_PLUGIN = """
import http.server, json, os, pathlib, sys, time

CALLS = pathlib.Path("calls.jsonl")
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = {name: TEXT for name in ("shout", "refuse", "breaks", "garbage", "dies", "hangs", "picture", "once")}
TOOLS["remote"] = {"$ref": "http://127.0.0.1:9/schema.json"}
TOOLS["invalid"] = {"type": "nonsense"}

def call(name, arguments):
    with CALLS.open("a") as file:
        file.write(json.dumps([name, arguments]) + "\\n")
    text = arguments.get("text", "")
    if name == "dies":
        os._exit(3)
    if name == "hangs" or (name == "once" and len(CALLS.read_text().splitlines()) == 1):
        time.sleep(600)
    if name == "picture":
        return {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}
    if name == "refuse":
        return {"content": [{"type": "text", "text": "I will not " + text}], "isError": True}
    return {"content": [{"type": "text", "text": text.upper()}, {"type": "text", "text": "!"}]}

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, params = request["method"], request.get("params") or {}
        answer = {"jsonrpc": "2.0", "id": request["id"]}
        if method == "initialize":
            answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}}
        elif method == "tools/list":
            answer["result"] = {"tools": [{"name": n, "inputSchema": s} for n, s in TOOLS.items()]}
        elif params.get("name") == "breaks":
            call("breaks", params["arguments"])
            answer["error"] = {"code": -32603, "message": "it broke"}
        else:
            answer["result"] = call(params["name"], params["arguments"])
        body = b"<html>" if params.get("name") == "garbage" else json.dumps(answer).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer.allow_reuse_address = False
try:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
except OSError:
    sys.exit(2)
server.serve_forever()
"""
OPERATES = """
    input: {TOOL: {type: string}, TEXT: {type: any}}
    steps:
      Call it: {block: operation, plugin: shouter, tool: %s, input: {text: "{{TEXT}}"}, output: SAID%s}
    output: SAID
"""


@pytest.fixture
def plugin(harness: EngineHarness, tmp_path: Path) -> Path:
    """Write a plugin with tools of every kind, and return its folder."""
    folder = tmp_path / "plugins" / "shouter"
    folder.mkdir(parents=True, mode=0o755)
    (folder / "server.py").write_text(TOOLS_PLUGIN)
    manifest = {
        "name": "shouter",
        "displayName": "Shouter",
        "description": "Has tools.",
        "version": "1",
        "transport": "http",
        "mcp": {"command": "${PYTHON}", "args": ["server.py", "${PORT}"]},
    }
    (folder / "guild-member.json").write_text(json.dumps(manifest))
    harness.plugins = (folder.parent,)
    return folder


def calls_of(plugin: Path) -> list[Any]:
    """Return the calls that the plugin received."""
    file = plugin / "calls.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def add_operation(harness: EngineHarness, tool: str, more: str = "") -> None:
    harness.add_worker("operates", OPERATES % (tool, more))


def tool_events(events: list[Event]) -> list[tuple[str, str, Any, str | None]]:
    found = [event for event in events if isinstance(event.payload, ToolCall | ToolResult)]
    assert {event.payload.fidelity for event in found if isinstance(event.payload, ToolCall | ToolResult)} <= {"router"}
    return [
        (event.type, event.payload.name, event.payload.input if isinstance(event.payload, ToolCall) else
         event.payload.output, None if isinstance(event.payload, ToolCall) else event.payload.error)
        for event in found
        if isinstance(event.payload, ToolCall | ToolResult)
    ]  # fmt: skip


@pytest.mark.req("TR-12", "TR-53")
@pytest.mark.storages("memory", "files")
async def test_a_tool_of_a_plugin_is_called_and_recorded_by_the_router(harness: EngineHarness, plugin: Path) -> None:
    add_operation(harness, "shout")
    async with harness.open() as engine:
        run_id = await engine.dispatch("operates", TOOL="shout", TEXT="hello")
        assert (await engine.wait_for_outcome(run_id)).result == "HELLO\n!"
    events = harness.verified_events(run_id)
    assert [event.payload.kind for event in events if isinstance(event.payload, StepStarted)] == ["operation"]
    assert tool_events(events) == [
        ("tool.call", "shouter/shout", {"text": "hello"}, None),
        ("tool.result", "shouter/shout", "HELLO\n!", None),
    ]
    assert calls_of(plugin) == [["shout", {"text": "hello"}]]


@pytest.mark.req("TR-12")
async def test_workers_in_python_call_operations(harness: EngineHarness, plugin: Path) -> None:
    harness.add_python_worker(
        "operates",
        """
        from shopfloor import Run, worker
        from shopfloor.errors import PluginFailed, ToolFailed

        @worker
        async def operates(run: Run):
            said = [await run.operation("shouter", "shout", {"text": "a"}, name="say")]
            said.append(await run.operation("shouter", "picture", lambda: {"text": "b"}))
            for tool in ("refuse", "breaks"):
                try:
                    await run.operation("shouter", tool, {"text": "go"})
                except (PluginFailed, ToolFailed) as error:
                    said.append(error.code)
            return said
        """,
    )
    async with harness.open() as engine:
        picture = [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]
        assert await engine.run_worker("operates") == ["A\n!", picture, "tool_error", "plugin_error"]


@pytest.mark.parametrize(
    ("tool", "text", "code", "message", "is_called"),
    [
        ("refuse", "go", "tool_error", "I will not go", True),
        ("breaks", "go", "plugin_error", "it broke", True),
        ("garbage", "go", "plugin_error", "tools/call", True),
        ("dies", "go", "outcome_unknown", "whether the tool was executed is unknown", True),
        ("shout", 7, "tool_error", "invalid arguments for 'shouter/shout': text: 7 is not of type 'string'", False),
        ("remote", "go", "tool_error", "the schema of 'shouter/remote' is not valid", False),
        ("invalid", "go", "tool_error", "the schema of 'shouter/invalid' is not valid", False),
        ("nothing", "go", "plugin_error", "plugin shouter has no tool 'nothing'", False),
    ],
)
async def test_failures_of_tool_and_protocol_are_told_apart(
    harness: EngineHarness, plugin: Path, tool: str, text: Any, code: str, message: str, is_called: bool
) -> None:
    add_operation(harness, tool)
    async with harness.open() as engine:
        run_id = await engine.dispatch("operates", TOOL=tool, TEXT=text)
        outcome = await engine.wait_for_outcome(run_id)
    assert outcome.error is not None
    assert outcome.error.code == code
    assert message in outcome.error.message
    assert len(calls_of(plugin)) == is_called
    recorded = tool_events(harness.verified_events(run_id))
    assert [kind for kind, _, _, _ in recorded] == ["tool.call", "tool.result"] * is_called
    assert all(error for kind, _, _, error in recorded if kind == "tool.result")


async def test_an_unknown_plugin_fails_the_step(harness: EngineHarness) -> None:
    harness.add_worker("operates", "steps: {Call: {block: operation, plugin: nobody, tool: x}}")
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("operates"))
    assert outcome.error is not None
    assert "nobody" in outcome.error.message


async def test_a_failed_operation_is_retried_by_its_rule(harness: EngineHarness, plugin: Path) -> None:
    add_operation(harness, "refuse", ", retry: {limit: 2, delay: 0.01}")
    async with harness.open() as engine:
        run_id = await engine.dispatch("operates", TOOL="refuse", TEXT="go")
        assert (await engine.wait_for_outcome(run_id)).status == "failed"
    assert len(calls_of(plugin)) == 3
    ended = [event.payload for event in harness.verified_events(run_id) if isinstance(event.payload, StepCompleted)]
    assert [(step.try_, step.error_code) for step in ended] == [(n, "tool_error") for n in (1, 2, 3)]


@pytest.mark.parametrize(("retry", "code"), [("", "outcome_unknown"), (", retry: {limit: 1, always: true}", None)])
async def test_an_interrupted_operation_follows_the_retry_rule(
    harness: EngineHarness, plugin: Path, retry: str, code: str | None
) -> None:
    add_operation(harness, "once", retry)
    async with harness.open() as engine:
        run_id = await engine.dispatch("operates", TOOL="once", TEXT="go")
        await engine.wait_until(lambda: calls_of(plugin), "the call")
    # The host has stopped while the plugin was executing the tool.
    assert [kind for kind, *_ in tool_events(harness.events(run_id))] == ["tool.call"]
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(run_id)
    assert (outcome.error and outcome.error.code) == code
    assert outcome.result == (None if code else "GO\n!")
    assert len(calls_of(plugin)) == (1 if code else 2)
    harness.verified_events(run_id)


@pytest.mark.req("TR-53")
async def test_a_completed_operation_is_not_executed_again(harness: EngineHarness, plugin: Path) -> None:
    harness.add_worker(
        "operates",
        """
        steps:
          Call: {block: operation, plugin: shouter, tool: shout, input: {text: hello}, output: SAID}
          Ask: {block: tool-call, tool: ask, input: {question: "Go on?"}}
        output: SAID
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("operates")
        await engine.wait_for_status(run_id, "waiting")
    # A crash after the result, but before the end of the step.
    kept = [
        line
        for line, event in zip(harness.lines(run_id), harness.events(run_id), strict=True)
        if event.seq <= next(e.seq for e in harness.events(run_id) if isinstance(e.payload, ToolResult))
    ]
    harness.replace_log(run_id, kept)
    harness.drop_database()
    async with harness.open() as engine:
        (call_id,) = (await engine.wait_for_status(run_id, "waiting")).row.awaits
        await engine.answer(run_id, call_id, "yes")
        assert (await engine.wait_for_outcome(run_id)).result == "HELLO\n!"
    assert len(calls_of(plugin)) == 1


async def test_a_cancelled_run_does_not_wait_for_the_tool(harness: EngineHarness, plugin: Path) -> None:
    add_operation(harness, "hangs")
    async with harness.open() as engine:
        run_id = await engine.dispatch("operates", TOOL="hangs", TEXT="go")
        await engine.wait_until(lambda: calls_of(plugin), "the call")
        await engine.cancel(run_id)
        with anyio.fail_after(20):
            outcome = await engine.wait_for_outcome(run_id)
    assert outcome.status == "cancelled"
    harness.verified_events(run_id)


@pytest.mark.req("TR-53")
async def test_the_tool_of_a_template_is_called(harness: EngineHarness) -> None:
    harness.plugins = (Path(__file__).parents[2] / "plugins",)
    harness.add_worker("counts", BLOCK_EXAMPLES["operation"])
    async with harness.open() as engine:
        assert await engine.run_worker("counts") == "3"
        assert await engine.run_worker("counts", TEXT="one two") == "2"
