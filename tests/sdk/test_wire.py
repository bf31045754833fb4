"""`shopfloor up` and the TypeScript SDK: the client accepts every event of every kind of run."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.cli.conftest import SHOPFLOOR
from tests.model_server.script import Failure, Text, Thinking, ToolUse, Turn
from tests.model_server.server import ModelServer
from tests.sdk.rules import checked
from tests.sdk.stock_client import StockClient, Wire
from tests.sdk.vocabulary import VOCABULARY
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.log import decode
from shopfloor.record import Storage

TALK = """
    tools:
      look-up: {description: Looks up., parameters: {word: {type: string}}}
      count: {description: Counts., parameters: {n: {type: integer}}}
    steps:
      Start: {block: start-thread, model: MODEL, tools: [look-up, count, log_question], thinking: low}
      Say: {block: add-message, text: Go on.}
      Answer: {block: next-message, output: SAID, retry: {limit: 0}}
    output: SAID
"""
MODELS = {
    "anthropic": "anthropic/claude-sonnet-4-6",
    "openai": "openai/gpt-5.5",
    "google": "google/gemini-2.5-flash",
    "compatible": "local/any",
}
WORKERS = {
    **{f"talks-{name}": TALK.replace("MODEL", model) for name, model in MODELS.items()},
    "looks-up": """
        tools: {look-up: {description: Looks up., parameters: {word: {type: string}}}}
        steps:
          First: {block: tool-call, tool: look-up, input: {word: moon}, output: ONE}
          Second: {block: tool-call, tool: look-up, input: {word: "{{ONE}}"}, output: TWO}
        output: {one: "{{ONE}}", two: "{{TWO}}"}
    """,
    "both": """
        tools:
          look-up: {description: Looks up., parameters: {word: {type: string}}}
          fetch: {description: Fetches., parameters: {url: {type: string}}}
        steps:
          Both:
            block: parallel
            branches:
              Sun: {Look: {block: tool-call, tool: look-up, input: {word: sun}, output: A}}
              Moon: {Get: {block: tool-call, tool: fetch, input: {url: "x://y"}, output: B}}
    """,
    "parent": """
        steps:
          Print: {block: command, command: "echo out; echo err >&2"}
          Call: {block: run-worker, worker: child, output: GOT}
          Each:
            block: for-each
            each: [1, 2]
            steps: {Say: {block: command, command: "echo {{ITEM}}", retry: {limit: 1, delay: 0}}}
        output: GOT
    """,
    "child": "steps: {Say: {block: terminal, output: {a: [1, null]}}}",
    "fails": "steps: {Do: {block: command, command: 'exit 7', retry: {limit: 1, delay: 0}}}",
    "sleeps": "steps: {Sleep: {block: command, command: 'sleep 60'}}",
    "unreadable": "steps: 7",
    "needs-input": "{input: {NAME: {type: string}}, steps: {Say: {block: terminal, output: x}}}",
}
PYTHON = """
from shopfloor import worker
from shopfloor.errors import RunFailed


@worker(slug="asks")
async def asks(run):
    await run.log_question("Is this noted?")
    await run.summary("at it")
    return await run.ask("Which one?", options=["a", "b"])


class Odd(RunFailed):
    code = "my_own"


@worker(slug="raises")
async def raises(run):
    raise Odd("it is odd", hint="make it even")


@worker(slug="gives-nothing")
async def gives_nothing(run):
    return None
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, model_server_thread: ModelServer) -> Iterator[Storage]:
    """The storage of a running server."""
    folder = tmp_path_factory.mktemp("up")
    for slug, yaml in WORKERS.items():
        (folder / "workers" / slug).mkdir(parents=True)
        (folder / "workers" / slug / "worker.yaml").write_text(textwrap.dedent(yaml))
    (folder / "odd_workers.py").write_text(PYTHON)
    storage = Storage(folder / "storage")
    env = {
        **os.environ,
        **model_server_thread.env,
        "SHOPFLOOR_STORAGE": str(storage.root),
        "SHOPFLOOR_SCRIPT_DELAY_MS": "1",
    }
    command = [SHOPFLOOR, "up", "--port", "0", "--workers", str(folder / "workers"), "--workers", "odd_workers.py"]
    server = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert server.stdout is not None
        assert b"Shopfloor is up" in server.stdout.readline()
        yield storage
    finally:
        server.terminate()
        server.communicate(timeout=TIMEOUT_SECONDS)


