"""`shopfloor normalize`: convert the output of an agent into a transcript."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

import msgspec

from shopfloor.cli.arguments import QUIET_HELP, Parser, resolve_folder
from shopfloor.decoding import json_decoder
from shopfloor.error_factories import storage_error
from shopfloor.errors import FileMissing, LogExists, MultipleRuns, ProviderNotFound
from shopfloor.limits import READ_CHUNK_BYTES
from shopfloor.log import AssistantMessage, RunCompleted, StreamBlock, decode
from shopfloor.ports import AgentExit
from shopfloor.record import make_folder, open_for_append
from shopfloor.wiring import provider_names, transcribe_output

EXAMPLES = """\
  codex exec --json 'hello' | shopfloor normalize codex > run.jsonl
  shopfloor normalize gemini session.jsonl | jq -r .type
  shopfloor normalize claude-code session.jsonl --out runs/
  shopfloor normalize codex crashed.jsonl --exit-code 137

Without --out, stdout gets the transcript of the agent itself; sub-agents are
an error (several_runs). With --out, each run becomes DIR/<run-id>.jsonl, and
stdout lists the files, the agent's own first. The exit code is 0 also if the
agent failed: the transcript has its outcome."""


class _Envelope(msgspec.Struct, frozen=True):
    run_id: str
    type: str


_envelope = json_decoder(_Envelope).decode


class RunSink(Protocol):
    """Receives the lines of transcripts."""

    def write(self, run_id: str, line: bytes, *, is_outcome: bool) -> None:
        """Append a line to the transcript of a run. No line follows the outcome."""
        ...

    def flush(self) -> None:
        """Write the buffered lines."""
        ...


class StdoutSink:
    """Writes the transcript of the first run to stdout. The runs of sub-agents are omitted."""

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
        """Raise `MultipleRuns` if the runs of sub-agents were omitted."""
        if self._omitted:
            count = "1 sub-agent" if len(self._omitted) == 1 else f"{len(self._omitted):,} sub-agents"
            raise MultipleRuns(
                f"stdout has only the transcript of run {self._run_id}; {count} omitted",
                hint="`shopfloor normalize … --out DIR` writes one file per run",
            )


class FolderSink:
    """Writes one file per run, `<run-id>.jsonl`. Existing files are never overwritten."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, BinaryIO] = {}
        self.paths: list[Path] = []
        """The files that were written; the agent's own run is the first."""

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
                # A stream may have many sub-agents; only the files of running ones stay open.
                self._open.pop(run_id).close()
        except OSError as error:
            raise storage_error(error, f"cannot write {self._folder}/{run_id}.jsonl") from error

    def _new(self, run_id: str) -> BinaryIO:
        path = self._folder / f"{run_id}.jsonl"
        try:
            descriptor = open_for_append(path, new=True)
        except FileExistsError:
            raise LogExists(
                f"{path} exists already; the same output always gets the same run id",
                hint="remove the file, or choose another folder",
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


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    names = ", ".join(provider_names())
    parser.add_argument("provider", metavar="PROVIDER", help=f"agent or model API that printed it: {names}")
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="file with the output (default: stdin)")
    parser.add_argument("--out", metavar="DIR", help="write one file per run to this folder")
    parser.add_argument("--exit-code", metavar="N", type=int, help="exit code of the agent, if known")
    parser.add_argument(
        "--new-session",
        action="store_true",
        help="the session began with this output, so the token totals of a Codex session belong to this run",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help=QUIET_HELP)
    return parser


def run(args: Namespace) -> int:
    """Write the transcript to stdout or to the folder of `--out`."""
    if args.provider not in provider_names():
        names = ", ".join(provider_names())
        raise ProviderNotFound(f"unknown provider {args.provider!r}", hint=f"the providers are {names}")
    if args.out is None:
        sink = StdoutSink()
        _normalize(args, sink)
        sink.check()
        return 0
    with FolderSink(resolve_folder(args.out)) as folder:
        _normalize(args, folder)
    for path in folder.paths:
        print(path)
    return 0


def _normalize(args: Namespace, sink: RunSink) -> None:
    source = None if args.file == "-" else Path(args.file).name
    ended = AgentExit(code=args.exit_code) if args.exit_code is not None else None
    resumed = False if args.new_session else None
    events = unparsed = runs = 0
    status = "no outcome"
    transcript = transcribe_output(args.provider, _chunks(args.file, sink), source=source, ended=ended, resumed=resumed)
    for line in transcript:
        envelope = _envelope(line)
        is_outcome = envelope.type == RunCompleted.event_type
        sink.write(envelope.run_id, line, is_outcome=is_outcome)
        events += 1
        unparsed += b'"unparsed":true' in line and _is_unparsed(line)
        if is_outcome:
            runs += 1
            status = _status(line) or status
    sink.flush()
    if not args.quiet:
        lines = "1 line" if unparsed == 1 else f"{unparsed:,} lines"
        more = f", {lines} not understood" if unparsed else ""
        count = "1 run" if runs == 1 else f"{runs:,} runs"
        print(f"shopfloor: {status} · {events:,} events of {count}{more}", file=sys.stderr)


def _is_unparsed(line: bytes) -> bool:
    """Return whether a block of the event is unparsed. A text may contain the same words."""
    payload = decode(line).payload
    blocks = payload.blocks if isinstance(payload, AssistantMessage) else []
    return any(isinstance(block, StreamBlock) and block.unparsed for block in blocks)


def _status(line: bytes) -> str | None:
    payload = decode(line).payload
    return payload.status if isinstance(payload, RunCompleted) else None


def _chunks(file: str, sink: RunSink) -> Iterator[bytes]:
    """Yield the input as it arrives, so that a pipe is converted live."""
    opened = sys.stdin.buffer if file == "-" else _open(file)
    read: Callable[[int], bytes] = getattr(opened, "read1", opened.read)
    while True:
        try:
            chunk = read(READ_CHUNK_BYTES)
        except OSError as error:
            raise storage_error(error, f"cannot read {file}", reading=True) from error
        if not chunk:
            return
        yield chunk
        # A reader of our output sees each event when it happens, not when a buffer is full.
        sink.flush()


def _open(file: str) -> BinaryIO:
    try:
        return Path(file).open("rb")
    except FileNotFoundError:
        raise FileMissing(f"file {file} does not exist", hint="check the path, or use - for stdin") from None
    except OSError as error:
        raise storage_error(error, f"cannot read {file}", reading=True) from error
