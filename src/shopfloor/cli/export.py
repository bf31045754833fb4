"""`shopfloor export`: write a run as a document to share."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import anyio

from shopfloor.cli.arguments import RUN_HELP, Parser, storage_from_args
from shopfloor.cli.client_session import resolve_run_id
from shopfloor.cli.style import escape_controls
from shopfloor.errors import StorageFailed
from shopfloor.wiring import open_api

EXAMPLES = """\
  shopfloor export last -o run.html             one HTML file, for any browser
  shopfloor export 5f3a --format md | less      Markdown, to stdout
  shopfloor export last -o run.md               the format follows the name

The HTML file has no scripts and requests nothing from the network. Look through
a run before you share it: it may contain secrets."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--format", choices=("md", "html"), help="md or html (default: by FILE, else md)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to this file (default: stdout)")
    return parser


def run(args: Namespace) -> int:
    """Write the document to the file or to stdout."""
    suffix = Path(args.output).suffix.lower() if args.output else ""
    document_format: str = args.format or ("html" if suffix in {".html", ".htm"} else "md")

    async def fetch() -> bytes:
        async with open_api(storage_from_args(args)) as api:
            return await api.export(await resolve_run_id(api, args, args.run), document_format)

    document = anyio.run(fetch)
    if args.output:
        try:
            Path(args.output).write_bytes(document)
        except OSError as error:
            message = f"cannot write {args.output}: {error.strerror or error}"
            raise StorageFailed(message, hint="name a file in a folder that exists and that you may write") from error
        print(f"wrote {escape_controls(args.output)}, {len(document):,} bytes", file=sys.stderr)
    elif sys.stdout.isatty():
        print(escape_controls(document.decode(errors="replace")), end="")
    else:
        sys.stdout.buffer.write(document)
    return 0
