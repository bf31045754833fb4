"""Two weeks of plausible runs: what the pictures of the documentation show."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from tests.browser.logs import call, tool_result

from shopfloor.log import (
    AssistantMessage,
    CallCompleted,
    CallStarted,
    Cost,
    FileChange,
    Line,
    Payload,
    RunCompleted,
    RunError,
    RunStarted,
    StepCompleted,
    StepStarted,
    TextBlock,
    ThinkingBlock,
    Usage,
    UserMessage,
    encode,
    format_timestamp,
    new_run_id,
)
from shopfloor.record import Storage

DAY_MS: Final = 86_400_000
DAYS: Final = 14
MODELS: Final = {
    "claude-code": "claude-sonnet-4-5",
    "codex": "gpt-5-codex",
    "gemini": "gemini-2.5-pro",
    "anthropic": "claude-opus-4-1",
}
TASKS: Final = (
    ("Write release notes for 2.8.0", "gemini", 12, 0.11),
    ("Explain the slow query in the monthly report", "claude-code", 41, 0.37),
    ("Triage crash reports of week 46", "codex", 60, 4.02),
    ("Translate the error messages into German", "gemini", 120, 0.03),
    ("Add a retry budget to the webhook sender", "claude-code", 130, 1.12),
    ("Bump the linter and fix its new findings", "codex", 180, 0.64),
    ("Split the billing module into packages", "claude-code", 300, 9.09),
    ("Draft the changelog for 2.7.4", "anthropic", 400, 0.58),
)
EARLIER_TASKS: Final = (
    *TASKS,
    ("Move invoices to the ledger table", "claude-code", 0, 6.4),
    ("Generate the Go client from openapi.json", "codex", 0, 2.2),
    ("Find the memory leak in the importer", "claude-code", 0, 5.1),
    ("Summarize the incident of Tuesday", "anthropic", 0, 0.9),
    ("Port the scheduler tests to the new clock", "codex", 0, 3.3),
    ("Check all links in the handbook", "gemini", 0, 0.4),
)
FAILURES: Final = (
    (
        "Port the CI cache to the new runner image",
        "codex",
        26,
        "command_failed",
        "exit code 1: cache key not found",
        2.35,
    ),
    ("Nightly dependency update", "codex", 38, "authentication_error", "codex is not logged in", None),
    ("Import the invoices of October", "claude-code", 900, "rate_limit_error", "429: try again in 12 minutes", 0.21),
)
PYTEST: Final = """\
_______________ test_resumes_after_half_open_socket _______________
>   assert events == list(range(1, 51))
E   AssertionError: assert [1, 2, 3, ..., 48, 50] == [1, 2, 3, ..., 49, 50]
tests/stream/test_reconnect.py:88: AssertionError
1 failed, 44 passed in 12.31s
"""
DIFF: Final = """\
--- a/src/stream/client.py
+++ b/src/stream/client.py
@@ -141,3 +141,6 @@
     async def _on_close(self, code: int) -> None:
-        self._cursor = self._acked
-        await self._reconnect()
+        # The reader may still hold one decoded event: drain it first.
+        async with self._drain_lock:
+            await self._reader.drain(timeout=2.0)
+            self._cursor = self._last_delivered
+        await self._reconnect(after=self._cursor)
"""
RESULT: Final = """\
The close path now waits for the reader, so the cursor can only move forward. All 100 repetitions pass.

