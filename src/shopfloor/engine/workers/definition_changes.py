"""Whether a worker in Python is still the one that a run began with."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, cast

import msgspec

from shopfloor.engine.workers.catalog import Worker
from shopfloor.engine.workers.definition import Definition
from shopfloor.engine.workers.python import BYTECODE
from shopfloor.engine.workers.source_hash import ALGORITHM

_KNOWN = frozenset({ALGORITHM, BYTECODE})


class DefinitionChange(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run cannot go on with the worker that is there now."""

    worker: str
    functions: list[str]
    """What changed, by name: functions, and whatever else at the top level of the file they use."""
    message: str


def find_definition_change(began: Definition, now: Worker | None) -> DefinitionChange | None:
    """Compare a worker to the definition in a run's log. None where the run can go on."""
    slug = began.slug
    own = (began.function or "").rpartition(":")[2]
    if now is None:
        return _change(slug, [own], f"there is no worker `{slug}` any more")
    if now.problems:
        return _change(slug, [own], f"the worker `{slug}` cannot be loaded: {now.problems[0].reason}")
    if now.function is None:
        return _change(slug, [own], f"the worker `{slug}` is no longer written in Python")
    if not began.functions:
        # Logs of the first versions have one hash, of the whole file.
        same = began.source_hash == _file_hash(now.function)
        return None if same else _change(slug, [own], f"the file of the worker `{slug}` changed since this run began")
    unknown = {value.partition(":")[0] for value in began.functions.values()} - _KNOWN
    if unknown:
        reason = f"this version of Shopfloor cannot compare the worker `{slug}`: hashed by {', '.join(sorted(unknown))}"
        return _change(slug, [own], reason)
    changed = _changed(began.functions, now.definition.functions)
    if not changed:
        return None
    named = ", ".join(f"`{name}`" for name in changed)
    return _change(slug, changed, f"{named} of the worker `{slug}` changed since this run began")


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Name what is not the same. What a function that changed uses now, or no longer, is no change of its own."""
    differing = [name for name in before if name in after and before[name] != after[name]]
    return differing or sorted(before.keys() ^ after.keys())


def _change(worker: str, functions: list[str], message: str) -> DefinitionChange:
    return DefinitionChange(worker=worker, functions=functions, message=message)


def _file_hash(function: Callable[..., Any]) -> str:
    """Hash a worker's file in the way of the first versions."""
    try:
        source = inspect.getsource(inspect.getmodule(function) or function).encode()
    except (OSError, TypeError):
        source = cast("FunctionType", function).__code__.co_code
    return hashlib.sha256(source).hexdigest()
