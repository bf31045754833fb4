"""`shopfloor doctor`: check this machine, and report what is missing and how to get it."""

from __future__ import annotations

import importlib.util
import os
import platform
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import msgspec

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.cli.providers import find_listed, local_providers, provider_lines, providers_json
from shopfloor.cli.style import Style
from shopfloor.error_factories import storage_error
from shopfloor.errors import ShopfloorError, StorageError
from shopfloor.limits import DISK_LOW_WATER_BYTES
from shopfloor.record import Storage, make_folder
from shopfloor.version import __version__

EXAMPLES = """\
  shopfloor doctor

The exit code is 1 if runs cannot be recorded. Missing agents do not count."""
_MARKS = {"ok": ("✓", "green"), "note": ("·", "yellow"), "wrong": ("✗", "red")}


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check: `state` is ok, note or wrong."""

    state: str
    message: str
    hint: str | None = None


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    add_json_option(parser, "print the checks and the providers as JSON")
    return parser


def run(args: Namespace) -> int:
    """Print the result of each check; return 1 if one of them is wrong."""
    style = Style.from_choice("auto")
    storage = storage_from_args(args)
    storage_results = list(_check_storage(storage))
    is_wrong = any(result.state == "wrong" for result in storage_results)
    server_results = [] if is_wrong else [_check_server(storage)]
    results = [*_check_machine(), *storage_results, *server_results, _check_models()]
    code = 1 if any(result.state == "wrong" for result in results) else 0
    providers, differences = (local_providers(), list[str]()) if is_wrong else find_listed(storage, style)
    if args.json:
        print_json({"ok": code == 0, "checks": results, "providers": providers_json(providers)})
        return code
    for result in results:
        print(f"{style.paint(*_MARKS[result.state])} {result.message}")
        if result.hint:
            print(f"    {result.hint}")
    print("\nAgents and model APIs")
    for line in [*(line for provider in providers for line in provider_lines(provider, style)), *differences]:
        print(line)
    return code


def _check_machine() -> Iterator[CheckResult]:
    yield CheckResult("ok", f"shopfloor {__version__}, Python {platform.python_version()}, {platform.system()}")
    if not Path("/proc/self/environ").exists():
        yield CheckResult(
            "note",
            "this system has no /proc: cancelling a run does not find processes that left its process group",
        )


def _check_storage(storage: Storage) -> Iterator[CheckResult]:
    try:
        make_folder(storage.transcripts)
        probe = storage.root / f".doctor-{os.getpid()}"
        probe.write_bytes(b"?")
        probe.unlink()
        disk = os.statvfs(storage.root)
    except (OSError, StorageError) as error:
        wrong = storage_error(error, f"cannot write to {storage.root}") if isinstance(error, OSError) else error
        yield CheckResult("wrong", wrong.message, wrong.hint)
        return
    free = disk.f_bavail * disk.f_frsize
    yield CheckResult("ok", f"runs are stored in {storage.root}")
    if free < DISK_LOW_WATER_BYTES:
        yield CheckResult(
            "wrong", f"the disk has only {free / 1e6:,.0f} MB free: no new runs can start", "free some space"
        )
    else:
        yield CheckResult("ok", f"the disk has {free / 1e9:,.1f} GB free")


def _check_server(storage: Storage) -> CheckResult:
    from shopfloor.client import find_server

    try:
        address = find_server(storage)
    except ShopfloorError as error:
        return CheckResult("wrong", error.message, error.hint)
    if address is None:
        return CheckResult(
            "note", "no server is running", "`shopfloor up --detach` starts one; `shopfloor run` works without a server"
        )
    return CheckResult("ok", f"a server is running at {address.url}")


def _check_models() -> CheckResult:
    if importlib.util.find_spec("pydantic_ai") is None:
        return CheckResult(
            "note",
            "model APIs cannot be used: their libraries are not installed",
            "install Shopfloor with the extra `models`",
        )
    return CheckResult("ok", "the libraries for model APIs are installed")
