"""The tools: functions on the HTTP API, with the descriptions that a model reads."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import UNSET

from shopfloor.errors import (
    ConflictError,
    InvalidParameter,
    RunEnded,
    ShopfloorError,
)
from shopfloor.mcp.arguments import (
    AnswerArguments,
    CancelArguments,
    DeleteArguments,
    DispatchArguments,
    ListArguments,
    ResultArguments,
    RunArguments,
    SearchArguments,
    StatusArguments,
    ToolArguments,
    WaitArguments,
    parse_arguments,
)
from shopfloor.mcp.limits import MCP_PAGE_ITEMS, MCP_QUESTION_CHARS, MCP_RESULT_CHARS, MCP_WAIT_SECONDS
from shopfloor.mcp.output import (
    Output,
    error_line,
    is_answerable,
    note_facts,
    one_line,
    page_of,
    parse_cursor,
    pending_calls,
    question_options,
    question_text,
    run_facts,
    to_status,
    to_wire_status,
    without_none,
)
from shopfloor.mcp.results import fetch_output
from shopfloor.mcp.session import Session, run_link
from shopfloor.mcp.waiting import Detail, fetch_detail, wait_for_change, wait_for_end
from shopfloor.mcp.worker_catalog import CatalogCache
from shopfloor.views import APPROVAL, describe_inputs

_CHANNEL: Final = "mcp"


class Tools:
    """The tools of one process, with what they remember between calls."""

    def __init__(self) -> None:
        self.catalog = CatalogCache()

    async def call(self, session: Session, name: str, arguments: dict[str, Any] | None) -> Output:
        """Call a tool. Raises `ShopfloorError` for errors of the caller and of the server."""
        tool = TOOLS.get(name)
        if tool is None:
            raise InvalidParameter(f"there is no tool {name!r}", hint=f"the tools are: {', '.join(TOOLS)}")
        return await tool.function(self, session, parse_arguments(name, arguments, tool.arguments))

    async def list_workers(self, session: Session, args: ListArguments) -> Output:
        start = 0 if args.cursor is UNSET else parse_cursor(args.cursor)
        query = "" if args.query is UNSET else args.query.lower()
        found = [
            worker
            for worker in await self.catalog.workers(session)
            if query in f"{worker['slug']} {worker.get('name') or ''} {worker.get('description') or ''}".lower()
        ]
        end = start + MCP_PAGE_ITEMS
        items = [
            without_none(
                {
                    "worker": worker["slug"],
                    "about": one_line(worker.get("description") or worker.get("name") or ""),
                    "inputs": one_line(describe_inputs(worker["input_schema"]), MCP_QUESTION_CHARS // 4),
                }
            )
            for worker in found[start:end]
        ]
        return Output(
            without_none({"workers": items, "total": len(found), "next": str(end) if end < len(found) else None})
            | ({} if items else {"workers": []})
        )

    async def dispatch(self, session: Session, args: DispatchArguments) -> Output:
        run_id = await self._start(session, args)
        return Output(
            {
                "run_id": run_id,
                "url": run_link(session, run_id),
                "next_step": "show the user the url; worker_wait or worker_status follows the run",
            }
        )

    async def run(self, session: Session, args: RunArguments) -> Output:
        # A client that repeats the call with the answer to a question must not start a second run.
        run_id = session.repeated_run_id or await self._start(session, args)
        seconds = MCP_WAIT_SECONDS if args.timeout_seconds is UNSET else args.timeout_seconds
        (detail,) = await wait_for_change(session, [run_id], seconds, until_end=True)
        if detail["completed_at"] is None:
            return Output(_all_facts(session, detail))
        return await _outcome(session, detail, start=0)

    async def _start(self, session: Session, args: DispatchArguments) -> str:
        """Dispatch a run and return its id."""
        if (args.task is UNSET) == (args.input is UNSET):
            raise InvalidParameter(
                "send either `task` or `input`", hint="`task` is the work in words; `input` has the inputs by name"
            )
        body = without_none(
            {
                "worker": args.worker,
                "text": None if args.task is UNSET else args.task,
                "input": None if args.input is UNSET else args.input,
                "task": None if args.description is UNSET else args.description,
                "cwd": session.folder if args.cwd is UNSET else args.cwd,
                "channel_id": _CHANNEL,
                "channel_name": session.client.name if session.client else _CHANNEL,
                "client": msgspec.to_builtins(session.client),
                # A request that is sent again, because the server was restarted meanwhile, returns the same run.
                "idempotency_key": f"{_CHANNEL}-{uuid.uuid4()}",
            }
        )
        return str((await session.api.post("/api/runs", body))["run_id"])

    async def status(self, session: Session, args: StatusArguments) -> Output:
        detail = await fetch_detail(session, await session.api.find_run(args.run_id))
        return Output(_all_facts(session, detail))

    async def wait(self, session: Session, args: WaitArguments) -> Output:
        run_ids = list(dict.fromkeys([await session.api.find_run(run_id) for run_id in args.run_ids]))
        seconds = MCP_WAIT_SECONDS if args.timeout_seconds is UNSET else args.timeout_seconds
        details = await wait_for_change(session, run_ids, seconds)
        return Output({"runs": [_facts(session, detail) | {"next_step": _next_step(detail)} for detail in details]})

    async def result(self, session: Session, args: ResultArguments) -> Output:
        detail = await fetch_detail(session, await session.api.find_run(args.run_id))
        if detail["completed_at"] is None:
            raise ConflictError(
                f"the run {detail['id']} has no result yet: it is {detail['status']}", hint=_next_step(detail)
            )
        return await _outcome(session, detail, start=0 if args.cursor is UNSET else parse_cursor(args.cursor))

    async def answer(self, session: Session, args: AnswerArguments) -> Output:
        detail = await fetch_detail(session, await session.api.find_run(args.run_id))
        call = _select_call(detail, None if args.call_id is UNSET else args.call_id)
        await session.api.post(
            f"/api/runs/{call['run_id']}/answer",
            {"call_id": call["call_id"], "answer": _to_answer(args.answer, call)},
        )
        return Output(
            {
                "run_id": detail["id"],
                "answered": one_line(question_text(call)),
                "next_step": "worker_wait follows the run",
            }
        )

    async def cancel(self, session: Session, args: CancelArguments) -> Output:
        run_id = await session.api.find_run(args.run_id)
        body = {} if args.reason is UNSET else {"reason": args.reason}
        try:
            await session.api.post(f"/api/runs/{run_id}/cancel", body)
        except RunEnded:
            detail = await fetch_detail(session, run_id)
            return Output(
                {"run_id": run_id, "status": to_status(detail["status"]), "note": "the run had ended already"}
            )
        detail = await wait_for_end(session, run_id, MCP_WAIT_SECONDS)
        return Output({"run_id": run_id, "status": to_status(detail["status"])})

    async def delete(self, session: Session, args: DeleteArguments) -> Output:
        run_id = await session.api.find_run(args.run_id)
        return Output(await session.api.delete(f"/api/runs/{run_id}"))

    async def search(self, session: Session, args: SearchArguments) -> Output:
        parameters = {
            "q": args.query,
            "worker": args.worker,
            "status": UNSET if args.status is UNSET else to_wire_status(args.status),
            "since": args.since,
            "cursor": args.cursor,
        }
        page = await session.api.get(
            "/api/agents/workers",
            limit=MCP_PAGE_ITEMS,
            **{name: value for name, value in parameters.items() if value is not UNSET},
        )
        runs = [_facts(session, run) for run in cast("list[Detail]", page["workers"])]
        return Output({"runs": runs} | without_none({"total": page["total"], "next": page["next"]}))


def _facts(session: Session, run: Detail) -> dict[str, Any]:
    return run_facts(run, run_link(session, run["id"]))


def _all_facts(session: Session, detail: Detail) -> dict[str, Any]:
    """Return the facts about a run with what its worker reported, and what to do next."""
    return _facts(session, detail) | note_facts(detail) | {"next_step": _next_step(detail)}


async def _outcome(session: Session, detail: Detail, *, start: int) -> Output:
    """Return a page of the output of a run that has ended; an error if the run did not complete."""
    facts = _facts(session, detail) | note_facts(detail)
    if facts["status"] != "completed":
        error = detail.get("error") or {"code": facts["status"], "message": f"the run was {facts['status']}"}
        return Output(facts | {"error": one_line(error_line(error), MCP_QUESTION_CHARS)}, is_error=True)
    text = await fetch_output(session.api, detail)
    page = page_of(text, start, MCP_RESULT_CHARS)
    return Output(facts | without_none({"chars": len(text), "next": page.next}), page.text)


def _next_step(detail: Detail) -> str:
    calls = pending_calls(detail)
    if detail["completed_at"] is not None:
        return "worker_result returns the output" if detail["status"] == "done" else "read `error`, then tell the user"
    if any(map(is_answerable, calls)):
        return "ask the user, then send the answer with worker_answer"
    if detail.get("interrupted"):
        return "the run's process has ended: tell the user to run `shopfloor resume`"
    return "worker_wait returns when something changes"


def _select_call(detail: Detail, call_id: str | None) -> dict[str, Any]:
    calls = [call for call in pending_calls(detail) if is_answerable(call)]
    if call_id is not None:
        # A call that is not pending may be answered already: the server knows.
        unknown = {"call_id": call_id, "run_id": detail["id"], "kind": "client_tool", "name": call_id, "input": None}
        return next((call for call in calls if call["call_id"] == call_id), unknown)
    if len(calls) == 1:
        return calls[0]
    if calls:
        listed = "; ".join(f"{call['call_id']}: {one_line(question_text(call))}" for call in calls)
        raise InvalidParameter(f"{len(calls)} questions are open: name one by `call_id`", hint=listed)
    kind = RunEnded if detail["completed_at"] is not None else ConflictError
    raise kind(
        f"the run {detail['id']} waits for no answer: it is {to_status(detail['status'])}", hint=_next_step(detail)
    )


def _to_answer(answer: Any, call: dict[str, Any]) -> Any:
    """Return the answer to a call: one of the options if there are some; the result of a tool call may be JSON."""
    options = question_options(call)
    text = str(answer).strip()
    if options and text not in options:
        if call["kind"] == APPROVAL and not text.isdecimal():
            # The server knows the other words, and reads the reason of a denial.
            return text
        if not (text.isdecimal() and 1 <= int(text[:9]) <= len(options)):
            listed = " / ".join(f"{number}. {one_line(option)}" for number, option in enumerate(options, start=1))
            raise InvalidParameter(f"{one_line(text)!r} is not one of the options", hint=f"the options are: {listed}")
        text = options[int(text) - 1]
    if call["kind"] in ("question", APPROVAL):
        return text
    if not isinstance(answer, str):
        return answer
    try:
        return msgspec.json.decode(answer)
    except msgspec.DecodeError:
        return text


Function = Callable[[Tools, Session, Any], Awaitable[Output]]


class Tool(NamedTuple):
    """A tool as clients see it."""

    title: str
    description: str
    arguments: type[ToolArguments]
    function: Function
    is_read_only: bool = False
    is_destructive: bool = False
    is_idempotent: bool = False
    is_open_world: bool = False
    """Whether it can have effects beyond Shopfloor: a worker may use the network and change files."""


TOOLS: Final[dict[str, Tool]] = {
    "worker_list": Tool(
        "List workers",
        "Lists the workers that accept work, with their inputs. Call it before the first dispatch.",
        ListArguments,
        Tools.list_workers,
        is_read_only=True,
    ),
    "worker_dispatch": Tool(
        "Dispatch work",
        "Starts a worker in the background and returns the run id and the run's url at once; the run survives this "
        "session. Use it for anything longer than a minute, or to work in parallel. Example: "
        '{"worker":"researcher","task":"Compare SQLite and DuckDB for logs; cite sources"}',
        DispatchArguments,
        Tools.dispatch,
        is_open_world=True,
    ),
    "worker_run": Tool(
        "Run and wait",
        "Starts a worker and waits for its output. Use it for short work whose result you need now. If the run takes "
        "longer than timeout_seconds or asks something, returns its run id and status, and the run goes on.",
        RunArguments,
        Tools.run,
        is_open_world=True,
    ),
    "worker_status": Tool(
        "Show a run",
        "Shows where a run is: status, open questions, cost, error. Returns at once.",
        StatusArguments,
        Tools.status,
        is_read_only=True,
    ),
    "worker_wait": Tool(
        "Wait for runs",
        "Waits until an open run changes its status, asks something or ends, and returns what is known of all of them. "
        "Use it instead of calling worker_status repeatedly.",
        WaitArguments,
        Tools.wait,
        # A user may be asked during the wait, and the answer is sent to the run.
        is_idempotent=True,
    ),
    "worker_result": Tool(
        "Get a result",
        "Returns the output of a completed run, in pages, also of runs of earlier sessions. For a failed run returns "
        "the error.",
        ResultArguments,
        Tools.result,
        is_read_only=True,
    ),
    "worker_answer": Tool(
        "Answer a question",
        "Answers a question of a waiting run, which then goes on. Ask the user first unless the user has told you the "
        'answer. Example: {"run_id":"5f3a…","answer":"yes"}',
        AnswerArguments,
        Tools.answer,
        is_idempotent=True,
        is_open_world=True,
    ),
    "worker_cancel": Tool(
        "Cancel a run",
        "Stops a run; its record stays. Changes nothing if the run has ended.",
        CancelArguments,
        Tools.cancel,
        is_destructive=True,
        is_idempotent=True,
    ),
    "worker_delete": Tool(
        "Delete a run",
        "Deletes a completed or cancelled run and its record for good. Only if the user asks for it.",
        DeleteArguments,
        Tools.delete,
        is_destructive=True,
        is_idempotent=True,
    ),
    "run_search": Tool(
        "Search runs",
        "Lists runs, newest first, by words, worker, status or time; without arguments the newest. Use it to find a "
        'run of an earlier session. Example: {"query":"DuckDB","status":"completed"}',
        SearchArguments,
        Tools.search,
        is_read_only=True,
    ),
}

_ADVICE: Final[dict[str, str]] = {
    "run_not_found": "run_search lists the runs and their ids",
    "not_found_error": "worker_list lists the workers",
    "run_running": "worker_wait waits for the run; worker_cancel stops it",
    "needs_force": "a failed run is kept, so that its cause can be found; the user can delete it with "
    "`shopfloor delete --force`",
}
"""What an agent can do about an error, by its code, instead of the hint for people at a terminal."""


def error_output(error: ShopfloorError) -> Output:
    """Return an error as a tool's output: what failed, what to do, and the code."""
    hint = _ADVICE.get(error.code, error.hint)
    return Output(without_none({"error": error.message, "hint": hint, "code": error.code}), is_error=True)
