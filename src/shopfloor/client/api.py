"""The HTTP API as a Python object: errors come back as the errors they are."""

from __future__ import annotations

from typing import Any, cast

import httpx

from shopfloor.errors import ServerUnreachable, ShopfloorError, error_of


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
        try:
            answer = await self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise ServerUnreachable(
                f"there is no answer from {self._url}: {error}",
                hint="start it with `shopfloor up`, or unset SHOPFLOOR_URL",
            ) from error
        try:
            data = cast("dict[str, Any]", answer.json())
        except ValueError as error:
            raise ServerUnreachable(f"{self._url} does not speak as a Shopfloor server does") from error
        if answer.is_error:
            raise _error(data)
        return data

    async def close(self) -> None:
        await self._http.aclose()


def _error(data: dict[str, Any]) -> ShopfloorError:
    said = cast("dict[str, Any]", data.get("error") or {})
    kind = error_of(str(said.get("code")))
    return kind(str(said.get("message")), hint=said.get("hint"))
