"""`--mask-env` and `--mask-keys`: what is kept out of the record of a run."""

from __future__ import annotations

import json
import os
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Self, cast

import msgspec

from shopfloor.cli.arguments import WORKERS_OPTION, resolve_folder, storage_from_args
from shopfloor.cli.client_session import is_remote
from shopfloor.decoding import convert
from shopfloor.errors import (
    InputError,
    InvalidInput,
    LogExists,
    MultipleRuns,
    ShopfloorError,
    UsageError,
    WorkerNotFound,
    storage_error,
)
from shopfloor.log import Masking
from shopfloor.record import make_folder, open_for_append

if TYPE_CHECKING:
    from shopfloor.client import Client


def add_masking_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("what is kept out of the record")
    group.add_argument(
        "--mask-env",
        metavar="NAME",
        action="append",
        default=[],
        help="mask the value of this variable; may be repeated",
    )
    group.add_argument("--mask-keys", action="store_true", help="mask what looks like a known kind of key")


def masking_from_args(args: Namespace) -> Masking | None:
    """What is to be masked; None where nobody asked for that."""
    values: list[str] = []
    name: str
    for name in args.mask_env:
        if name not in os.environ:
            raise UsageError(f"there is no variable {name} to mask", hint="set it, or leave --mask-env out")
        values.append(os.environ[name])
    return Masking(values, key_shapes=args.mask_keys) if values or args.mask_keys else None


class RunSink(Protocol):
    def write(self, run_id: str, line: bytes, *, is_outcome: bool) -> None:
        """Append a line to the transcript of that run. Nothing follows an outcome."""
        ...

    def flush(self) -> None: ...


class StdoutSink:
    """Stdout takes the transcript of one run: the first. Lines of its sub-agents are left out and counted."""

    def __init__(self) -> None:
        self._out = sys.stdout.buffer
        self._run_id: str | None = None
        self._omitted: set[str] = set()

    def write(self, run_id: str, line: bytes, *, is_outcome: bool) -> None:
        self._run_id = self._run_id or run_id
        if run_id == self._run_id:
            self._out.write(line + b"\n")
        else:
            self._omitted.add(run_id)

    def flush(self) -> None:
        self._out.flush()

    def check(self) -> None:
        """Raise `MultipleRuns` where runs of sub-agents were left out."""
        if self._omitted:
            runs = "1 sub-agent has" if len(self._omitted) == 1 else f"{len(self._omitted):,} sub-agents have"
            raise MultipleRuns(
                f"stdout has the transcript of run {self._run_id} only, and {runs} transcripts of their own",
                hint="`shopfloor normalize … --out DIR` writes one file per run",
            )


