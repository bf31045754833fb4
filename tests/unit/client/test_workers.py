"""Executing workers over HTTP, against a server that sends scripted responses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import anyio
import msgspec
import pytest
from tests.sample_events import RUN_ID
from tests.timeouts import TIMEOUT_SECONDS
from tests.unit.client.scripted_server import Answer, ScriptedServer, as_json, log_sse, scripted_server, sse
from tests.unit.views.test_stream import (
    STARTED,
    STEP,
    STEP_ENDED,
    call,
    delta,
    log,
    message,
    result,
    text,
    use,
)
from tests.unit.views.test_stream import (
    stream_events as told,
)

from shopfloor.client import (
    CallResult,
    Client,
    ClientToolRequest,
    Question,
    RequestedCall,
    StreamEvent,
    UnknownEvent,
    WorkerResult,
    resumable_stream,
)
from shopfloor.client.transport import ConnectError
from shopfloor.errors import (
    ExecutionCancelled,
    InvalidInput,
    ProviderError,
    RateLimited,
    RunFailed,
    RunNotFound,
    ServerUnreachable,
    StepFailed,
    ToolFailed,
    WorkerNotFound,
)
from shopfloor.log import RunCompleted

START = {"type": "start", "executionId": RUN_ID}
WORKER = {"type": "worker-start", "workerId": RUN_ID, "workerSlug": "hello", "description": "Says hello."}
RESULT = {"type": "worker-result", "workerId": RUN_ID, "output": 42}
STOP = {"type": "finish", "finishReason": "stop", "reason": "stop"}
CALLS = {"type": "finish", "finishReason": "tool-calls", "reason": "tool-calls"}
DONE = "[DONE]"
ENDED = RunCompleted(name="hello", kind="worker", status="completed", result=42)

Test = Callable[[ScriptedServer, Client], Awaitable[None]]


def play(test: Test) -> None:
    async def main() -> None:
        with anyio.fail_after(TIMEOUT_SECONDS):
            async with scripted_server() as (server, client):
                await test(server, client)

    anyio.run(main)


def requested(*calls: tuple[str, str]) -> dict[str, Any]:
    requests = [
        {"toolCallId": call_id, "toolName": name, "args": {"q": call_id}, "blockIndex": place}
        for place, (call_id, name) in enumerate(calls)
    ]
    return {"type": "tool-request", "toolCalls": requests}


def text_of(*pieces: str, name: str = "m:0") -> list[dict[str, Any]]:
    deltas = [{"type": "text-delta", "id": name, "delta": piece} for piece in pieces]
    return [{"type": "text-start", "id": name}, *deltas, {"type": "text-end", "id": name}]


async def all_of(events: Any) -> list[dict[str, Any]]:
    return [plain(event) async for event in events]


def plain(event: StreamEvent | UnknownEvent) -> dict[str, Any]:
    """Return the event as it is on the wire, without its `seq`."""
    return event.data if isinstance(event, UnknownEvent) else msgspec.to_builtins(msgspec.structs.replace(event, seq=0))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconnect soon: most of these tests break a connection."""
    monkeypatch.setattr(resumable_stream, "RECONNECT_PAUSE_SECONDS", 0.01)


# Reading


@pytest.mark.req("SDK-1", "SDK-2", "SDK-12")
def test_the_events_of_a_worker_are_independent_of_chunks() -> None:
    events = [START, WORKER, *text_of("Grüße 😀", "\u2028!"), {"type": "new", "x": 1}, RESULT, STOP]
    body = b": heartbeat\n\n" + sse(*events, DONE, seq=9)

    async def test(server: ScriptedServer, client: Client) -> None:
        for parts in ([body], [body[n : n + 7] for n in range(0, len(body), 7)], [body.replace(b"\n", b"\r\n")]):
            server.executions = [Answer(parts)]
            assert await all_of(client.workers.execute("he llo", {"NAME": "Ada"}, owner="me", cwd="/tmp")) == events
        assert server.bodies("/execute")[0] == {"type": "start", "input": {"NAME": "Ada"}, "owner": "me", "cwd": "/tmp"}
        assert server.requests[0].path == "/api/agents/he llo/execute"

    play(test)


