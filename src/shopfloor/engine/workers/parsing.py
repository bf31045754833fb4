"""A worker read from its folder: `worker.yaml`, and `prompts/*.md` beside it."""

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
    """The definition. Raises `InvalidWorker` with the first problem; loads no Python and asks after no model."""
    definition, problems = parse_worker(folder)
    if problems or definition is None:
        raise invalid_worker(problems, folder)
    return definition


def check_worker(folder: Path, validation_context: ValidationContext | None = None) -> list[Problem]:
    """Everything that a run of it would refuse because of its definition, its Python included; empty where it is fine.

    Models, agents and other workers are checked as far as `validation_context` knows them.
    """
    return parse_worker(folder, validation_context=validation_context, load=True)[1]


def parse_worker(
    folder: Path,
    *,
    validation_context: ValidationContext | None = None,
    load: bool = False,
) -> tuple[Definition | None, list[Problem]]:
    """The definition, where it has the shape of one, and what is wrong."""
    file = folder / WORKER_FILE
    slug = folder.absolute().name
    problems: list[Problem] = []
    if not is_slug(slug):
        problems.append(Problem(file, 1, f"the folder's name `{slug}` is no slug: lower-case letters, digits and `-`"))
    text = _read(file, WORKER_FILE_BYTES, problems)
    prompts = dict(_prompts(folder, problems))
    if text is None:
        return None, problems
    document = parse_yaml(text)
    shapes = StructureValidator(document)
    said = shapes.definition() if isinstance(document.value, dict) or not document.problems else {}
    # Where YAML itself is wrong, what follows from it need not be said too.
    wrong = {line for line, _ in document.problems}
    found = [*document.problems, *(problem for problem in shapes.problems if problem[0] not in wrong)]
    problems += [Problem(file, line, reason) for line, reason in found]
    if not said:
        return None, problems[:WORKER_PROBLEMS]
    try:
        definition = convert({**_with_files(said, folder), "slug": slug, "prompts": prompts}, Definition)
    except msgspec.ValidationError as error:
        return None, [*problems, *([] if found else [Problem(file, 1, str(error))])]
    meaning = ReferenceChecker(
        definition, document, file, validation_context=validation_context or ValidationContext(), shapes=shapes
    )
    problems += [problem for problem in meaning.check() if problem.line not in wrong or problem.file != file]
    if load:
        problems += load_problems(definition, document, file)
    problems = sorted(dict.fromkeys(problems), key=lambda problem: (problem.file, problem.line))
    return (None if found else definition), problems[:WORKER_PROBLEMS]


def _read(file: Path, limit: int, problems: list[Problem]) -> str | None:
    """The text of a file; what keeps it from being read is a problem of its own."""
    try:
        with file.open("rb") as opened:
            data = opened.read(limit + 1)
    except FileNotFoundError:
        problems.append(Problem(file, 1, "there is no such file"))
        return None
    except (OSError, ValueError) as error:
        problems.append(Problem(file, 1, f"it cannot be read: {getattr(error, 'strerror', None) or error}"))
        return None
    if len(data) > limit:
        problems.append(Problem(file, 1, f"it has more than {limit:,} bytes"))
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problems.append(Problem(file, data.count(b"\n", 0, error.start) + 1, "it is no UTF-8 text"))
        return None


def prompt_files(folder: Path) -> list[Path]:
    return sorted((folder / PROMPTS_FOLDER).glob("*.md"))


def _prompts(folder: Path, problems: list[Problem]) -> Iterator[tuple[str, str]]:
    for file in prompt_files(folder):
        text = _read(file, PROMPT_BYTES, problems)
        if text is not None:
            yield file.stem, text


def _with_files(said: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Python files are named from the worker's folder; who runs it may be in another."""

    def absolute(name: str) -> str:
        module, colon, rest = name.rpartition(":")
        return f"{folder.absolute() / module}:{rest}" if colon and module.endswith(".py") else name

    made = dict(said)
    if "kinds" in said:
        made["kinds"] = {kind: absolute(name) for kind, name in cast("dict[str, str]", said["kinds"]).items()}
    if "tools" in said:
        tools = cast("dict[str, dict[str, Any]]", said["tools"])
        made["tools"] = {
            name: {**tool, "handler": absolute(tool["handler"])} if tool.get("handler") else tool
            for name, tool in tools.items()
        }
    if "steps" in said:
        made["steps"] = _with_scripts(said["steps"], folder)
    return made


def _with_scripts(steps: Any, folder: Path) -> Any:
    """Scripts of the scripted model are named from the worker's folder, too."""
    if not isinstance(steps, dict):
        return steps
    given = cast("dict[str, Any]", steps)
    names = ("model", "backupModel") if given.get("block") == "start-thread" else ()
    made: dict[str, Any] = {}
    for name, value in given.items():
        if name in names and isinstance(value, str) and _is_script_file(value):
            made[name] = f"script/{folder.absolute() / value.removeprefix('script/')}"
        else:
            made[name] = _with_scripts(value, folder)
    return made


def _is_script_file(model: str) -> bool:
    return model.startswith("script/") and model.endswith((".yaml", ".yml", ".json"))
