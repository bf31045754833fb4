"""`shopfloor status`: how a run stands, and what happened in it last."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from typing import Any, cast

import anyio

from shopfloor.cli.arguments import Parser, add_color, storage_of
from shopfloor.cli.asking import named_run
from shopfloor.cli.list import status_of
from shopfloor.cli.style import Style, ago, duration, one_line, printed_json, safe
from shopfloor.cli.waiting import awaited, waiting_lines
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.wiring import open_api

EXAMPLES = """\
  shopfloor status last          how it stands, and its timeline
  shopfloor status 5f3a --json   as the API gives it"""
_GO_ON = "the process that worked on it is gone; `shopfloor up` goes on with it"
_TIMELINE_ROWS = 1000
_SHOWN_ROWS = 12


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("run", metavar="RUN", help="a run's id or its first characters, or `last`")
    parser.add_argument("--json", action="store_true", help="as the API gives it")
    add_color(parser)
    return parser


def run(args: Namespace) -> int:
    async def ask() -> tuple[dict[str, Any], dict[str, Any]]:
        async with open_api(storage_of(args)) as api:
            run_id = await named_run(api, args, args.run)
            detail = await api.get("/api/agents/workers/detail", worker_id=run_id)
            return detail, await api.get("/api/agents/workers/events", worker_id=run_id, limit=_TIMELINE_ROWS)

    detail, timeline = anyio.run(ask)
    if args.json:
        del detail["transcript"]
        print(printed_json(json.dumps({**detail, "events": timeline["events"]}, ensure_ascii=False)))
        return 0
    style = Style.named(args.color)
    print(style.paint(f"run {detail['id']}", "bold"))
    for name, value in _facts(detail):
        print(f"  {style.paint(name.ljust(8), 'dim')}{safe(value)}")
    for line in waiting_lines(detail["id"], awaited(detail)):
        print(f"  {line}")
    events = cast("list[dict[str, Any]]", timeline["events"])
    if len(events) > _SHOWN_ROWS:
        print(style.paint(f"  … {len(events) - _SHOWN_ROWS:,} earlier", "dim"))
    for event in events[-_SHOWN_ROWS:]:
        print(f"  {style.paint(event['created_at'][11:19], 'dim')}  {_line(event, style)}")
    return 0


def _facts(detail: dict[str, Any]) -> list[tuple[str, str]]:
    error = cast("dict[str, Any] | None", detail["error"])
    facts = {
        "task": one_line(detail["task"], PREVIEW_CHARS),
        "status": " · ".join(
            part
            for part in (
                status_of(detail),
                f"{error['code']}: {error['message']}" if error else "",
                duration(detail["duration_ms"]),
            )
            if part
        ),
        "hint": error.get("hint") if error else _GO_ON if detail["interrupted"] else None,
        "attempt": str(detail["attempt"]) if detail["interruptions"] else None,
        "started": f"{detail['started_at']} ({ago(detail['started_at'])})",
        "owner": detail["agent_id"],
        "channel": detail["channel_name"],
        "parent": detail["parent_run_id"],
        "cost": _cost(detail),
        "tokens": _tokens(detail),
    }
    return [(name, str(value)) for name, value in facts.items() if value]


def _cost(detail: dict[str, Any]) -> str | None:
    own, tree = detail["cost_usd"], detail["tree_cost_usd"]
    if tree is None:
        return "unknown" if any(detail["usage"].values()) else None
    said = f"{own:.4f} USD" if own is not None else "unknown"
    return said if own == tree else f"{said}, {tree:.4f} USD with its sub-runs"


def _tokens(detail: dict[str, Any]) -> str | None:
    usage, tree = detail["usage"], detail["tree_usage"]
    if not any(tree.values()):
        return None
    said = _counted(usage)
    return said if usage == tree else f"{said}; {_counted(tree)} with its sub-runs"


def _counted(usage: dict[str, int]) -> str:
    read = usage["input"] + usage["cache_read"] + usage["cache_write"]
    cached = f" ({usage['cache_read']:,} from a cache)" if usage["cache_read"] else ""
    return f"{read:,} read{cached}, {usage['output']:,} written"


def _line(event: dict[str, Any], style: Style) -> str:
    data = cast("dict[str, Any]", event["data"])
    match event["event_type"]:
        case "tool_started":
            return f"{safe(data['tool_name'])} ▸ {one_line(data['preview'], PREVIEW_CHARS)}"
        case "tool_completed":
            sign = style.paint("✗", "red") if "error" in data else "✓"
            return f"{safe(data['tool_name'])} {sign} {duration(data['duration_ms'])}"
        case "error":
            return style.paint(one_line(data["message"], PREVIEW_CHARS), "red")
        case _:
            return one_line(str(data.get("status")), PREVIEW_CHARS)