@pytest.mark.req("SDK-3")
def test_events_arrive_during_the_run() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        go_on = anyio.Event()
        server.executions = [Answer([sse(START, WORKER), go_on, sse(RESULT, STOP, DONE)])]
        async with aclosing(client.workers.execute("hello")) as events:
            assert [plain(await anext(events)) for _ in range(2)] == [START, WORKER]
            go_on.set()
            assert await all_of(events) == [RESULT, STOP]

    play(test)


# Tools


@pytest.mark.req("SDK-5", "SDK-6")
def test_handlers_are_called_concurrently_and_the_stream_continues() -> None:
    both = threading.Barrier(2)

    def search(args: dict[str, Any]) -> Any:
        both.wait(timeout=TIMEOUT_SECONDS)
        return {"found": args["q"]}

    async def fetch(args: dict[str, Any]) -> Any:
        await anyio.to_thread.run_sync(both.wait, 10)
        msg = "no net"
        raise OSError(msg)

    async def test(server: ScriptedServer, client: Client) -> None:
        requests = requested(("c1", "search"), ("c2", "fetch"), ("c3", "odd"), ("c4", "none"))
        server.executions = [
            Answer([sse(START, WORKER, requests, CALLS, DONE, seq=4)]),
            Answer([sse(START, RESULT, STOP, DONE, seq=9)]),
        ]
        tools = {"search": search, "fetch": fetch, "odd": lambda args: object(), "none": lambda args: None}
        assert await all_of(client.workers.execute("hello", tools=tools)) == [START, WORKER, requests, RESULT, STOP]
        body = server.bodies("/execute")[1]
        assert body["type"] == "continue"
        assert body["executionId"] == RUN_ID
        first, second, third, fourth = body["toolResults"]
        assert first == {"toolCallId": "c1", "toolName": "search", "result": {"found": "c1"}}
        assert second == {"toolCallId": "c2", "toolName": "fetch", "error": "no net"}
        assert third["error"].startswith("the handler of 'odd' returned a value that cannot be sent as JSON")
        assert fourth == {"toolCallId": "c4", "toolName": "none", "result": None}

    play(test)


@pytest.mark.req("SDK-7", "SDK-8", "SDK-9", "SDK-10", "SDK-11")
def test_a_call_without_a_handler_is_passed_to_the_caller_who_may_continue_later() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        server.executions = [
            Answer([sse(START, requested(("c1", "search"), ("c2", "mine")), CALLS, DONE, seq=4)]),
            Answer([sse(START, requested(("c2", "mine")), CALLS, DONE, seq=5)]),
            Answer([sse(START, requested(("c3", "search")), CALLS, DONE)]),
            Answer([sse(START, RESULT, STOP, DONE)]),
        ]
        tools = {"search": lambda args: 1}
        async for event in client.workers.execute("hello", tools=tools):
            if isinstance(event, ClientToolRequest):
                break
        else:
            pytest.fail("the handler must not be called")
        assert plain(event) == {
            "type": "client-tool-request",
            "executionId": RUN_ID,
            "toolCalls": [{"toolCallId": "c2", "toolName": "mine", "args": {"q": "c2"}, "blockIndex": 0}],
        }
        results = [CallResult(tool_call_id="c2", result="mine")]
        rest = await all_of(client.workers.continue_("hello", event.execution_id, results, tools=tools))
        assert [item["type"] for item in rest] == ["start", "tool-request", "worker-result", "finish"]
        sent = [item["toolResults"] for item in server.bodies("/execute")[1:]]
        assert [[item["toolCallId"] for item in results] for results in sent] == [["c1"], ["c2"], ["c3"]]
        assert server.bodies("/cancel") == []

    play(test)


