"""`shopfloor status`: show the status of a run and its latest events; and read the status from a log alone."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import anyio

from shopfloor.cli.arguments import RUN_HELP, Parser, ReadWarnings, add_color_option, storage_from_args
from shopfloor.cli.client_session import resolve_run_id, run_status
from shopfloor.cli.json_output import RESPONSE, add_json_option, print_json
from shopfloor.cli.links import run_link
from shopfloor.cli.pending_calls import fetch_answered_calls, get_pending_calls, pending_call_lines
from shopfloor.cli.style import (
    Style,
    escape_controls,
    format_age,
    format_based_on,
    format_client,
    format_duration,
    format_later_runs,
    format_traceback,
    one_line,
)
from shopfloor.decoding import convert
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.log import BasedOn, ClientInfo, RunCompleted, RunStarted, ToolCall, ToolResult, decode
from shopfloor.record import Problem, has_active_host, read
from shopfloor.views import WaitState, display_status, wait_state_step
from shopfloor.wiring import open_api

_LABEL_WIDTH = len("progress") + 2
if TYPE_CHECKING:
    from shopfloor.client import Api

_INTERRUPTED = "no outcome was recorded, and the process of the run has ended"


class LogStatus(NamedTuple):
    """The status of a run as its log shows it."""

    status: str
    lines: list[str]
    """Details, and what the user can do."""


def read_log_status(args: Namespace, path: Path) -> LogStatus:
    """Read the whole log, and look up which of its calls have an answer that the run has not read yet."""
    waits, calls, is_resumable = WaitState(), dict[str, ToolCall](), False
    host: str | None = None
    for event in ReadWarnings().decode_events(read(path, on_problem=_ignore)):
        waits = wait_state_step(waits, event)
        match event.payload:
            case RunStarted() as started:
                is_resumable = is_resumable or started.definition is not None
                host = started.host
            case ToolCall(awaits=awaits) as call if awaits is not None:
                calls[call.call_id] = call
            case ToolResult() as result:
                calls.pop(result.call_id, None)
            case _:
                pass
    run = escape_controls(path.stem)
    status = display_status("waiting" if waits.is_waiting else "running", has_active_host=has_active_host(path, host))
    match status:
        case "waiting" if calls:
            answered = fetch_answered_calls(args, path)
            described = [
                _to_api_call(call, is_answered=(path.stem, call_id) in answered) for call_id, call in calls.items()
            ]
            lines = [*pending_call_lines(run, described)]
        case "waiting":
            lines = [f"waits for a sub-run; `shopfloor tree {run[:8]}` shows it"]
        case "running":
            lines = [f"still running; `shopfloor tail {run[:8]}` follows it"]
        case _:
            lines = [f"{_INTERRUPTED}; `shopfloor up` resumes it" if is_resumable else _INTERRUPTED]
    return LogStatus(status, lines)


def _to_api_call(call: ToolCall, *, is_answered: bool) -> dict[str, object]:
    """Return a pending call as the API describes it."""
    awaits = call.awaits
    return {
        "call_id": call.call_id,
        "name": call.name,
        "input": call.input,
        "kind": awaits.kind if awaits else "",
        "until": awaits.until if awaits else None,
        "answered": is_answered,
    }


def _ignore(problem: Problem) -> None:
    """Ignore the problem: showing the events themselves reports it."""


EXAMPLES = """\
  shopfloor status last          status, cost and latest events
  shopfloor status 5f3a --json   for programs"""
_RESUME_HINT = "the process of the run has ended; `shopfloor up` resumes it"
_TIMELINE_ROWS = 1000
_SHOWN_ROWS = 12


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--full", action="store_true", help="show the whole traceback of an error")
    add_json_option(parser, RESPONSE)
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    """Print the status of the run and the end of its timeline."""

    async def fetch() -> tuple[dict[str, Any], dict[str, Any], str | None]:
        async with open_api(storage_from_args(args)) as api:
            run_id = await resolve_run_id(api, args, args.run)
            detail = await api.get("/api/agents/workers/detail", worker_id=run_id)
            timeline = await api.get("/api/agents/workers/events", worker_id=run_id, limit=_TIMELINE_ROWS)
            return detail, timeline, await _fetch_traceback(api, detail) if detail["error"] and not args.json else None

    detail, timeline, traceback = anyio.run(fetch)
    if args.json:
        del detail["transcript"]
        print_json({**detail, "events": timeline["events"]})
        return 0
    style = Style.from_choice(args.color)
    print(style.paint(f"run {detail['id']}", "bold"))
    for name, value in [*_facts(detail), ("page", run_link(storage_from_args(args), detail["id"]) or "")]:
        if not value:
            continue
        print(f"  {style.paint(name.ljust(_LABEL_WIDTH), 'dim')}{escape_controls(value)}")
    for line in format_traceback(traceback, full=args.full) if traceback is not None else ():
        print(style.paint(f"    {line}", "dim"))
    for line in pending_call_lines(detail["id"], get_pending_calls(detail)):
        print(f"  {line}")
    for line in _note_lines(detail, style):
        print(f"  {line}")
    events = cast("list[dict[str, Any]]", timeline["events"])
    if len(events) > _SHOWN_ROWS:
        print(style.paint(f"  … {len(events) - _SHOWN_ROWS:,} earlier", "dim"))
    for event in events[-_SHOWN_ROWS:]:
        print(f"  {style.paint(event['created_at'][11:19], 'dim')}  {_event_line(event, style)}")
    return 0


async def _fetch_traceback(api: Api, detail: dict[str, Any]) -> str | None:
    """Return the traceback of the outcome, which is the last event of the log; None if it has none."""
    async for entry in api.read_log(detail["id"], after=detail["last_seq"] - 1):
        match decode(entry.raw).payload:
            case RunCompleted(error=error) if error is not None:
                return error.traceback or None
            case _:
                pass
    return None


def _facts(detail: dict[str, Any]) -> list[tuple[str, str]]:
    error = cast("dict[str, Any] | None", detail["error"])
    facts = {
        "task": one_line(detail["task"], PREVIEW_CHARS),
        "status": " · ".join(
            part
            for part in (
                run_status(detail),
                f"{error['code']}: {error['message']}" if error else "",
                format_duration(detail["duration_ms"]),
            )
            if part
        ),
        "hint": error.get("hint") if error else _RESUME_HINT if detail["interrupted"] else None,
        "reason": detail.get("queue_reason"),
        "priority": detail["priority"] or None,
        "progress": None if detail["progress"] is None or detail["completed_at"] else f"{detail['progress']:.0%}",
        "attempt": str(detail["attempt"]) if detail["interruptions"] else None,
        "started": f"{detail['started_at']} ({format_age(detail['started_at'])})",
        "owner": detail["agent_id"],
        "channel": detail["channel_name"],
        "client": format_client(convert(detail.get("client"), ClientInfo | None)),
        "parent": detail["parent_run_id"],
        "earlier": format_based_on(convert(detail.get("based_on"), BasedOn | None)),
        "then": format_later_runs([(run["run_id"], run["kind"]) for run in detail.get("continued_by") or ()]),
        "summary": one_line(detail["summary"] or "", PREVIEW_CHARS),
        "cost": _cost(detail),
        "tokens": _tokens(detail),
    }
    return [(name, str(value)) for name, value in facts.items() if value]


def _note_lines(detail: dict[str, Any], style: Style) -> list[str]:
    """Return the questions and decisions that the worker recorded, and the artifacts, one line each."""
    questions = [(_label("question", style), question) for question in detail["questions"]]
    decisions = [
        (_label("decision", style), f"{one_line(each['question'], PREVIEW_CHARS)} → {each['decision']}")
        for each in detail["decisions"]
    ]
    artifacts = [(_label("artifact", style), artifact["name"]) for artifact in detail["artifacts"]]
    return [f"{label}  {one_line(text, 2 * PREVIEW_CHARS)}" for label, text in (*questions, *decisions, *artifacts)]


def _label(name: str, style: Style) -> str:
    return style.paint(name, "dim")


def _cost(detail: dict[str, Any]) -> str | None:
    own, tree = detail["cost_usd"], detail["tree_cost_usd"]
    if tree is None:
        return "unknown" if any(detail["usage"].values()) else None
    text = f"{own:.4f} USD" if own is not None else "unknown"
    return text if own == tree else f"{text}, {tree:.4f} USD with its sub-runs"


def _tokens(detail: dict[str, Any]) -> str | None:
    usage, tree = detail["usage"], detail["tree_usage"]
    if not any(tree.values()):
        return None
    text = _format_usage(usage)
    return text if usage == tree else f"{text}; {_format_usage(tree)} with its sub-runs"


def _format_usage(usage: dict[str, int]) -> str:
    total = usage["input"] + usage["cache_read"] + usage["cache_write"]
    cached = f" ({usage['cache_read']:,} from a cache)" if usage["cache_read"] else ""
    return f"{total:,} in{cached}, {usage['output']:,} out"


def _event_line(event: dict[str, Any], style: Style) -> str:
    data = cast("dict[str, Any]", event["data"])
    match event["event_type"]:
        case "tool_started":
            return f"{escape_controls(data['tool_name'])} ▸ {one_line(data['preview'], PREVIEW_CHARS)}"
        case "tool_completed":
            sign = style.paint("✗", "red") if "error" in data else "✓"
            return f"{escape_controls(data['tool_name'])} {sign} {format_duration(data['duration_ms'])}"
        case "error":
            return style.paint(one_line(data["message"], PREVIEW_CHARS), "red")
        case _:
            return one_line(str(data.get("status")), PREVIEW_CHARS)
