"""`shopfloor normalize`: what an agent printed, as a transcript."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from shopfloor.cli.arguments import Parser, resolve_folder
from shopfloor.cli.run_options import FolderSink, RunSink, StdoutSink
from shopfloor.decoding import json_decoder
from shopfloor.errors import FileMissing, ProviderNotFound, storage_error
from shopfloor.limits import READ_CHUNK_BYTES
from shopfloor.log import AssistantMessage, RunCompleted, StreamBlock, decode
from shopfloor.ports import AgentExit
from shopfloor.wiring import provider_names, transcribe_output

EXAMPLES = """\
  claude -p --output-format stream-json --verbose 'hello' | shopfloor normalize claude-code
  codex exec --json 'hello' | shopfloor normalize codex > run.jsonl
  shopfloor normalize gemini session.jsonl | jq -r .type
  shopfloor normalize claude-code session.jsonl --out runs/   with sub-agents: runs/<run-id>.jsonl for each run
  shopfloor normalize codex crashed.jsonl --exit-code 137

With --out the files that were written are listed on stdout, the agent's own first. Without it stdout has the agent's
own run, and sub-agents are an error (several_runs). Otherwise the exit code is 0 whatever the agent's own outcome was:
that is in the transcript."""


class _Envelope(msgspec.Struct, frozen=True):
    run_id: str
    type: str


_envelope = json_decoder(_Envelope).decode


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("provider", metavar="PROVIDER", help=f"who printed it: {', '.join(provider_names())}")
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="what it printed (default: stdin)")
    parser.add_argument("--out", metavar="DIR", help="write one file per run here, instead of one run to stdout")
    parser.add_argument("--exit-code", metavar="N", type=int, help="the agent's own, which may tell how it ended")
    parser.add_argument(
        "--new-session",
        action="store_true",
        help="its session began with it, so totals of the session (Codex) are this run's",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing of our own on stderr, except errors")
    return parser


def run(args: Namespace) -> int:
    if args.provider not in provider_names():
        names = ", ".join(provider_names())
        raise ProviderNotFound(f"there is no provider {args.provider!r}", hint=f"there are {names}")
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
    said = "nothing"
    transcript = transcribe_output(args.provider, _chunks(args.file, sink), source=source, ended=ended, resumed=resumed)
    for line in transcript:
        envelope = _envelope(line)
        is_outcome = envelope.type == RunCompleted.event_type
        sink.write(envelope.run_id, line, is_outcome=is_outcome)
        events += 1
        unparsed += b'"unparsed":true' in line and _is_unparsed(line)
        if is_outcome:
            runs += 1
            said = _status(line) or said
    sink.flush()
    if not args.quiet:
        lines = "1 line" if unparsed == 1 else f"{unparsed:,} lines"
        more = f", {lines} not understood" if unparsed else ""
        count = "1 run" if runs == 1 else f"{runs:,} runs"
        print(f"shopfloor: {said} · {events:,} events of {count}{more}", file=sys.stderr)


def _is_unparsed(line: bytes) -> bool:
    """By its block, since a text may hold the same words."""
    payload = decode(line).payload
    blocks = payload.blocks if isinstance(payload, AssistantMessage) else []
    return any(isinstance(block, StreamBlock) and block.unparsed for block in blocks)


def _status(line: bytes) -> str | None:
    payload = decode(line).payload
    return payload.status if isinstance(payload, RunCompleted) else None


def _chunks(file: str, sink: RunSink) -> Iterator[bytes]:
    """As they come, so that a pipe is told live."""
    opened = sys.stdin.buffer if file == "-" else _opened(file)
    read: Callable[[int], bytes] = getattr(opened, "read1", opened.read)
    while True:
        try:
            chunk = read(READ_CHUNK_BYTES)
        except OSError as error:
            raise storage_error(error, f"cannot read {file}", reading=True) from error
        if not chunk:
            return
        yield chunk
        # Whoever reads what we print sees each event when it happens, not when a buffer is full.
        sink.flush()


def _opened(file: str) -> BinaryIO:
    try:
        return Path(file).open("rb")
    except FileNotFoundError:
        raise FileMissing(f"there is no file {file}") from None
    except OSError as error:
        raise storage_error(error, f"cannot read {file}", reading=True) from error
