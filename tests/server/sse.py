"""Reading server-sent events as a browser does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import httpx
import msgspec


class SseEvent(msgspec.Struct, frozen=True):
    event: str
    data: str
    id: str | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.data)


@contextmanager
def open_stream(client: httpx.Client, address: str, **settings: Any) -> Iterator[Iterator[SseEvent | str]]:
    """The events of a stream, and its comments as text. Leaving it cuts the connection."""
    with client.stream("GET", address, **settings) as got:
        assert got.status_code == 200, got.read()
        assert got.headers["content-type"] == "text/event-stream"
        assert got.headers["cache-control"] == "no-cache, no-transform"
        assert got.headers["x-accel-buffering"] == "no"
        yield _events(got.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[SseEvent | str]:
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            yield line
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield SseEvent(fields.get("event", "message"), fields["data"], fields.get("id"))
            fields = {}


def events(client: httpx.Client, address: str, most: int | None = None, **settings: Any) -> list[SseEvent]:
    """The first `most` events of a stream, or all to its end."""
    with open_stream(client, address, **settings) as received:
        return list(islice((one for one in received if isinstance(one, SseEvent)), most))