@pytest.fixture
def http(up: Storage) -> Iterator[httpx.Client]:
    address = json.loads(up.server_address.read_bytes())
    headers = {"Authorization": f"Bearer {address['token']}"}
    with httpx.Client(base_url=address["url"], headers=headers, timeout=60, trust_env=False) as http:
        yield http


@pytest.fixture
def stock(http: httpx.Client) -> StockClient:
    return StockClient(http)


def only(events: list[Wire], kind: str) -> list[Wire]:
    return [event for event in events if event["type"] == kind]


def ours(events: list[Wire], name: str) -> list[Any]:
    return [event["value"] for event in only(events, "resource-update") if event["name"] == name]


def replayed(up: Storage, run_id: str) -> list[Wire]:
    from tests.sdk.rules import folded

    log = (up.transcripts / f"{run_id}.jsonl").read_bytes()
    return checked(folded(decode(line) for line in log.splitlines()))


def search(arguments: dict[str, Any]) -> list[str]:
    return [f"all about {arguments['query']}"]


@pytest.mark.req("SDK-42", "SDK-44", "SDK-45")
def test_a_scripted_model_streams_up_to_its_result(stock: StockClient, up: Storage) -> None:
    events = checked(stock.execute("research-assistant", {"TOPIC": "tides"}, {"web-search": search}))
    types = {event["type"] for event in events}
    assert types >= {
        "worker-start",
        "block-start",
        "text-delta",
        "reasoning-delta",
        "tool-input-delta",
        "worker-result",
    }
    (available,) = only(events, "tool-input-available")
    assert available["input"] == {"query": "tides"}
    assert len(only(events, "tool-output-available")) == 1
    assert events[-1]["finishReason"] == "stop"
    assert ours(events, "usage")
    again = replayed(up, events[0]["executionId"])
    assert only(again, "tool-input-available") == [available]
    assert only(again, "worker-result") == only(events, "worker-result")


INPUTS: list[dict[str, Any]] = [
    {"word": 'a "b" \\ \n é 😀'},
    {"word": "", "more": [1, -2.5, None, {"x": {}}]},
    {},
]


@pytest.mark.req("SDK-42", "SDK-44", "SDK-45")
@pytest.mark.parametrize("provider", MODELS)
def test_the_text_and_calls_of_each_model_are_streamed(
    stock: StockClient, up: Storage, model_server: ModelServer, provider: str
) -> None:
    calls = [ToolUse(name="look-up", id=f"call_{n}", input=arguments) for n, arguments in enumerate(INPUTS)]
    noted = ToolUse(name="log_question", id="noted", input={"question": "Why?"})
    model_server.say(
        Turn(say=[Thinking(thinking="Hm, let me see."), Text(text="I look up."), *calls, noted], chunk=3, pause=0.002),
        Turn(say=[Text(text="Found ☃.")], chunk=3),
    )
    arguments: list[Any] = []

    def look_up(args: dict[str, Any]) -> str | None:
        arguments.append(args)
        if "more" in args:
            raise ValueError("no such word")
        return args.get("word")

    events = checked(stock.execute(f"talks-{provider}", {}, {"look-up": look_up}))
    assert only(events, "error") == []
    assert arguments == INPUTS
    streamed = {event["toolCallId"]: event["input"] for event in only(events, "tool-input-available")}
    assert list(streamed.values()) == [*INPUTS, noted.input]
    outputs = {event["toolCallId"]: event["type"] for event in events if event["type"].startswith("tool-output")}
    kinds = ["tool-output-available", "tool-output-error", "tool-output-available", "tool-output-available"]
    assert [outputs[call_id] for call_id in streamed] == kinds
    assert ours(events, "question")[0]["question"] == "Why?"
    assert only(events, "worker-result")[0]["output"] == "Found ☃."
    again = replayed(up, events[0]["executionId"])
    assert {event["toolCallId"]: event["input"] for event in only(again, "tool-input-available")} == streamed
    assert len(only(again, "tool-output-available")) == 3


