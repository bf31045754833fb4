"""`shopfloor answer`: answer a question or a tool call that a run is waiting for."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from shopfloor.cli.arguments import RUN_HELP, Parser, storage_from_args
from shopfloor.cli.client_session import resolve_run_id, run_status, run_with_client
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.cli.links import run_link
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
from shopfloor.ports import one_shot_job
from shopfloor.views import APPROVAL

EXAMPLES = """\
  shopfloor answer last --list                   list the pending calls
  shopfloor answer last yes                      answer the only pending call
  shopfloor answer 5f3a call_1 '["a", "b"]'      one of several; JSON or text
  ./search.sh | shopfloor answer 5f3a call_1 -   read the value from stdin
  shopfloor answer 5f3a call_1 --error 'no network'
  shopfloor answer last approve                  approve a command or a call
  shopfloor answer last 'deny: not on a Friday'  deny it, with a reason

An approval holds for this call: `approve for this run` and `always approve`
hold longer (`shopfloor approvals` lists the latter). If a question has options,
the value is one of them or its number. The calls of sub-runs can be answered
through the id of the parent run. The first answer counts."""
_USAGE = ("shopfloor answer [OPTIONS] RUN [CALL] VALUE", "shopfloor answer [OPTIONS] RUN --list")


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES, usage=_USAGE)
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "words",
        metavar="[CALL] VALUE",
        nargs="*",
        help="CALL: id of the call, only if several are pending. VALUE: its result",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--text", metavar="TEXT", help="answer with this text, never parsed as JSON")
    instead.add_argument("--error", metavar="TEXT", help="answer with an error")
    instead.add_argument("--list", action="store_true", help="list the pending calls and exit")
    add_json_option(parser, "print the answered call as JSON, or with --list the pending calls")
    return parser


def run(args: Namespace) -> int:
    """Answer the call, or list the pending calls."""
    needs_value = not args.list and args.error is None and args.text is None
    max_words = 0 if args.list else 1 + needs_value
    words: list[str] = args.words
    if len(words) > max_words or (needs_value and not words):
        raise UsageError(
            "missing value" if not words else f"unexpected argument {words[max_words]!r}",
            hint="usage: shopfloor answer RUN [CALL] VALUE; --list lists the pending calls",
        )
    call_id = words[0] if len(words) == max_words and words else None

    async def answer(client: Client) -> None:
        run_id = await resolve_run_id(client.api, args, args.run)
        detail, calls = await fetch_pending_calls(client, run_id)
        if args.list:
            _print_calls(args, detail, calls)
            return
        call = _select_call(calls, call_id, detail)
        if call.get("answered"):
            raise ConflictError(
                f"{call_summary(call)} has been answered already; the run has not read the answer yet",
                hint=f"the first answer counts; {_next_step(args, call, calls)}",
            )
        body: dict[str, Any] = {"call_id": call["call_id"]}
        if args.error is not None:
            body["error"] = args.error
        else:
            body["answer"] = args.text if args.text is not None else _parse_value(words[-1], call)
        answered_id = waiting_run_id(call, run_id)
        await client.api.post(f"/api/runs/{answered_id}/answer", body)
        if args.json:
            print_json({"run_id": answered_id, "call_id": call["call_id"], "name": call["name"], "kind": call["kind"]})
        link = run_link(storage_from_args(args), answered_id)
        line = f"shopfloor: answered {call_summary(call)}; {_next_step(args, call, calls)}"
        print(f"{line} · {link}" if link else line, file=sys.stderr)

    run_with_client(args, answer)
    return 0


def _print_calls(args: Namespace, detail: dict[str, Any], calls: list[dict[str, Any]]) -> None:
    run_id = str(detail["id"])
    if args.json:
        print_json({"run_id": run_id, "status": run_status(detail), "pending_calls": calls})
        return
    for line in pending_call_lines(run_id, calls):
        print(line)
    if not calls:
        print(f"run {run_id[:8]} waits for no answer: it is {run_status(detail)}")


def _next_step(args: Namespace, call: dict[str, Any], calls: list[dict[str, Any]]) -> str:
    """Return when the run reads the answer to this call, which is one of `calls`."""
    if any(not is_answerable(other) and other.get("run_id") == call.get("run_id") for other in calls):
        return "the run continues when the definition of its worker is restored"
    if has_server(args):
        return f"a server that serves the run's folder continues the run; otherwise: `shopfloor resume {args.run}`"
    return "`shopfloor up` or `shopfloor resume` continues the run"


def _parse_value(text: str, call: dict[str, Any]) -> Any:
    text = read_stdin().rstrip("\n") if text == "-" else text
    options = question_options(call) if call["kind"] in ("question", APPROVAL) else []
    if not options:
        return parse_json_or_text(text)
    answer = resolve_option(text, options)
    if call["kind"] == APPROVAL:
        # The server knows the other words, and reads the reason of a denial.
        return answer
    if answer not in options:
        numbered = ", ".join(f"{number}. {option}" for number, option in enumerate(options, start=1))
        raise UsageError(
            f"{one_line(text, PREVIEW_CHARS)!r} is not one of the options",
            hint=f"the options are {one_line(numbered, PREVIEW_CHARS)}; --text TEXT sends any other answer",
        )
    return answer


def _select_call(calls: list[dict[str, Any]], call_id: str | None, detail: dict[str, Any]) -> dict[str, Any]:
    """Return the call to answer: the call that `call_id` names or abbreviates, or else the only pending one."""
    if call_id is not None:
        matching = [call for call in calls if call["call_id"] == call_id] or [
            call for call in calls if call["call_id"].startswith(call_id)
        ]
        # A call that is not pending any more may be answered already: the server knows.
        unknown = {"call_id": call_id, "kind": "client_tool", "name": call_id, "input": None}
        if len(matching) > 1:
            raise _ambiguous_call(matching, detail["id"])
        return matching[0] if matching else unknown
    blocked = [call for call in calls if not is_answerable(call)]
    calls = [call for call in calls if is_answerable(call)]
    if blocked and not calls:
        lines = "; ".join(pending_call_lines(detail["id"], blocked))
        raise ConflictError(f"run {detail['id'][:8]} {lines}", hint="no answer can continue the run")
    # If only one call is unanswered, that call is meant.
    calls = [call for call in calls if not call.get("answered")] or calls
    if len(calls) == 1:
        return calls[0]
    if calls:
        raise _ambiguous_call(calls, detail["id"])
    if detail["completed_at"] is None and detail["worker_type"] == "plugin":
        raise one_shot_job(detail["id"])
    kind = RunEnded if detail["completed_at"] is not None else ConflictError
    raise kind(
        f"run {detail['id'][:8]} waits for no answer: it is {run_status(detail)}",
        hint="`shopfloor status` shows the run",
    )


def _ambiguous_call(calls: list[dict[str, Any]], run_id: str) -> UsageError:
    pending = ", ".join(
        f"{waiting_run_id(call, run_id)[:8]} {call['call_id']} ({call_summary(call)})" for call in calls
    )
    return UsageError(f"{len(calls)} calls are pending: name one of them", hint=f"the calls are {pending}")
