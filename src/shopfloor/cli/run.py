"""`shopfloor run`: a worker, or a bare command, live, with its transcript kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from argparse import ArgumentParser, Namespace

import anyio

from shopfloor.cli.arguments import Parser, resolve_folder, storage_from_args
from shopfloor.cli.client_session import is_remote, resolve_remote_run_id, run_with_client
from shopfloor.cli.echo import Echo
from shopfloor.cli.renderer import RenderOptions
from shopfloor.cli.run_options import (
    add_masking_options,
    add_run_options,
    find_worker_info,
    known_workers,
    masking_from_args,
    parse_worker_input,
    read_stdin,
    reject_workers_option,
    run_request_fields,
    with_worker_hint,
)
from shopfloor.cli.style import Style, format_duration
from shopfloor.cli.tool_commands import parse_tool_handlers
from shopfloor.cli.watch import EventStream, RunWatcher
from shopfloor.client import CallResult, Client
from shopfloor.engine import Cancellation, CommandOutcome, CommandRequest, StepCommand, run_command, shell_argv
from shopfloor.errors import ProviderNotFound, ShopfloorError, UnsupportedOption, UsageError, exit_code_of
from shopfloor.limits import STOP_GRACE_SECONDS
from shopfloor.log import new_run_id
from shopfloor.record import Durability
from shopfloor.wiring import CommandPorts, WorkerSettings, local_command_ports, provider_names


def run_worker(args: Namespace) -> int:
    mask = masking_from_args(args)
    if args.detach:
        if mask is not None:
            raise UnsupportedOption(
                "what is left to the server cannot be masked: it cannot be told what", hint="leave out --detach"
            )
        from shopfloor.cli.dispatch import dispatch

        return dispatch(args)
    if is_remote():
        reject_workers_option(args)
    following = RunWatcher(render_options_from_args(args))

    async def run(client: Client) -> int:
        known = await known_workers(client)
        worker = find_worker_info(args.worker, known)
        tools = following.tools = parse_tool_handlers(args.tool, worker, known)
        given, asked = parse_worker_input(args, worker), run_request_fields(args)

        def begin(abort: anyio.Event) -> EventStream:
            return client.workers.execute(args.worker, given, tools=tools, signal=abort, **asked)

        def continue_run(run_id: str, results: list[CallResult]) -> EventStream:
            return client.workers.continue_(args.worker, run_id, results, tools=tools)

        code = await following.follow(client, begin, continue_run)
        if not args.quiet:
            for name in sorted(tools.keys() - {*worker.client_tools} - following.requested_tools):
                # It may be of a worker that this one could have called: which ones it calls, nobody knows before.
                print(f"shopfloor: no run asked for the tool {name}", file=sys.stderr)
        return code

    try:
        return run_with_client(
            args,
            run,
            workers=WorkerSettings.from_names(args.workers),
            can_run=True,
            mask=mask,
            on_signal=following.on_signal,
        )
    except ShopfloorError as error:
        raise with_worker_hint(error, args, served=is_remote()) from error


def render_options_from_args(args: Namespace) -> RenderOptions:
    """How whoever started us can be shown things."""
    draws = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return RenderOptions(
        as_json=args.json,
        quiet=args.quiet,
        stdout_is_terminal=sys.stdout.isatty(),
        progress=draws,
        style=Style(enabled=draws and not os.environ.get("NO_COLOR")),
        width=shutil.get_terminal_size((80, 24)).columns,
    )


def run_provider(args: Namespace) -> int:
    names = provider_names()
    if args.provider not in names:
        raise ProviderNotFound(f"there is no provider {args.provider!r}", hint=f"there are {', '.join(names)}")
    if args.command is not None:
        raise UsageError("name one thing to run: --provider, or --command")
    if args.max_turns is not None and args.max_turns < 1:
        raise UsageError("--max-turns is a number, 1 or more")
    if args.max_budget is not None and not 0 < args.max_budget < float("inf"):
        raise UsageError("--max-budget is an amount of US dollars, more than 0")
    given = {
        "prompt": _prompt(args),
        "model": args.model,
        "tools": [name.strip() for name in args.tools.split(",") if name.strip()] if args.tools is not None else None,
        "read_only": args.read_only or None,
        "sandbox": args.sandbox or None,
        "max_turns": args.max_turns,
        "max_budget": args.max_budget,
        "resume": _run(args),
    }
    args.worker = args.provider
    args.input_json = json.dumps({name: value for name, value in given.items() if value is not None})
    return run_worker(args)


def _prompt(args: Namespace) -> str:
    prompt = read_stdin() if args.worker == "-" else args.worker
    if prompt is None or not prompt.strip():
        raise UsageError("there is no prompt", hint=f"shopfloor run --provider {args.provider} 'fix the failing test'")
    return prompt


def _run(args: Namespace) -> str | None:
    if args.resume is None:
        return None
    return resolve_remote_run_id(args.resume) if is_remote() else storage_from_args(args).find(args.resume)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_OUTPUT_CLOSED = "the output was closed"


def record_command(args: Namespace) -> int:
    storage = storage_from_args(args)
    durability = Durability(args.durability or Durability.GROUP)
    with local_command_ports(storage, durability=durability, mask=masking_from_args(args)) as shop:
        request = _request(args, shop)
        exit_code, outcome = anyio.run(_record, shop, request)
    if not args.quiet:
        # The command's exit code is ours, also where nobody can read this any more.
        with contextlib.suppress(OSError):
            print(_closing_line(request.run_id, outcome), file=sys.stderr, flush=True)
    return exit_code


def _request(args: Namespace, shop: CommandPorts) -> CommandRequest:
    if not args.command.strip():
        raise UsageError("the command is empty", hint="shopfloor run --command 'echo hello'")
    if "\0" in args.command:
        raise UsageError("a command cannot hold a NUL")
    grace: float = STOP_GRACE_SECONDS if args.grace is None else args.grace
    if not 0 <= grace < float("inf"):
        raise UsageError("--grace is a number of seconds, 0 or more")
    cwd = resolve_folder(args.cwd or ".")
    if not cwd.is_dir():
        raise UsageError(f"there is no folder {cwd}", hint="name one that exists with --cwd")
    command = StepCommand(
        argv=shell_argv(args.command), cwd=str(cwd), stop_grace=grace, inherits_stdin=_stdin_is_given()
    )
    return CommandRequest(
        run_id=new_run_id(),
        command=command,
        host=shop.host,
        owner=args.owner or "command",
        channel_id=args.channel,
        channel_name=args.channel_name or args.channel,
    )


def _stdin_is_given() -> bool:
    """Whether there is input to pass on: a pipe, a file or a device. A terminal is not, nor is a closed stdin."""
    # Where stdin was closed before we began, its descriptor may be another file's by now.
    return sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty()


async def _record(shop: CommandPorts, request: CommandRequest) -> tuple[int, CommandOutcome]:
    """Execute the command; return our exit code and the outcome."""
    cancellation = Cancellation()
    received: list[int] = []

    def cancel(number: int) -> None:
        received.append(number)
        cancellation.request(f"cancelled by {signal.Signals(number).name}")

    for number in _SIGNALS:
        # What we were told to ignore, as by nohup, stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, cancel, number)
    outcome = await run_command(
        request,
        logs=shop.logs,
        processes=shop.processes,
        cancellation=cancellation,
        echo=Echo(lambda: cancellation.request(_OUTPUT_CLOSED)).pieces,
    )
    if received:
        return 128 + received[0], outcome
    return (128 + signal.SIGPIPE if cancellation.reason == _OUTPUT_CLOSED else _exit_code(outcome)), outcome


def _exit_code(outcome: CommandOutcome) -> int:
    """The command's own code, unless it was we who failed."""
    if outcome.run.error is None:
        return 0
    return exit_code_of(outcome.run.error.code) if outcome.exit_code is None else outcome.exit_code