@pytest.mark.req("SDK-43")
@pytest.mark.parametrize(
    ("status", "error_type"),
    [
        (400, "provider_error"),
        (401, "authentication_error"),
        (500, "provider_error"),
        (529, "provider_overloaded"),
    ],
)
def test_a_provider_that_fails_is_an_error_of_a_known_type(
    stock: StockClient, model_server: ModelServer, status: int, error_type: str
) -> None:
    model_server.say(Turn(fail=Failure(status=status), times=0))
    *_, error, result, finish = checked(stock.execute("talks-anthropic"))
    assert (error["type"], error["errorType"], error["source"]) == ("error", error_type, "provider")
    assert result["error"] == error["message"]
    assert finish["finishReason"] == "error"


def test_a_rate_limit_is_waited_for_with_a_notice(stock: StockClient, model_server: ModelServer) -> None:
    limited = Failure(status=429, type="rate_limit_error", headers={"retry-after": "1"})
    model_server.say(Turn(fail=limited), Turn(say=[Text(text="Now.")]))
    events = checked(stock.execute("talks-anthropic"))
    assert [notice["kind"] for notice in ours(events, "notice")] == ["limit"]
    assert only(events, "worker-result")[0]["output"] == "Now."


# Results


@pytest.mark.req("SDK-45")
def test_a_result_is_streamed_once_whether_a_handler_or_the_caller_executes_the_call(
    stock: StockClient, up: Storage
) -> None:
    handled = checked(stock.execute("looks-up", {}, {"look-up": lambda args: args["word"] + "!"}))
    assert [event["output"] for event in only(handled, "tool-output-available")] == ["moon!", "moon!!"]
    assert only(handled, "worker-result")[0]["output"] == {"one": "moon!", "two": "moon!!"}

    first = stock.execute("looks-up")
    request, finish = first[-2:]
    assert (request["type"], finish["finishReason"]) == ("client-tool-request", "client-tool-calls")
    run_id = request["executionId"]
    (call,) = request["toolCalls"]
    result = {"toolCallId": call["toolCallId"], "toolName": "look-up", "result": "stone"}
    rest = stock.continue_execution("looks-up", run_id, [result], {"look-up": lambda _: "cheese"})
    streamed = [event["output"] for event in only(checked([*first, *rest]), "tool-output-available")]
    assert streamed == ["stone", "cheese"]
    assert len(only(replayed(up, run_id), "tool-output-available")) == 2


@pytest.mark.req("SDK-45")
def test_results_of_handlers_and_of_the_client_are_each_streamed_once(stock: StockClient) -> None:
    first = stock.execute("both", {}, {"look-up": lambda _: "bright"})
    request = first[-2]
    (call,) = request["toolCalls"]
    results = [*request["serverToolResults"], {"toolCallId": call["toolCallId"], "result": "page"}]
    rest = stock.continue_execution("both", request["executionId"], results)
    streamed = [event["output"] for event in only(checked([*first, *rest]), "tool-output-available")]
    assert streamed == ["bright", "page"]
    assert rest[-1]["finishReason"] == "stop"


RESULTS: list[tuple[dict[str, Any], Any, str | None]] = [
    ({}, None, None),
    ({"result": None}, None, None),
    ({"error": None}, None, None),
    ({"result": 0, "error": None}, 0, None),
    ({"result": 1, "error": "no"}, None, "no"),
    ({"error": ""}, None, "the tool failed without a reason"),
    ({"error": "x" * 200_000}, None, "x" * 200_000),
    ({"result": 1, "hologram": {"a": 1}}, 1, None),
    (
        {
            "toolName": "look-up",
            "result": 1,
            "files": [{"id": "f", "mediaType": "image/png", "url": "u", "filename": "f.png", "size": 3}],
            "outputVariable": "ONE",
            "thread": "main",
            "workerId": "w",
        },
        1,
        None,
    ),
]


@pytest.mark.req("SDK-46")
@pytest.mark.parametrize(("more", "output", "error"), RESULTS, ids=lambda one: str(one)[:40])
def test_a_result_is_accepted_with_the_extra_fields_of_an_sdk(
    stock: StockClient, more: dict[str, Any], output: Any, error: str | None
) -> None:
    request = stock.execute("looks-up")[-2]
    (call,) = request["toolCalls"]
    rest = stock.continue_execution("looks-up", request["executionId"], [{"toolCallId": call["toolCallId"], **more}])
    streamed = next(event for event in rest if event["type"].startswith("tool-output"))
    assert (streamed.get("output"), streamed.get("error")) == (output, error)


