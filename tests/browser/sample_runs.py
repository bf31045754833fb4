"""The sample logs: one with every kind of event, a long one, and a large one."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
from tests.browser.logs import agent_run, assistant_message, call, text, tool_result, write_golden_log, write_log
from tests.sample_events import CHILD_ID

from shopfloor.log import (
    AssistantMessage,
    CallCompleted,
    CallStarted,
    FileChange,
    Note,
    Payload,
    RunError,
    StreamBlock,
    ThinkingBlock,
    ToolUseBlock,
    UserMessage,
    new_run_id,
)
from shopfloor.record import Storage

LONG_EVENTS = 100_000
LOST_CHILD_ID = "cb231c44-5cec-444c-8c26-57e0c87dfffa"
MISSING_RUNS = (CHILD_ID, LOST_CHILD_ID)
"""Sub-runs that sample logs name, and that have no log."""
LARGE_BYTES = 5_000_000
NEEDLE = "quetzalcoatl"
MARKDOWN = """# The findings

There are **two** of them, in `src/app.py`:

1. The first one
2. The second one

| what | how many |
|------|----------|
| good | 12 |
| bad  | 2 |

```python
def answer() -> int:
    return 42
```

See [the manual](https://example.org/manual) and ~~not~~ this picture: ![a chart](https://example.org/chart.png)
"""
THOUGHT = f"First I should look around{', and around' * 40}.\n\nThen I know more than I say."
DIFF = "--- a/src/app.py\n+++ b/src/app.py\n@@ -1,3 +1,3 @@\n def answer():\n-    return 41\n+    return 42\n # end\n"
ANSI = "\x1b[31mred alert\x1b[0m and \x1b[1;32mbold green\x1b[0m, plain again"
CALL_STARTED = CallStarted(name="call", kind="call_workflow", try_=1, worker="helper", input={"PART": "one"})
LONG_COMMAND = "echo " + "x" * 5_000 + " the-end-of-it"


class SampleRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Ids of the sample runs."""

    everything: str
    child: str
    failed: str
    no_messages: str
    claude: str
    agents: str
    steps: str
    lost_child: str
    long_text: str
    reader: str
    """Reads in a row, a list of tasks, and terminal output in inverse colors."""
    failures: str
    """A failed run with two failed calls, far apart."""


def png(side: int = 40) -> str:
    """Return an orange image, in base64."""
    rows = b"".join(b"\0" + b"\xff\x80\x20" * side for _ in range(side))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(whole).decode()


def everything(child: str) -> Iterator[Payload]:
    """Yield one of everything that a transcript can hold. The numbers in comments are the `seq` of the events."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png()}}
    failure = "the second test failed\nexpected 42, got 41"
    yield assistant_message(ThinkingBlock(fidelity="agent_emitted", thinking=THOUGHT))  # 4
    yield text(MARKDOWN)  # 5
    bash = {"command": "ls --color", "description": "List files"}
    yield assistant_message(
        ToolUseBlock(fidelity="agent_emitted", tool_name="Bash", tool_id="c1", tool_input=bash)
    )  # 6
    yield call("Bash", "c1", **bash)  # 7
    yield tool_result("Bash", "c1", ANSI, exit_code=0)  # 8
    yield call("Bash", "c2", command="pytest -q")  # 9
    yield tool_result("Bash", "c2", failure, error=failure, exit_code=1, duration_ms=61_500)  # 10
    edit = {"file_path": "src/app.py", "old_string": "return 41", "new_string": "return 42"}
    change = FileChange(path="src/app.py", action="modify", lines_added=1, lines_removed=1, diff=DIFF)
    yield call("Edit", "c3", **edit)  # 11
    yield tool_result("Edit", "c3", "The file was updated.", files=[change])  # 12
    yield call("Screenshot", "c4", url="http://localhost/")  # 13
    yield tool_result("Screenshot", "c4", [{"type": "text", "text": "taken"}, picture])  # 14
    yield assistant_message(
        StreamBlock(fidelity="agent_emitted", chunk='{"type": "mystery", oops', unparsed=True)
    )  # 15
    retry = Note(
        kind="retry", message="the model is overloaded", code="provider_overloaded", status=529, try_=1, tries=3
    )
    yield AssistantMessage(note=retry, blocks=[])  # 16
    yield CALL_STARTED  # 17
    yield CallCompleted(name="call", kind="call_workflow", try_=1, result="did one", duration_ms=900)  # 18
    yield call("Bash", "c5", command=LONG_COMMAND)  # 19
    yield tool_result("Bash", "c5", "".join(f"line {number} of output\n" for number in range(1, 1_001)))  # 20
    yield text(f"And that was all, said the {NEEDLE}.")  # 21


def call_and_result(name: str, call_id: str, output: str, **arguments: Any) -> Iterator[Payload]:
    yield call(name, call_id, **arguments)
    yield tool_result(name, call_id, output)


def reader() -> Iterator[Payload]:
    """Yield what an agent does before it changes anything. The numbers in comments are the `seq` of the events."""
    yield from call_and_result("Read", "r1", "content of one", file_path="src/one.py")  # 4
    yield from call_and_result("Read", "r2", "content of two", file_path="src/two.py")  # 6
    yield from call_and_result("Grep", "r3", "src/two.py:1", pattern="needle", path="src")  # 8
    states = (("Look", "completed"), ("Repair", "in_progress"), ("Test", "pending"))
    todos = [{"content": text, "status": status} for text, status in states]
    yield from call_and_result("TodoWrite", "r4", "ok", todos=todos)  # 10
    yield call("Bash", "r5", command="pytest")  # 12
    yield tool_result("Bash", "r5", "\x1b[7minverse\x1b[0m text", error="failed", exit_code=1)


def failures() -> Iterator[Payload]:
    yield call("Bash", "f1", command="make one")  # 4
    yield tool_result("Bash", "f1", "the first failure", error="exit code 1", exit_code=1)
    yield from (text(f"Thought {number}. " * 20) for number in range(61))  # 6
    yield call("Bash", "f2", command="make two")  # 67
    yield tool_result("Bash", "f2", "the second failure", error="exit code 2", exit_code=2)


def long_run(events: int) -> Iterator[Payload]:
    """Yield a run of numbered messages and tool calls. One message has the word that tests search for."""

    def payloads() -> Iterator[Payload]:
        for number in range(1, events // 3):
            word = f" Here is the {NEEDLE}." if number == events // 4 else ""
            yield text(f"Message {number} of a long run: I look at module {number} next.{word}")
            yield call("Bash", f"c{number}", command=f"make module-{number}")
            yield tool_result("Bash", f"c{number}", f"module {number} is up to date", duration_ms=12)

    return agent_run("Build every module", *payloads(), result="All modules are built.", owner="long")


def write_sample_runs(storage: Storage) -> SampleRuns:
    child = new_run_id()
    parent = write_log(
        storage,
        agent_run("Find out what is wrong with the app", *everything(child), result=MARKDOWN, owner="stories"),
        child_run_id=child,
    )
    write_log(
        storage,
        agent_run("Do part one", text("This is said in the sub-run."), result="did one", owner="stories"),
        run_id=child,
        parent_run_id=parent,
    )
    error = RunError(
        code="rate_limit_error", message="the provider refuses for now", retryable=True, hint="wait a minute"
    )
    outcome = {"status": "failed", "error": error, "result": None}
    failed = write_log(storage, agent_run("Ask too often", text("I try."), owner="stories", **outcome))
    lost = (
        text("I call somebody."),
        CALL_STARTED,
        CallCompleted(name="call", kind="call_workflow", try_=1, result="?"),
    )
    no_messages = [
        payload for payload in agent_run("Nothing was said", owner="stories") if not isinstance(payload, UserMessage)
    ]
    return SampleRuns(
        everything=parent,
        child=child,
        failed=failed,
        no_messages=write_log(storage, no_messages),
        claude=write_golden_log(storage, "providers/claude-code/files"),
        agents=write_golden_log(storage, "providers/claude-code/task"),
        steps=write_golden_log(storage, "parent"),
        long_text=write_log(
            storage, agent_run("Say a lot", text(f"{'many words ' * 3_000}\n\nand an end."), owner="stories")
        ),
        reader=write_log(storage, agent_run("Look around", *reader(), owner="stories")),
        failures=write_log(storage, agent_run("Fail twice", *failures(), owner="failures", **outcome)),
        lost_child=write_log(storage, agent_run("Call nobody", *lost, owner="stories"), child_run_id=LOST_CHILD_ID),
    )


def write_large(storage: Storage, *, events: int = LONG_EVENTS) -> tuple[str, str]:
    """Write a run of very many events, and one with a very long tool result."""
    line = f"{'y' * 79}\n"
    large = (call("Bash", "big", command="cat big.txt"), tool_result("Bash", "big", line * (LARGE_BYTES // len(line))))
    large_run = agent_run("Print a lot", *large, text("That was large."), owner="long")
    return write_log(storage, long_run(events), step_ms=10), write_log(storage, large_run)
