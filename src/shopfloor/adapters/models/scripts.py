"""Scripts: what `script/<name>` or `script/<path>` says. docs/testing.md explains every field."""

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
"""What the name of a script ends with where it is a path."""
ERROR_CODES = tuple(error.code for error in all_error_types() if issubclass(error, ProviderError))
"""The failures of a provider that a script can play."""

PLACEHOLDER: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")
BUILTIN_VARIABLES: Final = ("last_user", "system", "tool_results")
"""What the texts of every script may speak of, beside its captures."""

NonNegative = Annotated[float, msgspec.Meta(ge=0)]
TextChunks = str | list[str]
"""Text that is sent word by word, or in exactly these pieces."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ScriptedCall(_Part, frozen=True, kw_only=True):
    name: str
    input: dict[str, Any] = {}


class ScriptedError(_Part, frozen=True, kw_only=True):
    code: str
    message: str = "the script says so"
    retry_after: NonNegative | None = None
    times: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How often before the turn goes well; always where it is left out."""


class ScriptedUsage(_Part, frozen=True, kw_only=True):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Turn(_Part, frozen=True, kw_only=True):
    when: str | None = None
    """A regular expression; the turn is passed over unless the last text of the user matches."""
    text: TextChunks | None = None
    thinking: TextChunks | None = None
    tool_calls: list[ScriptedCall] = []
    answer: Any = None
    """What is said where the answer has to be of a schema."""
    wait_ms: NonNegative = 0
    """Before anything is said."""
    delay_ms: NonNegative | None = None
    """Before each piece."""
    usage: ScriptedUsage | None = None
    stop_reason: str | None = None
    error: ScriptedError | None = None


class Capture(_Part, frozen=True, kw_only=True):
    find: str
    """A regular expression; its first group is the value."""
    default: str = ""


class Script(_Part, frozen=True, kw_only=True):
    captures: dict[str, Capture] = {}
    delay_ms: NonNegative | None = None
    turns: list[Turn]


