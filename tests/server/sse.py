"""A reader of server-sent events that parses like a browser."""

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
    """Open a stream and yield its events, with comments as text. Leaving the context disconnects."""
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


def read_stream(client: httpx.Client, address: str, limit: int | None = None, **settings: Any) -> list[SseEvent]:
    """Return the first `limit` events of a stream, or all up to its end."""
    with open_stream(client, address, **settings) as received:
        return list(islice((item for item in received if isinstance(item, SseEvent)), limit))
