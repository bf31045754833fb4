"""What `run` and `dispatch` have in common: how a run of a worker is asked for."""

from __future__ import annotations

import json
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from shopfloor.cli.arguments import WORKERS_OPTION, folder_of, storage_of
from shopfloor.cli.remote import is_remote
from shopfloor.decoding import convert
from shopfloor.errors import InputError, InvalidInput, ShopfloorError, UsageError, WorkerNotFound

if TYPE_CHECKING:
    from shopfloor.client import Client


class Taken(msgspec.Struct, frozen=True):
    """What a server says of a worker that it can run."""

    slug: str
    input_schema: dict[str, Any] = {}
    tools: list[str] = []
    client_tools: list[str] = []


def add_order(parser: ArgumentParser) -> None:
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


async def known_workers(client: Client) -> list[Taken]:
    answer = await client.api.get("/api/workers")
    return convert([*answer["workers"], *answer.get("providers", [])], list[Taken])


def worker_named(slug: str, known: Sequence[Taken]) -> Taken:
    """What is known of the worker; nothing but its name where it is unknown, or cannot be run."""
    return next((one for one in known if one.slug == slug), Taken(slug))


def input_of(args: Namespace, worker: Taken) -> dict[str, Any]:
    """What the worker is given; the words after `-i` are what its schema says they are."""
    from shopfloor.engine import Definition, coerced_words

    given = _whole(args.input_json)
    properties = cast("dict[str, dict[str, Any]]", worker.input_schema.get("properties", {}))
    fields = {name: {"type": _type(schema)} for name, schema in properties.items()}
    words = coerced_words(convert({"slug": worker.slug, "input": fields}, Definition), args.input)
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


def asked_of(args: Namespace) -> dict[str, Any]:
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
    folder = folder_of(args.cwd or ".")
    if not is_remote() and not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", hint="name one that exists with --cwd")
    return str(folder)


def refuse_workers(args: Namespace) -> None:
    """Refuse `--workers` where a server executes the run: it would run its own workers of the same names."""
    if args.workers:
        raise UsageError(
            "a server executes this, with its own workers: it takes no --workers",
            hint="give --workers to `shopfloor up` instead, or add the folder with `shopfloor projects add`",
        )


def is_served(args: Namespace) -> bool:
    """Whether there is a server that has what is asked."""
    from shopfloor.client import find_server

    return find_server(storage_of(args)) is not None


def explained(error: ShopfloorError, args: Namespace, *, served: bool) -> ShopfloorError:
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