- `src/stream/client.py`: drain the reader before the cursor is set back
- `tests/stream/test_reconnect.py`: a half-open socket, without a sleep
"""


class DemoRuns(msgspec.Struct, frozen=True):
    """Ids of the runs that pictures show."""

    repaired: str
    reviewed: str


def write_demo_runs(storage: Storage) -> DemoRuns:
    """Write the logs of two weeks."""
    storage.transcripts.mkdir(parents=True, exist_ok=True)
    now_ms = int(time.time() * 1000)
    choose = random.Random(46)
    for task, provider, minutes, cost in TASKS:
        _write(storage, now_ms - minutes * 60_000, _run(task, provider, _work(choose), cost=cost))
    for task, provider, minutes, code, message, cost in FAILURES:
        hint = "run `codex login`, then rerun" if code == "authentication_error" else msgspec.UNSET
        error = RunError(code=code, message=message, hint=hint)
        _write(storage, now_ms - minutes * 60_000, _run(task, provider, _work(choose), cost=cost, error=error))
    for day in range(1, DAYS):
        for _ in range(choose.randrange(2, 9)):
            task, provider, _, cost = choose.choice(EARLIER_TASKS)
            at_ms = now_ms - day * DAY_MS - choose.randrange(DAY_MS // 2)
            _write(storage, at_ms, _run(task, provider, _work(choose), cost=cost * choose.uniform(0.5, 4)))
    return DemoRuns(repaired=_write_repair(storage, now_ms - 9 * 60_000), reviewed=_write_review(storage, now_ms))


def _write(storage: Storage, at_ms: int, payloads: Iterable[Payload], **fields: Any) -> str:
    """Write a log that starts at this time. Events are 1.7 s apart; the result of a call follows its duration."""
    run_id, children = fields.pop("run_id", None) or new_run_id(), iter(fields.pop("children", ()))
    child, started_ms = None, at_ms
    with storage.log_path(run_id).open("wb") as file:
        for seq, payload in enumerate(payloads, 1):
            at_ms += getattr(payload, "duration_ms", None) or 1_700
            if isinstance(payload, RunCompleted):
                payload = msgspec.structs.replace(payload, duration_ms=at_ms - started_ms)  # noqa: PLW2901
            is_call = payload.event_type.startswith("step.call_workflow")
            if payload.event_type == CallStarted.event_type:
                child = next(children)
            line = Line(
                seq=seq,
                run_id=run_id,
                type=payload.event_type,
                path="" if payload.event_type.startswith("run.") else f"agent.{child}" if is_call else "agent",
                iteration=0,
                timestamp=format_timestamp(at_ms),
                payload=payload,
                **({"child_run_id": child} if is_call else {}),
                **fields,
            )
            file.write(encode(line) + b"\n")
    return run_id


def _run(
    task: str,
    provider: str,
    payloads: Iterable[Payload],
    *,
    cost: float | None,
    error: RunError | None = None,
    **more: Any,
) -> Iterator[Payload]:
    tokens = int((cost or 0.01) * 220_000)
    usage = Usage(input=tokens // 9, output=tokens // 40, cache_read=tokens)
    price = None if cost is None else Cost(usd=round(cost, 4), source="agent")
    yield RunStarted(
        name=provider,
        kind="agent",
        attempt=1,
        host="local-build-1",
        task=task,
        worker_type=provider,
        agent_id=provider,
        **more,
    )
    yield StepStarted(name="agent", kind="agent", try_=1)
    yield UserMessage(blocks=[TextBlock(fidelity="router", text=task)])
    for payload in payloads:
        yield (
            msgspec.structs.replace(payload, model=MODELS[provider])
            if isinstance(payload, AssistantMessage)
            else payload
        )
    yield StepCompleted(name="agent", kind="agent", try_=1, usage=usage, cost=price, error=error and error.message)
    result = None if error is not None else RESULT
    status = "completed" if error is None else "failed"
    yield RunCompleted(name=provider, kind="agent", status=status, result=result, usage=usage, cost=price, error=error)


def _say(text: str) -> AssistantMessage:
    return AssistantMessage(message_id=new_run_id(), blocks=[TextBlock(fidelity="agent_emitted", text=text)])


def _think(text: str) -> AssistantMessage:
    return AssistantMessage(message_id=new_run_id(), blocks=[ThinkingBlock(fidelity="agent_emitted", thinking=text)])


def _use(
    name: str, output: str, duration_ms: int, *, fields: dict[str, Any] | None = None, **arguments: Any
) -> Sequence[Payload]:
    call_id = new_run_id()
    return (
        call(name, call_id, **arguments),
        tool_result(name, call_id, output, duration_ms=duration_ms, **(fields or {})),
    )


def _work(choose: random.Random) -> Iterator[Payload]:
    """Yield a few calls of tools."""
    for number in range(choose.randrange(2, 9)):
        name, argument = choose.choice(
            (("Bash", "command"), ("Read", "file_path"), ("Grep", "pattern"), ("Edit", "file_path"))
        )
        failed = {"error": "exit code 1", "exit_code": 1} if name == "Bash" and choose.random() < 0.12 else {}
        yield from _use(name, "done", choose.randrange(60, 9_000), fields=failed, **{argument: f"part-{number}"})
    yield _say(RESULT)


def _todo(done: int) -> Sequence[Payload]:
    names = (
        "Find where the cursor is set back",
        "Drain the reader before reconnecting",
        "Cover a half-open socket with a test",
    )
    states = ("completed",) * done + ("in_progress",) + ("pending",) * 3
    return _use("TodoWrite", "ok", 20, todos=[{"content": n, "status": s} for n, s in zip(names, states, strict=False)])


def _write_repair(storage: Storage, at_ms: int) -> str:
    child, task = new_run_id(), "Fix the flaky reconnect test in the event stream"
    command = {"command": "pytest -q tests/stream --count 20 -x"}
    change = FileChange(path="src/stream/client.py", action="modify", lines_added=5, lines_removed=2, diff=DIFF)
    edit = {"file_path": "src/stream/client.py", "old_string": "self._cursor = self._acked", "new_string": "…"}
    found = "3 callers. Only `client.py:143` moves the cursor before the reader is drained."
    payloads = (
        *_use("Grep", "src/stream/client.py:143\nsrc/stream/reader.py:61", 110, pattern="half_open"),
        *_use("Read", "class Client: …", 300, file_path="src/stream/client.py"),
        *_use("Read", "class Reader: …", 280, file_path="src/stream/reader.py"),
        *_use("Bash", PYTEST, 12_400, fields={"error": PYTEST, "exit_code": 1}, **command),
        _think("One event is lost when the socket closes between decoding and delivery. Who else closes the stream?"),
        CallStarted(
            name="explore", kind="call_workflow", try_=1, worker="explore", input={"TASK": "Find every caller"}
        ),
        CallCompleted(name="explore", kind="call_workflow", try_=1, result=found, duration_ms=41_000),
        *_todo(1),
        *_use("Edit", "The file was updated.", 200, fields={"files": [change]}, **edit),
        *_use("Bash", "100 passed in 11.8s", 11_800, fields={"exit_code": 0}, **command),
        _say("All 100 pass: the close path waits for the reader. I also cover a half-open socket with a test."),
        *_use("Bash", "2 files changed", 900, fields={"exit_code": 0}, command="git diff --stat"),
        _say(RESULT),
    )
    parent = _write(storage, at_ms, _run(task, "claude-code", payloads, cost=1.84), children=(child,))
    explored = (
        *_use("Grep", "3 matches", 120, pattern="close("),
        *_use("Read", "…", 300, file_path="server.py"),
        _say(found),
    )
    explore = _run("Find every caller that closes the stream", "claude-code", explored, cost=0.09, root_run_id=parent)
    _write(storage, at_ms + 20_000, explore, run_id=child, parent_run_id=parent)
    return parent


def _write_review(storage: Storage, now_ms: int) -> str:
    parts, at_ms = ("Correctness", "Security", "Readability", "Summary"), now_ms - 4 * 60_000
    children = [new_run_id() for _ in parts]
    calls: list[Payload] = []
    for part in parts:
        calls += [
            CallStarted(name=part, kind="call_workflow", try_=1, worker="review", input={"PART": part}),
            CallCompleted(name=part, kind="call_workflow", try_=1, result="Two findings.", duration_ms=21_000),
        ]
    calls.append(_say("Four reviewers read it: eight findings, two of them serious."))
    parent = _write(storage, at_ms, _run("Review pull request 318", "claude-code", calls, cost=0.58), children=children)
    for number, (part, child) in enumerate(zip(parts, children, strict=True)):
        work = (*_use("Grep", "1 match", 90, pattern="yaml.load("), _say("Two findings."))
        run = _run(part, "claude-code", work, cost=0.1, root_run_id=parent)
        _write(storage, at_ms + number * 22_000, run, run_id=child, parent_run_id=parent)
    return parent
