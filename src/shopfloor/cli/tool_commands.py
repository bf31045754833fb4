"""`--tool NAME=COMMAND`: tools of a worker that commands of the caller execute."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc

from shopfloor.cli.style import escape_controls
from shopfloor.errors import ToolFailed, UsageError
from shopfloor.limits import TOOL_STDERR_CHARS
from shopfloor.ports import child_environment

if TYPE_CHECKING:
    from shopfloor.cli.run_options import WorkerInfo
    from shopfloor.client import Handler


def parse_tool_handlers(words: Sequence[str], worker: WorkerInfo, known: Sequence[WorkerInfo]) -> dict[str, Handler]:
    """By the tool's name. Raises `UsageError` where neither the worker nor any that it could call waits for it."""
    of_others = {name for one in known for name in one.client_tools}
    handlers: dict[str, Handler] = {}
    for word in words:
        name, equals, command = word.partition("=")
        if not (name and equals and command.strip()):
            raise UsageError(f"--tool {word!r} is not NAME=COMMAND", hint="e.g. --tool web-search=./search.sh")
        if name in handlers:
            raise UsageError(f"--tool {name} is given twice", hint="a tool has one command")
        if name not in worker.client_tools and name not in of_others:
            whose = "executes it itself" if name in worker.tools else "has no such tool"
            there = ", ".join(worker.client_tools) or "none"
            raise UsageError(f"--tool {name}: the worker {whose}", hint=f"tools that wait for a command: {there}")
        handlers[name] = command_handler(command)
    return handlers


def command_handler(command: str) -> Handler:
    """Gives the arguments to a shell command as JSON on stdin; what it prints is the result."""

    async def handle(args: Any) -> Any:
        # Left early, as by Ctrl-C, it is killed.
        async with await anyio.open_process(command, env=child_environment(os.environ)) as process:
            printed, complained = await _spoken_with(process, json.dumps(args, ensure_ascii=False).encode())
            code = await process.wait()
        if code != 0:
            said = complained.decode("utf-8", "replace").strip()[-TOOL_STDERR_CHARS:]
            raise ToolFailed(escape_controls(said) or f"the command ended with {_how(code)}")
        return parse_json_or_text(printed.decode("utf-8", "replace").rstrip("\n"))

    return handle


async def _spoken_with(process: anyio.abc.Process, given: bytes) -> tuple[bytes, bytes]:
    """What it prints and what it complains of, when it is given this; it need not read it."""
    printed, complained = bytearray(), bytearray()

    async def feed(stream: anyio.abc.ByteSendStream) -> None:
        with contextlib.suppress(anyio.BrokenResourceError):
            await stream.send(given)
        await stream.aclose()

    async def hear(stream: anyio.abc.ByteReceiveStream, into: bytearray) -> None:
        async for chunk in stream:
            into.extend(chunk)

    async with anyio.create_task_group() as tasks:
        if process.stdin is not None and process.stdout is not None and process.stderr is not None:
            tasks.start_soon(feed, process.stdin)
            tasks.start_soon(hear, process.stdout, printed)
            tasks.start_soon(hear, process.stderr, complained)
    return bytes(printed), bytes(complained)


def parse_json_or_text(text: str) -> Any:
    """JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _how(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"signal {-code}"