class FolderSink:
    """A folder with one file per run, `<run-id>.jsonl`. No file that is there is overwritten."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, BinaryIO] = {}
        self.paths: list[Path] = []
        """The files that were written, the first run's first."""

    def __enter__(self) -> Self:
        make_folder(self._folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as files:
            for file in self._open.values():
                files.callback(file.close)

    def write(self, run_id: str, line: bytes, *, is_outcome: bool) -> None:
        try:
            file = self._open.get(run_id) or self._new(run_id)
            file.write(line + b"\n")
            if is_outcome:
                # A stream may have many sub-agents; only those that still run hold an open file.
                self._open.pop(run_id).close()
        except OSError as error:
            raise storage_error(error, f"cannot write {self._folder}/{run_id}.jsonl") from error

    def _new(self, run_id: str) -> BinaryIO:
        path = self._folder / f"{run_id}.jsonl"
        try:
            descriptor = open_for_append(path, new=True)
        except FileExistsError:
            raise LogExists(
                f"{path} exists already", hint="remove it, or name another folder; the same stream gives the same ids"
            ) from None
        file = self._open[run_id] = os.fdopen(descriptor, "ab")
        self.paths.append(path)
        return file

    def flush(self) -> None:
        try:
            for file in self._open.values():
                file.flush()
        except OSError as error:
            raise storage_error(error, f"cannot write to {self._folder}") from error


class WorkerInfo(msgspec.Struct, frozen=True):
    """What a server says of a worker that it can run."""

    slug: str
    input_schema: dict[str, Any] = {}
    tools: list[str] = []
    client_tools: list[str] = []


def add_run_options(parser: ArgumentParser) -> None:
    parser.add_argument("--owner", metavar="NAME", help="on whose behalf it runs (default: the worker's own)")
    parser.add_argument("--channel", metavar="ID", default="cli", help="where it came from, e.g. discord:123:456")
    parser.add_argument("--channel-name", metavar="NAME", help="what people call that, e.g. '#general'")
    group = parser.add_argument_group("what a worker is given")
    group.add_argument(
        "-i",
        "--input",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a value of its input; NAME=@FILE for what is in a file; lists and objects as JSON; may be repeated",
    )
    group.add_argument("--input-json", metavar="JSON", help="all of its input as one JSON object")
    group.add_argument("--task", metavar="TEXT", help="what lists show (default: made of the input)")
    group.add_argument("--workers", **WORKERS_OPTION)


async def known_workers(client: Client) -> list[WorkerInfo]:
    answer = await client.api.get("/api/workers")
    return convert([*answer["workers"], *answer.get("providers", [])], list[WorkerInfo])


def find_worker_info(slug: str, known: Sequence[WorkerInfo]) -> WorkerInfo:
    """What is known of the worker; nothing but its name where it is unknown, or cannot be run."""
    return next((one for one in known if one.slug == slug), WorkerInfo(slug))


def parse_worker_input(args: Namespace, worker: WorkerInfo) -> dict[str, Any]:
    """What the worker is given; the words after `-i` are what its schema says they are."""
    from shopfloor.engine import Definition, parse_input_arguments

    given = _whole(args.input_json)
    properties = cast("dict[str, dict[str, Any]]", worker.input_schema.get("properties", {}))
    fields = {name: {"type": _type(schema)} for name, schema in properties.items()}
    words = parse_input_arguments(convert({"slug": worker.slug, "input": fields}, Definition), args.input)
    if twice := given.keys() & words.keys():
        raise InvalidInput(f"`{min(twice)}` is given twice: in --input-json, and after -i", hint="give it once")
    return given | words


def _type(schema: dict[str, Any]) -> str:
    known = ("string", "number", "integer", "boolean", "array", "object")
    said = schema.get("type")
    return said if said in known else "any"


def _whole(said: str | None) -> dict[str, Any]:
    if said is None:
        return {}
    try:
        given: Any = json.loads(said)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--input-json is no JSON: {error}", hint="""e.g. --input-json '{"NAME": "Ada"}'""") from None
    if not isinstance(given, dict):
        raise UsageError("--input-json is to be an object", hint="""e.g. --input-json '{"NAME": "Ada"}'""")
    return cast("dict[str, Any]", given)


def run_request_fields(args: Namespace) -> dict[str, Any]:
    """What else is said of a run that is asked for."""
    return {
        "task": args.task,
        "owner": args.owner,
        "channel_id": args.channel,
        "channel_name": args.channel_name or args.channel,
        "cwd": _folder(args),
    }


def _folder(args: Namespace) -> str | None:
    if args.cwd is None and is_remote():
        # A folder of this machine means nothing there.
        return None
    folder = resolve_folder(args.cwd or ".")
    if not is_remote() and not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", hint="name one that exists with --cwd")
    return str(folder)


def reject_workers_option(args: Namespace) -> None:
    """Refuse `--workers` where a server executes the run: it would run its own workers of the same names."""
    if args.workers:
        raise UsageError(
            "a server executes this, with its own workers: it takes no --workers",
            hint="give --workers to `shopfloor up` instead, or add the folder with `shopfloor projects add`",
        )


def has_server(args: Namespace) -> bool:
    """Whether there is a server that has what is asked."""
    from shopfloor.client import find_server

    return find_server(storage_from_args(args)) is not None


def with_worker_hint(error: ShopfloorError, args: Namespace, *, served: bool) -> ShopfloorError:
    """The same error, with what somebody may have meant; `served` where a server executes the run."""
    if not isinstance(error, WorkerNotFound):
        return error
    words: Sequence[str] = args.worker.split()
    if len(words) > 1 or (words and shutil.which(words[0])):
        from shlex import quote

        return WorkerNotFound(error.message, hint=f"for a command: shopfloor run --command {quote(args.worker)}")
    if served:
        there = (
            "a server executes this; it finds the workers of its projects (`shopfloor projects`), and of its --workers"
        )
        return WorkerNotFound(error.message, hint=f"{error.hint}; {there}" if error.hint else there)
    return error


def read_stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise InputError("what came on stdin is no text") from None
