"""Hashes of the parts of a worker in Python, by name, computed from the tokens of its file. Pure functions.

Two sources that differ only in comments, docstrings, line breaks, indentation or trailing commas have the same hashes,
in every supported version of Python. Therefore tokens are hashed and not the syntax tree, whose dump differs between
versions.
"""

from __future__ import annotations

import ast
import hashlib
import keyword
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

ALGORITHM = "tokens1"
"""Prefix of a hash. Another way of hashing gets another name: hashes of two algorithms cannot be compared."""

STAR = "*"
"""The name under which `from module import *` is hashed, because any function may use what it binds."""

_Position = tuple[int, int]
_IGNORED_TOKENS = frozenset({"ENCODING", "COMMENT", "NL", "ENDMARKER"})
_LAYOUT = {"NEWLINE": "\n", "INDENT": "\x01", "DEDENT": "\x02"}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class _Statement(NamedTuple):
    """A statement at the top level of a file."""

    first_line: int
    last_line: int
    binds: tuple[str, ...]
    uses: frozenset[str]
    tokens: tuple[str, ...]


def source_hashes(source: str, line: int) -> dict[str, str]:
    """Hash the top-level definition that contains `line`, and all that it uses directly or indirectly, by name."""
    statements = _parse_statements(source)
    by_name: dict[str, list[_Statement]] = {}
    for statement in statements:
        for name in statement.binds:
            by_name.setdefault(name, []).append(statement)
    reached: dict[str, None] = {}
    pending = [name for s in statements if s.first_line <= line <= s.last_line for name in s.binds]
    pending += [STAR] if STAR in by_name else []
    while pending:
        name = pending.pop()
        if name in by_name and name not in reached:
            reached[name] = None
            pending += [used for statement in by_name[name] for used in statement.uses]
    return {name: _hash(token for s in by_name[name] for token in s.tokens) for name in sorted(reached)}


def total_hash(hashes: Mapping[str, str]) -> str:
    """Combine the hashes of a worker's functions into one."""
    return _hash(part for name in sorted(hashes) for part in (name, hashes[name]))


def _hash(parts: Iterable[str]) -> str:
    # Tokens contain no NUL, because source code cannot.
    return f"{ALGORITHM}:{hashlib.sha256(chr(0).join(parts).encode(errors='surrogatepass')).hexdigest()}"


@lru_cache(maxsize=1)
def _parse_statements(source: str) -> tuple[_Statement, ...]:
    # Use the syntax tree only for positions and for the names in use (also inside f-strings), never for the hashed
    # text.
    lines = source.split("\n")
    return tuple(s for node in ast.parse(source).body for s in _statements_in(node, lines))


def _statements_in(node: ast.stmt, lines: list[str]) -> Iterator[_Statement]:
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
    last = node.end_lineno or node.lineno
    if isinstance(node, ast.Import | ast.ImportFrom):
        # Hash each name by itself: the order of imports and other imported names do not matter to a function.
        for alias in node.names:
            yield _Statement(first, last, _bound_by_import(alias), frozenset(), _import_tokens(node, alias))
        return
    uses = frozenset(inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))
    definitions = [inner for inner in ast.walk(node) if isinstance(inner, _DEFINITIONS)]
    own_lines = lines[first - 1 : last]
    docstrings = [found for inner in definitions if (found := _docstring_range(inner, own_lines, first))]
    yield _Statement(first, last, tuple(dict.fromkeys(_bound_names(node))), uses, tuple(_tokens(own_lines, docstrings)))


def _bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement defines or changes in its module."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias():
            yield from _bound_by_import(node)
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
            yield from _root_name(node)
        case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
            # `TABLE.update(…)` changes the content of TABLE.
            yield from _root_name(method)
        case ast.Lambda():
            pass
        case _:
            for inner in ast.iter_child_nodes(node):
                yield from _bound_names(inner)


def _root_name(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Name):
        yield node.id


def _bound_by_import(alias: ast.alias) -> tuple[str, ...]:
    return (alias.asname or alias.name.partition(".")[0],)


def _import_tokens(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> tuple[str, ...]:
    source = ("from", "." * node.level + (node.module or "")) if isinstance(node, ast.ImportFrom) else ()
    return (*source, "import", alias.name, *(("as", alias.asname) if alias.asname else ()))


def _docstring_range(node: _Definition, lines: list[str], first_line: int) -> tuple[_Position, _Position] | None:
    """Return where the docstring begins and ends in `lines`, in the tokenizer's positions."""
    first = node.body[0] if node.body else None
    if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
        return None
    text = first.value
    if not isinstance(text.value, str) or text.end_lineno is None or text.end_col_offset is None:
        return None
    begin, end = text.lineno - first_line, text.end_lineno - first_line
    start = begin + 1, _column(lines[begin], text.col_offset)
    return start, (end + 1, _column(lines[end], text.end_col_offset))


def _column(line: str, offset: int) -> int:
    """Convert a column of the syntax tree, in bytes, to one of the tokenizer, in characters."""
    return len(line.encode(errors="surrogatepass")[:offset].decode(errors="surrogatepass"))


def _tokens(lines: list[str], docstrings: list[tuple[_Position, _Position]]) -> list[str]:
    words: list[str] = []
    readline = iter([*(f"{line}\n" for line in lines), ""]).__next__
    for name, word, begin in _join_f_strings(tokenize.generate_tokens(readline), lines):
        if name in _IGNORED_TOKENS or any(start <= begin < end for start, end in docstrings):
            continue
        if name == "NEWLINE" and words[-1:] in ([], ["\n"], ["\x01"]):
            # The line end of a docstring.
            continue
        words.append(_LAYOUT.get(name, word))
    return _without_trailing_commas(words)


def _join_f_strings(tokens: Iterable[tokenize.TokenInfo], lines: Sequence[str]) -> Iterator[tuple[str, str, _Position]]:
    """Yield type, text and position of each token; an f-string is one token, as before Python 3.12."""
    depth, start = 0, (0, 0)
    for token in tokens:
        name = tokenize.tok_name[token.type]
        if name.endswith("STRING_START"):
            start = start if depth else token.start
            depth += 1
        elif name.endswith("STRING_END"):
            depth -= 1
            if not depth:
                yield "STRING", _between(lines, start, token.end), start
        elif not depth:
            yield name, token.string, token.start


def _between(lines: Sequence[str], begin: _Position, end: _Position) -> str:
    if begin[0] == end[0]:
        return lines[begin[0] - 1][begin[1] : end[1]]
    return "\n".join([lines[begin[0] - 1][begin[1] :], *lines[begin[0] : end[0] - 1], lines[end[0] - 1][: end[1]]])


def _without_trailing_commas(words: list[str]) -> list[str]:
    """Drop the comma before a closing bracket, unless it makes a tuple: `(1,)` is not `(1)`."""
    result: list[str] = []
    brackets: list[tuple[bool, int]] = []
    for word in words:
        if word in ("(", "[", "{"):
            previous = result[-1] if result else ""
            follows_value = previous in (")", "]") or (previous.isidentifier() and not keyword.iskeyword(previous))
            brackets.append((word != "{" and (word == "[") == follows_value, 0))
        elif word in (")", "]", "}") and brackets:
            makes_tuple, commas = brackets.pop()
            if result[-1] == "," and not (makes_tuple and commas == 1):
                result.pop()
        elif word == "," and brackets:
            brackets[-1] = (brackets[-1][0], brackets[-1][1] + 1)
        result.append(word)
    return result