class Scripts:
    """Those of the folders given, and those that come with Shopfloor. A folder given earlier wins."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [*folders, Path(__file__).with_name("scripts")]

    def names(self) -> list[str]:
        found = {
            file.name.removesuffix(".yaml")
            for folder in self._folders
            if folder.is_dir()
            for file in folder.iterdir()
            if file.name.endswith(".yaml")
        }
        return sorted(found)

    def get(self, name: str) -> Script:
        """Raises `UnknownModel` that says file, line and reason of each problem."""
        if name.endswith(SCRIPT_FILES):
            path = Path(name).expanduser()
            if path.is_file():
                return _read(str(path), path)
            raise UnknownModel(f"there is no script {path}", hint="a script is named from the folder of its worker")
        # A name that cannot be a file's is never joined to a folder.
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            for folder in self._folders:
                file = folder / f"{name}.yaml"
                if file.is_file():
                    return _read(str(file), file)
        scripts = ", ".join(self.names())
        raise UnknownModel(
            f"there is no script {name!r}", hint=f"scripts are {scripts}; a file of your own ends in .yaml or .json"
        )


def _read(name: str, file: Path) -> Script:
    from shopfloor.yaml_document import parse_yaml

    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UnknownModel(f"the script {name} cannot be read: {error}") from error
    # JSON may be indented by tabs, and YAML may not.
    document = parse_yaml(text.replace("\t", " ") if name.endswith(".json") else text)
    problems = document.problems or sorted(set(_problems(document)))
    if problems:
        told = "; ".join(f"{name}:{line}: {reason}" for line, reason in problems)
        refused = UnknownModel(told, hint="docs/testing.md says what a script has")
        refused.problems = tuple((name, line, reason) for line, reason in problems)
        raise refused
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
    yield from _misfits(document, (), script, Script)
    captures: Any = script.get("captures")
    named = cast("dict[str, Any]", captures) if isinstance(captures, dict) else {}
    for name, capture in named.items():
        find = cast("dict[str, Any]", capture).get("find") if isinstance(capture, dict) else None
        if isinstance(find, str) and (reason := _no_pattern(find, groups=1)):
            yield document.line_of(("captures", name)), f"`find` is no regular expression with a group: {reason}"
    for number, turn in enumerate(cast("list[Any]", turns)):
        if isinstance(turn, dict):
            yield from _turn_problems(
                document, ("turns", number), cast("dict[str, Any]", turn), {*BUILTIN_VARIABLES, *named}
            )


def _turn_problems(
    document: YamlDocument, place: YamlPath, turn: dict[str, Any], known: set[str]
) -> Iterator[tuple[int, str]]:
    """What is wrong with a turn beyond its shape."""
    if not turn:
        yield document.line_of(place), "a turn says nothing: give it `text`, `tool_calls`, `answer` or `error`"
    when, error = turn.get("when"), turn.get("error")
    if isinstance(when, str) and (reason := _no_pattern(when)):
        yield document.line_of((*place, "when")), f"`when` is no regular expression: {reason}"
    code: Any = cast("dict[str, Any]", error).get("code") if isinstance(error, dict) else None
    if isinstance(code, str) and code not in ERROR_CODES:
        codes = ", ".join(f"`{one}`" for one in ERROR_CODES)
        yield document.line_of((*place, "error")), f"there is no error `{code}` of a provider; {codes}"
    for field in ("text", "thinking", "tool_calls", "answer"):
        for name in sorted(_placeholders(turn.get(field)) - known):
            there = ", ".join(f"`{one}`" for one in sorted(known))
            yield document.line_of((*place, field)), f"`{{{{{name}}}}}` is nothing that a script has; there are {there}"


def _placeholders(value: Any) -> set[str]:
    if isinstance(value, str):
        return set(PLACEHOLDER.findall(value))
    inside: Iterable[Any] = ()
    if isinstance(value, dict):
        inside = cast("dict[str, Any]", value).values()
    elif isinstance(value, list):
        inside = cast("list[Any]", value)
    return {name for one in inside for name in _placeholders(one)}


def _misfits(
    document: YamlDocument, place: YamlPath, value: Any, wanted: type[msgspec.Struct]
) -> Iterator[tuple[int, str]]:
    """Every part of a value that has not the shape of `wanted`, and not only the first."""
    if not isinstance(value, dict):
        yield from _unfit(document, place, value, wanted)
        return
    given = cast("dict[str, Any]", value)
    known = {field.name: field for field in fields(wanted)}
    for name, inner in given.items():
        if name in known:
            yield from _misfits_in(document, (*place, name), inner, known[name].type)
        else:
            there = ", ".join(f"`{one}`" for one in known)
            reason = f"Object contains unknown field `{name}`; there are {there}"
            yield document.line_of((*place, name)), reason
    for name, field in known.items():
        if field.required and name not in given:
            yield document.line_of(place), f"Object missing required field `{name}`"


def _misfits_in(document: YamlDocument, place: YamlPath, value: Any, wanted: Any) -> Iterator[tuple[int, str]]:
    inside = [one for one in (wanted, *get_args(wanted)) if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    if not inside or value is None:
        yield from _unfit(document, place, value, wanted)
    elif get_origin(wanted) is list and isinstance(value, list):
        for number, inner in enumerate(cast("list[Any]", value)):
            yield from _misfits(document, (*place, number), inner, inside[0])
    elif get_origin(wanted) is dict and isinstance(value, dict):
        for name, inner in cast("dict[str, Any]", value).items():
            yield from _misfits(document, (*place, name), inner, inside[0])
    elif isinstance(value, dict):
        yield from _misfits(document, place, value, inside[0])
    else:
        yield from _unfit(document, place, value, wanted)


def _unfit(document: YamlDocument, place: YamlPath, value: Any, wanted: Any) -> Iterator[tuple[int, str]]:
    try:
        convert(value, wanted)
    except msgspec.ValidationError as error:
        yield document.line_of(place), str(error).partition(" - at `$")[0]


def _no_pattern(pattern: str, *, groups: int = 0) -> str | None:
    try:
        found = re.compile(pattern).groups
    except re.error as error:
        return str(error)
    return None if found >= groups else "it has none"
