"""The engine's decisions on calls, for the process of a session: asked on its stdout, answered on its stdin."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

import anyio

from shopfloor.adapters.providers.jsonl import json_object
from shopfloor.adapters.providers.permission_records import encode_request, encode_withdrawal, parse_answer
from shopfloor.ports import PermissionRequest

_CHUNK_BYTES = 64 * 1024
_CLOSED = "the session can no longer ask for permissions"


class PermissionChannel:
    """Requests of one session for permissions. Several requests may be open at once."""

    def __init__(self, stream: BinaryIO, answers: int) -> None:
        """Create the channel: requests are written to `stream`, answers are read from the file descriptor `answers`."""
        self._stream = stream
        self._answers = answers
        self._is_closed = False
        self._waiting: dict[str, anyio.Event] = {}
        self._denials: dict[str, str | None] = {}

    def write(self, line: bytes) -> None:
        """Write a line of the session itself."""
        self._stream.write(line)
        self._stream.flush()

    async def find_denial(self, tool: str, tool_input: Any, tool_id: str) -> str | None:
        """Ask whether a tool may be called. Return why it may not; None if it may."""
        if self._is_closed:
            return _CLOSED
        self._waiting[tool_id] = anyio.Event()
        self.write(
            encode_request(PermissionRequest(request_id=tool_id, tool=tool, tool_input=tool_input, tool_id=tool_id))
        )
        try:
            await self._waiting[tool_id].wait()
        except anyio.get_cancelled_exc_class():
            self.write(encode_withdrawal(tool_id))
            raise
        finally:
            del self._waiting[tool_id]
        return self._denials.pop(tool_id, _CLOSED)

    async def read_answers(self) -> None:
        """Read answers until their stream ends. What is asked then, or later, is denied."""
        pending = b""
        while True:
            await anyio.wait_readable(self._answers)
            if not (data := os.read(self._answers, _CHUNK_BYTES)):
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                request_id, denial = parse_answer(json_object(line) or {})
                if request_id in self._waiting:
                    self._denials[request_id] = denial
                    self._waiting[request_id].set()
        self._is_closed = True
        for waiting in self._waiting.values():
            waiting.set()
