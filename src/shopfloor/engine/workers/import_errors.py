"""What has to be loaded to be checked: the Python that a definition names, and its JSON Schemas."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec

from shopfloor.engine.workers.definition import Custom, Definition, NextMessage
from shopfloor.engine.workers.imports import load_object
from shopfloor.engine.workers.problems import Problem, walk
from shopfloor.engine.workers.python import PythonTool
from shopfloor.errors import InvalidWorker
from shopfloor.yaml_document import YamlDocument, YamlPath


def load_problems(definition: Definition, document: YamlDocument, file: Path) -> Iterator[Problem]:
    """Loads every handler and every kind of step. Raises nothing: what cannot be loaded is a problem."""
    checks = _Checks(document, file)
    for name, tool in definition.tools.items():
        yield from checks.schema(tool.parameters, ("tools", name, "parameters"))
        if tool.handler:
            yield from checks.handler(tool.handler, ("tools", name, "handler"))
    kinds: dict[str, Any] = {}
    for kind, name in definition.kinds.items():
        found = yield from checks.loaded(name, ("kinds", kind))
        if found is not None:
            kinds[kind] = found
            yield from checks.kind(name, found, ("kinds", kind))
    for place, step in walk(definition.steps):
        if isinstance(step, NextMessage) and step.schema is not None:
            yield from checks.schema(step.schema, (*place, "schema"))
        elif isinstance(step, Custom) and step.kind in kinds:
            yield from checks.step(step, kinds[step.kind], place)


class _Checks(msgspec.Struct, frozen=True):
    document: YamlDocument
    file: Path

    def _problem(self, place: YamlPath, reason: str) -> Problem:
        return Problem(self.file, self.document.line_of(place), reason)

    def loaded(self, name: str, place: YamlPath) -> Generator[Problem, None, Any]:
        """Gives the object as its return value; None where it cannot be used."""
        try:
            found = load_object(name)
        except InvalidWorker as error:
            yield self._problem(place, error.message + (f" ({error.hint})" if error.hint else ""))
            return None
        if not callable(found):
            yield self._problem(place, f"`{name}` is nothing that can be called")
            return None
        return found

    def schema(self, schema: dict[str, Any], place: YamlPath) -> Iterator[Problem]:
        from jsonschema import SchemaError
        from jsonschema.validators import validator_for

        try:
            validator_for(schema).check_schema(schema)
        except SchemaError as error:
            at = (*place, *error.path)
            yield self._problem(at, f"`{place[-1]}` is no JSON Schema: {error.message.splitlines()[0]}")

    def handler(self, name: str, place: YamlPath) -> Iterator[Problem]:
        found = yield from self.loaded(name, place)
        if found is None or isinstance(found, PythonTool):
            return
        if reason := _misfit(found, {}):
            hint = "a handler takes the arguments as one dict; with `@tool` it takes them by name"
            yield self._problem(place, f"`{name}` cannot be called with the arguments ({reason}); {hint}")

    def kind(self, name: str, found: Any, place: YamlPath) -> Iterator[Problem]:
        if inspect.isfunction(found) and not inspect.iscoroutinefunction(inspect.unwrap(found)):
            yield self._problem(place, f"`{name}` is a kind of step, which has to be an `async def`")

    def step(self, step: Custom, found: Any, place: YamlPath) -> Iterator[Problem]:
        """The fields of the step are the parameters of the function."""
        signature = _signature(found)
        if signature is None:
            return
        known = [*signature.parameters.values()][1:]
        names = [one.name for one in known if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
        takes_all = any(one.kind is one.VAR_KEYWORD for one in known)
        takes = f"it has {', '.join(f'`{name}`' for name in names)}" if names else "it has none"
        for field in step.with_:
            if field not in names and not takes_all:
                yield self._problem((*place, field), f"a `{step.kind}` step has no field `{field}`; {takes}")
        for one in known:
            if one.name in names and one.default is one.empty and one.name not in step.with_:
                yield self._problem(place, f"a `{step.kind}` step needs `{one.name}`")


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        # Some that are written in C do not tell.
        return None


def _misfit(function: Any, *given: Any) -> str | None:
    """Why it cannot be called so; None where it can, or where that cannot be known."""
    signature = _signature(function)
    if signature is None:
        return None
    try:
        signature.bind(*given)
    except TypeError as error:
        return str(error)
    return None
