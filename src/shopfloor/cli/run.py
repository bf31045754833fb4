"""`shopfloor run`: run a worker, an agent or a shell command, show it live and record it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from argparse import ArgumentParser, Namespace

import anyio

from shopfloor.cli.arguments import QUIET_HELP, Parser, resolve_folder, storage_from_args
from shopfloor.cli.json_output import EVENTS, add_json_option
from shopfloor.cli.links import run_link
from shopfloor.cli.outcome_notice import (
    add_no_notify_option,
    add_on_outcome_option,
    announce_outcome,
    reject_on_outcome,
)
from shopfloor.cli.output_writer import OutputWriter
from shopfloor.cli.run_options import (
    add_masking_options,
    add_run_options,
    add_task_argument,
    add_timeout_option,
    calling_agent,
    masking_from_args,
)
from shopfloor.cli.style import format_duration
from shopfloor.engine import Cancellation, CommandOutcome, CommandRequest, StepCommand, run_command, shell_argv
from shopfloor.errors import UsageError, error_class
from shopfloor.limits import STOP_GRACE_SECONDS
from shopfloor.log import new_run_id
from shopfloor.record import Durability
from shopfloor.wiring import CommandPorts, local_command_ports

_USAGE = (
    "shopfloor run [OPTIONS] WORKER [TASK] [-i NAME=VALUE]...",
    "shopfloor run [OPTIONS] --provider NAME PROMPT",
    "shopfloor run [OPTIONS] --command LINE",
)
EXAMPLES = """\
  shopfloor run hello -i NAME=Ada
  shopfloor run --provider claude-code 'fix the failing test'
  shopfloor run --provider codex --read-only --max-budget 0.50 - < task.md
  shopfloor run --command 'pytest -q' --timeout 10m"""
DETAILS = """\
  shopfloor run hello -i NAME=@name.txt > greeting.txt
      read an input from a file; lists and objects are written as JSON
  shopfloor run counter - < chapter.txt
      read the task from stdin; the task is the one text input of the worker
  shopfloor run research-assistant tea --tool web-search=./search.sh
      execute a tool of the worker with your command: it gets the arguments as
      JSON on stdin, and what it prints is the result
  shopfloor run repo-report --json | jq -r .type
      print the events of the run, one JSON object per line
  shopfloor run --provider claude-code --resume 5f3a 'now the docs'
      continue the agent session of an earlier run, in the folder of that run
  shopfloor run --provider claude-code --approve 'Bash(git push*)' 'release it'
      ask before such a command; `shopfloor answer` approves or denies it
  shopfloor run --command 'sort | uniq -c' < words.txt
      the command gets stdin, unless stdin is a terminal
  shopfloor run --command ./deploy --mask-env API_KEY
      record the run without the value of that variable
  shopfloor run repo-report --on-outcome 'notify-send "$SHOPFLOOR_STATUS"'
      run a command afterwards; it gets the outcome as JSON on stdin
  shopfloor run --provider codex --mask-keys 'rotate the keys'
      mask everything that looks like a key, also in sub-agents

The run is executed here, in this folder and with this environment, whether or
not a server is running; a server shows the run. If SHOPFLOOR_URL is set, that
server executes the run instead. If this process is killed, `shopfloor resume`
continues the run. Ctrl-C cancels the run; a second Ctrl-C exits at once.

