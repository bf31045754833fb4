"""`shopfloor answer`: what a run waits for, given by somebody."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from shopfloor.cli.arguments import Parser
from shopfloor.cli.client_session import resolve_run_id, run_with_client
from shopfloor.cli.pending_calls import (
    call_summary,
    fetch_pending_calls,
    is_answerable,
    pending_call_lines,
    question_options,
    resolve_option,
    waiting_run_id,
)
from shopfloor.cli.run_options import has_server, read_stdin
from shopfloor.cli.style import one_line
from shopfloor.cli.tool_commands import parse_json_or_text
from shopfloor.client import Client
from shopfloor.errors import ConflictError, RunEnded, UsageError
from shopfloor.limits import PREVIEW_CHARS

EXAMPLES = """\
  shopfloor answer last --list                    what it waits for
  shopfloor answer last yes                       the only thing it waits for
  shopfloor answer 5f3a call_1 '["a", "b"]'       one of several; JSON where it is JSON, else text
  ./search.sh | shopfloor answer 5f3a call_1 -    from stdin
  shopfloor answer 5f3a call_1 --error 'no network'

Where a question has options, one of them is the answer, or its number. What a sub-run waits for can be answered by the
name of the run above it. The first answer counts."""


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("run", metavar="RUN", help="a run's id or its first characters, or `last`")
    parser.add_argument(
        "words", metavar="[CALL] VALUE", nargs="*", help="which call, where several wait; and what it gave"
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--text", metavar="TEXT", help="instead of a value: this text as it is")
    instead.add_argument("--error", metavar="TEXT", help="instead of a value: why there is none")
    instead.add_argument("--list", action="store_true", help="only say what it waits for")
    return parser


def run(args: Namespace) -> int:
    gives_value = not args.list and args.error is None and args.text is None
    wanted = 0 if args.list else 1 + gives_value
    words: list[str] = args.words
    if len(words) > wanted or (gives_value and not words):
        raise UsageError(
            "give a value, or --text or --error, and before it the call where several wait",
            hint="shopfloor answer RUN [CALL] VALUE; --list says what it waits for",
        )
    named = words[0] if len(words) == wanted and words else None

    async def look(client: Client) -> list[str]:
        run_id = await resolve_run_id(client.api, args, args.run)
        detail, calls = await fetch_pending_calls(client, run_id)
        if args.list:
            return list(pending_call_lines(run_id, calls)) or [f"{run_id[:8]} waits for nobody ({detail['status']})"]
        call = _meant(calls, named, detail)
        if call.get("answered"):
            raise ConflictError(
                f"{call_summary(call)} has been answered already, and the run has not taken it up yet",
                hint=f"the first answer counts; {_goes_on(args, call, calls)}",
            )
        body: dict[str, Any] = {"call_id": call["call_id"]}
        if args.error is not None:
            body["error"] = args.error
        else:
            body["answer"] = args.text if args.text is not None else _value(words[-1], call)
        await client.api.post(f"/api/runs/{waiting_run_id(call, run_id)}/answer", body)
        print(f"shopfloor: answered {call_summary(call)}; {_goes_on(args, call, calls)}", file=sys.stderr)
        return []

    for line in run_with_client(args, look):
        print(line)
    return 0


def _goes_on(args: Namespace, call: dict[str, Any], calls: list[dict[str, Any]]) -> str:
    """Say when the run takes up the answer to this call, one of `calls`."""
    if any(not is_answerable(one) and one.get("run_id") == call.get("run_id") for one in calls):
        return "the run goes on when its worker is as it was"
    return "the run goes on" if has_server(args) else "the run goes on with `shopfloor up` or `shopfloor resume`"


def _value(said: str, call: dict[str, Any]) -> Any:
    said = read_stdin().rstrip("\n") if said == "-" else said
    options = question_options(call) if call["kind"] == "question" else []
    if not options:
        return parse_json_or_text(said)
    answer = resolve_option(said, options)
    if answer not in options:
        numbered = ", ".join(f"{number}. {option}" for number, option in enumerate(options, start=1))
        raise UsageError(
            f"{one_line(said, PREVIEW_CHARS)!r} is none of the options",
            hint=f"they are {one_line(numbered, PREVIEW_CHARS)}; --text TEXT gives another answer",
        )
    return answer


def _meant(calls: list[dict[str, Any]], named: str | None, detail: dict[str, Any]) -> dict[str, Any]:
    """The call that is answered."""
    if named is not None:
        fitting = [call for call in calls if call["call_id"] == named] or [
            call for call in calls if call["call_id"].startswith(named)
        ]
        # One that does not wait any more may be answered already: the server knows.
        unknown = {"call_id": named, "kind": "client_tool", "name": named, "input": None}
        if len(fitting) > 1:
            raise _unclear(fitting, detail["id"])
        return fitting[0] if fitting else unknown
    held = [call for call in calls if not is_answerable(call)]
    calls = [call for call in calls if is_answerable(call)]
    if held and not calls:
        lines = "; ".join(pending_call_lines(detail["id"], held))
        raise ConflictError(f"run {detail['id'][:8]} {lines}", hint="no answer can give that")
    # Where only one is not answered yet, that one is meant.
    calls = [call for call in calls if not call.get("answered")] or calls
    if len(calls) == 1:
        return calls[0]
    if calls:
        raise _unclear(calls, detail["id"])
    kind = RunEnded if detail["completed_at"] is not None else ConflictError
    raise kind(f"run {detail['id'][:8]} waits for nobody ({detail['status']})", hint="`shopfloor status` shows more")


def _unclear(calls: list[dict[str, Any]], run_id: str) -> UsageError:
    known = ", ".join(f"{waiting_run_id(call, run_id)[:8]} {call['call_id']} ({call_summary(call)})" for call in calls)
    return UsageError(f"{len(calls)} calls wait: say which", hint=f"they are {known}")
