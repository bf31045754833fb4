"""`shopfloor result`: print the output of a run."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import Any, cast

from shopfloor.cli.arguments import RUN_HELP, Parser
from shopfloor.cli.client_session import resolve_run_id, run_with_client, wait_for_outcome
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.cli.pending_calls import get_pending_calls, pending_call_lines
from shopfloor.cli.renderer import format_output
from shopfloor.cli.style import escape_controls
from shopfloor.cli.watch import WAITING_EXIT, error_lines
from shopfloor.client import Client
from shopfloor.errors import RunFailed, error_class

EXAMPLES = """\
  shopfloor result last               text unchanged, other values as JSON
  shopfloor result 5f3a --wait        wait until the run has ended
  shopfloor result 5f3a --json | jq   always JSON
  shopfloor result 5f3a --artifacts   the files that were submitted with it
  shopfloor result 5f3a --artifact report.md > report.md

Exit codes: 0 completed, 75 not ended yet, otherwise that of the run's error."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--wait", action="store_true", help="wait until the run has ended")
    add_json_option(parser, "print JSON also if the output is text")
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--artifacts", action="store_true", help="list the artifacts of the run instead")
    files.add_argument("--artifact", metavar="NAME", help="print this artifact of the run instead")
    return parser


def run(args: Namespace) -> int:
    """Print the output, or the error of a failed run; return its exit code."""
    if args.artifact is not None:
        return _print_artifact(args)
    if args.artifacts:
        return _print_artifacts(args)

    async def fetch(client: Client) -> tuple[dict[str, Any], dict[str, Any] | None]:
        run_id = await resolve_run_id(client.api, args, args.run)
        detail = await client.api.run(run_id)
        if args.wait and detail["completed_at"] is None:
            _print_status(detail)
            detail = await wait_for_outcome(client, run_id)
        if detail["completed_at"] is None:
            return detail, None
        return detail, await _outcome(client, run_id, detail["last_seq"] - 1)

    detail, outcome = run_with_client(args, fetch)
    if outcome is None:
        _print_status(detail)
        return WAITING_EXIT
    if outcome["status"] != "completed":
        return _print_failure(outcome)
    _print(outcome.get("result"), as_json=args.json)
    return 0


def _print_artifacts(args: Namespace) -> int:
    async def fetch(client: Client) -> list[dict[str, Any]]:
        run_id = await resolve_run_id(client.api, args, args.run)
        if args.wait:
            await wait_for_outcome(client, run_id)
        return (await client.api.get(f"/api/runs/{run_id}/artifacts"))["artifacts"]

    artifacts = run_with_client(args, fetch)
    if args.json:
        print_json(artifacts)
        return 0
    for artifact in artifacts:
        size = artifact["size_bytes"]
        shown = f"{size:,} bytes" if size is not None else "in the folder of the plugin"
        print(f"{escape_controls(artifact['name'])}  {shown}")
    return 0


def _print_artifact(args: Namespace) -> int:
    async def fetch(client: Client) -> bytes:
        run_id = await resolve_run_id(client.api, args, args.run)
        if args.wait:
            await wait_for_outcome(client, run_id)
        return await client.api.artifact(run_id, args.artifact)

    content = run_with_client(args, fetch)
    if sys.stdout.isatty():
        print(escape_controls(content.decode("utf-8", "replace")))
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    return 0


def _print_status(detail: dict[str, Any]) -> None:
    if detail.get("interrupted"):
        status = "was interrupted: its process has ended"
    else:
        status = "is still running" if detail["status"] == "running" else f"is {detail['status']}"
    print(f"shopfloor: run {detail['id'][:8]} {status}", file=sys.stderr)
    for line in pending_call_lines(detail["id"], get_pending_calls(detail)):
        print(line, file=sys.stderr, flush=True)


async def _outcome(client: Client, run_id: str, after: int) -> dict[str, Any]:
    """Return the outcome from the log, because the row of the run may have a shortened one."""
    page = await client.api.get(f"/api/runs/{run_id}/log", after=after, limit=1)
    events = cast("list[dict[str, Any]]", page["events"])
    if not events or events[-1]["type"] != "run.completed":
        raise RunFailed(
            f"the log of run {run_id} ends without an outcome", hint="`shopfloor show` prints what was recorded"
        )
    return cast("dict[str, Any]", events[-1]["payload"])


def _print_failure(outcome: dict[str, Any]) -> int:
    error = cast("dict[str, Any]", outcome.get("error") or {})
    code, message = str(error.get("code", "run_failed")), str(error.get("message", f"the run {outcome['status']}"))
    for line in error_lines(code, message, error.get("hint")):
        print(line, file=sys.stderr)
    return error_class(code).exit_code


def _print(value: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(value)
        return
    if value is None:
        return
    text = format_output(value)
    sys.stdout.write(escape_controls(text) if sys.stdout.isatty() else text)
    if not text.endswith("\n"):
        print()