def _closing_line(run_id: str, outcome: CommandOutcome) -> str:
    run, step = outcome.run, outcome.step
    why = f" ({run.error.message})" if run.error else ""
    if step is not None and step.result and step.result.get("outlived"):
        why += ", but something it started goes on out of our reach,"
    if step is not None and step.ended_processes and (count := len(step.ended_processes)):
        why += f", ended {count:,} process{'es' if count > 1 else ''} that outlived it,"
    took = format_duration(run.duration_ms or 0)
    return f"shopfloor: {run.status}{why} in {took} · {outcome.events:,} events · shopfloor show {run_id[:8]}"


EXAMPLES = """\
  shopfloor run hello -i NAME=Ada                          a worker; what it says goes to stdout
  shopfloor run hello -i NAME=@name.txt > greeting.txt     a value from a file; only the text is written
  shopfloor run research-assistant -i TOPIC=tea --tool web-search=./search.sh
                                                           a tool that a command of yours executes
  shopfloor run repo-report --json | jq -r .type           the events of the run, one per line
  shopfloor run --provider claude-code 'fix the failing test'
                                                           an agent, in this folder; `shopfloor providers` lists them
  shopfloor run --provider codex --read-only --max-budget 0.50 - < task.md
                                                           the prompt from stdin; it may look and not touch
  shopfloor run --provider claude-code --resume 5f3a 'now the docs'
                                                           in the session of an earlier run
  shopfloor run --command 'pytest -q'                      a bare command; its exit code is ours
  shopfloor run --command 'sort | uniq -c' < words.txt    stdin is passed on, unless it is a terminal
  shopfloor run --command './deploy' --mask-env API_KEY    without that variable's value in the transcript
  shopfloor run --provider codex --mask-keys 'rotate them' the same for an agent, with its sub-agents

The run is executed here, in this folder and with this environment, whether or not a server runs; a server shows it.
(Where SHOPFLOOR_URL names a server, that server executes it.) If this process is killed, `shopfloor resume` continues
the run. Ctrl-C cancels the run; a second one leaves at once.

Exit codes: 0 it completed, 75 it waits for somebody, 130 Ctrl-C, others as the error says."""
_OF_WORKERS = {
    "input": "-i",
    "input_json": "--input-json",
    "task": "--task",
    "workers": "--workers",
    "tool": "--tool",
    "detach": "--detach",
    "json": "--json",
}
_OF_PROVIDERS = {
    "model": "--model",
    "max_turns": "--max-turns",
    "max_budget": "--max-budget",
    "tools": "--tools",
    "read_only": "--read-only",
    "sandbox": "--sandbox",
    "resume": "--resume",
}
_NOT_WITH_PROVIDERS = {"input": "-i", "input_json": "--input-json", "workers": "--workers", "tool": "--tool"}
_OF_COMMANDS = {"grace": "--grace", "durability": "--durability"}


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument(
        "worker",
        metavar="WORKER",
        nargs="?",
        help="the worker to run (`shopfloor workers list`); with --provider the prompt, `-` for what comes on stdin",
    )
    parser.add_argument("--provider", metavar="NAME", help="hand the prompt to this agent instead of a worker")
    parser.add_argument(
        "--command",
        metavar="LINE",
        help="a shell command to run instead of a worker; it reads stdin, unless that is a terminal",
    )
    parser.add_argument("--cwd", metavar="DIR", help="the folder to run in (default: this one)")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing of our own on stderr, except errors")
    add_run_options(parser)
    of_worker = parser.add_argument_group("with a worker")
    of_worker.add_argument(
        "--tool",
        metavar="NAME=COMMAND",
        action="append",
        default=[],
        help="execute this tool of the worker, or of one that it calls, by a command: it gets the arguments as JSON on "
        "stdin, and what it prints is the result; may be repeated",
    )
    of_worker.add_argument("--detach", action="store_true", help="hand the run to the server, and print its id")
    of_worker.add_argument("--json", action="store_true", help="the events of the run on stdout, one per line")
    _add_provider(parser)
    _add_command(parser)
    add_masking_options(parser)
    return parser


