"""The memories: their limits, their place in the prompt, and condensing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from plugin.memory import InvalidMemory, Memory


def small(folder: Path) -> Memory:
    """Return a memory with 40 characters in the prompt and per text, and condensing above 80."""
    return Memory(folder, prompt_tokens=10, compact_tokens=20, max_keys=4)


def contents(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("key", "content", "message"),
    [
        ("../escape", "x", "invalid memory key"),
        ("", "x", "invalid memory key"),
        ("compacted", "x", "reserved for condensed memories"),
        ("key", "x" * 41, "the memory has 41 characters; at most 40 are allowed"),
    ],
)
def test_a_bad_memory_is_refused(tmp_path: Path, key: str, content: str, message: str) -> None:
    with pytest.raises(InvalidMemory, match=message):
        small(tmp_path).store(key, content)
    assert contents(tmp_path) == {}


def test_sizes_are_counted_in_characters(tmp_path: Path) -> None:
    small(tmp_path).store("key", "ä" * 40)
    assert contents(tmp_path) == {"key": "ä" * 40}


def test_the_number_of_memories_is_limited_and_each_can_be_overwritten(tmp_path: Path) -> None:
    memory = small(tmp_path)
    for key in "abcd":
        memory.store(key, "old")
    with pytest.raises(InvalidMemory, match="there are 4 memories already"):
        memory.store("e", "new")
    memory.store("a", "new")
    assert contents(tmp_path) == {"a": "new", "b": "old", "c": "old", "d": "old"}


def test_the_newest_memories_are_rendered_as_many_as_fit(tmp_path: Path) -> None:
    memory = small(tmp_path)
    for number, key in enumerate("abc"):
        memory.store(key, f"text of {key}")
        os.utime(tmp_path / f"{key}.md", (number, number))
    assert memory.render() == "## c\n\ntext of c\n\n## b\n\ntext of b\n"


def test_one_memory_is_rendered_even_if_it_does_not_fit(tmp_path: Path) -> None:
    memory = small(tmp_path)
    assert memory.render() == ""
    memory.store("long", "x" * 40)
    assert memory.render() == "## long\n\n" + "x" * 31


def fill(folder: Path) -> Memory:
    memory = small(folder)
    for key in "abc":
        memory.store(key, key * 30)
    return memory


def test_memories_above_the_limit_are_condensed_with_the_condensed_text_of_the_last_time(tmp_path: Path) -> None:
    requests: list[str] = []

    async def condense(notes: str) -> str:
        requests.append(notes)
        return f" text {len(requests)}\n"

    memory = fill(tmp_path)
    asyncio.run(memory.compact(condense))
    assert contents(tmp_path) == {"compacted": "text 1"}
    asyncio.run(memory.compact(condense))
    assert len(requests) == 1
    # The oldest, and more notes than one request has room for.
    os.utime(tmp_path / "compacted.md", (1, 1))
    for key in "abc":
        memory.store(key, key * 30)
    (tmp_path / "d.md").write_text("d" * 100)
    os.utime(tmp_path / "d.md", (2, 2))
    asyncio.run(memory.compact(condense))
    assert "text 1" in requests[1]
    assert contents(tmp_path) == {"compacted": "text 2", "d": "d" * 100}


@pytest.mark.parametrize("answer", ["", " ", "x" * 41])
def test_an_unusable_answer_changes_nothing(tmp_path: Path, answer: str) -> None:
    async def condense(_: str) -> str:
        return answer

    memory = fill(tmp_path)
    before = contents(tmp_path)
    asyncio.run(memory.compact(condense))
    assert contents(tmp_path) == before


def test_a_memory_that_is_stored_while_others_are_condensed_is_kept(tmp_path: Path) -> None:
    memory = fill(tmp_path)

    async def condense(_: str) -> str:
        memory.store("b", "newer")
        return "short"

    asyncio.run(memory.compact(condense))
    assert contents(tmp_path) == {"a": "a" * 30, "b": "newer", "c": "c" * 30}
