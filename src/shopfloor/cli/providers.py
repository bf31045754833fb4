"""`shopfloor providers`: list the agents and model APIs with their status, check, disable and enable them."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import anyio
import msgspec

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.json_output import RESPONSE, add_json_option, print_json
from shopfloor.cli.style import Style, escape_controls
from shopfloor.client import Address, find_server
from shopfloor.decoding import convert
from shopfloor.errors import ShopfloorError
from shopfloor.ports import Capabilities, ProviderInfo
from shopfloor.record import Storage
from shopfloor.views import ObservedLimit
from shopfloor.wiring import find_providers, open_api

EXAMPLES = """\
  shopfloor providers                      list them; how to install, log in
  shopfloor providers --json               for programs
  shopfloor providers disable codex        refuse new runs that need it
  shopfloor providers enable codex         allow them again
  shopfloor providers check                ask now whether they answer"""
_LIST = """\
  shopfloor providers list          with their status
  shopfloor providers list --json   for programs"""
_DISABLE = """\
  shopfloor providers disable codex --reason 'the key leaked'
  shopfloor providers disable codex --maintenance

Sessions that are running continue. The storage keeps this until
`shopfloor providers enable`."""
_ENABLE = "  shopfloor providers enable codex"
_CHECK = """\
  shopfloor providers check

