"""Scripts of the model `script/<name>` or `script/<path>`: their fields, and how they are found and validated.

docs/testing.md explains every field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast, get_args, get_origin

import msgspec
from msgspec.structs import fields

from shopfloor.decoding import convert
from shopfloor.errors import ProviderError, UnknownModel, all_error_types

if TYPE_CHECKING:
    from shopfloor.yaml_document import YamlDocument, YamlPath

SCRIPT_FILES = (".yaml", ".yml", ".json")
"""Suffixes by which the name of a script is recognized as a path."""
ERROR_CODES = tuple(error.code for error in all_error_types() if issubclass(error, ProviderError))
"""The provider errors that a script can raise."""

PLACEHOLDER: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")
BUILTIN_VARIABLES: Final = ("last_user", "system", "tool_results")
"""The variables that the texts of every script may use, besides its captures."""

NonNegative = Annotated[float, msgspec.Meta(ge=0)]
TextChunks = str | list[str]
"""Text that is sent word by word, or in exactly these chunks."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ScriptedCall(_Part, frozen=True, kw_only=True):
    """A tool call of a turn."""

    name: str
    input: dict[str, Any] = {}


class ScriptedError(_Part, frozen=True, kw_only=True):
    """A provider error that a turn raises."""

    code: str
    message: str = "the script says so"
    retry_after: NonNegative | None = None
    times: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How often the turn fails before it succeeds; always if omitted."""


class ScriptedUsage(_Part, frozen=True, kw_only=True):
    """The token counts of a turn."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Turn(_Part, frozen=True, kw_only=True):
    """One reply of a script."""

    when: str | None = None
    """A regular expression; the turn is skipped unless the last text of the user matches."""
    text: TextChunks | None = None
    thinking: TextChunks | None = None
    tool_calls: list[ScriptedCall] = []
    answer: Any = None
    """The answer if the request has a schema."""
    wait_ms: NonNegative = 0
    """The delay before the reply starts."""
    delay_ms: NonNegative | None = None
    """The delay before each chunk."""
    usage: ScriptedUsage | None = None
    stop_reason: str | None = None
    error: ScriptedError | None = None


class Capture(_Part, frozen=True, kw_only=True):
    """A variable whose value is taken from the conversation."""

    find: str
    """A regular expression; its first group is the value."""
    default: str = ""


class Script(_Part, frozen=True, kw_only=True):
    """The content of a script file."""

    captures: dict[str, Capture] = {}
    delay_ms: NonNegative | None = None
    turns: list[Turn]


