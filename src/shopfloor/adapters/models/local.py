"""The way to every model that this process can ask.

A model's client takes seconds to import, so nothing here loads it before it is asked; `warm_up` does it early.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from shopfloor.adapters.models.endpoints import STOCK, Endpoint, endpoint_of, environment_name, is_set_up
from shopfloor.adapters.models.scripted import ScriptedModels
from shopfloor.errors import RequestRejected, ShopfloorError, UnknownModel
from shopfloor.limits import SCRIPT_WORD_SECONDS
from shopfloor.ports import ModelRequest, Reply, ReplyDelta

if TYPE_CHECKING:
    from shopfloor.adapters.models.remote import RemoteModels

_INSTALL = "install Shopfloor with its extra `models`"


class LocalModels:
    """The models that this process can ask: by the keys in its environment, and by scripts."""

    def __init__(
        self,
        scripts: Sequence[Path] = (),
        env: Mapping[str, str] | None = None,
        *,
        script: Path | None = None,
        piece_seconds: float = SCRIPT_WORD_SECONDS,
    ) -> None:
        """With `script`, that file answers for every model; no model is asked. See `ScriptedModels` for the pause."""
        self._env = os.environ if env is None else env
        self._script = None if script is None else str(script)
        self._scripted = ScriptedModels(scripts, self._env, piece_seconds=piece_seconds)
        self._remote: RemoteModels | None = None

    def check(self, model: str) -> None:
        self._route(model, UnknownModel)

    def warm_up(self) -> None:
        """Loads what is slow to load, where models are set up. Blocks for seconds: for a thread of its own."""
        if _installed() and is_set_up(self._env):
            importlib.import_module("shopfloor.adapters.models.remote")

    async def reply(self, request: ModelRequest) -> AsyncIterator[ReplyDelta | Reply]:
        endpoint = self._route(request.model, RequestRejected)
        if endpoint is None:
            replies = self._scripted.reply(request, self._script)
        else:
            replies = (await self._connected()).reply(endpoint, request)
        async with aclosing(replies):
            async for piece in replies:
                yield piece

    async def aclose(self) -> None:
        """Closes every connection."""
        if self._remote is not None:
            remote, self._remote = self._remote, None
            await remote.aclose()

    def _route(self, model: str, missing: type[ShopfloorError]) -> Endpoint | None:
        """Where that model is asked; None for a script."""
        provider, slash, name = model.partition("/")
        if not (provider and slash and name):
            raise UnknownModel(f"{model!r} is not a model's name", hint=f"write provider/name; {self._providers()}")
        if provider == "script" or self._script is not None:
            self._scripted.check(self._script or name)
            return None
        endpoint = endpoint_of(provider, self._env)
        if endpoint is None:
            variable = environment_name(provider, "URL")
            raise UnknownModel(
                f"no provider is named {provider!r}",
                hint=f"{self._providers()}; for any OpenAI-compatible endpoint set {variable}",
            )
        if not _installed():
            raise missing(f"the client that asks {provider} is not installed", hint=_INSTALL)
        return endpoint

    def _providers(self) -> str:
        return f"providers are {', '.join([*STOCK, 'script'])}"

    async def _connected(self) -> RemoteModels:
        if self._remote is None:
            await anyio.to_thread.run_sync(self.warm_up)
            from shopfloor.adapters.models.remote import RemoteModels

            # Several may have waited for the import: the first of them has made it.
            self._remote = self._remote or RemoteModels(self._env)
        return self._remote


def _installed() -> bool:
    return importlib.util.find_spec("pydantic_ai") is not None
