"""Detection of changes to a worker in Python since a run recorded."""

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

_ALGORITHMS = frozenset({ALGORITHM, BYTECODE})


class DefinitionChange(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run cannot continue with the current worker."""

    worker: str
    functions: list[str]
    """What changed, by name: functions, and other top-level names of the file that they use."""
    message: str


def find_definition_change(recorded: Definition, current: Worker | None) -> DefinitionChange | None:
    """Compare a worker to the definition in a run's log. Return None if the run can continue."""
    slug = recorded.slug
    function_name = (recorded.function or "").rpartition(":")[2]
    if current is None:
        return _definition_change(slug, [function_name], f"there is no worker `{slug}` any more")
    if current.problems:
        return _definition_change(
            slug, [function_name], f"the worker `{slug}` cannot be loaded: {current.problems[0].reason}"
        )
    if current.function is None:
        return _definition_change(slug, [function_name], f"the worker `{slug}` is no longer written in Python")
    if not recorded.functions:
        # Logs of the first versions have one hash, of the whole file.
        is_same = recorded.source_hash == _file_hash(current.function)
        return (
            None
            if is_same
            else _definition_change(
                slug, [function_name], f"the file of the worker `{slug}` changed since this run began"
            )
        )
    unknown = {value.partition(":")[0] for value in recorded.functions.values()} - _ALGORITHMS
    if unknown:
        reason = f"this version of Shopfloor cannot compare the worker `{slug}`: hashed by {', '.join(sorted(unknown))}"
        return _definition_change(slug, [function_name], reason)
    changed = _changed_names(recorded.functions, current.definition.functions)
    if not changed:
        return None
    names = ", ".join(f"`{name}`" for name in changed)
    return _definition_change(slug, changed, f"{names} of the worker `{slug}` changed since this run began")


def _changed_names(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the names that differ. Names that only one of the two uses count only if no common name differs."""
    differing = [name for name in before if name in after and before[name] != after[name]]
    return differing or sorted(before.keys() ^ after.keys())


def _definition_change(worker: str, functions: list[str], message: str) -> DefinitionChange:
    return DefinitionChange(worker=worker, functions=functions, message=message)


def _file_hash(function: Callable[..., Any]) -> str:
    """Return the hash of a worker's file as the first versions computed it."""
    try:
        source = inspect.getsource(inspect.getmodule(function) or function).encode()
    except (OSError, TypeError):
        source = cast("FunctionType", function).__code__.co_code
    return hashlib.sha256(source).hexdigest()
