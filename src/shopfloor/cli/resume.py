"""`shopfloor resume`: a run that has no host, continued in this shell."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import anyio

from shopfloor.cli.arguments import WORKERS_OPTION, Parser
from shopfloor.cli.asking import ask, named_run
from shopfloor.cli.following import Events, Following
from shopfloor.cli.masking import add_masking, masking_of
from shopfloor.cli.ordering import known_workers, refuse_workers, worker_named
from shopfloor.cli.remote import is_remote
from shopfloor.cli.run_worker import look_of
from shopfloor.cli.tool_commands import handlers_of
from shopfloor.cli.waiting import awaited_by
from shopfloor.client import CallResult, Client
from shopfloor.wiring import Workers

EXAMPLES = """\
  shopfloor resume last                       a run whose process was killed, continued here
  shopfloor resume 5f3a --mask-env API_KEY    with what was masked before still masked

The run continues with the environment of this shell, in the folder that it began in. Ctrl-C cancels the run."""


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("run", metavar="RUN", help="a run's id or its first characters, or `last`")
    parser.add_argument("--workers", **WORKERS_OPTION)
    parser.add_argument(
        "--tool",
        metavar="NAME=COMMAND",
        action="append",
        default=[],
        help="execute this tool of the worker by a command, as for `shopfloor run`; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="the events of the run on stdout, one per line")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing of our own on stderr, except errors")
    add_masking(parser)
    return parser


def run(args: Namespace) -> int:
    if is_remote():
        refuse_workers(args)
    following = Following(look_of(args))

    async def resume(client: Client) -> int:
        run_id = await named_run(client.api, args, args.run)
        detail, calls = await awaited_by(client, run_id)
        following.expect(run_id, calls)
        known = await known_workers(client)
        worker = worker_named(detail["name"], known)
        tools = following.tools = handlers_of(args.tool, worker, known)

        def begin(abort: anyio.Event) -> Events:
            return client.workers.resume(worker.slug, run_id, tools=tools, signal=abort)

        def go_on(run_id: str, results: list[CallResult]) -> Events:
            return client.workers.continue_(worker.slug, run_id, results, tools=tools)

        return await following.follow(client, begin, go_on)

    mask = masking_of(args)
    return ask(args, resume, workers=Workers.named(args.workers), can_run=True, mask=mask, hear=following.hear)
