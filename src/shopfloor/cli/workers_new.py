"""A worker to begin with."""

from __future__ import annotations

import asyncio
import keyword
from pathlib import Path

from shopfloor.cli.client_session import is_remote
from shopfloor.client import Address, Api, find_server
from shopfloor.engine import is_slug
from shopfloor.errors import ConflictError, ShopfloorError, UsageError
from shopfloor.record import Storage

_YAML = """\
# Run it:   shopfloor run {slug} -i NAME=Ada
# Check it: shopfloor workers check {slug}
description: Greets somebody by name.

# What a run is given. An input is required unless it is `optional` or has a `default`.
input:
  NAME:
    description: Who is to be greeted
  LANGUAGE:
    description: In which language
    default: English

steps:
  Begin a thread:
    block: start-thread
    model: script/hello # provider/name; this one is a script and needs no account
    system: system # prompts/system.md
    input: [LANGUAGE]

  Ask:
    block: add-message
    text: Say hello to {{{{NAME}}}}.

  Answer:
    block: next-message
    output: GREETING

output: GREETING
"""
_PROMPT = """\
You greet people. You are friendly and brief, and you speak {{LANGUAGE}}.
"""
_PYTHON = '''\
"""Run it: shopfloor run {slug} -i NAME=Ada"""

from shopfloor import worker


@worker(slug="{slug}")
async def {function}(run, NAME: str, TIMES: int = 1) -> str:
    """Greets somebody by name."""
    # `run` has what a worker works with: models, tools, commands, sub-runs. What it does by `run` is on record.
    return "\\n".join(f"Hello, {{NAME}}!" for _ in range(TIMES))
'''


def new_worker(slug: str, into: Path, *, python: bool) -> list[Path]:
    """Makes the files of a worker that can be run as it is; nothing that is there is written over."""
    if not is_slug(slug):
        raise UsageError(f"{slug!r} is no slug: lower-case letters, digits and `-`", hint="e.g. find-sources")
    folder = into / slug
    if folder.exists():
        raise ConflictError(f"{folder} is there already", hint="choose another name, or remove it")
    function = slug.replace("-", "_")
    if not function.isidentifier() or keyword.iskeyword(function) or function in ("worker", "run"):
        function = f"make_{function}"
    files = (
        {"worker.py": _PYTHON.format(slug=slug, function=function)}
        if python
        else {"worker.yaml": _YAML.format(slug=slug), "prompts/system.md": _PROMPT}
    )
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return [folder / name for name in files]


def find_server_and_worker(storage: Storage, slug: str) -> tuple[Address | None, bool]:
    """The storage's own server, and whether it has that worker; none where `dispatch` asks another, or we cannot."""
    address = None if is_remote() else find_server(storage, named=False)
    if address is None:
        return None, False
    try:
        return address, slug in asyncio.run(_slugs(address))
    except ShopfloorError:
        # The worker is made all the same.
        return None, False


async def _slugs(address: Address) -> set[str]:
    api = Api(address.url, address.token)
    try:
        return {worker["slug"] for worker in (await api.get("/api/workers"))["workers"]}
    finally:
        await api.close()
