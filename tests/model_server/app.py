"""The server itself, as a bare ASGI app: it has to notice at once when whoever asked goes away."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import msgspec
from tests.model_server.anthropic import Anthropic
from tests.model_server.frames import Dialect, Frame
from tests.model_server.gemini import Gemini
from tests.model_server.openai_chat import OpenAIChat
from tests.model_server.openai_responses import OpenAIResponses
from tests.model_server.scenarios import script_of
from tests.model_server.script import Failure, Script, ScriptPlayer, Turn

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_SCENARIO = re.compile(r"/s/[^/]+/[^/]+/[^/]+(?=/|$)")
_OVER = Failure(status=500, message="the script has no turn left for this request")


class ConnectionDropped(Exception):
    """The connection is dropped here: an answer that is not ended is one that uvicorn hangs up on."""


class ModelServerApp:
    def __init__(self, script: Script) -> None:
        self._plays = {"": ScriptPlayer(script)}
        """By the beginning of the address: one for whoever asks without any, and one for each run of a scenario."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        method = scope["method"]
        place, path = _parted(scope["path"])
        body = await _read(receive)
        dialect = _dialect(path)
        play = self._play(place)
        if play is None:
            await _whole(send, {"error": {"message": f"there is no scenario {place}"}}, status=404)
        elif path == "/_requests":
            await _whole(send, play.requests)
        elif path == "/_script":
            play.over.set()
            self._plays[place] = ScriptPlayer(msgspec.json.decode(body, type=Script))
            await _whole(send, {})
        elif path.endswith("/count_tokens"):
            await _whole(send, {"input_tokens": len(body) // 4})
        elif method == "POST" and dialect is not None:
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            await self._answer(play, dialect, path, msgspec.json.decode(body), headers, receive, send)
        elif path.endswith("/models"):
            await _whole(send, {"object": "list", "data": []})
        else:
            await _whole(send, {"error": {"message": f"there is no {path}"}}, status=200 if method == "HEAD" else 404)

    def _play(self, place: str) -> ScriptPlayer | None:
        """The play for an address: a scenario's begins when somebody comes for it."""
        if place not in self._plays:
            _, _, agent, scenario, _ = place.split("/")
            script = script_of(agent, scenario)
            if script is None:
                return None
            self._plays[place] = ScriptPlayer(script)
        return self._plays[place]

    async def _answer(
        self,
        play: ScriptPlayer,
        dialect: Dialect,
        path: str,
        body: Any,
        headers: dict[str, str],
        receive: Receive,
        send: Send,
    ) -> None:
        n, turn = play.ask(path, body, headers, replies=dialect.replies(body), said=dialect.said(body))
        if turn is None:
            turn = Turn(fail=_OVER)
        ends: list[str] = []

        async def leave(scope: anyio.CancelScope) -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            ends.append("left")
            scope.cancel()

        async def tell(scope: anyio.CancelScope) -> None:
            try:
                await self._tell(play, dialect, turn, (path, body, n), send)
                ends.append("done")
            except ConnectionDropped:
                ends.append("cut")
            scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(leave, group.cancel_scope)
            group.start_soon(tell, group.cancel_scope)
        play.ended(n, ends[0])
        if ends[0] == "cut":
            raise ConnectionDropped

    async def _tell(
        self, play: ScriptPlayer, dialect: Dialect, turn: Turn, requests: tuple[str, Any, int], send: Send
    ) -> None:
        path, body, n = requests
        await anyio.sleep(turn.wait)
        if turn.fail is not None and turn.fail_after is None:
            told = turn.fail.body.encode() if turn.fail.body is not None else dialect.error(turn.fail)
            await _whole(send, told, status=turn.fail.status, headers=turn.fail.headers)
        elif not dialect.streams(path, body):
            await _whole(send, dialect.whole(turn, body, n))
        else:
            await _start(send, 200, "text/event-stream", {})
            pieces = 0
            for frame in _with_faults(dialect, turn, dialect.stream(turn, body, n)):
                if frame.piece:
                    if turn.hang_after == pieces:
                        await play.over.wait()
                    if turn.cut_after == pieces:
                        raise ConnectionDropped
                    await anyio.sleep(turn.pause)
                    pieces += 1
                await send({"type": "http.response.body", "body": frame.data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def _with_faults(dialect: Dialect, turn: Turn, frames: Iterator[Frame]) -> Iterator[Frame]:
    pieces = 0
    for frame in frames:
        if frame.piece:
            if turn.end_after == pieces:
                return
            if turn.garbage_after == pieces:
                yield Frame(turn.garbage.encode(), piece=True)
            if turn.fail is not None and turn.fail_after == pieces:
                yield dialect.error_frame(turn.fail)
                return
            pieces += 1
        yield frame


def _parted(path: str) -> tuple[str, str]:
    """`/s/<agent>/<scenario>/<key>` and what comes after it; nothing and all of it where it does not begin so."""
    found = _SCENARIO.match(path)
    return (found[0], path[found.end() :]) if found else ("", path)


def _dialect(path: str) -> Dialect | None:
    if path.endswith("/messages"):
        return Anthropic()
    if path.endswith("/chat/completions"):
        return OpenAIChat()
    if path.endswith("/responses"):
        return OpenAIResponses()
    if "enerateContent" in path:
        return Gemini(path)
    return None


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def _start(send: Send, status: int, kind: str, headers: dict[str, str]) -> None:
    pairs = [(name.lower().encode(), value.encode()) for name, value in {"content-type": kind, **headers}.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def _whole(send: Send, body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
    await _start(send, status, "application/json", headers or {})
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    await send({"type": "http.response.body", "body": data})
