"""Hashes of a worker in Python: what changes them, and what does not."""

import tokenize
from pathlib import Path

import pytest

from shopfloor.engine import WorkerCatalog
from shopfloor.engine.workers.source_hash import _join_f_strings, source_hashes

SOURCE = '''"""A module."""
from __future__ import annotations
import os.path, sys
from shopfloor import Run, worker

LIMIT = 3
TABLE = {}
TABLE["ä"] = f"{LIMIT!r:>{LIMIT}} {{x}} {f'in {os.sep}'}"

def helper(x, *, y=LIMIT):
    return f"""a
 {x + y:{LIMIT}} {other(x)}""" rf"\\d{x}"

def other(x):
    return (x,), [x], x[1,], sys.maxsize

class Unused:
    pass

@worker(slug="greet", tools=[helper])
async def greet(run: Run, NAME: str = "é"):
    """Greets."""
    def inner():
        return NAME
    async with run as r:
        match NAME:
            case "a": return inner()
    return helper(TABLE)
'''
PINNED = {
    "LIMIT": "tokens1:f61dbc1cb6c875e709ac1db227c91a0bf5ad23d7d070e514a590786ff110fccf",
    "Run": "tokens1:2accd910d30a9878fb23904103a843e8bd39203e88d4df1928e7ecc98e2a98de",
    "TABLE": "tokens1:296457b0569c1881c1b7d577925c9cd43e290e7a02954a3cf67e9dc6ceb39703",
    "greet": "tokens1:a825a6b1e218483d56b80ccdf11047386a272777059a8c729a6931ddcbcce62c",
    "helper": "tokens1:3877620957e1eed264e27a53a0cc21b881ddbbaceaf92621588df4e9170ac32b",
    "os": "tokens1:042d890305495fc8df662b5f8aabef75906fc262a5490551e8873ce1825a9c86",
    "other": "tokens1:413351b2bd17896d1d2c845148e2f87efa7b6023c54bcc41b95f56e9dd5c51c1",
    "sys": "tokens1:f057b047c84e60afe15ef79a194273eb35b476c1100dad4bf4202fbdf3f01a03",
    "worker": "tokens1:9903d6729d2a792535929e18b29c0b24ba2c90f9eaf4c52b889a12eb9fdc7ec3",
}
"""Computed with the versions of Python that exist so far; every other version must compute the same."""


def hashes(source: str = SOURCE) -> dict[str, str]:
    return source_hashes(source, source[: source.index("async def greet")].count("\n") + 1)


def changed(source: str) -> set[str]:
    before, after = hashes(), hashes(source)
    return {name for name in {**before, **after} if before.get(name) != after.get(name)}


@pytest.mark.req("TR-70")
def test_the_hashes_are_the_same_in_every_version_of_python():
    assert hashes() == PINNED


@pytest.mark.req("TR-70")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 3  # three"),
        ("LIMIT = 3", "\n\n# Three.\nLIMIT = \\\n    3"),
        ('"""Greets."""', '"""Greets somebody.\n\n    At length: é.\n    """'),
        ('    """Greets."""\n', ""),
        ("        return NAME", '        """The name."""\n        return NAME'),
        ("        return NAME", "                return NAME"),
        ("helper(x, *, y=LIMIT)", "helper(\n    x,\n    *,\n    y=LIMIT,\n)"),
        ("[x], x", "[\n        x,\n    ], x"),
        ("Run, worker", "worker, Run, tool"),
        ("import os.path, sys", "import sys\nimport os.path"),
        ("class Unused:\n    pass", "class Unused:\n    size = 2"),
        ('"""A module."""', '"""Another module."""'),
    ],
)
def test_a_change_without_an_effect_changes_no_hash(old, new):
    assert SOURCE.count(old) == 1
    assert changed(SOURCE.replace(old, new)) == set()