Exit codes: 0 completed, 75 waiting for an answer, 128 + N cancelled by signal N
(130 Ctrl-C, 143 TERM, and with --command also `shopfloor cancel`), otherwise
the exit code of the command or of the error."""
_ADVANCED = (
    *("--on-outcome", "--no-notify"),
    *("--input-json", "--task", "--workers", "--plugins", "--owner", "--channel", "--channel-name"),
    *("--tools", "--sandbox", "--approve", "--approve-timeout"),
    *("--grace", "--durability", "--mask-env", "--mask-keys", "--debug"),
)
_WORKER_OPTIONS = {
    "input": "-i",
    "input_json": "--input-json",
    "task": "--task",
    "workers": "--workers",
    "plugins": "--plugins",
    "approve": "--approve",
    "approve_timeout": "--approve-timeout",
    "tool": "--tool",
    "detach": "--detach",
    "json": "--json",
}
_PROVIDER_OPTIONS = {
    "model": "--model",
    "max_turns": "--max-turns",
    "max_budget": "--max-budget",
    "tools": "--tools",
    "read_only": "--read-only",
    "sandbox": "--sandbox",
    "resume": "--resume",
}
_NOT_WITH_PROVIDERS = {"input": "-i", "input_json": "--input-json", "workers": "--workers", "tool": "--tool"}
_TIMEOUT_OPTION = {"timeout": "--timeout"}
_COMMAND_OPTIONS = {"grace": "--grace", "durability": "--durability"}


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES, details=DETAILS, usage=_USAGE, advanced=_ADVANCED)
    parser.add_argument(
        "worker",
        metavar="WORKER | PROMPT",
        nargs="?",
        help="worker to run, or the prompt for --provider",
    )
    add_task_argument(parser)
    parser.add_argument("--provider", metavar="NAME", help="run an agent or model API on PROMPT")
    parser.add_argument("--command", metavar="LINE", help="run a shell command")
    parser.add_argument("--cwd", metavar="DIR", help="folder to run in (default: the current folder)")
    add_timeout_option(parser, "time limit of --provider or --command, e.g. 10m")
    parser.add_argument("-q", "--quiet", action="store_true", help=QUIET_HELP)
    add_on_outcome_option(parser)
    add_no_notify_option(parser)
    workers = add_run_options(parser)
    workers.add_argument(
        "--tool",
        metavar="NAME=COMMAND",
        action="append",
        default=[],
        help="run COMMAND when the worker calls this tool",
    )
    workers.add_argument("--detach", action="store_true", help="let the server run it, and print the run id")
    add_json_option(workers, EVENTS)
    _add_provider_options(parser)
    _add_command_options(parser)
    add_masking_options(parser)
    # `--detach` dispatches the run, without the options that only `dispatch` has.
    parser.set_defaults(priority=None, label=[])
    return parser


def _add_provider_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("Options for --provider")
    group.add_argument("--model", metavar="NAME", help="model to use (default: the agent's default)")
    group.add_argument("--read-only", action="store_true", help="the agent may read but change nothing")
    group.add_argument("--max-budget", metavar="USD", type=float, help="stop when this is spent, sub-agents included")
    group.add_argument("--max-turns", metavar="N", type=int, help="stop after this many model calls")
    group.add_argument("--tools", metavar="A,B", help="allow only these tools, by their exact names")
    group.add_argument("--sandbox", action="store_true", help="run the agent's commands in a sandbox, or fail")
    group.add_argument(
        "--resume",
        metavar="RUN",
        help="continue the agent session of an earlier run",
    )


def _add_command_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("Options for --command")
    group.add_argument(
        "--grace",
        metavar="SECONDS",
        type=float,
        help=f"time to stop after SIGTERM when cancelled, before it is killed (default: {STOP_GRACE_SECONDS:g})",
    )
    group.add_argument(
        "--durability",
        choices=[level.value for level in Durability],
        help=f"when an event counts as written to disk (default: {Durability.GROUP.value})",
    )


def run(args: Namespace) -> int:
    """Run what the arguments name: a provider, a command or a worker."""
    reject_on_outcome(args)
    if args.provider is not None:
        from shopfloor.cli.run_worker import run_provider

        _reject_options(args, _NOT_WITH_PROVIDERS, "a worker")
        _reject_options(args, _COMMAND_OPTIONS, "--command")
        return run_provider(args)
    _reject_options(args, _PROVIDER_OPTIONS, "--provider")
    if (args.worker is None) == (args.command is None):
        raise UsageError(
            "name a worker, or use --provider or --command"
            if args.worker is None
            else "name a worker or use --command, not both",
            hint="e.g. shopfloor run hello -i NAME=Ada, or shopfloor run --command 'echo hello'",
        )
    if args.command is not None:
        _reject_options(args, _WORKER_OPTIONS, "a worker")
        return record_command(args)
    _reject_options(args, _COMMAND_OPTIONS, "--command")
    # A bare command starts faster because it does not load the client.
    _reject_options(args, _TIMEOUT_OPTION, "--provider and --command")
    from shopfloor.cli.run_worker import run_worker

    return run_worker(args)


def _reject_options(args: Namespace, options: dict[str, str], target: str) -> None:
    """Raise `UsageError` for an option that would have no effect."""
    for name, option in options.items():
        if getattr(args, name) not in (None, False, []):
            hint = "run `shopfloor run --help-all` for the options of workers, --provider and --command"
            raise UsageError(f"{option} can only be used with {target}", hint=hint)


# Bare commands.

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_OUTPUT_CLOSED = "the output was closed"


def record_command(args: Namespace) -> int:
    """Execute and record the shell command of `--command`; return its exit code."""
    storage = storage_from_args(args)
    durability = Durability(args.durability or Durability.GROUP)
    with local_command_ports(storage, durability=durability, mask=masking_from_args(args)) as ports:
        request = _command_request(args, ports)
        exit_code, outcome = anyio.run(_record, ports, request)
    if not args.quiet:
        # The exit code of the command counts, also if stderr is closed.
        with contextlib.suppress(OSError):
            link = run_link(storage, request.run_id)
            line = _summary_line(request.run_id, outcome)
            print(f"{line} · {link}" if link else line, file=sys.stderr, flush=True)
    announce_outcome(args, request.run_id, (outcome.run.duration_ms or 0) / 1000)
    return exit_code


def _command_request(args: Namespace, ports: CommandPorts) -> CommandRequest:
    if not args.command.strip():
        raise UsageError("--command is empty", hint="e.g. shopfloor run --command 'echo hello'")
    if "\0" in args.command:
        raise UsageError("--command must not contain NUL bytes")
    grace_seconds: float = STOP_GRACE_SECONDS if args.grace is None else args.grace
    if not 0 <= grace_seconds < float("inf"):
        raise UsageError(f"--grace must be a number of seconds of at least 0, got {grace_seconds:g}")
    cwd = resolve_folder(args.cwd or ".")
    if not cwd.is_dir():
        raise UsageError(f"folder {cwd} does not exist", hint="name an existing folder with --cwd")
    command = StepCommand(
        argv=shell_argv(args.command), cwd=str(cwd), stop_grace=grace_seconds, inherits_stdin=_has_stdin()
    )
    return CommandRequest(
        run_id=new_run_id(),
        command=command,
        timeout_seconds=args.timeout,
        host=ports.host,
        owner=args.owner or "command",
        channel_id=args.channel,
        channel_name=args.channel_name or args.channel,
        client=calling_agent(os.environ),
    )


def _has_stdin() -> bool:
    """Return whether stdin is a pipe, a file or a device that the command can read. A terminal is not passed on."""
    # If stdin was closed at start, its descriptor may belong to another file by now.
    return sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty()


async def _record(ports: CommandPorts, request: CommandRequest) -> tuple[int, CommandOutcome]:
    """Execute the command; return the exit code of this process and the outcome."""
    cancellation = Cancellation()
    received: list[int] = []

    def cancel(number: int) -> None:
        received.append(number)
        cancellation.request(f"cancelled by {signal.Signals(number).name}")

    for number in _SIGNALS:
        # A signal that is ignored at start, as by nohup, stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, cancel, number)
    outcome = await run_command(
        request,
        logs=ports.logs,
        processes=ports.processes,
        cancellation=cancellation,
        echo=OutputWriter(lambda: cancellation.request(_OUTPUT_CLOSED)).write,
    )
    if received:
        return 128 + received[0], outcome
    return (128 + signal.SIGPIPE if cancellation.reason == _OUTPUT_CLOSED else _exit_code(outcome)), outcome


def _exit_code(outcome: CommandOutcome) -> int:
    """Return the exit code of the command, or of the error that kept it from running."""
    if outcome.run.error is None:
        return 0
    return error_class(outcome.run.error.code).exit_code if outcome.exit_code is None else outcome.exit_code


def _summary_line(run_id: str, outcome: CommandOutcome) -> str:
    run, step = outcome.run, outcome.step
    details = f" ({run.error.message})" if run.error else ""
    if step is not None and step.result and step.result.get("outlived"):
        details += ", but a process that it started still runs and cannot be stopped,"
    if step is not None and step.ended_processes and (count := len(step.ended_processes)):
        details += f", ended {count:,} process{'es' if count > 1 else ''} that outlived it,"
    took = format_duration(run.duration_ms or 0)
    return f"shopfloor: {run.status}{details} in {took} · {outcome.events:,} events · shopfloor show {run_id[:8]}"
