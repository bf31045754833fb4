"""Reading a worker from its folder: `worker.yaml`, `prompts/*.md`, and the code and JSON Schemas that they refer to."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from shopfloor.decoding import convert
from shopfloor.engine.workers.definition import PROMPTS_FOLDER, WORKER_FILE, Custom, Definition, NextMessage, is_slug
from shopfloor.engine.workers.imports import load_object
from shopfloor.engine.workers.problems import Problem, invalid_worker, walk_steps
from shopfloor.engine.workers.python import PythonTool
from shopfloor.engine.workers.references import ReferenceChecker, ValidationContext
from shopfloor.engine.workers.validation import StructureValidator
from shopfloor.errors import InvalidWorker
from shopfloor.limits import PROMPT_BYTES, WORKER_FILE_BYTES, WORKER_PROBLEMS
from shopfloor.yaml_document import YamlDocument, YamlPath, parse_yaml


def read_worker(folder: Path) -> Definition:
    """Return the definition. Raises `InvalidWorker` with the first problem. Loads no Python and checks no model."""
    definition, problems = parse_worker(folder)
    if problems or definition is None:
        raise invalid_worker(problems, folder)
    return definition


def check_worker(folder: Path, validation_context: ValidationContext | None = None) -> list[Problem]:
    """Return every problem for which a run would be refused, including those of the worker's Python.

    Models, agents and other workers are checked as far as `validation_context` knows them.
    """
    return parse_worker(folder, validation_context=validation_context, load=True)[1]


def parse_worker(
    folder: Path,
    *,
    validation_context: ValidationContext | None = None,
    load: bool = False,
) -> tuple[Definition | None, list[Problem]]:
    """Return the definition, or None if its structure is invalid, and all problems."""
    file = folder / WORKER_FILE
    slug = folder.absolute().name
    problems: list[Problem] = []
    if not is_slug(slug):
        problems.append(
            Problem(file, 1, f"the folder's name `{slug}` is not a valid slug: lower-case letters, digits and `-`")
        )
    text = _read(file, WORKER_FILE_BYTES, problems)
    prompts = dict(_prompts(folder, problems))
    if text is None:
        return None, problems
    document = parse_yaml(text)
    structure = StructureValidator(document)
    values = structure.definition() if isinstance(document.value, dict) or not document.problems else {}
    # On a line that is not valid YAML, report only that.
    yaml_error_lines = {line for line, _ in document.problems}
    structural = [
        *document.problems,
        *(problem for problem in structure.problems if problem[0] not in yaml_error_lines),
    ]
    problems += [Problem(file, line, reason) for line, reason in structural]
    if not values:
        return None, problems[:WORKER_PROBLEMS]
    try:
        definition = convert({**_with_absolute_paths(values, folder), "slug": slug, "prompts": prompts}, Definition)
    except msgspec.ValidationError as error:
        return None, [*problems, *([] if structural else [Problem(file, 1, str(error))])]
    references = ReferenceChecker(
        definition, document, file, validation_context=validation_context or ValidationContext(), structure=structure
    )
    problems += [
        problem for problem in references.check() if problem.line not in yaml_error_lines or problem.file != file
    ]
    if load:
        problems += load_problems(definition, document, file)
    problems = sorted(dict.fromkeys(problems), key=lambda problem: (problem.file, problem.line))
    return (None if structural else definition), problems[:WORKER_PROBLEMS]


def _read(file: Path, limit: int, problems: list[Problem]) -> str | None:
    """Return the text of a file, or None with a problem added."""
    try:
        with file.open("rb") as opened:
            data = opened.read(limit + 1)
    except FileNotFoundError:
        problems.append(Problem(file, 1, "there is no such file"))
        return None
    except (OSError, ValueError) as error:
        problems.append(Problem(file, 1, f"cannot be read: {getattr(error, 'strerror', None) or error}"))
        return None
    if len(data) > limit:
        problems.append(Problem(file, 1, f"the file has more than {limit:,} bytes"))
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problems.append(Problem(file, data.count(b"\n", 0, error.start) + 1, "the file is not UTF-8 text"))
        return None


def prompt_files(folder: Path) -> list[Path]:
    """Return the prompt files of a worker's folder, sorted."""
    return sorted((folder / PROMPTS_FOLDER).glob("*.md"))


def _prompts(folder: Path, problems: list[Problem]) -> Iterator[tuple[str, str]]:
    for file in prompt_files(folder):
        text = _read(file, PROMPT_BYTES, problems)
        if text is not None:
            yield file.stem, text


def _with_absolute_paths(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make the paths of Python files absolute.

    They are relative to the worker's folder, and a run may have another one.
    """

    def absolute(name: str) -> str:
        module, colon, rest = name.rpartition(":")
        return f"{folder.absolute() / module}:{rest}" if colon and module.endswith(".py") else name

    resolved = dict(values)
    if "kinds" in values:
        resolved["kinds"] = {kind: absolute(name) for kind, name in cast("dict[str, str]", values["kinds"]).items()}
    if "tools" in values:
        tools = cast("dict[str, dict[str, Any]]", values["tools"])
        resolved["tools"] = {
            name: {**tool, "handler": absolute(tool["handler"])} if tool.get("handler") else tool
            for name, tool in tools.items()
        }
    if "steps" in values:
        resolved["steps"] = _with_absolute_scripts(values["steps"], folder)
    return resolved


def _with_absolute_scripts(steps: Any, folder: Path) -> Any:
    """Make the paths of scripts of the scripted model absolute, too."""
    if not isinstance(steps, dict):
        return steps
    fields = cast("dict[str, Any]", steps)
    names = ("model", "backupModel") if fields.get("block") == "start-thread" else ()
    resolved: dict[str, Any] = {}
    for name, value in fields.items():
        if name in names and isinstance(value, str) and _is_script_file(value):
            resolved[name] = f"script/{folder.absolute() / value.removeprefix('script/')}"
        else:
            resolved[name] = _with_absolute_scripts(value, folder)
    return resolved


def _is_script_file(model: str) -> bool:
    return model.startswith("script/") and model.endswith((".yaml", ".yml", ".json"))


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
