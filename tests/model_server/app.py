"""The server as a plain ASGI app, which notices at once when a client disconnects."""

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
from tests.model_server.scenarios import create_script
from tests.model_server.script import Failure, Script, ScriptPlayer, Turn

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_SCENARIO = re.compile(r"/s/[^/]+/[^/]+/[^/]+(?=/|$)")
_NO_TURN_LEFT = Failure(status=500, message="the script has no turn left for this request")


class ConnectionDropped(Exception):
    """Drop the connection: uvicorn closes it when a response is not finished."""


class ModelServerApp:
    """Answers requests by scripts: one for the server, and one for each run of a scenario."""

    def __init__(self, script: Script) -> None:
        self._players = {"": ScriptPlayer(script)}
        """Players by the prefix of the path: "" for the server's own script, and one for each run of a scenario."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        method = scope["method"]
        prefix, path = _split_prefix(scope["path"])
        body = await _read(receive)
        dialect = _dialect_for(path)
        player = self._player_for(prefix)
        if player is None:
            await _send_document(send, {"error": {"message": f"there is no scenario {prefix}"}}, status=404)
        elif path == "/_requests":
            await _send_document(send, player.requests)
        elif path == "/_script":
            player.replaced.set()
            self._players[prefix] = ScriptPlayer(msgspec.json.decode(body, type=Script))
            await _send_document(send, {})
        elif path.endswith("/count_tokens"):
            await _send_document(send, {"input_tokens": len(body) // 4})
        elif method == "POST" and dialect is not None:
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            await self._answer(player, dialect, path, msgspec.json.decode(body), headers, receive, send)
        elif path.endswith("/models"):
            await _send_document(send, {"object": "list", "data": []})
        else:
            await _send_document(
                send, {"error": {"message": f"there is no {path}"}}, status=200 if method == "HEAD" else 404
            )

    def _player_for(self, prefix: str) -> ScriptPlayer | None:
        """Return the player of a path prefix. The first request of a run starts its scenario. None if unknown."""
        if prefix not in self._players:
            _, _, agent, scenario, _ = prefix.split("/")
            script = create_script(agent, scenario)
            if script is None:
                return None
            self._players[prefix] = ScriptPlayer(script)
        return self._players[prefix]

    async def _answer(
        self,
        player: ScriptPlayer,
        dialect: Dialect,
        path: str,
        body: Any,
        headers: dict[str, str],
        receive: Receive,
        send: Send,
    ) -> None:
        n, turn = player.next_turn(
            path, body, headers, replies=dialect.replies(body), user_texts=dialect.user_texts(body)
        )
        if turn is None:
            turn = Turn(fail=_NO_TURN_LEFT)
        endings: list[str] = []

        async def wait_for_disconnect(scope: anyio.CancelScope) -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            endings.append("left")
            scope.cancel()

        async def answer(scope: anyio.CancelScope) -> None:
            try:
                await self._send_turn(player, dialect, turn, (path, body, n), send)
                endings.append("done")
            except ConnectionDropped:
                endings.append("cut")
            scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(wait_for_disconnect, group.cancel_scope)
            group.start_soon(answer, group.cancel_scope)
        player.ended(n, endings[0])
        if endings[0] == "cut":
            raise ConnectionDropped

    async def _send_turn(
        self, player: ScriptPlayer, dialect: Dialect, turn: Turn, requests: tuple[str, Any, int], send: Send
    ) -> None:
        path, body, n = requests
        await anyio.sleep(turn.wait)
        if turn.fail is not None and turn.fail_after is None:
            error = turn.fail.body.encode() if turn.fail.body is not None else dialect.error(turn.fail)
            await _send_document(send, error, status=turn.fail.status, headers=turn.fail.headers)
        elif not dialect.streams(path, body):
            await _send_document(send, dialect.document(turn, body, n))
        else:
            await _start(send, 200, "text/event-stream", {})
            piece_count = 0
            for frame in _with_faults(dialect, turn, dialect.stream(turn, body, n)):
                if frame.piece:
                    if turn.hang_after == piece_count:
                        await player.replaced.wait()
                    if turn.cut_after == piece_count:
                        raise ConnectionDropped
                    await anyio.sleep(turn.pause)
                    piece_count += 1
                await send({"type": "http.response.body", "body": frame.data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def _with_faults(dialect: Dialect, turn: Turn, frames: Iterator[Frame]) -> Iterator[Frame]:
    piece_count = 0
    for frame in frames:
        if frame.piece:
            if turn.end_after == piece_count:
                return
            if turn.garbage_after == piece_count:
                yield Frame(turn.garbage.encode(), piece=True)
            if turn.fail is not None and turn.fail_after == piece_count:
                yield dialect.error_frame(turn.fail)
                return
            piece_count += 1
        yield frame


def _split_prefix(path: str) -> tuple[str, str]:
    """Split a path into `/s/<agent>/<scenario>/<key>`, or "", and the rest."""
    match = _SCENARIO.match(path)
    return (match[0], path[match.end() :]) if match else ("", path)


def _dialect_for(path: str) -> Dialect | None:
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


async def _send_document(send: Send, body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
    await _start(send, status, "application/json", headers or {})
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    await send({"type": "http.response.body", "body": data})
