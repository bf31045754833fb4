"""Runs as Markdown: what could act in a viewer is text."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from shopfloor.limits import ARCHIVE_RESULT_BYTES
from shopfloor.log import AssistantMessage, Event, StreamBlock, TextBlock, new_run_id
from shopfloor.log.blocks import UnknownBlock
from shopfloor.views.export import ExportItem, ExportItems, MarkdownWriter

RUN_ID = new_run_id()


def message(*blocks: Any) -> Event:
    return Event(
        seq=1,
        run_id=RUN_ID,
        parent_run_id=None,
        type=AssistantMessage.event_type,
        path="s",
        iteration=0,
        timestamp="2026-01-01T00:00:00.000Z",
        payload=AssistantMessage(blocks=[*blocks]),
    )


@pytest.mark.req("SF-62")
def test_the_memory_for_the_output_of_a_command_is_limited() -> None:
    def chunk(number: int) -> Event:
        return message(TextBlock(fidelity="router", text=f"{number:10}" * 1000, stream="stdout"))

    items = ExportItems()
    tracemalloc.start()
    assert list(items.feed(map(chunk, range(1000)))) == []
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept_bytes < 20 * ARCHIVE_RESULT_BYTES
    (item,) = items.finish()
    assert len(item.text.encode()) <= ARCHIVE_RESULT_BYTES
    assert item.text.endswith("[cut: 10,000,000 bytes in all]")


@pytest.mark.req("SF-62")
def test_output_that_was_not_understood_is_exported() -> None:
    items = ExportItems()
    found = items.feed(
        [
            message(StreamBlock(fidelity="agent_emitted", chunk="{bad", unparsed=True)),
            message(StreamBlock(fidelity="agent_emitted", chunk='{"command": "l', tool_name="Bash")),
            message(UnknownBlock("picture", {"type": "picture", "alt": "a cat"})),
        ]
    )
    assert [(item.kind, item.title, item.text) for item in found] == [
        ("output", "unparsed", "{bad"),
        ("output", "Bash", '{"command": "l'),
        ("output", "picture", '{\n  "type": "picture",\n  "alt": "a cat"\n}'),
    ]


@pytest.mark.req("SF-62")
@pytest.mark.parametrize(
    ("link", "is_kept"),
    [
        ("[x](https://example.com/a:b)", True),
        ("[x](mailto:a@example.com)", True),
        ("[x](src/a.py:3)", True),
        ("[x](javascript:alert(1))", False),
        # CommonMark takes a backslash before punctuation for an escape.
        ("[x](javascript\\:alert(1))", False),
        ("[x]( data\\:text/html,x)", False),
        ("[x](file:///etc/passwd)", False),
    ],
)
def test_only_links_to_the_web_to_mail_and_to_files_beside_stay_links(link: str, is_kept: bool) -> None:
    text = MarkdownWriter().item(ExportItem("assistant", "", link))
    assert (link if is_kept else link.replace("](", "]\\(")) in text


def prose(text: str) -> str:
    written = MarkdownWriter().item(ExportItem("assistant", "", text))
    return written.removeprefix("\n**Assistant**\n\n").removesuffix("\n")


@pytest.mark.req("SF-62")
@pytest.mark.parametrize(
    "text",
    [
        "use `Vec<T>` and `a && b`, or `` `x` & y `` and `a | b`",
        "```rust\nVec<T> & [a](b:c)\n```",
        "1. build:\n   ```sh\n   make <all> && ls\n   ```\n2. done",
        "- a\n  - b:\n\n    ```\n    if a < b\n      &c\n    ```\n\n    more",
        "\t```\n\t<x>\n\t```",
        "| a | b |\n|---|---|\n| `x<y>` | `&z` |",
        "AT && T, 5 \\\\ 3, \\`no code\\`",
    ],
)
def test_code_and_plain_prose_stay_as_they_were_written(text: str) -> None:
    assert prose(text) == text.replace("AT && T", "AT &amp;&amp; T")


@pytest.mark.req("SF-62")
@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("~~~py title=x\n```\n~~~", "````py\n```\n````"),
        ("- ```js\n  a<b\n  ```\n- c", "-\n  ```js\n  a<b\n  ```\n- c"),
        ("say ```a<b```", "say `a<b`"),
        ("```\nnever closed <", "```\nnever closed <\n```"),
        # A fence that is indented so far would continue the paragraph.
        ("> a\n    ```\n    <b>\n    ```", "> a\n\n    ```\n    <b>\n    ```"),
        # Viewers that know no indented fences end a code span at an empty line.
        ("- a\n  ```\n  x\n\n  <b>\n  ```", "- a\n```\nx\n\n<b>\n```"),
        ("| a |\n|---|\n| `<b> | x` |", "| a |\n|---|\n| \\`&lt;b> | x\\` |"),
        ("a ` b\nc `<b>` d", "a \\` b\nc `<b>` d"),
        ("\\`<b>`", "\\`&lt;b>\\`"),
        ("`<b>\\` c`", "\\`&lt;b>\\` c\\`"),
        ("\\<b> \\& \\\\<", "&lt;b> &amp; \\\\&lt;"),
        ("[a`]: javascript:x`", "[a\\`]\\: javascript:x\\`"),
        ("> ```\n> <b>\n> ```", "> \\`\\`\\`\n> &lt;b>\n> \\`\\`\\`"),
        # Some viewers take this for attributes.
        ("[x](https://a){onclick=b()}", "[x](https://a)\\{onclick=b()}"),
        ("`{a}` {: onclick=b()}\n\\{c}", "`{a}` \\{: onclick=b()}\n\\{c}"),
    ],
)
def test_code_that_a_viewer_might_not_take_for_code_is_made_inert(text: str, written: str) -> None:
    assert prose(text) == written


HOSTILE_PARTS = [
    *("<script>", "<b>", "![p](x)", "[l](javascript:a)", "](javascript:a)", "[l](\n javascript\\:a)", "&#60;b>", "]: javascript:a"),
    *("[l]", "[l`]", "[", "`", "``", "```", "````", "~~~", "\\", "|", "|---|\n", "---\n", ":-\n", "a", " ", "    ", "\t"),
    *("\n", "\n", "\n\n", "- ", "1. ", "2. ", "> ", "#", "===\n", "```js\n", "  ```\n", "    ```\n", "| a |\n|---|\n", "html"),
]  # fmt: skip


@pytest.mark.req("SF-62")
@settings(deadline=None)
@given(st.lists(st.sampled_from(HOSTILE_PARTS), max_size=30))
def test_nothing_of_any_prose_acts_in_a_viewer(parts: list[str]) -> None:
    # As a viewer that trusts the file: HTML is allowed, and so is every link.
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    vars(parser)["validateLink"] = lambda _: True
    tokens = parser.parse(prose("".join(parts)))
    inline = [child for token in tokens for child in token.children or []]
    kinds = {token.type for token in [*tokens, *inline]}
    assert not kinds & {"html_block", "html_inline", "image"}
    assert not [token for token in inline if "javascript" in str(token.attrGet("href") or "")]


@pytest.mark.req("SF-62")
@pytest.mark.parametrize(
    "part", ["```a\n", "[a](", "[a](x ", "`", "` ", "`` ` ", "\\", "](", "|-", "- ", "~~~a\n", "1. "]
)
def test_the_time_for_hostile_prose_grows_with_its_size(part: str) -> None:
    def seconds(size: int) -> float:
        text = part * (size // len(part)) + " " * size + "x"
        times: list[float] = []
        for _ in range(3):
            started = time.process_time()
            prose(text)
            times.append(time.process_time() - started)
        return min(times)

    # Ten times the text took a hundred times as long with a quadratic pattern.
    assert seconds(100_000) < 40 * max(seconds(10_000), 0.001)
