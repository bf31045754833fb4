"""`shopfloor doctor`: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import importlib.util
import os
import platform
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import msgspec

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.providers import provider_lines, server_differences
from shopfloor.cli.style import Style
from shopfloor.errors import ShopfloorError, StorageError, storage_error
from shopfloor.limits import DISK_LOW_WATER_BYTES
from shopfloor.record import Storage, make_folder
from shopfloor.version import __version__
from shopfloor.wiring import find_providers

EXAMPLES = """\
  shopfloor doctor

The exit code is 1 where something keeps runs from being recorded; agents that are not installed do not."""
_MARKS = {"ok": ("✓", "green"), "note": ("·", "yellow"), "wrong": ("✗", "red")}


class CheckResult(msgspec.Struct, frozen=True):
    state: str
    message: str
    hint: str | None = None


def parser(name: str, summary: str) -> ArgumentParser:
    return Parser(name, summary, examples=EXAMPLES)


def run(args: Namespace) -> int:
    style = Style.from_choice("auto")
    storage = storage_from_args(args)
    kept = list(_storage(storage))
    served = [] if any(one.state == "wrong" for one in kept) else [_server(storage)]
    findings = [*_machine(), *kept, *served, _models()]
    for one in findings:
        print(f"{style.paint(*_MARKS[one.state])} {one.message}")
        if one.hint:
            print(f"    {one.hint}")
    print("\nAgents and model APIs")
    providers = find_providers()
    lines = [line for provider in providers for line in provider_lines(provider, style)]
    if served and served[0].state == "ok":
        lines += server_differences(storage, providers, style)
    for line in lines:
        print(line)
    return 1 if any(one.state == "wrong" for one in findings) else 0


def _machine() -> Iterator[CheckResult]:
    yield CheckResult("ok", f"shopfloor {__version__}, Python {platform.python_version()}, {platform.system()}")
    if not Path("/proc/self/environ").exists():
        yield CheckResult(
            "note",
            "this system has no /proc: what leaves its process group is not found when a run is cancelled",
        )


def _storage(storage: Storage) -> Iterator[CheckResult]:
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
    yield CheckResult("ok", f"transcripts are kept in {storage.root}")
    if free < DISK_LOW_WATER_BYTES:
        yield CheckResult("wrong", f"the disk has {free / 1e6:,.0f} MB left: no new runs", "free some space")
    else:
        yield CheckResult("ok", f"the disk has {free / 1e9:,.1f} GB left")


def _server(storage: Storage) -> CheckResult:
    from shopfloor.client import find_server

    try:
        address = find_server(storage)
    except ShopfloorError as error:
        return CheckResult("wrong", error.message, error.hint)
    if address is None:
        return CheckResult(
            "note", "no server is running", "`shopfloor up --detach` starts one; `shopfloor run` works without it"
        )
    return CheckResult("ok", f"a server is running at {address.url}")


def _models() -> CheckResult:
    if importlib.util.find_spec("pydantic_ai") is None:
        return CheckResult(
            "note",
            "model APIs cannot be asked: their libraries are not installed",
            "install Shopfloor with its extra `models`",
        )
    return CheckResult("ok", "model APIs can be asked")
