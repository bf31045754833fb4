"""`shopfloor providers`: whom a task can be handed to, and what each can do."""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

import msgspec

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.style import Style
from shopfloor.client import Address, Api, find_server
from shopfloor.decoding import convert
from shopfloor.errors import ShopfloorError
from shopfloor.ports import Capabilities, ProviderInfo
from shopfloor.record import Storage
from shopfloor.wiring import find_providers

EXAMPLES = """\
  shopfloor providers              which agents there are, and how to get what is missing
  shopfloor providers --json       the same for a program"""
_CAN = {
    "resume": "resume",
    "tool_limits": "tool limits",
    "read_only": "read-only",
    "max_turns": "turn limit",
    "deltas": "live text",
    "thinking": "thinking",
    "usage": "tokens",
    "cost": "cost",
    "sub_agents": "sub-agents",
    "own_tools": "own tools",
    "sandbox": "sandbox",
}


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("--json", action="store_true", help="as JSON")
    return parser


def run(args: Namespace) -> int:
    providers = find_providers()
    if args.json:
        told = [{**msgspec.to_builtins(one), "usable": one.usable} for one in providers]
        print(json.dumps({"providers": told}, indent=2))
        return 0
    style = Style.from_choice("auto")
    for one in providers:
        for line in provider_lines(one, style):
            print(line)
    for line in server_differences(storage_from_args(args), providers, style):
        print(line)
    usable = [one.name for one in providers if one.usable]
    if usable:
        print(f"\nshopfloor run --provider {usable[0]} 'what is in this folder?'", file=sys.stderr)
    return 0


def provider_lines(one: ProviderInfo, style: Style) -> list[str]:
    """What there is to know of a provider, with what to do about what is missing."""
    mark = style.paint("✓", "green") if one.usable else style.paint("·", "yellow")
    if one.kind == "api":
        what = "model API"
    elif one.path is None:
        what = "not installed"
    else:
        what = one.version or "version unknown"
    lines = [f"{mark} {one.name:<12} {what:<16} {capabilities_text(one.capabilities)}"]
    if one.problem:
        lines.append(f"    {one.problem}")
    if one.kind == "agent" and one.path is None:
        lines.append(f"    to install it: {one.install}")
    elif one.login is None:
        todo = one.install if one.kind == "api" else f"start `{one.program}` once and log in, or set its key"
        lines.append(f"    it cannot log in: {todo}")
    else:
        lines.append(f"    logs in by {one.login}" + (f" · {one.path}" if one.path else ""))
    return lines


def server_differences(storage: Storage, here: Sequence[ProviderInfo], style: Style) -> list[str]:
    """Describe the providers that the server, with its own environment, sees otherwise than this shell does."""
    address = find_server(storage)
    if address is None:
        return []
    try:
        there = asyncio.run(_providers_of(address))
    except ShopfloorError as error:
        return ["", f"the server at {address.url} cannot be asked for its providers: {error.message}"]
    seen = {one.name: _state(one) for one in here}
    differing = [one for one in there if seen.get(one.name) != _state(one)]
    if not differing:
        return []
    title = f"The server at {address.url}, which executes what is dispatched, differs from this shell:"
    return ["", title, *(line for one in differing for line in provider_lines(one, style))]


def _state(one: ProviderInfo) -> tuple[str | None, ...]:
    return one.path, one.version, one.login, one.problem


async def _providers_of(address: Address) -> list[ProviderInfo]:
    api = Api(address.url, address.token)
    try:
        return convert((await api.get("/api/providers"))["providers"], list[ProviderInfo])
    finally:
        await api.close()


def capabilities_text(capabilities: Capabilities) -> str:
    return ", ".join(words for name, words in _CAN.items() if getattr(capabilities, name))
