"""Scripts: what `script/<name>` or `script/<path>` says. docs/testing.md explains every field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec.structs import fields

from shopfloor.errors import ProviderError, UnknownModel, every_error
from shopfloor.yaml_document import Document, Place, read_document

SCRIPT_FILES = (".yaml", ".yml", ".json")
"""What the name of a script ends with where it is a path."""
ERROR_CODES = tuple(error.code for error in every_error() if issubclass(error, ProviderError))
"""The failures of a provider that a script can play."""

NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Pieces = str | list[str]
"""Text that is sent word by word, or in exactly these pieces."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ScriptedCall(_Part, frozen=True, kw_only=True):
    name: str
    input: dict[str, Any] = {}


class ScriptedError(_Part, frozen=True, kw_only=True):
    code: str
    message: str = "the script says so"
    retry_after: NotNegative | None = None
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
    text: Pieces | None = None
    thinking: Pieces | None = None
    tool_calls: list[ScriptedCall] = []
    answer: Any = None
    """What is said where the answer has to be of a schema."""
    wait_ms: NotNegative = 0
    """Before anything is said."""
    delay_ms: NotNegative | None = None
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
    delay_ms: NotNegative | None = None
    turns: list[Turn]


class Scripts:
    """Those of the folders given, and those that come with Shopfloor. A folder given earlier wins."""

    def __init__(self, folders: Sequence[Path]) -> None:
        packaged = files(__package__ or "") / "scripts"
        self._folders: list[Traversable] = [*folders, packaged]

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


def _read(name: str, file: Traversable) -> Script:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UnknownModel(f"the script {name} cannot be read: {error}") from error
    # JSON may be indented by tabs, and YAML may not.
    document = read_document(text.replace("\t", " ") if name.endswith(".json") else text)
    problems = document.problems or sorted(set(_problems(document)))
    if problems:
        told = "; ".join(f"{name}:{line}: {reason}" for line, reason in problems)
        raise UnknownModel(told, hint="docs/testing.md says what a script has")
    return msgspec.convert(document.value, Script)


def _problems(document: Document) -> Iterator[tuple[int, str]]:
    value = document.value
    if not isinstance(value, dict):
        yield 1, "a script is a mapping with `turns`"
        return
    script = cast("dict[str, Any]", value)
    turns = script.get("turns")
    if not isinstance(turns, list) or not turns:
        yield document.line_of(("turns",)), "a script needs `turns`: a list of at least one"
        turns = []
    yield from _misfits(document, (), {**script, "turns": []}, Script)
    for number, turn in enumerate(cast("list[Any]", turns)):
        yield from _misfits(document, ("turns", number), turn, Turn)


def _misfits(document: Document, place: Place, value: Any, wanted: type[Script | Turn]) -> Iterator[tuple[int, str]]:
    try:
        read = msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        inside = [key or int(index) for key, index in re.findall(r"\.([A-Za-z_]\w*)|\[(\d+)\]", path)]
        if "unknown field" in message:
            inside.append(message.split("`")[1])
            message = f"{message}; {_fields_at(wanted, inside)}"
        yield document.line_of((*place, *inside)), message
        return
    if isinstance(read, Turn):
        if read.when is not None and (reason := _no_pattern(read.when)):
            yield document.line_of((*place, "when")), f"`when` is no regular expression: {reason}"
        if read.error is not None and read.error.code not in ERROR_CODES:
            codes = ", ".join(f"`{code}`" for code in ERROR_CODES)
            yield document.line_of((*place, "error")), f"there is no error `{read.error.code}` of a provider; {codes}"
    else:
        for name, capture in read.captures.items():
            if reason := _no_pattern(capture.find, groups=1):
                yield document.line_of(("captures", name)), f"`find` is no regular expression with a group: {reason}"


def _fields_at(wanted: type[msgspec.Struct], inside: list[Any]) -> str:
    """The fields that there are where an unknown one was found."""
    parts: dict[Any, type[msgspec.Struct]] = {
        "tool_calls": ScriptedCall,
        "error": ScriptedError,
        "usage": ScriptedUsage,
        "captures": Capture,
    }
    owner = next((parts[part] for part in inside[:-1] if part in parts), wanted)
    return "there are " + ", ".join(f"`{field.name}`" for field in fields(owner))


def _no_pattern(pattern: str, *, groups: int = 0) -> str | None:
    try:
        found = re.compile(pattern).groups
    except re.error as error:
        return str(error)
    return None if found >= groups else "it has none"
