"""Outputs and transcripts of runs as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

from shopfloor.client import Api
from shopfloor.errors import InvalidEvent, TranscriptBroken
from shopfloor.log import Event, decode
from shopfloor.views import ArchiveEntry, TextItem, ToolCallItem, ToolResultItem, archive


async def fetch_output(api: Api, detail: dict[str, Any]) -> str:
    """Return the output of a run that has ended, from its log: the run's row may have a shortened one."""
    page = await api.get(f"/api/runs/{detail['id']}/log", after=detail["last_seq"] - 1, limit=1)
    events = cast("list[dict[str, Any]]", page["events"])
    if not events or events[-1]["type"] != "run.completed":
        raise TranscriptBroken(f"the log of the run {detail['id']} ends without an outcome", hint="see the run's page")
    output = events[-1]["payload"].get("result")
    if output is None:
        return ""
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, indent=2)


async def fetch_transcript(api: Api, run_id: str) -> str:
    """Return the transcript of a run up to now, as text."""
    lines = [entry.raw async for entry in api.read_log(run_id)]
    return "\n\n".join(_format_turn(turn) for turn in archive(_decode_all(lines)))


def _decode_all(lines: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events, without those of a later version: the rest is still readable."""
    for line in lines:
        try:
            event = decode(line)
        except InvalidEvent:
            continue
        yield event


def _format_turn(turn: ArchiveEntry) -> str:
    lines: list[str] = []
    for item in turn.content:
        match item:
            case TextItem(text=text):
                lines.append(f"{turn.role}: {text}")
            case ToolCallItem(name=name, args=args):
                lines.append(f"tool call: {name} {args}")
            case ToolResultItem(text=text):
                lines.append(f"tool result: {text}")
    return "\n".join(lines)