@pytest.mark.req("TR-70")
@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("LIMIT = 3", "LIMIT = 4", {"LIMIT"}),
        ("helper(TABLE)", "helper(len(TABLE))", {"greet"}),
        ('slug="greet"', 'slug="greets"', {"greet"}),
        ('NAME: str = "é"', 'NAME: str = "è"', {"greet"}),
        ("return inner()", "return await inner()", {"greet"}),
        ("        return NAME", "        return NAME.upper()", {"greet"}),
        ("    return helper(TABLE)", "        return helper(TABLE)", {"greet"}),
        ("{x + y:", "{x - y:", {"helper"}),
        ("{other(x)}", "{x}", {"helper", "other", "sys"}),
        ("y=LIMIT", "y=2", {"helper"}),
        ("(x,)", "(x)", {"other"}),
        ("x[1,]", "x[1]", {"other"}),
        ("in {os.sep}", "on {os.sep}", {"TABLE"}),
        ('TABLE["ä"] =', 'TABLE["a"] =', {"TABLE"}),
        ("import os.path, sys", "import os.path\nimport system as sys", {"sys"}),
        ("LIMIT = 3", "from limits import *\nLIMIT = 3", {"*"}),
        ("LIMIT = 3", "LIMIT = 3\nLIMIT += 1", {"LIMIT"}),
        ("TABLE = {}", "TABLE = {}\nTABLE.update(a=1)", {"TABLE"}),
        ("class Unused:\n    pass", "class Run(Base):\n    pass\nclass Base:\n    pass", {"Run", "Base"}),
    ],
)
def test_a_change_with_an_effect_changes_the_hash_of_its_name(old, new, names):
    assert SOURCE.count(old) == 1
    assert changed(SOURCE.replace(old, new)) == names


@pytest.mark.req("TR-70")
def test_an_f_string_that_python_3_12_splits_is_one_token():
    line = "x = f'a{f\"{b}\":>{c}}d' + e\n"
    words = ["x", "=", "f'", "a", "{", 'f"', "{", "b", "}", '"', ":", ">", "{", "c", "}", "}", "d", "'", "+", "e"]
    names = {"f'": "FSTRING_START", 'f"': "FSTRING_START", "'": "FSTRING_END", '"': "FSTRING_END"}
    numbers = dict.fromkeys(names.values(), 0) | {"FSTRING_START": 1001, "FSTRING_END": 1002}
    known = dict(tokenize.tok_name)
    tokenize.tok_name.update({1001: "FSTRING_START", 1002: "FSTRING_END"})
    try:
        tokens, column = [], 0
        for word in words:
            column = line.index(word, column)
            kind = numbers.get(names.get(word, ""), tokenize.NAME if word.isidentifier() else tokenize.OP)
            tokens.append(tokenize.TokenInfo(kind, word, (1, column), (1, column + len(word)), line))
            column += len(word)
        joined = [word for _, word, _ in _join_f_strings(tokens, line.split("\n"))]
    finally:
        tokenize.tok_name.clear()
        tokenize.tok_name.update(known)
    assert joined == ["x", "=", "f'a{f\"{b}\":>{c}}d'", "+", "e"]


def test_a_worker_in_a_closure_has_the_hash_of_the_outer_function(tmp_path: Path):
    def write(expression: str) -> None:
        (tmp_path / "made").mkdir(exist_ok=True)
        (tmp_path / "made" / "worker.py").write_text(
            "from functools import wraps\nfrom shopfloor import worker\n\n"
            "def plain(function):\n    @wraps(function)\n    async def inner(*args, **kwargs):\n"
            "        return await function(*args, **kwargs)\n    return inner\n\n"
            f"def make(value):\n    @worker(slug='made')\n    @plain\n    async def made(run):\n        return {expression}\n    return made\n\n"
            "made = make(1)\n"
        )

    catalog = WorkerCatalog([tmp_path])
    write("value")
    first = catalog.get("made")
    assert set(first.definition.functions) == {"make", "made", "plain", "wraps", "worker"}
    write("value + 1")
    again = catalog.get("made")
    both = first.definition.functions, again.definition.functions
    assert {name for name in both[0] if both[0][name] != both[1][name]} == {"make"}
    assert again.hash != first.hash
    assert again.hash.startswith("tokens1:")
