"""The calls that a run is waiting for: fetch them, describe them, and prompt the user for their results."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import anyio

from shopfloor.cli.arguments import storage_from_args
from shopfloor.cli.style import escape_controls, one_line
from shopfloor.cli.tool_commands import parse_json_or_text
from shopfloor.client import CallResult, Question, RequestedCall
from shopfloor.errors import ShopfloorError
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.views import (
    APPROVAL,
    APPROVAL_OPTIONS,
    DEFINITION_CHANGED,
    RATE_LIMIT,
    approval_question,
    definition_wait_message,
    describe_pending_call,
)

if TYPE_CHECKING:
    from shopfloor.client import Client


PendingCall = RequestedCall | Question
WriteText = Callable[[str], Awaitable[None]]


def is_interactive() -> bool:
    """Return whether a user can be prompted: stdin and stderr are terminals."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def prompt_for_results(calls: Sequence[PendingCall], write: WriteText) -> list[CallResult]:
    """Prompt the user for the result of each call. Calls that the user leaves empty are not in the list."""
    results: list[CallResult] = []
    for call in calls:
        call_id = call.call_id if isinstance(call, Question) else call.tool_call_id
        typed = await _prompt_for_line(_prompt(call), write)
        while isinstance(call, Question) and _is_invalid_option(typed, call.options):
            typed = await _prompt_for_line(f"not one of the {len(call.options or ())} options, try again: ", write)
        if not typed:
            continue
        value: Any = resolve_option(typed, call.options) if isinstance(call, Question) else parse_json_or_text(typed)
        results.append(CallResult(tool_call_id=call_id, result=value))
    return results


def _prompt(call: PendingCall) -> str:
    if isinstance(call, Question):
        options = "".join(f"\n  {number}. {option}" for number, option in enumerate(call.options or (), start=1))
        kind = "number or text of an option" if call.options else "answer"
        if tuple(call.options or ()) == APPROVAL_OPTIONS:
            kind = "number of an option, or `deny: REASON`"
        return escape_controls(f"{call.question}{options}\n{kind} (empty: leave it waiting): ")
    args = json.dumps(call.args, ensure_ascii=False)
    return escape_controls(f"tool call {call.tool_name} {args}\nresult as JSON or text (empty: leave it waiting): ")


def _is_invalid_option(typed: str, options: Sequence[str] | None) -> bool:
    """Return whether the text is neither an option nor the number of an option."""
    if tuple(options or ()) == APPROVAL_OPTIONS and typed.lower().startswith("deny:"):
        return False
    return bool(options) and bool(typed) and resolve_option(typed, options) not in (options or ())


def resolve_option(typed: str, options: Sequence[str] | None) -> str:
    """Return the option with the typed number; any other text unchanged."""
    if options and typed.isdecimal() and 1 <= int(typed[:9]) <= len(options):
        return options[int(typed) - 1]
    return typed


class _LineReader:
    """A read of one line of the terminal, in a daemon thread.

    The read of a cancelled prompt cannot be stopped, so the next prompt uses it. A line that was typed while there was
    no prompt is dropped: it was meant for another question.
    """

    current: ClassVar[_LineReader | None] = None

    def __init__(self) -> None:
        self.line: str | None = None
        self._on_line: Callable[[], object] = lambda: None
        threading.Thread(target=self._read, name="shopfloor-terminal", daemon=True).start()

    def _read(self) -> None:
        line = ""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            line = sys.stdin.readline()
        self.line = line
        with contextlib.suppress(RuntimeError):
            self._on_line()

    async def wait(self) -> str:
        done, loop = anyio.Event(), asyncio.get_running_loop()
        self._on_line = lambda: loop.call_soon_threadsafe(done.set)
        if self.line is None:
            await done.wait()
        return self.line or ""


async def _prompt_for_line(prompt: str, write: WriteText) -> str:
    """Write a prompt and return the line that the user types, without its end."""
    # Choose the reader before the prompt is visible: a line that is typed right after the prompt is its answer.
    if _LineReader.current is None or _LineReader.current.line is not None:
        _LineReader.current = _LineReader()
    reader = _LineReader.current
    await write(prompt)
    return (await reader.wait()).strip()


