"""The HTTP API as a Python object: errors come back as the errors they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, cast

import httpx
import msgspec

from shopfloor.errors import AmbiguousRun, RunNotFound, ServerUnreachable, ShopfloorError, error_of
from shopfloor.log import Entry, is_run_id

_PAGE: Final = 1_000
_NEWEST: Final = 500


class Api:
    """Answers as plain data, in the shapes of the API. `transport` lets it talk to an app in this process."""

    def __init__(self, url: str, token: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._url = url
        self._http = httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, transport=transport, timeout=30
        )

    async def get(self, path: str, **params: Any) -> dict[str, Any]:
        given = {name: value for name, value in params.items() if value is not None}
        return await self._send("GET", path, params=given)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self._send("POST", path, json=body)

    async def delete(self, path: str) -> dict[str, Any]:
        return await self._send("DELETE", path)

    async def _send(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        return cast("dict[str, Any]", (await self._answer(method, path, **options)).json())

    async def _answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            answer = await self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if answer.is_error or not answer.headers.get("content-type", "").startswith("application/json"):
            raise _error(answer)
        return answer

    def _unreachable(self, error: httpx.HTTPError) -> ServerUnreachable:
        return ServerUnreachable(
            f"there is no answer from {self._url}: {error}",
            hint="start it with `shopfloor up`, or unset SHOPFLOOR_URL",
        )

    async def log(self, run_id: str, *, after: int = 0, limit: int = _PAGE) -> tuple[list[Entry], bool]:
        """A page of a run's log, as it was written, and whether there is more."""
        answer = await self._answer("GET", f"/api/runs/{run_id}/log", params={"after": after, "limit": limit})
        page = msgspec.json.decode(answer.content, type=_LogPage)
        return [_entry(bytes(raw)) for raw in page.events], page.more

    async def whole_log(self, run_id: str, *, after: int = 0) -> AsyncIterator[Entry]:
        more = True
        while more:
            entries, more = await self.log(run_id, after=after)
            for entry in entries:
                yield entry
                after = entry.seq

    async def stream(self, run_id: str, *, after: int = 0) -> AsyncIterator[Entry]:
        """The log and then what comes, until the outcome, or until nobody writes it any more."""
        try:
            async with self._http.stream("GET", f"/api/runs/{run_id}/stream", params={"after": after}) as answer:
                if answer.is_error:
                    await answer.aread()
                    raise _error(answer)
                async for line in answer.aiter_lines():
                    # Events have data; the rest is heartbeats, numbers, and the word that it is over.
                    if line.startswith('data: {"seq"'):
                        yield _entry(line.removeprefix("data: ").encode())
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    async def find_run(self, said: str) -> str:
        """The run that somebody means: an id, the first characters of one of the newest, or `last`."""
        if is_run_id(said):
            return said
        newest = cast("list[dict[str, Any]]", (await self.get("/api/agents/workers", limit=_NEWEST))["workers"])
        if said.lower() == "last":
            fitting = [run["id"] for run in newest if run["parent_run_id"] is None][:1]
        else:
            fitting = [run["id"] for run in newest if run["id"].startswith(said.lower())]
        if not fitting:
            raise RunNotFound(f"{said!r} names none of the newest {_NEWEST} runs", hint="give the whole id")
        if len(fitting) > 1:
            raise AmbiguousRun(f"{len(fitting)} runs begin with {said!r}", hint="give more characters")
        return fitting[0]

    async def close(self) -> None:
        await self._http.aclose()


class _LogPage(msgspec.Struct):
    events: list[msgspec.Raw]
    more: bool


class _Head(msgspec.Struct):
    seq: int
    type: str


def _entry(raw: bytes) -> Entry:
    head = msgspec.json.decode(raw, type=_Head)
    return Entry(head.seq, head.type, raw)


class _Said(msgspec.Struct):
    code: str
    message: str
    hint: str | None = None


class _Problem(msgspec.Struct):
    error: _Said


def _error(answer: httpx.Response) -> ShopfloorError:
    """The error that an answer tells of, as the error it is."""
    try:
        said = msgspec.json.decode(answer.content, type=_Problem).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ServerUnreachable(f"{answer.url} does not answer as a Shopfloor server does ({answer.status_code})")
    return error_of(said.code)(said.message, hint=said.hint)
