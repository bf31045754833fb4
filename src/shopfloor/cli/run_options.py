"""The options that describe a run: the worker's input, who and what the run is for, and what to mask."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from shopfloor.cli.arguments import (
    PLUGINS_OPTION,
    WORKERS_OPTION,
    OptionGroup,
    resolve_folder,
    storage_from_args,
    timeout_seconds,
)
from shopfloor.cli.client_session import is_remote
from shopfloor.decoding import convert
from shopfloor.errors import InputError, InvalidInput, ShopfloorError, UsageError, WorkerNotFound
from shopfloor.log import ClientInfo, Masking
from shopfloor.ports import run_fields
from shopfloor.views import describe_inputs, input_from_task
from shopfloor.wiring import WorkerSettings

if TYPE_CHECKING:
    from shopfloor.client import Client


def add_masking_options(parser: ArgumentParser) -> None:
    """Add the options that keep secrets out of the record."""
    group = parser.add_argument_group("Masking")
    group.add_argument(
        "--mask-env",
        metavar="NAME",
        action="append",
        default=[],
        help="mask the value of this environment variable (repeatable)",
    )
    group.add_argument("--mask-keys", action="store_true", help="mask text that looks like a known kind of key")


def masking_from_args(args: Namespace) -> Masking | None:
    """Return what to mask, or None without masking options."""
    values: list[str] = []
    name: str
    for name in args.mask_env:
        if name not in os.environ:
            raise UsageError(
                f"cannot mask {name}: the environment variable is not set", hint="set it, or remove --mask-env"
            )
        values.append(os.environ[name])
    return Masking(values, key_shapes=args.mask_keys) if values or args.mask_keys else None


class WorkerInfo(msgspec.Struct, frozen=True):
    """The parts of the API's description of a worker that the command line needs."""

    slug: str
    input_schema: dict[str, Any] = {}
    """Empty if the worker is unknown or broken."""
    tools: list[str] = []
    client_tools: list[str] = []


def add_timeout_option(group: OptionGroup, help_text: str = "time limit of each try, e.g. 90, 45s, 10m or 2h") -> None:
    """Add the option for the time limit of an agent, a model or a command."""
    group.add_argument("--timeout", metavar="DURATION", type=timeout_seconds, help=help_text)


def add_task_argument(parser: ArgumentParser) -> None:
    """Add the argument TASK, as `args.text`."""
    parser.add_argument("text", metavar="TASK", nargs="?", help="task for a worker with one text input (- for stdin)")


def add_run_options(parser: ArgumentParser) -> OptionGroup:
    """Add the options that describe a run; return the group of the worker's options."""
    group = parser.add_argument_group("Options for workers")
    group.add_argument(
        "-i",
        "--input",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set an input; NAME=@FILE reads a file (repeatable)",
    )
    group.add_argument("--input-json", metavar="JSON", help="set all inputs with one JSON object")
    group.add_argument("--task", metavar="TEXT", help="task to show in lists (default: made from the input)")
    group.add_argument("--workers", **WORKERS_OPTION)
    group.add_argument("--plugins", **PLUGINS_OPTION)
    group.add_argument(
        "--approve",
        metavar="PATTERN",
        action="append",
        default=[],
        help="ask before these calls: Bash, 'Bash(git push*)', command (repeatable)",
    )
    group.add_argument(
        "--approve-timeout", metavar="SECONDS", type=float, help="deny a call that has no answer after this time"
    )
    origin = parser.add_argument_group("Origin of the run")
    origin.add_argument("--owner", metavar="NAME", help="owner of the run (default: the worker)")
    origin.add_argument("--channel", metavar="ID", default="cli", help="where it comes from, e.g. discord:123:456")
    origin.add_argument("--channel-name", metavar="NAME", help="readable name of the channel, e.g. '#general'")
    return group


async def known_workers(client: Client) -> list[WorkerInfo]:
    """Return the workers and providers that the server can run."""
    response = await client.api.get("/api/workers")
    return convert([*response["workers"], *response.get("providers", [])], list[WorkerInfo])


def find_worker_info(slug: str, known: Sequence[WorkerInfo]) -> WorkerInfo:
    """Return the worker with this slug; an entry with nothing but the slug if it is unknown or broken."""
    return next((worker for worker in known if worker.slug == slug), WorkerInfo(slug))


def parse_worker_input(args: Namespace, worker: WorkerInfo) -> dict[str, Any]:
    """Return the input of the run. The values after `-i` get the types of the worker's input schema."""
    from shopfloor.engine import Definition, parse_input_arguments

    properties = cast("dict[str, dict[str, Any]]", worker.input_schema.get("properties", {}))
    fields = {name: {"type": _field_type(schema)} for name, schema in properties.items()}
    from_words = parse_input_arguments(convert({"slug": worker.slug, "input": fields}, Definition), args.input)
    sources = {"--input-json": _parse_input_json(args.input_json), "-i": from_words, "TASK": _task_input(args, worker)}
    for (first, values), (second, others) in combinations(sources.items(), 2):
        if duplicates := values.keys() & others.keys():
            raise InvalidInput(
                f"input {min(duplicates)} is set twice: by {first} and by {second}", hint="remove one of the two"
            )
    return {name: value for values in sources.values() for name, value in values.items()}