def _add_provider(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("with --provider")
    group.add_argument("--model", metavar="NAME", help="the model that it asks (default: its own choice)")
    group.add_argument("--max-turns", metavar="N", type=int, help="how often it may ask its model")
    group.add_argument("--max-budget", metavar="USD", type=float, help="what it and its sub-agents may spend")
    group.add_argument("--tools", metavar="A,B", help="the only tools that it may use, by their exact names")
    group.add_argument("--read-only", action="store_true", help="it may look and not touch")
    group.add_argument("--sandbox", action="store_true", help="its commands run in a sandbox, or not at all")
    group.add_argument("--resume", metavar="RUN", help="go on in the session of this run, in its folder")


def _add_command(parser: ArgumentParser) -> None:
    of_command = parser.add_argument_group("with --command")
    of_command.add_argument(
        "--grace",
        metavar="SECONDS",
        type=float,
        help=f"when cancelled: how long it may take to end by itself (default: {STOP_GRACE_SECONDS:g})",
    )
    of_command.add_argument(
        "--durability",
        choices=[level.value for level in Durability],
        help=f"when an event counts as written (default: {Durability.GROUP.value})",
    )


def run(args: Namespace) -> int:
    if args.provider is not None:
        from shopfloor.cli.run import run_provider

        _refuse(args, _NOT_WITH_PROVIDERS, "a worker")
        _refuse(args, _OF_COMMANDS, "--command")
        return run_provider(args)
    _refuse(args, _OF_PROVIDERS, "--provider")
    if (args.worker is None) == (args.command is None):
        raise UsageError(
            "name one thing to run: a worker, or a command",
            hint="shopfloor run hello -i NAME=Ada, or shopfloor run --command 'echo hello'",
        )
    _refuse(args, *((_OF_COMMANDS, "--command") if args.command is None else (_OF_WORKERS, "a worker")))
    # Only what is needed is loaded: a bare command shall not wait for what a worker needs.
    if args.command is not None:
        from shopfloor.cli.run import record_command

        return record_command(args)
    from shopfloor.cli.run import run_worker

    return run_worker(args)


def _refuse(args: Namespace, options: dict[str, str], kind: str) -> None:
    """An option that is not heeded is worse than an error."""
    for name, option in options.items():
        if getattr(args, name) not in (None, False, []):
            raise UsageError(f"{option} goes with {kind}", hint="`shopfloor run --help` shows what goes with what")
