"""Hashes of what a worker in Python is made of, by name, from the tokens of its file. Pure.

Two sources that differ in comments, docstrings, line breaks, indentation or trailing commas have the same hashes, in
every supported version of Python: so tokens are hashed, not the syntax tree, whose dump differs between versions.
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
"""What a hash begins with. Another way of hashing gets another name: hashes of two algorithms cannot be compared."""

STAR = "*"
"""The name under which `from module import *` is hashed: whatever it binds, any function may use."""

_Position = tuple[int, int]
_NO_TOKENS = frozenset({"ENCODING", "COMMENT", "NL", "ENDMARKER"})
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
    """Hash the top-level definition that contains `line` and all that it uses, directly or through others, by name."""
    statements = _statements_of(source)
    by_name: dict[str, list[_Statement]] = {}
    for statement in statements:
        for name in statement.binds:
            by_name.setdefault(name, []).append(statement)
    reached: dict[str, None] = {}
    pending = [name for one in statements if one.first_line <= line <= one.last_line for name in one.binds]
    pending += [STAR] if STAR in by_name else []
    while pending:
        name = pending.pop()
        if name in by_name and name not in reached:
            reached[name] = None
            pending += [used for statement in by_name[name] for used in statement.uses]
    return {name: _hash(token for one in by_name[name] for token in one.tokens) for name in sorted(reached)}


def total_hash(hashes: Mapping[str, str]) -> str:
    """Combine the hashes of a worker's functions into one."""
    return _hash(part for name in sorted(hashes) for part in (name, hashes[name]))


def _hash(parts: Iterable[str]) -> str:
    # No token holds a NUL: source code cannot.
    return f"{ALGORITHM}:{hashlib.sha256(chr(0).join(parts).encode(errors='surrogatepass')).hexdigest()}"


@lru_cache(maxsize=1)
def _statements_of(source: str) -> tuple[_Statement, ...]:
    # The syntax tree tells where things are, and the names that are used, also inside f-strings; never how they look.
    lines = source.split("\n")
    return tuple(one for node in ast.parse(source).body for one in _statements_in(node, lines))


def _statements_in(node: ast.stmt, lines: list[str]) -> Iterator[_Statement]:
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
    last = node.end_lineno or node.lineno
    if isinstance(node, ast.Import | ast.ImportFrom):
        # Each name by itself: the order of imports, and what others import, means nothing to a function.
        for alias in node.names:
            yield _Statement(first, last, _bound_by_import(alias), frozenset(), _import_tokens(node, alias))
        return
    uses = frozenset(one.id for one in ast.walk(node) if isinstance(one, ast.Name))
    definitions = [one for one in ast.walk(node) if isinstance(one, _DEFINITIONS)]
    own_lines = lines[first - 1 : last]
    docstrings = [found for one in definitions if (found := _docstring_range(one, own_lines, first))]
    yield _Statement(first, last, tuple(dict.fromkeys(_bound(node))), uses, tuple(_tokens(own_lines, docstrings)))


def _bound(node: ast.AST) -> Iterator[str]:
    """Names that a statement defines or changes in its module."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias():
            yield from _bound_by_import(node)
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
            yield from _root(node)
        case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
            # `TABLE.update(…)` changes what is in TABLE.
            yield from _root(method)
        case ast.Lambda():
            pass
        case _:
            for inner in ast.iter_child_nodes(node):
                yield from _bound(inner)


def _root(node: ast.expr) -> Iterator[str]:
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
    """Give where the docstring begins and ends in `lines`, as the tokenizer counts."""
    first = node.body[0] if node.body else None
    if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
        return None
    text = first.value
    if not isinstance(text.value, str) or text.end_lineno is None or text.end_col_offset is None:
        return None
    begin, end = text.lineno - first_line, text.end_lineno - first_line
    since = begin + 1, _column(lines[begin], text.col_offset)
    return since, (end + 1, _column(lines[end], text.end_col_offset))


def _column(line: str, offset: int) -> int:
    """Convert the tree's column, in bytes, to the tokenizer's, in characters."""
    return len(line.encode(errors="surrogatepass")[:offset].decode(errors="surrogatepass"))


def _tokens(lines: list[str], docstrings: list[tuple[_Position, _Position]]) -> list[str]:
    words: list[str] = []
    readline = iter([*(f"{line}\n" for line in lines), ""]).__next__
    for name, word, begin in _joined(tokenize.generate_tokens(readline), lines):
        if name in _NO_TOKENS or any(since <= begin < until for since, until in docstrings):
            continue
        if name == "NEWLINE" and words[-1:] in ([], ["\n"], ["\x01"]):
            # Of a docstring's line.
            continue
        words.append(_LAYOUT.get(name, word))
    return _without_trailing_commas(words)


def _joined(tokens: Iterable[tokenize.TokenInfo], lines: Sequence[str]) -> Iterator[tuple[str, str, _Position]]:
    """Give each token's type, text and position; an f-string is one token, as it was before Python 3.12."""
    depth, since = 0, (0, 0)
    for token in tokens:
        name = tokenize.tok_name[token.type]
        if name.endswith("STRING_START"):
            since = since if depth else token.start
            depth += 1
        elif name.endswith("STRING_END"):
            depth -= 1
            if not depth:
                yield "STRING", _between(lines, since, token.end), since
        elif not depth:
            yield name, token.string, token.start


def _between(lines: Sequence[str], begin: _Position, end: _Position) -> str:
    if begin[0] == end[0]:
        return lines[begin[0] - 1][begin[1] : end[1]]
    return "\n".join([lines[begin[0] - 1][begin[1] :], *lines[begin[0] : end[0] - 1], lines[end[0] - 1][: end[1]]])


def _without_trailing_commas(words: list[str]) -> list[str]:
    """Drop the comma before a closing bracket, unless it makes a tuple: `(1,)` is not `(1)`."""
    kept: list[str] = []
    brackets: list[tuple[bool, int]] = []
    for word in words:
        if word in ("(", "[", "{"):
            before = kept[-1] if kept else ""
            follows_value = before in (")", "]") or (before.isidentifier() and not keyword.iskeyword(before))
            brackets.append((word != "{" and (word == "[") == follows_value, 0))
        elif word in (")", "]", "}") and brackets:
            makes_tuple, commas = brackets.pop()
            if kept[-1] == "," and not (makes_tuple and commas == 1):
                kept.pop()
        elif word == "," and brackets:
            brackets[-1] = (brackets[-1][0], brackets[-1][1] + 1)
        kept.append(word)
    return kept
