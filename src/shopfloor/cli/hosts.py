"""`shopfloor hosts`: list the hosts that execute runs of this storage, and drain one."""

from __future__ import annotations

import argparse
import json
import time
from datetime import datetime
from typing import Any

import anyio

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.host import seconds
from shopfloor.cli.style import Style, escape_controls
from shopfloor.client import Api
from shopfloor.errors import HostNotFound, UsageError
from shopfloor.wiring import open_api

EXAMPLES = """\
  shopfloor hosts                           list them, with their status and usage
  shopfloor hosts drain local-1a2b3c4d      it claims no more runs
  shopfloor hosts drain 1a2b --seconds 60   other hosts resume what it has then
  shopfloor hosts undrain 1a2b              it claims runs again"""
_LIST = """\
  shopfloor hosts list          one line each
  shopfloor hosts list --json   for programs"""
_DRAIN = """\
  shopfloor hosts drain local-1a2b3c4d      its runs may end there
  shopfloor hosts drain 1a2b --seconds 60   other hosts resume what it has then"""
_COLORS = {"idle": "green", "busy": "cyan", "draining": "yellow", "starting": "yellow", "offline": "dim"}
_ID_HELP = "id of a host, or a part of the id that no other host has"


def parser(name: str, summary: str) -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    listing = parser.add_command("list", "List the hosts", examples=_LIST)
    listing.add_argument("--json", action="store_true", help="print JSON")
    drain = parser.add_command("drain", "Have a host claim no more runs", examples=_DRAIN)
    drain.add_argument("host", metavar="ID", help=_ID_HELP)
    drain.add_argument(
        "--seconds",
        metavar="N",
        type=seconds,
        help="hand its runs over to other hosts after N seconds (default: never)",
    )
    undrain = parser.add_command("undrain", "Have a host claim runs again", examples="  shopfloor hosts undrain 1a2b")
    undrain.add_argument("host", metavar="ID", help=_ID_HELP)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_default_command("list")
    return parser


def run(args: argparse.Namespace) -> int:
    """Execute the inner command."""
    anyio.run(_run, args)
    return 0


async def _run(args: argparse.Namespace) -> None:
    async with open_api(storage_from_args(args)) as api:
        hosts: list[dict[str, Any]] = (await api.get("/api/hosts"))["hosts"]
        match args.part:
            case "drain":
                await _request(api, _find(hosts, args.host), "drain", {"seconds": args.seconds})
                print("it claims no more runs; `shopfloor hosts` shows when it has none")
            case "undrain":
                await _request(api, _find(hosts, args.host), "undrain", {})
                print("it claims runs again")
            case _ if args.json:
                print(json.dumps({"hosts": hosts}, indent=2, ensure_ascii=False))
            case _:
                for line in table(hosts, Style.from_choice("auto"), time.time()):
                    print(line)


async def _request(api: Api, host: str, action: str, body: dict[str, Any]) -> None:
    answer = await api.post(f"/api/hosts/{host}/{action}", body)
    print(f"host {answer['id']}: ", end="")


def _find(hosts: list[dict[str, Any]], part: str) -> str:
    """Return the id of the host that is meant. Raises HostNotFound or UsageError."""
    ids = [str(host["id"]) for host in hosts]
    found = [part] if part in ids else [host for host in ids if part in host]
    if not found:
        raise HostNotFound(f"there is no host {part!r}", hint="`shopfloor hosts` lists them")
    if len(found) > 1:
        raise UsageError(f"{part!r} is a part of {len(found)} host ids", hint=f"one of {', '.join(found[:5])}")
    return found[0]


def table(hosts: list[dict[str, Any]], style: Style, now_seconds: float) -> list[str]:
    """Return one line for each host."""
    if not hosts:
        return ["no host is running; `shopfloor up` or `shopfloor host` starts one"]
    width = max(len(host["id"]) for host in hosts)
    return [_line(host, width, style, now_seconds) for host in hosts]


def _line(host: dict[str, Any], width: int, style: Style, now_seconds: float) -> str:
    status = str(host["status"])
    parts = [
        f"{host['id']:<{width}}",
        style.paint(f"{status:<8}", _COLORS.get(status, "")),
        f"{host['slots_used']}/{host['slots']} slots",
    ]
    if status != "offline" and host["metrics"] is not None:
        metrics = host["metrics"]
        parts.append(
            f"cpu {metrics['cpu_percent']:.0f}%  memory {metrics['memory_percent']:.0f}%"
            f"  disk {metrics['disk_percent']:.0f}%"
        )
    if host["heartbeat_at"] is not None:
        age = max(0.0, now_seconds - datetime.fromisoformat(host["heartbeat_at"]).timestamp())
        parts.append(f"heard of {age:.0f} s ago")
    if status != "offline" and not host["responsive"]:
        parts.append(style.paint("unresponsive", "red"))
    if host["drain_deadline"] is not None and status != "offline":
        parts.append(f"hands its runs over at {host['drain_deadline']}")
    parts.append(escape_controls(f"{host['hostname']} ({host['location']['type']})"))
    parts.extend(escape_controls(f"{name}={value}") for name, value in host["labels"].items())
    return "  ".join(parts)
