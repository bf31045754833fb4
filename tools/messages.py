"""tests/golden/messages.txt: every message, hint and help text of the program, for a reviewer to read in one sitting.

The texts are found in the source: the arguments of error classes and of functions that return errors, `hint=`, the
help texts of argparse, the examples of commands, texts printed to a terminal, and log messages. Fields of f-strings are
shown as {name}; alternatives are separated by " | ".
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from shopfloor.errors import all_error_types
from tools.docs_source import ROOT, SOURCE, modules, parsed

FILE = ROOT / "tests" / "golden" / "messages.txt"
HEADER = """\
Every message, hint and help text of the program, by module.
Generated from the source by `make messages`; do not edit by hand.
"""
ERRORS = {cls.__name__ for cls in all_error_types()}
OTHER_ERRORS = {
    *("ArgumentTypeError", "CheckResult", "Problem", "RunError", "RuleViolation", "TypeError", "ValueError"),
    *("kind", "storage_error"),
}
"""What else is called with a message; `kind` is a variable that has one of several error classes."""
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
TEXT_KEYWORDS = {"hint": "hint", "default_hint": "hint", "help": "help", "message": "message", "summary": "help"}
TEXT_CONSTANTS = {"EXAMPLES", "DETAILS", "GROUPS", "_USAGE", "_LIST", "_SHOW", "_CHECK", "_NEW", "_ADD", "_REVOKE"}


def page() -> str:
    """Return the text of the file."""
    parts = [HEADER]
    for path in modules():
        lines = list(dict.fromkeys(_lines(parsed(path), is_cli=path.is_relative_to(SOURCE / "cli"))))
        if lines:
            parts.append("\n".join([f"== {path.relative_to(SOURCE)}", *lines, ""]))
    return "\n".join(parts)


def _lines(tree: ast.Module, *, is_cli: bool) -> Iterator[str]:
    """Yield the texts of a module in the order of the source."""
    found: list[tuple[int, str, str]] = []
    helpers = set(_error_helpers(tree))
    for node, names in _scoped(tree, {}):
        for kind, value in [*_texts(node, is_cli=is_cli), *_helper_texts(node, helpers)]:
            text = _render(value, names)
            if any(letter.isalpha() for letter in _without_fields(text)):
                found.append((value.lineno, kind, text))
    for _, kind, text in sorted(found, key=lambda item: item[0]):
        yield _labelled(kind, text)


def _error_helpers(tree: ast.Module) -> Iterator[str]:
    """Yield the functions of a module that take a text and construct an error: their callers have the messages."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        parameters = [*node.args.args, *node.args.kwonlyargs]
        takes_text = any(item.annotation and "str" in ast.unparse(item.annotation) for item in parameters)
        calls = (_last_name(call.func) for call in ast.walk(node) if isinstance(call, ast.Call))
        if takes_text and any(name in ERRORS | OTHER_ERRORS for name in calls):
            yield node.name


def _helper_texts(node: ast.AST, helpers: set[str]) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Call) and _last_name(node.func) in helpers - ERRORS - OTHER_ERRORS:
        yield from (("message", argument) for argument in node.args if _is_text(argument))


def _scoped(node: ast.AST, names: dict[str, ast.expr]) -> Iterator[tuple[ast.AST, dict[str, ast.expr]]]:
    """Yield every node with the names of texts that are visible there."""
    if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
        names = names | _string_names(node)
    yield node, names
    for child in ast.iter_child_nodes(node):
        yield from _scoped(child, names)


def _texts(node: ast.AST, *, is_cli: bool) -> Iterator[tuple[str, ast.expr]]:
    """Yield the texts that a statement or expression has, each with its kind."""
    match node:
        case ast.Call():
            yield from _call_texts(node, is_cli=is_cli)
        case ast.ClassDef(keywords=keywords):
            yield from (("hint", word.value) for word in keywords if word.arg == "default_hint")
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and key.value in ("help", "hint", "message"):
                    yield str(key.value), value
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=value)
        ):
            if is_cli and name in TEXT_CONSTANTS and value is not None:
                yield from (("help", text) for text in _constants(value))
        case _:
            pass