The server checks by itself every five minutes (SHOPFLOOR_PROVIDER_CHECK:
seconds, 0 for never). A check uses no model: it starts each program for its
version, asks it whether it is logged in, and requests the list of models of an
API with a key."""
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


class ListedProvider(ProviderInfo, frozen=True, kw_only=True):
    """A provider as the API lists it."""

    status: str | None = None
    reason: str | None = None
    error: str | None = None
    estimated_recovery: str | None = None
    disabled_by: str | None = None
    disabled_at: str | None = None
    checked_at: str | None = None
    limits: tuple[ObservedLimit, ...] = ()

    @property
    def can_run(self) -> bool:
        """Whether the provider can be used now."""
        return self.usable and self.status in {None, "available"}


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    add_json_option(parser)

    listing = parser.add_command("list", "List the providers", examples=_LIST)
    add_json_option(listing)

    disable = parser.add_command("disable", "Refuse new runs that need a provider", examples=_DISABLE)
    disable.add_argument("provider", metavar="NAME", help="name of the provider")
    disable.add_argument("--maintenance", action="store_true", help="say that it is for maintenance")
    disable.add_argument("--reason", metavar="TEXT", help="why; shown to those whose runs need the provider")
    add_json_option(disable, RESPONSE)

    enable = parser.add_command("enable", "Allow runs that need a provider again", examples=_ENABLE)
    enable.add_argument("provider", metavar="NAME", help="name of the provider")
    add_json_option(enable, RESPONSE)

    check = parser.add_command("check", "Check now whether the providers answer", examples=_CHECK)
    add_json_option(check, RESPONSE)
    parser.set_default_command("list")
    return parser


def run(args: Namespace) -> int:
    """Execute the inner command."""
    commands: dict[str, Callable[[Namespace], int]] = {
        "list": _list,
        "disable": _disable,
        "enable": _enable,
        "check": _check,
    }
    return commands[args.part](args)


def _list(args: Namespace) -> int:
    providers, differences = find_listed(storage_from_args(args), Style.from_choice("auto"))
    if args.json:
        print_json({"providers": providers_json(providers)})
        return 0
    _print([line for provider in providers for line in provider_lines(provider, Style.from_choice("auto"))])
    _print(differences)
    usable = [provider.name for provider in providers if provider.can_run]
    if usable:
        print(f"\ntry: shopfloor run --provider {usable[0]} 'what is in this folder?'", file=sys.stderr)
    return 0


def providers_json(providers: Sequence[ListedProvider]) -> list[dict[str, Any]]:
    """Return the providers as `providers --json` lists them."""
    return [{**msgspec.to_builtins(provider), "usable": provider.usable} for provider in providers]


def _disable(args: Namespace) -> int:
    body = {"maintenance": args.maintenance, "reason": args.reason}
    response = _post(args, f"/api/providers/{args.provider}/disable", body)
    if args.json:
        print_json(response)
        return 0
    print(f"{args.provider} is disabled; `shopfloor providers enable {args.provider}` enables it")
    return 0


def _enable(args: Namespace) -> int:
    response = _post(args, f"/api/providers/{args.provider}/enable")
    if args.json:
        print_json(response)
        return 0
    found = convert(response, ListedProvider)
    print(f"{args.provider} is enabled" + ("" if found.can_run else ", but cannot be used now:"))
    _print([] if found.can_run else provider_lines(found, Style.from_choice("auto")))
    return 0


def _check(args: Namespace) -> int:
    response = _post(args, "/api/providers/check")
    if args.json:
        print_json(response)
        return 0
    found = convert(response["providers"], list[ListedProvider])
    _print([line for provider in found for line in provider_lines(provider, Style.from_choice("auto"))])
    return 0


def _post(args: Namespace, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    async def post() -> dict[str, Any]:
        async with open_api(storage_from_args(args)) as api:
            return await api.post(path, dict(body or {}))

    return anyio.run(post)


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        print(line)


def find_listed(storage: Storage, style: Style) -> tuple[list[ListedProvider], list[str]]:
    """Return the providers of this shell with what the storage knows of them, and lines about the server's.

    The server has its own environment; what people disabled and what runs met is the same for both.
    """
    address = find_server(storage)
    try:
        served = anyio.run(_fetch_providers, storage)
    except ShopfloorError as error:
        where = f"of the server at {address.url}" if address is not None else "of the storage"
        return local_providers(), ["", f"the providers {where} are unknown: {error.message}"]
    if address is None:
        return served, []
    by_name = {provider.name: provider for provider in served}
    local = [_merge(info, by_name.get(info.name)) for info in find_providers()]
    return local, _server_differences(address, local, served, style)


def local_providers() -> list[ListedProvider]:
    """Return the providers of this shell, without what a storage knows of them."""
    return [_merge(info, None) for info in find_providers()]


def _merge(info: ProviderInfo, served: ListedProvider | None) -> ListedProvider:
    """Return a provider of this shell, with what the storage knows of it."""
    facts = {name: getattr(info, name) for name in ProviderInfo.__struct_fields__}
    return msgspec.structs.replace(served, **facts) if served is not None else ListedProvider(**facts)


def provider_lines(provider: ListedProvider, style: Style) -> list[str]:
    """Return the lines about a provider: version, capabilities, login, what is missing, its status and limits."""
    mark = style.paint("✓", "green") if provider.can_run else style.paint("·", "yellow")
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
    return [*lines, *(f"    {escape_controls(line)}" for line in _status_lines(provider))]


def _status_lines(provider: ListedProvider) -> Iterator[str]:
    if provider.status == "disabled":
        state = "disabled for maintenance" if provider.reason == "maintenance" else "disabled"
        why = f": {provider.error}" if provider.error else ""
        yield f"{state} by {provider.disabled_by} since {provider.disabled_at}{why}"
    elif provider.status == "rate_limited":
        yield f"rate-limited until {provider.estimated_recovery}"
    elif provider.status == "unavailable" and provider.usable and provider.error:
        yield f"unavailable: {provider.error}"
    for limit in provider.limits:
        yield _limit_text(limit)


def _limit_text(limit: ObservedLimit) -> str:
    """Return a limit in one line: `limit five_hour: 87% used, resets at …`."""
    parts: list[str] = []
    if limit.current is not None and limit.max is not None:
        is_fraction = limit.max == 1
        parts.append(f"{limit.current:.0%} used" if is_fraction else f"{limit.current:g} of {limit.max:g} used")
    if limit.status not in {None, "allowed"}:
        parts.append(f"{limit.status} at {limit.met_at}")
    if limit.reset_at is not None:
        parts.append(f"resets at {limit.reset_at}")
    name = " ".join(["limit", *([limit.name] if limit.name else []), *([f"of {limit.kind}"] if limit.kind else [])])
    return f"{name}: {', '.join(parts) or f'met at {limit.met_at}'}"


def _server_differences(
    address: Address, local: Sequence[ListedProvider], served: Sequence[ListedProvider], style: Style
) -> list[str]:
    """Return lines about the providers that differ between this shell and the server, which has its own environment."""
    local_states = {provider.name: _state(provider) for provider in local}
    differing = [provider for provider in served if local_states.get(provider.name) != _state(provider)]
    if not differing:
        return []
    title = f"Different on the server at {address.url}, which executes dispatched runs:"
    return ["", title, *(line for provider in differing for line in provider_lines(provider, style))]


def _state(provider: ProviderInfo) -> tuple[str | None, ...]:
    return provider.path, provider.version, provider.login, provider.problem


async def _fetch_providers(storage: Storage) -> list[ListedProvider]:
    async with open_api(storage) as api:
        return convert((await api.get("/api/providers"))["providers"], list[ListedProvider])


def capabilities_text(capabilities: Capabilities) -> str:
    """Return the capabilities as a comma-separated list."""
    return ", ".join(label for name, label in _CAPABILITY_LABELS.items() if getattr(capabilities, name))