def _task_input(args: Namespace, worker: WorkerInfo) -> dict[str, Any]:
    """Return the input that has the argument TASK; empty without the argument."""
    # The server has the better error for a worker without a schema: it is unknown or broken.
    if args.text is None or not worker.input_schema:
        return {}
    task = read_stdin() if args.text == "-" else args.text
    if not task.strip():
        raise UsageError("the task is empty", hint=f"e.g. shopfloor run {worker.slug} 'your task'")
    try:
        return input_from_task(task, worker.slug, worker.input_schema)
    except InvalidInput:
        inputs = describe_inputs(worker.input_schema)
        raise InvalidInput(
            f"the worker `{worker.slug}` has no single text input for TASK", hint=f"use -i for its inputs: {inputs}"
        ) from None


def _field_type(schema: dict[str, Any]) -> str:
    known = ("string", "number", "integer", "boolean", "array", "object")
    name = schema.get("type")
    return name if name in known else "any"


def _parse_input_json(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    hint = """e.g. --input-json '{"NAME": "Ada"}'"""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--input-json is not valid JSON: {error}", hint=hint) from None
    if not isinstance(value, dict):
        raise UsageError("--input-json must be a JSON object", hint=hint)
    return cast("dict[str, Any]", value)


def run_request_fields(args: Namespace) -> dict[str, Any]:
    """Return the other fields of the request for a run."""
    for pattern in args.approve:
        if re.fullmatch(run_fields.APPROVAL_PATTERN, pattern) is None:
            raise UsageError(
                f"--approve: {pattern!r} is not a pattern of calls", hint="e.g. Bash, 'Bash(git push*)' or command"
            )
    if args.approve_timeout is not None and not 0 < args.approve_timeout < float("inf"):
        raise UsageError(f"--approve-timeout must be a number of seconds above 0, got {args.approve_timeout:g}")
    return {
        "approve": args.approve,
        "approve_timeout": args.approve_timeout,
        "task": args.task,
        "owner": args.owner,
        "channel_id": args.channel,
        "channel_name": args.channel_name or args.channel,
        "cwd": _working_directory(args),
        "client": calling_agent(os.environ),
    }


_SESSION_VARIABLES: Final = {"CLAUDE_CODE_SESSION_ID": "claude-code", "CODEX_THREAD_ID": "codex"}
"""The variables with which agents tell the commands that they run the id of their session."""


def calling_agent(environment: Mapping[str, str]) -> ClientInfo | None:
    """Return the agent whose session runs this command; None without one, and if several could be it.

    An agent that another agent started has the variables of both, and nothing shows which of them is the inner one.
    """
    found = [
        ClientInfo(name=name, session_id=session_id)
        for variable, name in _SESSION_VARIABLES.items()
        if (session_id := environment.get(variable))
    ]
    return found[0] if len(found) == 1 else None


def _working_directory(args: Namespace) -> str | None:
    if args.cwd is None and is_remote():
        # The folders of this machine do not exist on the server's.
        return None
    folder = resolve_folder(args.cwd or ".")
    if not is_remote() and not folder.is_dir():
        raise UsageError(f"folder {folder} does not exist", hint="name an existing folder with --cwd")
    return str(folder)


def worker_settings_from_args(args: Namespace) -> WorkerSettings:
    """Return the workers and plugins that `--workers` and `--plugins` name."""
    return WorkerSettings.from_names(args.workers, plugins=args.plugins)


def reject_worker_options(args: Namespace) -> None:
    """Raise `UsageError` for `--workers` and `--plugins` if a server executes the run: it would use its own."""
    for names, option in ((args.workers, "workers"), (args.plugins, "plugins")):
        if names:
            raise UsageError(
                f"--{option} cannot be used here: a server executes the run, with its own {option}",
                hint=f"start the server with --{option}, or add the folder with `shopfloor projects add`",
            )


def has_server(args: Namespace) -> bool:
    """Return whether a server is running on the storage or named by SHOPFLOOR_URL."""
    from shopfloor.client import find_server

    return find_server(storage_from_args(args)) is not None


def with_worker_hint(error: ShopfloorError, args: Namespace, *, served: bool) -> ShopfloorError:
    """Return `error` with a better hint if the worker was not found; `served` if a server executes the run."""
    if not isinstance(error, WorkerNotFound):
        return error
    words: Sequence[str] = args.worker.split()
    if len(words) > 1 or (words and shutil.which(words[0])):
        from shlex import quote

        return WorkerNotFound(error.message, hint=f"to run a command: shopfloor run --command {quote(args.worker)}")
    if served:
        places = "a server executes the run, with the workers of its projects (`shopfloor projects`) and its --workers"
        return WorkerNotFound(error.message, hint=f"{error.hint}; {places}" if error.hint else places)
    return error


def read_stdin() -> str:
    """Read all of stdin as text."""
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise InputError("stdin is not valid UTF-8 text", hint="pipe text, or convert it to UTF-8 first") from None
