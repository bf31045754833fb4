"""Words that must not come back: metaphors and pronouns in names, riddles in docstrings, comments and messages."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = sorted(path for folder in ("src", "tools", "benchmarks", "plugins") for path in (ROOT / folder).rglob("*.py"))
TYPESCRIPT = [
    path for path in sorted((ROOT / "web" / "src").rglob("*.ts*")) if path.name not in {"schema.d.ts", "vite-env.d.ts"}
]
WIRE_MODELS = {"request_models.py", "response_models.py"}
"""Modules that spell the words of a wire format."""

IN_NAMES = frozenset(
    [
        "said",
        "told",
        "tells",
        "telling",
        "asked",
        "asking",
        "whoever",
        "nobody",
        "somebody",
        "anybody",
        "everybody",
        "heir",
        "leash",
        "duty",
        "keeper",
        "minder",
        "sitting",
        "workshop",
        "office",
        "shop",
        "desk",
        "stir",
        "stirred",
        "bury",
        "buried",
        "conduct",
        "resting",
        "standing",
        "leaving",
        "complain",
        "complains",
        "complaint",
        "begun",
        "unasked",
    ]
)
"""Parts of names: `_told_frame` and `toldFrame` have `told`."""
IN_PROSE = re.compile(
    r"\b(whoever|nobody|somebody|anybody|everybody|gone on with|goes on with|go on with|(?:is|was|are|be) told(?! apart)|"
    r"is said to|it is said|stands? (?:further|above|below) |the seed|minder|workshop|leash|heir)\b"
)


def id_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def words_of(name: str) -> set[str]:
    """The words of a name in snake case or camel case."""
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def bad_names(path: Path, names: Iterator[tuple[int, str]]) -> list[str]:
    return sorted({f"{id_of(path)}:{line}: {name}" for line, name in names if words_of(name) & IN_NAMES})


def python_tokens(path: Path) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(path.read_text()).readline))


@pytest.mark.parametrize("path", [path for path in PYTHON if path.name not in WIRE_MODELS], ids=id_of)
def test_names_are_words_of_the_field(path: Path) -> None:
    tokens = [token for token in python_tokens(path) if token.type == tokenize.NAME]
    assert bad_names(path, ((token.start[0], token.string) for token in tokens)) == []
    assert not words_of(path.stem) & IN_NAMES


@pytest.mark.parametrize("path", PYTHON, ids=id_of)
def test_prose_names_who_does_what(path: Path) -> None:
    # A string without spaces is a value, not prose.
    texts = [
        token
        for token in python_tokens(path)
        if token.type in (tokenize.COMMENT, tokenize.STRING) and " " in token.string
    ]
    found = [(token.start[0], match.group()) for token in texts for match in IN_PROSE.finditer(token.string)]
    assert [f"{id_of(path)}:{line}: {words}" for line, words in found] == []


@pytest.mark.parametrize("path", TYPESCRIPT, ids=id_of)
def test_the_page_is_written_in_the_same_words(path: Path) -> None:
    text = path.read_text()
    lines = list(enumerate(text.splitlines(), start=1))
    code = re.sub(r"/\*.*?\*/|//[^\n]*", lambda comment: re.sub(r"[^\n]", " ", comment.group()), text, flags=re.DOTALL)
    coded = enumerate(code.splitlines(), start=1)
    names = ((number, name) for number, line in coded for name in re.findall(r"[A-Za-z_$][\w$]*", line))
    assert bad_names(path, names) == []
    assert [f"{id_of(path)}:{number}" for number, line in lines if IN_PROSE.search(line)] == []