@pytest.mark.req("SDK-46")
@pytest.mark.parametrize("version", VOCABULARY["requests"]["start"], ids=lambda version: version["since"])
def test_a_start_is_accepted_with_the_fields_of_each_version(stock: StockClient, version: dict[str, Any]) -> None:
    schema = {"name": "t", "description": "d", "inputSchema": {"type": "object"}, "outputSchema": {}}
    more = {name: [schema] for name in version["fields"] if name not in ("type", "input")}
    events = checked(stock.execute("child", {}, None, **more))
    assert only(events, "worker-result")[0]["output"] == {"a": [1, None]}


# Other ends


def test_steps_and_sub_runs_are_streamed(stock: StockClient) -> None:
    events = checked(stock.execute("parent"))
    assert [event["blockName"] for event in only(events, "block-start")][:2] == ["Print", "Call"]
    assert all(event["display"] == "name" for event in only(events, "block-start"))
    assert only(events, "worker-result")[0]["output"] == {"a": [1, None]}


def test_a_failed_step_and_an_error_defined_by_a_worker_are_streamed(stock: StockClient) -> None:
    (error,) = only(checked(stock.execute("fails")), "error")
    assert (error["errorType"], error["code"], error["source"]) == ("execution_error", "execution_error", "platform")
    (error,) = only(checked(stock.execute("raises")), "error")
    assert (error["errorType"], error["message"], error["hint"]) == ("execution_error", "it is odd", "make it even")
    assert error["code"] == "my_own"


def test_a_worker_without_output_succeeds(stock: StockClient) -> None:
    *_, result, finish = checked(stock.execute("gives-nothing"))
    assert (result["type"], result.get("error"), finish["finishReason"]) == ("worker-result", None, "stop")


def test_a_question_ends_the_stream_with_a_reason_that_the_client_accepts(
    stock: StockClient, http: httpx.Client
) -> None:
    events = checked(stock.execute("asks"))
    assert (events[-1]["finishReason"], events[-1]["reason"]) == ("other", "question")
    noted, question = ours(events, "question")
    assert (noted["question"], question["question"], question["options"]) == (
        "Is this noted?",
        "Which one?",
        ["a", "b"],
    )
    run_id = events[0]["executionId"]
    rest = checked(stock.continue_execution("asks", run_id, [{"toolCallId": question["callId"], "result": "b"}]))
    assert only(rest, "worker-result")[0]["output"] == "b"


def test_a_cancelled_run_ends_with_a_reason_that_the_client_accepts(stock: StockClient, http: httpx.Client) -> None:
    def cancel() -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            found = http.get("/api/agents/workers", params={"agent_id": "sleeps", "status": "running"}).json()[
                "workers"
            ]
            if found:
                http.post(f"/api/runs/{found[0]['id']}/cancel", json={"reason": "enough"})
                return
            time.sleep(0.05)

    canceller = threading.Thread(target=cancel)
    canceller.start()
    events = checked(stock.execute("sleeps"))
    canceller.join()
    assert events[-2]["error"] == "enough"
    assert (events[-1]["finishReason"], events[-1]["reason"]) == ("other", "cancelled")


@pytest.mark.req("SDK-41")
@pytest.mark.parametrize(
    ("slug", "body", "error_type", "message_part"),
    [
        ("nobody", {"type": "start", "input": {}}, "not_found_error", "nobody"),
        ("needs-input", {"type": "start", "input": {}}, "validation_error", "NAME"),
        ("child", {"type": "start", "input": {"X": 1}}, "validation_error", "X"),
        ("unreadable", {"type": "start", "input": {}}, "unknown_error", "steps"),
        ("child", {"type": "begin"}, "validation_error", "begin"),
    ],
)
def test_a_refusal_reaches_the_client_with_its_reason(
    stock: StockClient, slug: str, body: Wire, error_type: str, message_part: str
) -> None:
    (error,) = stock.posted(slug, body)
    assert error["errorType"] == error_type
    assert message_part in error["message"]
