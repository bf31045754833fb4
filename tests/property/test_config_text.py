"""Edits of configuration files: adding the server and removing it again leaves every byte as it was."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shopfloor.cli import jsonc_text, toml_text

pytestmark = pytest.mark.req("SF-47")

PATH = ("mcpServers", "shopfloor")
ENTRY = {"type": "stdio", "command": "/opt/shop floor/bin/shopfloor", "args": ["mcp", "--storage", 'a"b\\ü']}
TABLE = ("mcp_servers", "shopfloor")
FIELDS = {"command": "/opt/shop floor/bin/shopfloor", "args": ["mcp", "--storage", 'a"b\\ü\x7f\t']}

# JSON with comments, in any layout.

SPACES = st.sampled_from(["", " ", "\n", "\r\n", "\n\t", "\r\n    ", " // x\n", "/* { */ ", '\n  // "a": {\n  '])
KEYS = st.sampled_from(["mcpServers", "shopfloor", "a", "ü", 'q"', "{", ""])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.sampled_from(["//", "/*", "}{"]))


@st.composite
def _layout(draw: st.DrawFn, value: Any) -> str:
    if isinstance(value, dict):
        members = [
            f"{draw(SPACES)}{json.dumps(key)}{draw(SPACES)}:{draw(SPACES)}{draw(_layout(item))}{draw(SPACES)}"
            for key, item in value.items()
        ]
        trailing = "," if members and draw(st.booleans()) else ""
        return "{" + ",".join(members) + trailing + draw(SPACES) + "}"
    if isinstance(value, list):
        return "[" + ",".join(f"{draw(SPACES)}{draw(_layout(item))}" for item in value) + draw(SPACES) + "]"
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    value = draw(OBJECTS)
    start = draw(st.sampled_from(["", "\ufeff", "\n", "// first\r\n", "/* a */"]))
    return start + draw(_layout(value)) + draw(SPACES), value


@given(documents())
def test_json_with_comments_is_read_as_it_was_meant(document: tuple[str, dict[str, Any]]) -> None:
    text, value = document
    assert jsonc_text.parse(text).value == value


@given(documents())
def test_a_server_that_is_added_to_json_and_removed_leaves_every_byte(document: tuple[str, dict[str, Any]]) -> None:
    text, value = document
    servers = value.get(PATH[0], {})
    assume(isinstance(servers, dict) and PATH[1] not in servers)
    added = jsonc_text.set_fields(text, PATH, ENTRY)
    assert jsonc_text.parse(added).value == {**value, PATH[0]: {**servers, PATH[1]: ENTRY}}
    assert jsonc_text.set_fields(added, PATH, ENTRY) == added
    assert jsonc_text.remove_value(added, PATH) == text


@given(documents(), st.sampled_from([2, 4, None, "\t"]))
def test_a_server_that_is_removed_from_json_takes_nothing_with_it(
    document: tuple[str, dict[str, Any]], indent: int | str | None
) -> None:
    """Also after the agent has written the file anew, with the server anywhere in it."""
    _, value = document
    servers = value.get(PATH[0], {})
    assume(isinstance(servers, dict))
    for order in ({**servers, PATH[1]: ENTRY}, {PATH[1]: ENTRY, **servers}):
        written = json.dumps({**value, PATH[0]: order}, indent=indent)
        removed = jsonc_text.remove_value(written, PATH)
        left = {} if removed is None else jsonc_text.parse(removed).value
        others = {name: item for name, item in servers.items() if name != PATH[1]}
        expected = {name: item for name, item in value.items() if name != PATH[0]}
        assert left in ({**value, PATH[0]: others}, expected if not others else None)


@given(documents())
def test_a_changed_command_keeps_the_other_fields_of_the_server(document: tuple[str, dict[str, Any]]) -> None:
    text, value = document
    servers = value.get(PATH[0], {})
    assume(isinstance(servers, dict) and PATH[1] not in servers)
    added = jsonc_text.set_fields(text, PATH, {**ENTRY, "env": {"A": "b"}})
    changed = jsonc_text.set_fields(added, PATH, {**ENTRY, "command": "/new"})
    assert jsonc_text.parse(changed).value[PATH[0]][PATH[1]] == {**ENTRY, "command": "/new", "env": {"A": "b"}}
    assert jsonc_text.remove_value(changed, PATH) == text


@given(st.text(alphabet='{}[]:,"ab\\/* \n1-.etrufalsn\ufeff', max_size=30))
def test_text_that_is_no_json_is_refused(text: str) -> None:
    try:
        parsed = jsonc_text.parse(text).value
    except jsonc_text.JsonTextError:
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)
        return
    assert json.loads(json.dumps(parsed)) == parsed


# TOML.

LINES = st.lists(
    st.sampled_from(
        [
            'model = "gpt"',
            "# a comment",
            "",
            "   ",
            "[profiles.fast]",
            "[mcp_servers.other]",
            'command = "x" # why',
            "nan = nan",
            '[projects."/a b"]',
            'text = """\n[mcp_servers.shopfloor]\ncommand = 1\n"""',
            "list = [\n  1,\n  2,\n]",
            "[mcp_servers]",
            "[[hooks]]",
            "at = 2026-01-01T00:00:00Z",
        ]
    ),
    max_size=8,
)


@st.composite
def toml_documents(draw: st.DrawFn) -> str:
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    text = newline.join(line.replace("\n", newline) for line in draw(LINES))
    text = draw(st.sampled_from(["", "\ufeff"])) + text + draw(st.sampled_from(["", newline, newline * 3, "\n"]))
    try:
        tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError:
        assume(False)
    return text


def read(text: str) -> dict[str, Any]:
    return tomllib.loads(text.removeprefix("\ufeff"))


@given(toml_documents())
def test_a_server_that_is_added_to_toml_and_removed_leaves_every_byte(text: str) -> None:
    added = toml_text.set_table(text, TABLE, FIELDS)
    assert read(added)[TABLE[0]][TABLE[1]] == FIELDS
    assert toml_text.set_table(added, TABLE, FIELDS) == added
    assert toml_text.remove_table(added, TABLE) == text


@given(toml_documents(), st.sampled_from(["\n", "\r\n"]))
def test_tables_that_come_after_the_server_stay_when_it_is_removed(text: str, newline: str) -> None:
    added = toml_text.set_table(text, TABLE, FIELDS)
    more = newline.join(
        ["", "[mcp_servers.shopfloor.env]", 'A = "b"', "", "# mine", "[projects.'/new']", "trust = 1", ""]
    )
    assume("/new" not in text)
    left = toml_text.remove_table(added + ("" if added.endswith("\n") else newline) + more, TABLE)
    assert left is not None
    parsed = read(left)
    assert parsed["projects"]["/new"] == {"trust": 1}
    assert TABLE[1] not in parsed.get(TABLE[0], {})
    assert "# mine" in left


@given(toml_documents())
def test_a_changed_command_in_toml_keeps_the_other_fields(text: str) -> None:
    added = toml_text.set_table(text, TABLE, {**FIELDS, "startup_timeout_sec": 20, "a.b": "c"})
    changed = toml_text.set_table(added, TABLE, {**FIELDS, "command": "/new"})
    expected = {**FIELDS, "command": "/new", "startup_timeout_sec": 20, "a.b": "c"}
    assert read(changed)[TABLE[0]][TABLE[1]] == expected
    assert toml_text.remove_table(changed, TABLE) == text