def test_a_stream_ends_after_a_request_without_a_handler() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        server.executions = [Answer([sse(START, requested(("c1", "mine")), CALLS, DONE)])]
        events = await all_of(client.workers.execute("hello"))
        assert [item["type"] for item in events] == ["start", "tool-request", "client-tool-request", "finish"]
        assert server.bodies("/cancel") == []

    play(test)


def test_results_may_be_plain_dicts_with_the_names_of_the_wire() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        server.executions = [Answer([sse(START, RESULT, STOP, DONE)])]
        await all_of(client.workers.continue_("hello", RUN_ID, [{"toolCallId": "c", "error": "no"}]))
        assert server.bodies("/execute")[0]["toolResults"] == [{"toolCallId": "c", "error": "no"}]
        with pytest.raises(InvalidInput):
            client.workers.continue_("hello", RUN_ID, [{"call": "c"}])

    play(test)


# Closing the stream


@pytest.mark.req("SDK-25")
def test_closing_the_stream_early_cancels_the_run() -> None:
    async def leave(client: Client) -> None:
        async for _ in client.workers.execute("hello"):
            break

    async def close(client: Client) -> None:
        events = client.workers.execute("hello")
        await anext(events)
        await events.aclose()

    async def scope(client: Client) -> None:
        with anyio.move_on_after(0.3):
            await all_of(client.workers.execute("hello"))

    async def task(client: Client) -> None:
        task = asyncio.ensure_future(all_of(client.workers.execute("hello")))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for way in (leave, close, scope, task):

        async def test(server: ScriptedServer, client: Client, way: Any = way) -> None:
            server.executions = [Answer([sse(START, WORKER), anyio.Event()])]
            await way(client)
            await server.cancelled.wait()
            await server.client_gone.wait()
            assert server.bodies("/cancel") == [{"reason": "its caller stopped reading"}]

        play(test)


def test_closing_the_stream_of_a_detached_or_ended_run_does_not_cancel_it() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        asks = {"type": "question", "executionId": RUN_ID, "callId": "q", "question": "?", "waits": True}
        for events, detach, until in (
            ([START, WORKER], True, StreamEvent),
            ([START, RESULT], False, WorkerResult),
            ([START, asks], False, Question),
        ):
            server.executions = [Answer([sse(*events), anyio.Event()])]
            async with aclosing(client.workers.execute("hello", detach=detach)) as stream:
                async for event in stream:
                    if isinstance(event, until) and len(events) == 2 and plain(event) == events[1]:
                        break
        await anyio.sleep(0.1)
        assert server.bodies("/cancel") == []
        assert [body.get("detach") for body in server.bodies("/execute")] == [True, None, None]

    play(test)


@pytest.mark.req("SDK-5", "SDK-25", "SDK-26")
@pytest.mark.parametrize("kind", [anyio.Event, asyncio.Event])
def test_a_signal_cancels_the_run_and_raises_execution_cancelled(kind: Any) -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        signal = kind()
        server.executions = [Answer([sse(START, WORKER), anyio.Event()])]
        got: list[Any] = []

        async def read() -> None:
            async for event in client.workers.execute("hello", signal=signal, detach=True):
                got.append(plain(event))

        async def consume() -> None:
            with pytest.raises(ExecutionCancelled):
                await read()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume)
            await anyio.sleep(0.2)
            assert got == [START, WORKER]
            signal.set()
        assert len(server.bodies("/cancel")) == 1
        with pytest.raises(ExecutionCancelled):
            await client.workers.generate("hello", signal=signal)
        assert len(server.bodies("/execute")) == 1

    play(test)


def test_a_signal_that_is_never_set_changes_nothing() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        server.executions = [Answer([sse(START, WORKER, RESULT, STOP, DONE)])]
        assert await all_of(client.workers.execute("hello", signal=anyio.Event())) == [START, WORKER, RESULT, STOP]
        with pytest.raises(ServerUnreachable):
            await all_of(Client("http://127.0.0.1:9", "k").workers.execute("hello", signal=anyio.Event()))

    play(test)


