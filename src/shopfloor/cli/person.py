"""Whoever sits at the terminal, asked for what a run waits for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import anyio

from shopfloor.cli.style import safe
from shopfloor.cli.tool_commands import value_of
from shopfloor.client import CallResult, Question, RequestedCall

if TYPE_CHECKING:
    from typing import Any

Wanted = RequestedCall | Question
Say = Callable[[str], Awaitable[None]]


def is_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


async def results_of(wanted: Sequence[Wanted], say: Say) -> list[CallResult]:
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
        value: Any = chosen(typed, one.options) if isinstance(one, Question) else value_of(typed)
        results.append(CallResult(tool_call_id=call_id, result=value))
    return results


def _asked(one: Wanted) -> str:
    if isinstance(one, Question):
        options = "".join(f"\n  {number}. {option}" for number, option in enumerate(one.options or (), start=1))
        how = "a number, or one of them in words" if one.options else "an answer"
        return safe(f"{one.question}{options}\n{how}, empty to leave it waiting: ")
    args = json.dumps(one.args, ensure_ascii=False)
    return safe(f"{one.tool_name} wants {args}; type a result (JSON or text), empty to leave it waiting: ")


def _is_no_option(typed: str, options: Sequence[str] | None) -> bool:
    """Whether it is neither one of them nor the number of one."""
    return bool(options) and bool(typed) and chosen(typed, options) not in (options or ())


def chosen(typed: str, options: Sequence[str] | None) -> str:
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
