"""`shopfloor hooks`: list, add, remove and test the webhooks that are notified of runs."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import Any, cast

import anyio

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.json_output import RESPONSE, add_json_option, print_json
from shopfloor.cli.style import escape_controls
from shopfloor.client import Api
from shopfloor.views import DEFAULT_NOTIFICATION_KINDS, NOTIFICATION_KINDS
from shopfloor.wiring import open_api

EXAMPLES = """\
  shopfloor hooks add https://example.com/hook    prints the secret once
  shopfloor hooks add https://example.com/hook --on question --on budget
  shopfloor hooks list                            and how deliveries went
  shopfloor hooks test 1a2b3c4d                   send a test event now
  shopfloor hooks remove 1a2b3c4d

The server (`shopfloor up`) sends the events as signed CloudEvents, and tries
for a day if a receiver does not answer. Commands are in settings.yaml."""
_LIST = """\
  shopfloor hooks list          one line each
  shopfloor hooks list --json   for programs"""
_ADD = """\
  shopfloor hooks add https://example.com/hook
  shopfloor hooks add https://example.com/hook --on outcome
  SECRET=$(shopfloor hooks add https://example.com/hook)   only the secret"""
_ID = "id of the hook, from `shopfloor hooks list`"


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    listing = parser.add_command("list", "List the hooks and how their deliveries went", examples=_LIST)
    add_json_option(listing, RESPONSE)
    add = parser.add_command("add", "Add a webhook and print its secret once", examples=_ADD)
    add.add_argument("url", metavar="URL", help="where to send events, http or https")
    add.add_argument(
        "--on",
        metavar="KIND",
        action="append",
        choices=NOTIFICATION_KINDS,
        default=[],
        help=f"what to send: {', '.join(NOTIFICATION_KINDS)} (repeatable; default: "
        f"{' and '.join(DEFAULT_NOTIFICATION_KINDS)})",
    )
    add_json_option(add, RESPONSE)
    remove = parser.add_command("remove", "Remove a hook", examples="  shopfloor hooks remove 1a2b3c4d")
    remove.add_argument("id", metavar="ID", help=_ID)
    add_json_option(remove, RESPONSE)
    test = parser.add_command("test", "Send a test event to a hook now", examples="  shopfloor hooks test 1a2b3c4d")
    test.add_argument("id", metavar="ID", help=_ID)
    add_json_option(test, RESPONSE)
    return parser


def run(args: Namespace) -> int:
    """Execute the inner command."""
    return anyio.run(_run, args)


async def _run(args: Namespace) -> int:
    async with open_api(storage_from_args(args)) as api:
        match args.part:
            case "add":
                return await _add(api, args)
            case "remove":
                removed = await api.delete(f"/api/hooks/{_path_word(args.id)}")
                if args.json:
                    print_json(removed)
                else:
                    print(f"removed {escape_controls(args.id)}")
                return 0
            case "test":
                found = await api.post(f"/api/hooks/{_path_word(args.id)}/test", {})
                if args.json:
                    print_json(found)
                elif found["delivered"]:
                    print("delivered")
                else:
                    print(f"not delivered: {escape_controls(str(found['problem']))}")
                return 0 if found["delivered"] else 1
            case _:
                return _list(await api.get("/api/hooks"), as_json=args.json)


def _path_word(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


async def _add(api: Api, args: Namespace) -> int:
    added = await api.post("/api/hooks", {"url": args.url, "kinds": args.on})
    if args.json:
        print_json(added)
        return 0
    print(added["secret"])
    print(
        f"hook {added['id']} is notified from now on; its secret, above, is not shown again\n"
        f"`shopfloor hooks test {added['id']}` sends a test event",
        file=sys.stderr,
    )
    return 0


def _list(found: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        print_json(found)
        return 0
    hooks = cast("list[dict[str, Any]]", found["hooks"])
    width = max((len(escape_controls(hook["id"])) for hook in hooks), default=0)
    kinds_width = max((len(",".join(hook["kinds"])) for hook in hooks), default=0)
    for hook in hooks:
        numbers = f"{hook['delivered']:,} delivered, {hook['pending']:,} pending, {hook['dropped']:,} given up"
        kinds = ",".join(cast("list[str]", hook["kinds"]))
        target = escape_controls(str(hook["url"] or hook["command"]))
        print(f"{escape_controls(hook['id']):<{width}}  {kinds:<{kinds_width}}  {numbers}  {target}")
        if hook["last_error"]:
            print(f"{'':<{width}}  the last try failed: {escape_controls(str(hook['last_error']))}")
    if not hooks:
        print("no hooks; `shopfloor hooks add URL` adds one")
    return 0