def get_pending_calls(detail: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the pending calls in the API's description of a run."""
    return cast("list[dict[str, Any]]", detail.get("awaits") or [])


def is_answerable(call: Mapping[str, Any]) -> bool:
    """Return whether an answer can end the wait. A changed definition has to be restored instead."""
    return call["kind"] != DEFINITION_CHANGED


def pending_call_lines(
    run_id: str, calls: Sequence[Mapping[str, Any]], *, all_calls: Sequence[Mapping[str, Any]] | None = None
) -> Iterator[str]:
    """Yield what each pending call of the run or its sub-runs asks for, and the command that answers it.

    `all_calls` are all pending calls of the run, if `calls` are only some. The command names the call only if several
    are pending.
    """
    unanswered = [call for call in all_calls or calls if is_answerable(call) and not call.get("answered")]
    for call in calls:
        waiting_id = waiting_run_id(call, run_id)
        prefix = "" if waiting_id == run_id else f"sub-run {waiting_id[:8]} "
        if call["kind"] == RATE_LIMIT:
            yield f"{prefix}waits for a rate limit, until {escape_controls(str(call['until']))}"
        elif call["kind"] == DEFINITION_CHANGED:
            yield f"{prefix}{one_line(definition_wait_message(call['input']), PREVIEW_CHARS)}"
        elif call.get("answered"):
            yield f"{prefix}{unread_answer_text(call_summary(call))}"
        else:
            if call["kind"] == APPROVAL:
                first, *others = approval_lines(approval_question(call["input"]))
                yield f"{prefix}waits for {first}"
                yield from (f"  {line}" for line in others)
            else:
                yield f"{prefix}waits for {call_summary(call)}"
            call_id = str(call["call_id"]) if len(unanswered) > 1 else None
            options = "    (or: 'approve for this run', 'always approve', 'deny: REASON')"
            command = answer_command(waiting_id, call_id, call["kind"], has_options=bool(question_options(call)))
            yield f"  {command}{options if call['kind'] == APPROVAL else ''}"


def answer_command(run_id: str, call_id: str | None, kind: str, *, has_options: bool) -> str:
    """Return the command that answers a call; it names the call if `call_id` is set."""
    import shlex

    name = "" if call_id is None else f"{escape_controls(shlex.quote(call_id))} "
    value = "approve" if kind == APPROVAL else "1" if has_options else "'TEXT'"
    return f"shopfloor answer {run_id[:8]} {name}{value}"


def unread_answer_text(question: str) -> str:
    """Return the text for a question whose answer the run has not read yet."""
    return f"answered, but the run has not read the answer yet: {question}"


def waiting_run_id(call: Mapping[str, Any], run_id: str) -> str:
    """Return the run that waits for the call; `run_id` if the server is too old to name sub-runs."""
    return str(call.get("run_id") or run_id)


def call_summary(call: Mapping[str, Any]) -> str:
    """Return one line about a pending call."""
    return one_line(describe_pending_call(call["name"], call["kind"], call["input"]), PREVIEW_CHARS)


def approval_lines(text: str) -> list[str]:
    """Return the lines of what a person is asked to approve, all of them: each may be a command of its own."""
    return escape_controls(text).split("\n")


def question_options(call: Mapping[str, Any]) -> list[str]:
    """Return the options of a question."""
    arguments = call["input"]
    options: Any = cast("dict[str, Any]", arguments).get("options") if isinstance(arguments, dict) else None
    return [str(option) for option in cast("list[Any]", options)] if isinstance(options, list) else []


async def fetch_pending_calls(client: Client, run_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the description of a run, and its pending calls."""
    detail = await client.api.run(run_id)
    return detail, get_pending_calls(detail)


def fetch_answered_calls(args: Namespace, log: Path) -> frozenset[tuple[str, str]]:
    """Return the calls (run id, call id) of a run and its sub-runs whose answers are in the inbox, not yet in a log.

    Empty for a log outside of the storage, and if neither a server nor the database answers: the log is shown anyway.
    """
    import anyio

    from shopfloor.wiring import open_api

    storage = storage_from_args(args)
    if log.parent != storage.transcripts:
        return frozenset()

    async def fetch() -> dict[str, Any]:
        async with open_api(storage) as api:
            return await api.run(log.stem)

    try:
        calls = get_pending_calls(anyio.run(fetch))
    except ShopfloorError:
        return frozenset()
    return frozenset((waiting_run_id(call, log.stem), str(call["call_id"])) for call in calls if call.get("answered"))
