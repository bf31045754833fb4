"""Checks that load code: the Python that a definition refers to, and its JSON Schemas."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec

from shopfloor.engine.workers.definition import Custom, Definition, NextMessage
from shopfloor.engine.workers.imports import load_object
from shopfloor.engine.workers.problems import Problem, walk_steps
from shopfloor.engine.workers.python import PythonTool
from shopfloor.errors import InvalidWorker
from shopfloor.yaml_document import YamlDocument, YamlPath


def load_problems(definition: Definition, document: YamlDocument, file: Path) -> Iterator[Problem]:
    """Load every handler and every kind of step. Never raises: a failure to load is yielded as a problem."""
    checker = _LoadChecker(document, file)
    for name, tool in definition.tools.items():
        yield from checker.check_schema(tool.parameters, ("tools", name, "parameters"))
        if tool.handler:
            yield from checker.check_handler(tool.handler, ("tools", name, "handler"))
    kinds: dict[str, Any] = {}
    for kind, name in definition.kinds.items():
        found = yield from checker.load(name, ("kinds", kind))
        if found is not None:
            kinds[kind] = found
            yield from checker.check_kind(name, found, ("kinds", kind))
    for place, step in walk_steps(definition.steps):
        if isinstance(step, NextMessage) and step.schema is not None:
            yield from checker.check_schema(step.schema, (*place, "schema"))
        elif isinstance(step, Custom) and step.kind in kinds:
            yield from checker.check_step(step, kinds[step.kind], place)


class _LoadChecker(msgspec.Struct, frozen=True):
    document: YamlDocument
    file: Path

    def _problem(self, place: YamlPath, reason: str) -> Problem:
        return Problem(self.file, self.document.line_of(place), reason)

    def load(self, name: str, place: YamlPath) -> Generator[Problem, None, Any]:
        """Return the loaded object, or None if it cannot be used; problems are yielded."""
        try:
            found = load_object(name)
        except InvalidWorker as error:
            yield self._problem(place, error.message + (f" ({error.hint})" if error.hint else ""))
            return None
        if not callable(found):
            yield self._problem(place, f"`{name}` is not callable")
            return None
        return found

    def check_schema(self, schema: dict[str, Any], place: YamlPath) -> Iterator[Problem]:
        from jsonschema import SchemaError
        from jsonschema.validators import validator_for

        try:
            validator_for(schema).check_schema(schema)
        except SchemaError as error:
            at = (*place, *error.path)
            yield self._problem(at, f"`{place[-1]}` is not a valid JSON Schema: {error.message.splitlines()[0]}")

    def check_handler(self, name: str, place: YamlPath) -> Iterator[Problem]:
        found = yield from self.load(name, place)
        if found is None or isinstance(found, PythonTool):
            return
        if reason := _call_error(found, {}):
            hint = "a handler takes the arguments as one dict; with `@tool` it takes them by name"
            yield self._problem(place, f"`{name}` cannot be called with the arguments ({reason}); {hint}")

    def check_kind(self, name: str, found: Any, place: YamlPath) -> Iterator[Problem]:
        if inspect.isfunction(found) and not inspect.iscoroutinefunction(inspect.unwrap(found)):
            yield self._problem(place, f"`{name}` implements a kind of step, so it must be an `async def`")

    def check_step(self, step: Custom, found: Any, place: YamlPath) -> Iterator[Problem]:
        """Check that the fields of the step are parameters of the function."""
        signature = _signature(found)
        if signature is None:
            return
        parameters = [*signature.parameters.values()][1:]
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        accepted = f"its fields are {', '.join(f'`{name}`' for name in names)}" if names else "it has no fields"
        for field in step.with_:
            if field not in names and not takes_all:
                yield self._problem((*place, field), f"a `{step.kind}` step has no field `{field}`; {accepted}")
        for p in parameters:
            if p.name in names and p.default is p.empty and p.name not in step.with_:
                yield self._problem(place, f"a `{step.kind}` step needs `{p.name}`")


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        # Some functions written in C have no signature.
        return None


def _call_error(function: Any, *arguments: Any) -> str | None:
    """Return why a function cannot be called with these arguments, or None if it can or if that is unknown."""
    signature = _signature(function)
    if signature is None:
        return None
    try:
        signature.bind(*arguments)
    except TypeError as error:
        return str(error)
    return None
