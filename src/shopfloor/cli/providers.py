"""`shopfloor providers`: list the agents and model APIs, and what each of them supports."""

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
  shopfloor providers          list them, and how to install or log in
  shopfloor providers --json   for programs"""
_CAPABILITY_LABELS = {
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
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(args: Namespace) -> int:
    """Print the providers of this machine, and where those of the server differ."""
    providers = find_providers()
    if args.json:
        items = [{**msgspec.to_builtins(provider), "usable": provider.usable} for provider in providers]
        print(json.dumps({"providers": items}, indent=2))
        return 0
    style = Style.from_choice("auto")
    for provider in providers:
        for line in provider_lines(provider, style):
            print(line)
    for line in server_differences(storage_from_args(args), providers, style):
        print(line)
    usable = [provider.name for provider in providers if provider.usable]
    if usable:
        print(f"\ntry: shopfloor run --provider {usable[0]} 'what is in this folder?'", file=sys.stderr)
    return 0


def provider_lines(provider: ProviderInfo, style: Style) -> list[str]:
    """Return the lines about a provider: version, capabilities, login, and how to get what is missing."""
    mark = style.paint("✓", "green") if provider.usable else style.paint("·", "yellow")
    if provider.kind == "api":
        version = "model API"
    elif provider.path is None:
        version = "not installed"
    else:
        version = provider.version or "version unknown"
    lines = [f"{mark} {provider.name:<12} {version:<16} {capabilities_text(provider.capabilities)}"]
    if provider.problem:
        lines.append(f"    {provider.problem}")
    if provider.kind == "agent" and provider.path is None:
        lines.append(f"    to install it: {provider.install}")
    elif provider.login is None:
        is_api = provider.kind == "api"
        advice = provider.install if is_api else f"start `{provider.program}` once and log in, or set its key"
        lines.append(f"    not logged in: {advice}")
    else:
        lines.append(f"    logs in by {provider.login}" + (f" · {provider.path}" if provider.path else ""))
    return lines


def server_differences(storage: Storage, local: Sequence[ProviderInfo], style: Style) -> list[str]:
    """Return lines about the providers that differ between this shell and the server, which has its own environment."""
    address = find_server(storage)
    if address is None:
        return []
    try:
        remote = asyncio.run(_fetch_providers(address))
    except ShopfloorError as error:
        return ["", f"the providers of the server at {address.url} are unknown: {error.message}"]
    local_states = {provider.name: _state(provider) for provider in local}
    differing = [provider for provider in remote if local_states.get(provider.name) != _state(provider)]
    if not differing:
        return []
    title = f"Different on the server at {address.url}, which executes dispatched runs:"
    return ["", title, *(line for provider in differing for line in provider_lines(provider, style))]


def _state(provider: ProviderInfo) -> tuple[str | None, ...]:
    return provider.path, provider.version, provider.login, provider.problem


async def _fetch_providers(address: Address) -> list[ProviderInfo]:
    api = Api(address.url, address.token)
    try:
        return convert((await api.get("/api/providers"))["providers"], list[ProviderInfo])
    finally:
        await api.close()


def capabilities_text(capabilities: Capabilities) -> str:
    """Return the capabilities as a comma-separated list."""
    return ", ".join(label for name, label in _CAPABILITY_LABELS.items() if getattr(capabilities, name))