# Disconnects


@pytest.mark.parametrize("checkpoint", [None, 1, 2, 3])
@pytest.mark.parametrize("keeps", range(14))
def test_a_stream_that_breaks_anywhere_continues_without_gaps_or_repeats(keeps: int, checkpoint: int | None) -> None:
    """The server sends the log in batches; the connection breaks after any number of events after the last `id`."""
    steps = [message(text("Hello 😀"), use("c1")), call("c1"), result("c1"), STEP_ENDED, ENDED]
    events = log(STARTED, STEP, *steps)
    batches = [told(*events[:n])[1] for n in range(len(events) + 1)]
    whole = [START, *batches[-1]]
    known = 1 + len(batches[checkpoint or 0])
    ids = b"" if checkpoint is None else b"id: %d\n\n" % checkpoint
    beyond = whole[known : known + keeps]

    async def test(server: ScriptedServer, client: Client) -> None:
        server.events = events
        server.executions = [Answer([sse(*whole[:known]) + ids + sse(*beyond), b'data: {"type":"te', "cut"])]
        server.streams = [Answer([log_sse(*events[checkpoint or 0 :]) + b"event: end\ndata: {}\n\n"])]
        assert await all_of(client.workers.execute("hello")) == whole

    play(test)


def test_a_text_that_broke_off_is_completed_once() -> None:
    events = log(STARTED, STEP, message(text("Hello there")), STEP_ENDED, ENDED)
    partial = [{"type": "text-start", "id": "m:0"}, {"type": "text-delta", "id": "m:0", "delta": "Hel"}]
    block = {"type": "block-start", "blockId": "say", "blockName": "Say", "blockType": "next-message"}

    async def test(server: ScriptedServer, client: Client) -> None:
        server.events = events
        server.executions = [Answer([sse(START, WORKER, block, seq=2) + sse(*partial), "cut"])]
        typed = b"event: delta\ndata: %b\n\n" % msgspec.json.encode(delta("lo", 3))
        server.streams = [
            Answer([typed, "cut"]),
            Answer([log_sse(*events[2:3]), "cut"]),
            Answer([log_sse(*events[3:]), b"event: end\ndata: {}\n\n"]),
        ]
        got = await all_of(client.workers.execute("hello"))
        assert [item["delta"] for item in got if item["type"] == "text-delta"] == ["Hel", "lo", " there"]
        assert [item["type"] for item in got].count("text-start") == 1
        assert got[-2:] == [RESULT, STOP]
        rest = [(item.method, item.path.rpartition("/")[2], item.query) for item in server.requests[1:]]
        attached = [item for item in rest if item[1] != "log"]
        assert attached == [("POST", "attach", f"after={seq}") for seq in (2, 2, 3)]

    play(test)


