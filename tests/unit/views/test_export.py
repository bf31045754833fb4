"""Runs as Markdown: what could act in a viewer is text."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

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