def _call_texts(call: ast.Call, *, is_cli: bool) -> Iterator[tuple[str, ast.expr]]:
    name = _last_name(call.func)
    is_error = name in ERRORS | OTHER_ERRORS
    is_log = (
        name in LOG_METHODS and isinstance(call.func, ast.Attribute) and "log" in ast.unparse(call.func.value).lower()
    )
    is_inner_command = name == "add_command"
    if is_error or is_log or is_inner_command or (name == "print" and is_cli):
        kind = "log" if is_log else "help" if is_inner_command else "print" if name == "print" else name
        yield from ((kind, argument) for argument in call.args if _is_text(argument))
    for word in call.keywords:
        if word.arg in TEXT_KEYWORDS and (word.arg != "message" or is_error):
            yield TEXT_KEYWORDS[word.arg], word.value


def _is_text(node: ast.expr) -> bool:
    """Return whether an argument is written as text, and is not a single word such as a state or a path."""
    match node:
        case ast.Constant(value=str() as text):
            return " " in text.strip()
        case ast.JoinedStr() | ast.BinOp(op=ast.Add()):
            return True
        case ast.IfExp(body=body, orelse=orelse):
            return _is_text(body) or _is_text(orelse)
        case _:
            return False


def _constants(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the strings in a constant: one text, or the values of tuples and dictionaries."""
    match node:
        case ast.Constant(value=str()):
            yield node
        case ast.Tuple(elts=items):
            for item in items:
                yield from _constants(item)
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(value, ast.Dict) and key is not None:
                    yield key
                yield from _constants(value)
        case _:
            pass


def _string_names(scope: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
    """Return the names that are assigned exactly one text in the scope, to show the text instead of the name."""
    values: dict[str, list[ast.expr]] = {}
    for node in scope.body if isinstance(scope, ast.Module) else ast.walk(scope):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                values.setdefault(name, []).append(value)
            case _:
                pass
    return {name: found[0] for name, found in values.items() if len(found) == 1 and _is_text(found[0])}


def _render(node: ast.expr, names: dict[str, ast.expr], depth: int = 0) -> str:
    """Return the text of an expression, with {name} for each part that is known only at run time."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_render(value, names, depth) for value in values)
        case ast.FormattedValue(value=value, conversion=conversion):
            text = _render(value, names, depth)
            return f"'{text}'" if conversion == ord("r") else text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _render(left, names, depth) + _render(right, names, depth)
        case ast.IfExp(body=body, orelse=orelse) if _is_text(body) or _is_text(orelse):
            return f"({_render(body, names, depth)} | {_render(orelse, names, depth)})"
        case ast.BoolOp(op=ast.Or(), values=values) if any(_is_text(value) for value in values):
            return f"({' | '.join(_render(value, names, depth) for value in values)})"
        case ast.Name(id=name) if name in names and depth < _MAX_DEPTH:
            return _render(names[name], names, depth + 1)
        case _:
            return f"{{{_last_name(node)}}}"


_MAX_DEPTH = 2


def _last_name(node: ast.AST) -> str:
    """Return the name that says most about an expression: `path` for `self.path`, `len` for `len(items)`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join"), args=[argument]):
            return _last_name(argument)
        case ast.Call(func=ast.Name(id="len" | "str" | "repr" | "min" | "max" | "sorted"), args=[argument, *_]):
            return _last_name(argument)
        case ast.Call(func=function):
            return _last_name(function)
        case ast.Subscript(slice=ast.Constant(value=str() as key)):
            return key
        case ast.Subscript(value=value) | ast.Await(value=value) | ast.Starred(value=value):
            return _last_name(value)
        case ast.GeneratorExp(elt=item) | ast.ListComp(elt=item):
            return _last_name(item)
        case _:
            return "…"


def _without_fields(text: str) -> str:
    for field in ("{", "}"):
        text = text.replace(field, "\0")
    return "".join(text.split("\0")[::2])


def _labelled(kind: str, text: str) -> str:
    first, *rest = text.strip("\n").split("\n")
    return "\n".join([f"{kind + ':':<22} {first}".rstrip(), *(f"{'':<22} {line}".rstrip() for line in rest)])


def main(arguments: list[str]) -> int:
    """Write the file; with `--check` only report whether it is stale."""
    if arguments == ["--check"]:
        if is_stale():
            print(f"{FILE.relative_to(ROOT)} is stale: run `make messages`")
            return 1
        return 0
    Path(FILE).write_text(page(), encoding="utf-8")
    return 0


def is_stale() -> bool:
    """Return whether the file differs from the source."""
    return not FILE.exists() or FILE.read_text(encoding="utf-8") != page()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
