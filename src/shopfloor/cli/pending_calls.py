"""Whoever sits at the terminal, asked for what a run waits for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio

from shopfloor.cli.arguments import storage_from_args
from shopfloor.cli.style import escape_controls, one_line
from shopfloor.cli.tool_commands import parse_json_or_text
from shopfloor.client import CallResult, Question, RequestedCall
from shopfloor.errors import ShopfloorError
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.views import DEFINITION_CHANGED, RATE_LIMIT, definition_wait_message, describe_pending_call

if TYPE_CHECKING:
    from typing import Any

    from shopfloor.client import Client


PendingCall = RequestedCall | Question
WriteText = Callable[[str], Awaitable[None]]


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


async def prompt_for_results(wanted: Sequence[PendingCall], say: WriteText) -> list[CallResult]:
    """What the person gives, call by call; those left empty are not in it."""
    results: list[CallResult] = []
    for one in wanted:
        call_id = one.call_id if isinstance(one, Question) else one.tool_call_id
        await say(_asked(one))
        typed = (await _line()).strip()
        while isinstance(one, Question) and _is_no_option(typed, one.options):
            await say(f"that is none of the {len(one.options or ())} options: ")
            typed = (await _line()).strip()
        if not typed:
            continue
        value: Any = resolve_option(typed, one.options) if isinstance(one, Question) else parse_json_or_text(typed)
        results.append(CallResult(tool_call_id=call_id, result=value))
    return results


def _asked(one: PendingCall) -> str:
    if isinstance(one, Question):
        options = "".join(f"\n  {number}. {option}" for number, option in enumerate(one.options or (), start=1))
        how = "a number, or one of them in words" if one.options else "an answer"
        return escape_controls(f"{one.question}{options}\n{how}, empty to leave it waiting: ")
    args = json.dumps(one.args, ensure_ascii=False)
    return escape_controls(f"{one.tool_name} wants {args}; type a result (JSON or text), empty to leave it waiting: ")


def _is_no_option(typed: str, options: Sequence[str] | None) -> bool:
    """Whether it is neither one of them nor the number of one."""
    return bool(options) and bool(typed) and resolve_option(typed, options) not in (options or ())


def resolve_option(typed: str, options: Sequence[str] | None) -> str:
    """The option that a number means; anything else as it was typed."""
    if options and typed.isdecimal() and 1 <= int(typed[:9]) <= len(options):
        return options[int(typed) - 1]
    return typed


async def _line() -> str:
    """A line from the terminal; read in a thread that is left alone when nobody wants it any more."""
    loop = asyncio.get_running_loop()
    typed: list[str] = []
    done = anyio.Event()

    def read() -> None:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            typed.append(sys.stdin.readline())
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=read, name="shopfloor-terminal", daemon=True).start()
    await done.wait()
    return typed[0] if typed else ""


def get_pending_calls(detail: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls that wait, as the API tells of them."""
    return cast("list[dict[str, Any]]", detail.get("awaits") or [])


def is_answerable(call: Mapping[str, Any]) -> bool:
    """Whether somebody can give what the run waits for."""
    return call["kind"] != DEFINITION_CHANGED


def pending_call_lines(run_id: str, calls: list[dict[str, Any]]) -> Iterator[str]:
    """Each of them, and the command that answers it. They may be of runs below that one."""
    for call in calls:
        whose = waiting_run_id(call, run_id)
        who = "" if whose == run_id else f"sub-run {whose[:8]} "
        if call["kind"] == RATE_LIMIT:
            yield f"{who}waits for a rate limit, until {escape_controls(str(call['until']))}"
        elif call["kind"] == DEFINITION_CHANGED:
            yield f"{who}{one_line(definition_wait_message(call['input']), PREVIEW_CHARS)}"
        elif call.get("answered"):
            yield f"{who}{unread_answer_text(call_summary(call))}"
        else:
            yield f"{who}waits for {call_summary(call)}"
            yield f"  shopfloor answer {whose[:8]} {escape_controls(call['call_id'])} 'TEXT'"


def unread_answer_text(question: str) -> str:
    """Say that somebody has answered this, and that the run has not read the answer yet."""
    return f"answered, not taken up yet: {question}"


def waiting_run_id(call: Mapping[str, Any], run_id: str) -> str:
    """The run that waits for it, where that one was asked for: an older server tells of no other."""
    return str(call.get("run_id") or run_id)


def call_summary(call: Mapping[str, Any]) -> str:
    return one_line(describe_pending_call(call["name"], call["kind"], call["input"]), PREVIEW_CHARS)


def question_options(call: Mapping[str, Any]) -> list[str]:
    """What a question lets one choose from."""
    given = call["input"]
    said: Any = cast("dict[str, Any]", given).get("options") if isinstance(given, dict) else None
    return [str(one) for one in cast("list[Any]", said)] if isinstance(said, list) else []


async def fetch_pending_calls(client: Client, run_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The run, and what it waits for."""
    detail = await client.api.run(run_id)
    return detail, get_pending_calls(detail)


def fetch_answered_calls(args: Namespace, log: Path) -> frozenset[tuple[str, str]]:
    """The calls (run, call) of a run and of the runs below it whose answers wait in the inbox, not in a log.

    Empty for a log outside of the storage, and where neither a server nor a database answers: the log is shown anyway.
    """
    import anyio

    from shopfloor.wiring import open_api

    storage = storage_from_args(args)
    if log.parent != storage.transcripts:
        return frozenset()

    async def ask() -> dict[str, Any]:
        async with open_api(storage) as api:
            return await api.run(log.stem)

    try:
        calls = get_pending_calls(anyio.run(ask))
    except ShopfloorError:
        return frozenset()
    return frozenset((waiting_run_id(call, log.stem), str(call["call_id"])) for call in calls if call.get("answered"))
