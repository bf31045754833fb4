"""What a run waits for, and how somebody answers it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from shopfloor.cli.arguments import storage_of
from shopfloor.cli.style import one_line, safe
from shopfloor.errors import ShopfloorError
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.views import DEFINITION_CHANGED, RATE_LIMIT, asked_line, held_words

if TYPE_CHECKING:
    from shopfloor.client import Client


def awaited(detail: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls that wait, as the API tells of them."""
    return cast("list[dict[str, Any]]", detail.get("awaits") or [])


def is_answerable(call: Mapping[str, Any]) -> bool:
    """Whether somebody can give what the run waits for."""
    return call["kind"] != DEFINITION_CHANGED


def waiting_lines(run_id: str, calls: list[dict[str, Any]]) -> Iterator[str]:
    """Each of them, and the command that answers it. They may be of runs below that one."""
    for call in calls:
        whose = run_of(call, run_id)
        who = "" if whose == run_id else f"sub-run {whose[:8]} "
        if call["kind"] == RATE_LIMIT:
            yield f"{who}waits for a rate limit, until {safe(str(call['until']))}"
        elif call["kind"] == DEFINITION_CHANGED:
            yield f"{who}{one_line(held_words(call['input']), PREVIEW_CHARS)}"
        elif call.get("answered"):
            yield f"{who}{not_taken_up(asked(call))}"
        else:
            yield f"{who}waits for {asked(call)}"
            yield f"  shopfloor answer {whose[:8]} {safe(call['call_id'])} 'TEXT'"


def not_taken_up(question: str) -> str:
    """Say that somebody has answered this, and that the run has not read the answer yet."""
    return f"answered, not taken up yet: {question}"


def run_of(call: Mapping[str, Any], run_id: str) -> str:
    """The run that waits for it, where that one was asked for: an older server tells of no other."""
    return str(call.get("run_id") or run_id)


def asked(call: Mapping[str, Any]) -> str:
    return one_line(asked_line(call["name"], call["kind"], call["input"]), PREVIEW_CHARS)


def options_of(call: Mapping[str, Any]) -> list[str]:
    """What a question lets one choose from."""
    given = call["input"]
    said: Any = cast("dict[str, Any]", given).get("options") if isinstance(given, dict) else None
    return [str(one) for one in cast("list[Any]", said)] if isinstance(said, list) else []


async def awaited_by(client: Client, run_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The run, and what it waits for."""
    detail = await client.api.run(run_id)
    return detail, awaited(detail)


def answered_calls(args: Namespace, log: Path) -> frozenset[tuple[str, str]]:
    """The calls (run, call) of a run and of the runs below it whose answers wait in the inbox, not in a log.

    Empty for a log outside of the storage, and where neither a server nor a database answers: the log is shown anyway.
    """
    import anyio

    from shopfloor.wiring import open_api

    storage = storage_of(args)
    if log.parent != storage.transcripts:
        return frozenset()

    async def ask() -> dict[str, Any]:
        async with open_api(storage) as api:
            return await api.run(log.stem)

    try:
        calls = awaited(anyio.run(ask))
    except ShopfloorError:
        return frozenset()
    return frozenset((run_of(call, log.stem), str(call["call_id"])) for call in calls if call.get("answered"))
