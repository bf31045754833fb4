"""docs/reference/limits.md: every named limit with its value and where it is used."""

import ast
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import shopfloor.adapters.limits
import shopfloor.cli.limits
import shopfloor.fleet.limits
import shopfloor.limits
import shopfloor.mcp.limits
from tools.docs_markdown import code, generated, page, section, table
from tools.docs_source import assigned_name, attribute_docs, parsed, users_of

_MODULES = (
    shopfloor.limits,
    shopfloor.adapters.limits,
    shopfloor.fleet.limits,
    shopfloor.cli.limits,
    shopfloor.mcp.limits,
)
HEAD = ("limit", "value", "used in", "meaning")
INTRO = "Limits are constants of this version. A limit that can be set is an option of a command."

_KIB, _MIB, _MB = 1024, 1024**2, 1000**2


def limits_page() -> str:
    parts = [part for module in _MODULES for part in _parts(module)]
    return page("Limits", generated("`limits.py` and those of `adapters/`, `fleet/`, `cli/` and `mcp/`"), INTRO, *parts)


def _parts(module: ModuleType) -> list[str]:
    """Return a section for each comment in a module of limits."""
    file = Path(str(module.__file__))
    docs = attribute_docs(parsed(file).body)
    users = users_of(module.__name__)
    return [
        section(title, table(HEAD, [_row(module, name, docs, users) for name in names]))
        for title, names in sections(file.read_text(encoding="utf-8")).items()
    ]


def sections(source: str) -> dict[str, list[str]]:
    """Return the names of the limits by the comment above them."""
    names = {statement.lineno: name for statement in ast.parse(source).body if (name := assigned_name(statement))}
    found: dict[str, list[str]] = {}
    title = "Limits"
    for number, line in enumerate(source.splitlines(), start=1):
        if line.startswith("# "):
            title = line.removeprefix("# ").rstrip(".")
        elif number in names:
            found.setdefault(title, []).append(names[number])
    return found


def _row(module: ModuleType, name: str, docs: dict[str, str], users: dict[str, list[str]]) -> tuple[str, ...]:
    used_in = ", ".join(code(user.removeprefix("shopfloor.")) for user in users.get(name, []))
    return code(name), value_with_unit(name, getattr(module, name)), used_in, docs.get(name, "")


def value_with_unit(name: str, value: float | range) -> str:
    """Return the value with its unit, which is the last word of the name."""
    if isinstance(value, range):
        return f"{value[0]} to {value[-1]}"
    show = _UNITS.get(name.rpartition("_")[2])
    return show(value) if show else f"{value:,}"


def _bytes(value: float) -> str:
    for size, unit in ((_MIB, "MiB"), (_KIB, "KiB"), (_MB, "MB")):
        if value >= size and value % size == 0:
            return f"{value // size:,} {unit}"
    return f"{value:,} bytes"


def _seconds(value: float) -> str:
    return f"{value:g} s" if value >= 1 else f"{value * 1000:g} ms"


_UNITS: dict[str, Callable[[float], str]] = {
    "BYTES": _bytes,
    "SECONDS": _seconds,
    "MODE": lambda value: f"{int(value):04o}",
    "EVENTS": lambda value: f"{value:,} events",
    "LINES": lambda value: f"{value:,} lines",
    "CHARS": lambda value: f"{value:,} characters",
}
