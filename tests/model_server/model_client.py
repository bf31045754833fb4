"""Asking a model in a test: the same for every adapter, whoever answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import msgspec
from tests.model_server.script import Text, Thinking, ToolUse, Turn
from tests.model_server.server import ModelServer

from shopfloor.adapters.models import ModelRouter
from shopfloor.log import Block, TextBlock
from shopfloor.ports import ModelRequest, Reply, ReplyDelta, ThreadMessage

MODELS = {
    "script": "script/told",
    "anthropic": "anthropic/claude-sonnet-4-6",
    "openai": "openai/gpt-5",
    "google": "google/gemini-2.5-flash",
    "compatible": "local/some-model",
}


def user_message(text: str) -> ThreadMessage:
    return ThreadMessage(role="user", blocks=[TextBlock(text=text, fidelity="router")])


def assistant_message(*blocks: Block) -> ThreadMessage:
    return ThreadMessage(role="assistant", blocks=list(blocks))


class ModelClient:
    """One provider, and what it will say."""

    def __init__(self, provider: str, server: ModelServer, folder: Path) -> None:
        self.provider = provider
        self.model = MODELS[provider]
        self.server = server
        self._folder = folder
        self.env = {**server.env, "SHOPFLOOR_SCRIPT_DELAY_MS": "0", "SHOPFLOOR_MODEL_TIMEOUT": "20"}

    @property
    def is_script(self) -> bool:
        return self.provider == "script"

    def set_turns(self, *turns: Turn) -> None:
        if not self.is_script:
            self.server.say(*turns)
            return
        script = {"turns": [_as_script(turn) for turn in turns]}
        (self._folder / "told.yaml").write_bytes(msgspec.yaml.encode(script))

    def request(self, *messages: ThreadMessage, **given: Any) -> ModelRequest:
        return ModelRequest(model=self.model, messages=list(messages), **given)

    def models(self) -> ModelRouter:
        return ModelRouter([self._folder], self.env)

    def ask(self, *messages: ThreadMessage, **given: Any) -> tuple[list[ReplyDelta], Reply]:
        return anyio.run(self._ask, self.request(*messages, **given))

    def run(self, body: Callable[[ModelRouter], Any]) -> Any:
        """With models that are closed afterwards."""

        async def main() -> Any:
            models = self.models()
            try:
                return await body(models)
            finally:
                await models.aclose()

        return anyio.run(main)

    async def _ask(self, request: ModelRequest) -> tuple[list[ReplyDelta], Reply]:
        models = self.models()
        try:
            pieces: list[ReplyDelta | Reply] = []
            async with aclosing(models.reply(request)) as replies:  # pyright: ignore[reportArgumentType]
                pieces.extend([piece async for piece in replies])
        finally:
            await models.aclose()
        *deltas, reply = pieces
        assert isinstance(reply, Reply)
        assert all(isinstance(delta, ReplyDelta) for delta in deltas)
        return [delta for delta in deltas if isinstance(delta, ReplyDelta)], reply


def _as_script(turn: Turn) -> dict[str, Any]:
    """A turn of the server's as one of a script's."""
    told: dict[str, Any] = {"delay_ms": turn.pause * 1000}
    for part in turn.say:
        match part:
            case Text():
                told["text"] = part.text
            case Thinking():
                told["thinking"] = part.thinking
            case ToolUse():
                told.setdefault("tool_calls", []).append({"name": part.name, "input": part.input})
    if turn.fail is not None:
        retry_after = turn.fail.headers.get("retry-after")
        told["error"] = {
            "code": turn.fail.type,
            "message": turn.fail.message,
            "retry_after": None if retry_after is None else float(retry_after),
        }
    return told