@pytest.mark.req("SDK-44")
def test_an_input_that_broke_off_is_completed_once() -> None:
    events = log(STARTED, STEP, message(use("c1", given={"q": [1, 2]})), call("c1"), result("c1"), STEP_ENDED, ENDED)
    partial = [
        {"type": "tool-input-start", "toolCallId": "c1", "toolName": "search"},
        {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": '{"q":'},
    ]

    async def test(server: ScriptedServer, client: Client) -> None:
        server.events = events
        server.executions = [Answer([sse(START, WORKER, seq=2) + sse(*partial), "cut"])]
        named: dict[str, Any] = {"kind": "tool_input", "tool_id": "c1", "tool_name": "search"}
        typed = b"event: delta\ndata: %b\n\n" % msgspec.json.encode(delta("[1,", 5, **named))
        server.streams = [Answer([typed, log_sse(*events[2:]), b"event: end\ndata: {}\n\n"])]
        got = await all_of(client.workers.execute("hello"))
        told = [item for item in got if item["type"].startswith("tool-")]
        assert [item["type"] for item in told] == [
            "tool-input-start",
            "tool-input-delta",
            "tool-input-delta",
            "tool-input-available",
            "tool-output-available",
        ]
        assert "".join(item.get("inputTextDelta", "") for item in told) == '{"q":[1,2]}'

    play(test)


def test_a_disconnect_during_continue_is_recovered_from_the_log() -> None:
    calls = [call("c1", given={"q": "c1"}, kind="client_tool", more=1), call("c2", "mine", {"q": "c2"}, "client_tool")]
    events = log(STARTED, STEP, *calls, result("c1", 1))

    async def test(server: ScriptedServer, client: Client) -> None:
        server.events = events[:4]
        server.executions = [
            Answer([sse(START, WORKER, requested(("c1", "search"), ("c2", "mine")), CALLS, DONE, seq=4)]),
            Answer(["cut"]),
            Answer([sse(START), "cut"]),
        ]
        server.streams = [Answer([log_sse(events[4]), anyio.Event()])]
        got = await all_of(client.workers.execute("hello", tools={"search": lambda args: 1}))
        assert [item["type"] for item in got[3:]] == [
            "tool-output-available",
            "tool-request",
            "client-tool-request",
            "finish",
        ]
        assert [item["toolCallId"] for item in got[-2]["toolCalls"]] == ["c2"]
        # The results were sent again, since the client cannot know whether they had arrived.
        assert server.bodies("/execute")[1] == server.bodies("/execute")[2]

    play(test)


def test_continuing_by_id_alone_survives_a_disconnect() -> None:
    events = log(STARTED, STEP, call("c1", kind="client_tool"), result("c1", 1), STEP_ENDED, ENDED)

    async def test(server: ScriptedServer, client: Client) -> None:
        server.events = events
        server.executions = [Answer([sse(START), "cut"])]
        server.streams = [Answer([log_sse(*events[3:]), b"event: end\ndata: {}\n\n"])]
        got = await all_of(client.workers.continue_("hello", RUN_ID, [CallResult(tool_call_id="c1", result=1)]))
        assert [item["type"] for item in got] == [
            "start",
            "tool-output-available",
            "block-end",
            "worker-result",
            "finish",
        ]

    play(test)


def test_a_start_is_retried_only_with_an_idempotency_key() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        server.executions = [Answer(["cut"])]
        with pytest.raises(ServerUnreachable):
            await all_of(client.workers.execute("hello"))
        server.executions = [Answer(["cut"]), Answer([sse(START, RESULT, STOP, DONE)])]
        assert await all_of(client.workers.execute("hello", idempotency_key="k")) == [START, RESULT, STOP]
        assert [body.get("idempotencyKey") for body in server.bodies("/execute")] == [None, "k", "k"]

    play(test)


def test_a_log_that_ends_without_an_outcome_is_an_error() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        server.executions = [Answer([sse(START), "cut"])]
        server.streams = [Answer([log_sse(*log(STARTED)), b"event: end\ndata: {}\n\n"])]
        got = await all_of(client.workers.execute("hello"))
        assert [(item["type"], item.get("code")) for item in got[2:]] == [
            ("error", "outcome_unknown"),
            ("finish", None),
        ]

    play(test)


# Errors


@pytest.mark.req("SDK-27", "SDK-29", "SDK-30")
@pytest.mark.parametrize(
    ("code", "status", "error"), [("validation_error", 400, InvalidInput), ("not_found_error", 404, WorkerNotFound)]
)
def test_a_refusal_is_an_error_event_and_raised_by_generate(code: str, status: int, error: type[Exception]) -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        refused = {
            "type": "error",
            "message": "no",
            "errorType": code,
            "source": "platform",
            "code": code,
            "retryable": False,
            "hint": "look",
        }
        flat = {"error": "no", "code": code, "hint": "look"}
        for body in (flat, {"error": {"code": code, "message": "no", "hint": "look"}}):
            answer = as_json(body, status)
            server.executions = [answer, answer]
            assert await all_of(client.workers.execute("hello")) == [refused]
            with pytest.raises(error, match="no"):
                await client.workers.generate("hello")
        assert server.bodies("/cancel") == []

    play(test)


@pytest.mark.req("SDK-22", "SDK-23", "SDK-31", "SDK-32", "SDK-33")
def test_generate_returns_the_output_or_raises_the_error() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        server.executions = [Answer([sse(START, RESULT, STOP, DONE)]), Answer([sse(START, STOP, DONE)])]
        assert await client.workers.generate("hello", {}) == 42
        assert await client.workers.generate("hello") is None
        for code, kind in (
            ("provider_error", ProviderError),
            ("rate_limit_error", RateLimited),
            ("tool_error", ToolFailed),
            ("execution_error", StepFailed),
            ("command_failed", RunFailed),
        ):
            known = {"errorType": "execution_error", "source": "platform", "code": code}
            failed = {"type": "error", "message": "it broke", "retryAfter": 3.0, **known}
            ending = {"type": "worker-result", "workerId": RUN_ID, "error": "it broke"}
            server.executions = [
                Answer(
                    [sse(START, failed, ending, {"type": "finish", "finishReason": "error", "reason": "error"}, DONE)]
                )
            ]
            with pytest.raises(RunFailed, match="it broke") as raised:
                await client.workers.generate("hello")
            assert type(raised.value) is kind
            assert raised.value.retry_after == 3.0

    play(test)


def test_generate_raises_if_the_run_was_cancelled_or_waits() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        ending = {"type": "worker-result", "workerId": RUN_ID, "error": "enough"}
        server.executions = [
            Answer([sse(START, ending, {"type": "finish", "finishReason": "other", "reason": "cancelled"}, DONE)]),
            Answer([sse(START, {"type": "finish", "finishReason": "other", "reason": "question"}, DONE)]),
        ]
        with pytest.raises(ExecutionCancelled, match="enough"):
            await client.workers.generate("hello")
        with pytest.raises(RunFailed, match="waits for a person"):
            await client.workers.generate("hello")
        assert server.bodies("/cancel") == []
        server.executions = [Answer([sse(START, requested(("c1", "mine")), CALLS, DONE)])]
        with pytest.raises(ToolFailed, match="mine"):
            await client.workers.generate("hello")
        assert len(server.bodies("/cancel")) == 1

    play(test)


def test_a_server_that_is_not_shopfloor_is_unreachable() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        for answer in (Answer([b"<html>"], 502, "text/html"), Answer([b"hi"], 200, "text/plain"), Answer([sse("[1]")])):
            server.executions = [answer]
            with pytest.raises(ServerUnreachable):
                await all_of(client.workers.execute("hello"))
        async with Client("http://127.0.0.1:9", "k") as unreachable:
            with pytest.raises(ServerUnreachable) as raised:
                await all_of(unreachable.workers.execute("hello", idempotency_key="k"))
            assert isinstance(raised.value.__cause__, ConnectError)

    play(test)


# Runs of other clients


def test_a_run_is_followed_from_its_queue_to_its_end() -> None:
    events = log(STARTED, STEP, message(text("Hello")), STEP_ENDED, ENDED)

    async def test(server: ScriptedServer, client: Client) -> None:
        missing = as_json({"error": {"code": "run_not_found", "message": "no log"}}, 404)
        server.row = {"status": "queued"}
        server.events = events
        # The third stream skips an event, which is then read from the log.
        server.streams = [missing, Answer([log_sse(events[0]), "cut"]), Answer([log_sse(*events[2:])])]
        run_id = await client.workers.dispatch("hello", {"A": 1}, idempotency_key="k")
        got = await all_of(client.workers.stream(run_id))
        assert [item["type"] for item in got] == [
            *("start", "worker-start", "block-start", "text-start", "text-delta", "text-end"),
            *("block-end", "worker-result", "finish"),
        ]
        assert server.bodies("/runs") == [{"worker": "hello", "input": {"A": 1}, "idempotency_key": "k"}]
        server.streams = [Answer([log_sse(*events[3:])])]
        got = await all_of(client.workers.stream(run_id, after=3))
        assert [item["type"] for item in got] == ["start", "block-end", "worker-result", "finish"]
        server.row, server.streams = {"status": "done"}, [missing]
        with pytest.raises(RunNotFound):
            await all_of(client.workers.stream(run_id))

    play(test)


def test_a_truncated_log_is_streamed_from_its_new_end() -> None:
    events = log(STARTED, STEP, message(text("Hello")))
    other = log(message(text("Hello again"), message_id="n"), ENDED, first=3)

    async def test(server: ScriptedServer, client: Client) -> None:
        server.events = [*events[:2], *other]
        reset = b'event: reset\ndata: {"last":2}\n\n'
        server.streams = [Answer([log_sse(*events), reset, log_sse(*other)])]
        got = await all_of(client.workers.stream(RUN_ID))
        assert [item["delta"] for item in got if item["type"] == "text-delta"] == ["Hello", "Hello again"]

    play(test)


def test_a_question_can_be_answered_and_a_run_cancelled() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        await client.workers.answer(RUN_ID, "q", {"yes": True})
        await client.workers.cancel(RUN_ID)
        assert server.bodies("/answer") == [{"call_id": "q", "answer": {"yes": True}}]
        assert server.bodies("/cancel") == [{}]

    play(test)


# Pausing


QUESTION = {"type": "question", "executionId": RUN_ID, "callId": "q", "question": "?", "waits": True}
QUESTION_CALL = call("q", name="ask", kind="question")
PAUSE = {"type": "finish", "finishReason": "other", "reason": "question"}


@pytest.mark.req("SDK-37")
@pytest.mark.parametrize("answers_at", ["question", "finish"])
@pytest.mark.parametrize("detach", [False, True])
def test_a_stream_that_paused_at_a_question_continues_once_it_is_answered(answers_at: str, detach: bool) -> None:
    events = log(STARTED, STEP, QUESTION_CALL, result("q", name="ask"), STEP_ENDED, ENDED)

    async def test(server: ScriptedServer, client: Client) -> None:
        server.events = events
        server.executions = [Answer([sse(START, WORKER, QUESTION, PAUSE, DONE, seq=3)])]
        server.streams = [Answer([log_sse(*events[3:]), b"event: end\ndata: {}\n\n"])]
        got: list[str] = []
        async for event in client.workers.execute("hello", detach=detach):
            got.append(event.type)
            if event.type == answers_at and len(got) < 5:
                await client.workers.answer(RUN_ID, "q", "yes")
        paused = ["finish"] if answers_at == "finish" else []
        rest = ["tool-output-available", "block-end", "worker-result", "finish"]
        assert got == ["start", "worker-start", "question", *paused, *rest]
        [follow] = [item for item in server.requests if item.path.endswith(("/stream", "/attach"))]
        assert follow.path.endswith("/stream" if detach else "/attach")
        assert server.bodies("/cancel") == []

    play(test)


@pytest.mark.req("SDK-37")
def test_a_stream_with_an_unanswered_question_ends_there() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        server.executions = [Answer([sse(START, WORKER, QUESTION, PAUSE, DONE, seq=3)])]
        types: list[str] = []
        async for event in client.workers.execute("hello"):
            types.append(event.type)
            if event.type == "question":
                # A call of another run: this run does not wait for it.
                await client.workers.answer(RUN_ID[:-1] + ("0" if RUN_ID[-1] != "0" else "1"), "q", "yes")
        assert types == ["start", "worker-start", "question", "finish"]

    play(test)


# Positions


@pytest.mark.req("SDK-38")
def test_every_event_has_the_seq_to_resume_the_stream_from() -> None:
    events = log(STARTED, STEP, message(text("Hello")), STEP_ENDED, ENDED)
    batches = [told(*events[:n])[1] for n in range(len(events) + 1)]

    async def test(server: ScriptedServer, client: Client) -> None:
        server.events = events
        frames = [sse(START), *(sse(*batches[n][len(batches[n - 1]) :], seq=n) for n in range(1, 3)), "cut"]
        server.executions = [Answer(frames)]
        server.streams = [Answer([log_sse(*events[2:]) + b"event: end\ndata: {}\n\n"])]
        got = [event async for event in client.workers.execute("hello")]
        assert [plain(event) for event in got] == [START, *batches[-1]]
        assert [event.seq for event in got] == sorted(event.seq for event in got)
        assert got[-1].seq == len(events)
        for n, event in enumerate(got):
            server.streams = [Answer([log_sse(*events[event.seq :]) + b"event: end\ndata: {}\n\n"])]
            first, *rest = [item async for item in client.workers.stream(RUN_ID, after=event.seq)]
            assert first.seq == event.seq
            # Nothing after the event is missing; events of the same log entry may be repeated.
            following = [plain(item) for item in got[n + 1 :]]
            assert [plain(item) for item in rest][len(rest) - len(following) :] == following

    play(test)


# Errors


@pytest.mark.req("SDK-39")
def test_errors_of_generate_have_the_run_id() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        failed = {
            "type": "error",
            "message": "no",
            "errorType": "execution_error",
            "source": "platform",
            "code": "execution_error",
            "retryable": False,
        }
        cancelled = {"type": "worker-result", "workerId": RUN_ID, "error": "cancelled"}
        for events, kind in (
            ([failed, {**RESULT, "output": None, "error": "no"}], StepFailed),
            ([cancelled], ExecutionCancelled),
            ([requested(("c", "mine")), CALLS], ToolFailed),
            ([QUESTION, PAUSE], RunFailed),
        ):
            server.executions = [Answer([sse(START, *events, DONE)])]
            with pytest.raises(kind) as raised:
                await client.workers.generate("hello")
            assert raised.value.run_id == RUN_ID
        server.executions = [Answer([sse(START), anyio.Event()])]
        signal = anyio.Event()

        async def give() -> None:
            await anyio.sleep(0.2)
            signal.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(give)
            with pytest.raises(ExecutionCancelled) as raised:
                await client.workers.generate("hello", signal=signal)
        assert raised.value.run_id == RUN_ID

    play(test)


@pytest.mark.req("SDK-39")
@pytest.mark.parametrize("run_id", [RUN_ID, "../x", "", RUN_ID.upper() + "A"])
def test_an_invalid_run_id_is_not_found_like_an_unknown_one(run_id: str) -> None:
    missing = as_json({"error": {"code": "run_not_found", "message": "there is no run"}}, 404)

    async def test(server: ScriptedServer, client: Client) -> None:
        server.refusal = missing
        server.streams = [missing]
        server.executions = [missing]
        requested_call = RequestedCall(tool_call_id="c", tool_name="t", args={})
        for ask in (
            lambda: client.workers.cancel(run_id),
            lambda: client.workers.answer(run_id, "q", 1),
            lambda: client.workers.execute_call(run_id, requested_call, {"t": lambda args: 1}),
            lambda: all_of(client.workers.stream(run_id)),
            lambda: all_of(client.workers.stream(run_id, after=3)),
        ):
            with pytest.raises(RunNotFound):
                await ask()
        [error] = await all_of(client.workers.continue_("hello", run_id, [CallResult(tool_call_id="c", result=1)]))
        assert (error["type"], error["errorType"], error["code"]) == ("error", "not_found_error", "run_not_found")

    play(test)
