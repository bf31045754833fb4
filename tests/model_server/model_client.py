"""A client for models in tests, the same for every provider."""

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
    """A client of one provider, whose answers the test sets."""

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

    def request(self, *messages: ThreadMessage, **options: Any) -> ModelRequest:
        return ModelRequest(model=self.model, messages=list(messages), **options)

    def models(self) -> ModelRouter:
        return ModelRouter([self._folder], self.env)

    def ask(self, *messages: ThreadMessage, **options: Any) -> tuple[list[ReplyDelta], Reply]:
        return anyio.run(self._ask, self.request(*messages, **options))

    def run(self, body: Callable[[ModelRouter], Any]) -> Any:
        """Run `body` with models that are closed afterwards."""

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
            items: list[ReplyDelta | Reply] = []
            async with aclosing(models.reply(request)) as replies:  # pyright: ignore[reportArgumentType]
                items.extend([item async for item in replies])
        finally:
            await models.aclose()
        *deltas, reply = items
        assert isinstance(reply, Reply)
        assert all(isinstance(delta, ReplyDelta) for delta in deltas)
        return [delta for delta in deltas if isinstance(delta, ReplyDelta)], reply


def _as_script(turn: Turn) -> dict[str, Any]:
    """Convert a turn of the server to a turn of a script."""
    scripted: dict[str, Any] = {"delay_ms": turn.pause * 1000}
    for part in turn.say:
        match part:
            case Text():
                scripted["text"] = part.text
            case Thinking():
                scripted["thinking"] = part.thinking
            case ToolUse():
                scripted.setdefault("tool_calls", []).append({"name": part.name, "input": part.input})
    if turn.fail is not None:
        retry_after = turn.fail.headers.get("retry-after")
        scripted["error"] = {
            "code": turn.fail.type,
            "message": turn.fail.message,
            "retry_after": None if retry_after is None else float(retry_after),
        }
    return scripted