class Scripts:
    """The scripts in the given folders, and those that come with Shopfloor. Earlier folders take precedence."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [*folders, Path(__file__).with_name("scripts")]

    def names(self) -> list[str]:
        """Return the names of all scripts, sorted."""
        found = {
            file.name.removesuffix(".yaml")
            for folder in self._folders
            if folder.is_dir()
            for file in folder.iterdir()
            if file.name.endswith(".yaml")
        }
        return sorted(found)

    def get(self, name: str) -> Script:
        """Return a script by name or path. Raises `UnknownModel` with file, line and reason of each problem."""
        if name.endswith(SCRIPT_FILES):
            path = Path(name).expanduser()
            if path.is_file():
                return _read(str(path), path)
            raise UnknownModel(f"there is no script {path}", hint="write the path relative to the folder of the worker")
        # Only a safe name is joined to a folder: not `../x`, for example.
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            for folder in self._folders:
                file = folder / f"{name}.yaml"
                if file.is_file():
                    return _read(str(file), file)
        scripts = ", ".join(self.names())
        raise UnknownModel(
            f"there is no script {name!r}",
            hint=f"scripts are {scripts}; for your own file use its path, which ends in .yaml or .json",
        )


def _read(name: str, file: Path) -> Script:
    from shopfloor.yaml_document import parse_yaml

    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UnknownModel(f"the script {name} cannot be read: {error}") from error
    # JSON may be indented with tabs, YAML may not.
    document = parse_yaml(text.replace("\t", " ") if name.endswith(".json") else text)
    problems = document.problems or sorted(set(_problems(document)))
    if problems:
        message = "; ".join(f"{name}:{line}: {reason}" for line, reason in problems)
        error = UnknownModel(message, hint="docs/testing.md explains the fields of a script")
        error.problems = tuple((name, line, reason) for line, reason in problems)
        raise error
    return convert(document.value, Script)


def _problems(document: YamlDocument) -> Iterator[tuple[int, str]]:
    value = document.value
    if not isinstance(value, dict):
        yield 1, "a script is a mapping with `turns`"
        return
    script = cast("dict[str, Any]", value)
    turns = script.get("turns")
    if not isinstance(turns, list) or not turns:
        yield document.line_of(("turns",)), "a script needs `turns`: a list of at least one"
        turns = list[Any]()
        script = {**script, "turns": turns}
    yield from _struct_problems(document, (), script, Script)
    captures: Any = script.get("captures")
    captures_by_name = cast("dict[str, Any]", captures) if isinstance(captures, dict) else {}
    for name, capture in captures_by_name.items():
        find = cast("dict[str, Any]", capture).get("find") if isinstance(capture, dict) else None
        if isinstance(find, str) and (reason := _pattern_problem(find, groups=1)):
            yield document.line_of(("captures", name)), f"`find` is not a regular expression with a group: {reason}"
    for number, turn in enumerate(cast("list[Any]", turns)):
        if isinstance(turn, dict):
            yield from _turn_problems(
                document, ("turns", number), cast("dict[str, Any]", turn), {*BUILTIN_VARIABLES, *captures_by_name}
            )


def _turn_problems(
    document: YamlDocument, path: YamlPath, turn: dict[str, Any], known: set[str]
) -> Iterator[tuple[int, str]]:
    """Report problems of a turn that its type does not cover."""
    if not turn:
        yield document.line_of(path), "a turn is empty: add `text`, `tool_calls`, `answer` or `error`"
    when, error = turn.get("when"), turn.get("error")
    if isinstance(when, str) and (reason := _pattern_problem(when)):
        yield document.line_of((*path, "when")), f"`when` is not a regular expression: {reason}"
    code: Any = cast("dict[str, Any]", error).get("code") if isinstance(error, dict) else None
    if isinstance(code, str) and code not in ERROR_CODES:
        codes = ", ".join(f"`{known_code}`" for known_code in ERROR_CODES)
        yield document.line_of((*path, "error")), f"there is no provider error `{code}`; use one of {codes}"
    for field in ("text", "thinking", "tool_calls", "answer"):
        for name in sorted(_placeholders(turn.get(field)) - known):
            variables = ", ".join(f"`{variable}`" for variable in sorted(known))
            yield document.line_of((*path, field)), f"`{{{{{name}}}}}` is not a variable of the script: {variables}"


def _placeholders(value: Any) -> set[str]:
    if isinstance(value, str):
        return set(PLACEHOLDER.findall(value))
    children: Iterable[Any] = ()
    if isinstance(value, dict):
        children = cast("dict[str, Any]", value).values()
    elif isinstance(value, list):
        children = cast("list[Any]", value)
    return {name for child in children for name in _placeholders(child)}


def _struct_problems(
    document: YamlDocument, path: YamlPath, value: Any, expected: type[msgspec.Struct]
) -> Iterator[tuple[int, str]]:
    """Report every field of a value that does not match the struct, not only the first."""
    if not isinstance(value, dict):
        yield from _conversion_problems(document, path, value, expected)
        return
    mapping = cast("dict[str, Any]", value)
    known = {field.name: field for field in fields(expected)}
    for name, inner in mapping.items():
        if name in known:
            yield from _field_problems(document, (*path, name), inner, known[name].type)
        else:
            names = ", ".join(f"`{known_name}`" for known_name in known)
            reason = f"Object contains unknown field `{name}`; known fields are {names}"
            yield document.line_of((*path, name)), reason
    for name, field in known.items():
        if field.required and name not in mapping:
            yield document.line_of(path), f"Object missing required field `{name}`"


def _field_problems(document: YamlDocument, path: YamlPath, value: Any, expected: Any) -> Iterator[tuple[int, str]]:
    structs = [
        cls for cls in (expected, *get_args(expected)) if isinstance(cls, type) and issubclass(cls, msgspec.Struct)
    ]
    if not structs or value is None:
        yield from _conversion_problems(document, path, value, expected)
    elif get_origin(expected) is list and isinstance(value, list):
        for number, inner in enumerate(cast("list[Any]", value)):
            yield from _struct_problems(document, (*path, number), inner, structs[0])
    elif get_origin(expected) is dict and isinstance(value, dict):
        for name, inner in cast("dict[str, Any]", value).items():
            yield from _struct_problems(document, (*path, name), inner, structs[0])
    elif isinstance(value, dict):
        yield from _struct_problems(document, path, value, structs[0])
    else:
        yield from _conversion_problems(document, path, value, expected)


def _conversion_problems(
    document: YamlDocument, path: YamlPath, value: Any, expected: Any
) -> Iterator[tuple[int, str]]:
    try:
        convert(value, expected)
    except msgspec.ValidationError as error:
        yield document.line_of(path), str(error).partition(" - at `$")[0]


def _pattern_problem(pattern: str, *, groups: int = 0) -> str | None:
    try:
        found = re.compile(pattern).groups
    except re.error as error:
        return str(error)
    return None if found >= groups else "it has none"
