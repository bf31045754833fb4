"""`--tool NAME=COMMAND`: client tools of a worker that the user's commands execute."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc

from shopfloor.cli.limits import TOOL_STDERR_CHARS
from shopfloor.cli.style import escape_controls
from shopfloor.errors import ToolFailed, UsageError
from shopfloor.ports import child_environment

if TYPE_CHECKING:
    from shopfloor.cli.run_options import WorkerInfo
    from shopfloor.client import Handler


def parse_tool_handlers(words: Sequence[str], worker: WorkerInfo, known: Sequence[WorkerInfo]) -> dict[str, Handler]:
    """Return the handlers by tool name. Raises `UsageError` for a tool that no known worker leaves to its client."""
    other_tools = {name for other in known for name in other.client_tools}
    handlers: dict[str, Handler] = {}
    for word in words:
        name, equals, command = word.partition("=")
        if not (name and equals and command.strip()):
            raise UsageError(f"--tool must be NAME=COMMAND, got {word!r}", hint="e.g. --tool web-search=./search.sh")
        if name in handlers:
            raise UsageError(f"--tool {name} is used twice", hint="remove one of the two")
        if name not in worker.client_tools and name not in other_tools:
            reason = "the worker executes this tool itself" if name in worker.tools else "the worker has no such tool"
            available = ", ".join(worker.client_tools) or "none"
            raise UsageError(f"--tool {name}: {reason}", hint=f"tools that a command can execute: {available}")
        handlers[name] = command_handler(command)
    return handlers


def command_handler(command: str) -> Handler:
    """Return a handler that passes the arguments as JSON on stdin to a shell command and returns what it prints."""

    async def handle(args: Any) -> Any:
        # If the block is cancelled, as by Ctrl-C, the process is killed.
        async with await anyio.open_process(command, env=child_environment(os.environ)) as process:
            stdout, stderr = await _communicate(process, json.dumps(args, ensure_ascii=False).encode())
            code = await process.wait()
        if code != 0:
            message = stderr.decode("utf-8", "replace").strip()[-TOOL_STDERR_CHARS:]
            raise ToolFailed(escape_controls(message) or f"the command failed with {_describe_exit(code)}")
        return parse_json_or_text(stdout.decode("utf-8", "replace").rstrip("\n"))

    return handle


async def _communicate(process: anyio.abc.Process, data: bytes) -> tuple[bytes, bytes]:
    """Send `data` to stdin, which the process need not read; return stdout and stderr."""
    stdout, stderr = bytearray(), bytearray()

    async def feed(stream: anyio.abc.ByteSendStream) -> None:
        with contextlib.suppress(anyio.BrokenResourceError):
            await stream.send(data)
        await stream.aclose()

    async def collect(stream: anyio.abc.ByteReceiveStream, into: bytearray) -> None:
        async for chunk in stream:
            into.extend(chunk)

    async with anyio.create_task_group() as tasks:
        if process.stdin is not None and process.stdout is not None and process.stderr is not None:
            tasks.start_soon(feed, process.stdin)
            tasks.start_soon(collect, process.stdout, stdout)
            tasks.start_soon(collect, process.stderr, stderr)
    return bytes(stdout), bytes(stderr)


def parse_json_or_text(text: str) -> Any:
    """Return the parsed value if the text is valid JSON, otherwise the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _describe_exit(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"signal {-code}"
