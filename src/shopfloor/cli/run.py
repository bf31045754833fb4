"""`shopfloor run`: a worker, or a bare command, live, with its transcript kept."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from shopfloor.cli.arguments import Parser
from shopfloor.cli.masking import add_masking
from shopfloor.cli.ordering import add_order
from shopfloor.errors import UsageError
from shopfloor.limits import STOP_GRACE_SECONDS
from shopfloor.record import Durability

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
    add_order(parser)
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
    add_masking(parser)
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
        from shopfloor.cli.run_provider import run_provider

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
        from shopfloor.cli.run_command import record_command

        return record_command(args)
    from shopfloor.cli.run_worker import run_worker

    return run_worker(args)


def _refuse(args: Namespace, options: dict[str, str], kind: str) -> None:
    """An option that is not heeded is worse than an error."""
    for name, option in options.items():
        if getattr(args, name) not in (None, False, []):
            raise UsageError(f"{option} goes with {kind}", hint="`shopfloor run --help` shows what goes with what")
