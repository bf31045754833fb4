"""Reading a worker from its folder: `worker.yaml` and `prompts/*.md`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from shopfloor.decoding import convert
from shopfloor.engine.workers.definition import PROMPTS_FOLDER, WORKER_FILE, Definition, is_slug
from shopfloor.engine.workers.import_errors import load_problems
from shopfloor.engine.workers.problems import Problem, invalid_worker
from shopfloor.engine.workers.references import ReferenceChecker, ValidationContext
from shopfloor.engine.workers.validation import StructureValidator
from shopfloor.limits import PROMPT_BYTES, WORKER_FILE_BYTES, WORKER_PROBLEMS
from shopfloor.yaml_document import parse_yaml


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
