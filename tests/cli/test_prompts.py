"""Prompts for answers on the terminal, below the level of commands."""

from __future__ import annotations

import os
import sys
import time

import anyio
import pytest
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.cli import pending_calls
from shopfloor.cli.pending_calls import prompt_for_results
from shopfloor.client import CallResult, Question


def question(call_id: str) -> Question:
    return Question(execution_id="run", call_id=call_id, question="Which?")


def wait_until_read() -> None:
    """Block until the thread that reads the terminal has the line."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (reader := pending_calls._LineReader.current) is None or reader.line is None:  # pyright: ignore[reportPrivateUsage]
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_line_typed_as_soon_as_the_prompt_is_visible_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    outside, inside = os.pipe()
    with os.fdopen(outside) as stdin, os.fdopen(inside, "w", buffering=1) as terminal:
        monkeypatch.setattr(sys, "stdin", stdin)

        async def ignore(text: str) -> None: ...

        async def type_at_once(text: str) -> None:
            terminal.write("typed here\n")
            wait_until_read()

        async def main() -> list[CallResult]:
            # The read of a prompt that was cancelled serves the next prompt.
            with anyio.move_on_after(0.05):
                await prompt_for_results([question("first")], ignore)
            with anyio.fail_after(2):
                return await prompt_for_results([question("second")], type_at_once)
            return []

        assert anyio.run(main) == [CallResult(tool_call_id="second", result="typed here")]
