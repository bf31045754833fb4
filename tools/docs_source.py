"""Facts from the source code: docstrings below fields, constants, and the users of names."""

import ast
import inspect
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "shopfloor"


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def module_name(path: Path) -> str:
    """Return the module's name, such as `shopfloor.record.reader`; for an `__init__`, the package's name."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def attribute_docs(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return the string literals below assignments, by the assigned name."""
    found: dict[str, str] = {}
    for statement, following in pairwise(body):
        name = assigned_name(statement)
        if name and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            found[name] = " ".join(str(following.value.value).split())
    return found


def assigned_name(statement: ast.stmt) -> str | None:
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case _:
            return None


def field_docs(cls: type) -> dict[str, str]:
    """Return the docstrings of a class's fields, including inherited fields."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("shopfloor."):
            docs |= attribute_docs(_class_body(base))
    return docs


def _class_body(cls: type) -> list[ast.stmt]:
    tree = parsed(Path(inspect.getfile(cls)))
    return next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__)


def summary(thing: object) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def constant(path: Path, name: str) -> Any:
    """Return the value of a constant that is written as a literal, including private constants."""
    for statement in parsed(path).body:
        if assigned_name(statement) != name or not isinstance(statement, ast.AnnAssign | ast.Assign):
            continue
        value = statement.value
        if isinstance(value, ast.Call):
            # frozenset({...}): use the literal inside.
            value = value.args[0]
        if value is not None:
            return ast.literal_eval(value)
    raise LookupError(f"{path.name} has no constant {name}")


def calls(path: Path, function: str) -> Iterator[ast.Call]:
    """Yield the calls of `function`, written as in the source, e.g. `os.environ.get`."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == function:
            yield node


def users_of(module: str) -> dict[str, list[str]]:
    """Return the names that are imported from a module, each with the modules that import it."""
    users: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and node.module == module:
                for alias in node.names:
                    users.setdefault(alias.name, []).append(module_name(path))
    return users
