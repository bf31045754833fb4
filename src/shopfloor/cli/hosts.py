"""`shopfloor hosts`: list the hosts that execute runs of this storage, and drain one."""

from __future__ import annotations

import argparse
import time
from datetime import datetime
from typing import Any

import anyio

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.host import seconds
from shopfloor.cli.json_output import RESPONSE, add_json_option, print_json
from shopfloor.cli.style import Style, escape_controls, format_duration
from shopfloor.errors import HostNotFound, UsageError
from shopfloor.wiring import open_api

EXAMPLES = """\
  shopfloor hosts                           list them with status and usage
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
_EFFECTS = {
    "drain": "it claims no more runs; `shopfloor hosts` shows when it has none",
    "undrain": "it claims runs again",
}
_ID_HELP = "id of a host, or a part of the id that no other host has"


def parser(name: str, summary: str) -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    listing = parser.add_command("list", "List the hosts", examples=_LIST)
    add_json_option(listing)
    drain = parser.add_command("drain", "Have a host claim no more runs", examples=_DRAIN)
    drain.add_argument("host", metavar="ID", help=_ID_HELP)
    drain.add_argument(
        "--seconds",
        metavar="N",
        type=seconds,
        help="hand its runs over to other hosts after N seconds (default: never)",
    )
    add_json_option(drain, RESPONSE)
    undrain = parser.add_command("undrain", "Have a host claim runs again", examples="  shopfloor hosts undrain 1a2b")
    undrain.add_argument("host", metavar="ID", help=_ID_HELP)
    add_json_option(undrain, RESPONSE)
    add_json_option(parser)
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
            case ("drain" | "undrain") as action:
                body = {"seconds": args.seconds} if action == "drain" else {}
                response = await api.post(f"/api/hosts/{_find(hosts, args.host)}/{action}", body)
                if args.json:
                    print_json(response)
                else:
                    print(f"host {response['id']}: {_EFFECTS[action]}")
            case _ if args.json:
                print_json({"hosts": hosts})
            case _:
                for line in table(hosts, Style.from_choice("auto"), time.time()):
                    print(line)


def _find(hosts: list[dict[str, Any]], part: str) -> str:
    """Return the id of the host that is meant. Raises HostNotFound or UsageError."""
    ids = [str(host["id"]) for host in hosts]
    running = [str(host["id"]) for host in hosts if host["status"] != "offline"]
    found = (
        [part] if part in ids else [host for host in running if part in host] or [host for host in ids if part in host]
    )
    if not part or not found:
        raise HostNotFound(f"there is no host {part!r}", hint="`shopfloor hosts` lists them")
    if len(found) > 1:
        raise UsageError(f"{part!r} is a part of {len(found)} host ids", hint=f"one of {', '.join(found[:5])}")
    return found[0]


def table(hosts: list[dict[str, Any]], style: Style, now_seconds: float) -> list[str]:
    """Return a line for each host, below a line of titles."""
    if not hosts:
        return ["no host is running; `shopfloor up` or `shopfloor host` starts one"]
    rows = [_TITLES, *(_cells(host, now_seconds) for host in hosts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES))]
    looks = [("dim",) * len(_TITLES), *(("", _COLORS.get(row[1], ""), *[""] * 6, "red") for row in rows[1:])]
    lines: list[str] = []
    for row, colors in zip(rows, looks, strict=True):
        padded = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        painted = [style.paint(cell, look) if look else cell for cell, look in zip(padded, colors, strict=True)]
        lines.append("  ".join(painted).rstrip())
    return lines


_TITLES = ("HOST", "STATUS", "SLOTS", "CPU", "MEMORY", "DISK", "HEARTBEAT", "MACHINE", "")


def _cells(host: dict[str, Any], now_seconds: float) -> tuple[str, ...]:
    is_offline = host["status"] == "offline"
    metrics: dict[str, float | None] = {} if is_offline else host["metrics"] or {}
    usage = ["" if (percent := metrics.get(name)) is None else f"{percent:.0f}%" for name in _USAGE]
    notes: list[str] = [f"{name}={value}" for name, value in host["labels"].items()]
    if not is_offline:
        notes += ["unresponsive"] if not host["responsive"] else []
        notes += [f"hands its runs over at {host['drain_deadline']}"] if host["drain_deadline"] else []
    machine = f"{host['hostname']} ({host['location']['type']})"
    return (
        str(host["id"]),
        str(host["status"]),
        f"{host['slots_used']}/{host['slots']}",
        *usage,
        _age(host["heartbeat_at"], now_seconds),
        escape_controls(machine),
        escape_controls("  ".join(notes)),
    )


_USAGE = ("cpu_percent", "memory_percent", "disk_percent")


def _age(timestamp: str | None, now_seconds: float) -> str:
    if timestamp is None:
        return ""
    milliseconds = (now_seconds - datetime.fromisoformat(timestamp).timestamp()) * 1000
    return f"{format_duration(max(0, round(milliseconds)))} ago"
