"""Operations on webhooks, for admins: list, add, remove, test."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from shopfloor.client.api import Api
from shopfloor.decoding import convert
from shopfloor.views import NotificationKind


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook or command that is notified of runs."""

    id: str
    origin: str
    """`api`, `settings`, `run` or `desktop`."""
    url: str | None
    command: str | None
    kinds: list[str]
    """What it is notified of: `outcome`, `question`, `budget`."""
    run_id: str | None
    """The only run that it is notified of; None for all."""
    created_at: str
    pending: int
    """Deliveries that wait for their next try."""
    delivered: int
    dropped: int
    """Deliveries that were given up."""
    last_error: str | None
    """The problem of the newest try; None if it succeeded."""
    last_at: str | None


class AddedHook(msgspec.Struct, frozen=True, kw_only=True):
    """A new webhook. `secret` is the key of its signatures, and is not shown again."""

    id: str
    secret: str


class HookTest(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver did with a test event."""

    id: str
    delivered: bool
    problem: str | None


class HooksApi:
    """Reads and changes webhooks. Needs the role admin."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self) -> list[Hook]:
        """Return the webhooks and commands that are notified of runs, oldest first."""
        return convert((await self._api.get("/api/hooks"))["hooks"], list[Hook])

    async def add(self, url: str, *, kinds: Sequence[NotificationKind] = ()) -> AddedHook:
        """Add a webhook that is notified of these kinds of events, by default of all. Keep its secret."""
        return convert(await self._api.post("/api/hooks", {"url": url, "kinds": list(kinds)}), AddedHook)

    async def remove(self, hook_id: str) -> None:
        """Remove a webhook, and what it was not told yet. Raises `NotFoundError`."""
        await self._api.delete(f"/api/hooks/{quote(hook_id, safe='')}")

    async def test(self, hook_id: str) -> HookTest:
        """Send a made-up outcome to a hook once, and return how that went."""
        return convert(await self._api.post(f"/api/hooks/{quote(hook_id, safe='')}/test", {}), HookTest)
