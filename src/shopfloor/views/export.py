"""A run as a document to share: its events as items, written as Markdown or as one HTML file without scripts."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any, Final, Literal, Protocol

import msgspec

from shopfloor.control_characters import C0_CONTROLS, C1_CONTROLS, DEL, DIRECTION_CONTROLS, REPLACEMENT
from shopfloor.limits import ARCHIVE_RESULT_BYTES
from shopfloor.log import (
    AssistantMessage,
    Block,
    CallCompleted,
    CallStarted,
    CommandBlock,
    Event,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    StreamBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from shopfloor.views.partial_messages import PartialMessages
from shopfloor.views.row import RunRow
from shopfloor.views.safe_markdown import fence, inline_code, safe_line, safe_markdown
from shopfloor.views.stream import format_note
from shopfloor.views.truncation import truncate_bytes

ItemKind = Literal["user", "system", "assistant", "output", "thinking", "command", "tool", "result", "step", "error"]
ExportFormat = Literal["md", "html"]
_FOLDED: Final[frozenset[ItemKind]] = frozenset({"system", "thinking", "tool", "result"})
_PROSE: Final[frozenset[ItemKind]] = frozenset({"user", "assistant"})
_LABELS: Final[dict[ItemKind, str]] = {
    "user": "User",
    "system": "System prompt",
    "assistant": "Assistant",
    "output": "Output",
    "thinking": "Thinking",
    "command": "Command",
    "tool": "Tool call",
    "result": "Tool result",
    "step": "Step",
    "error": "Error",
}


class ExportItem(msgspec.Struct, frozen=True):
    """A part of the document."""

    kind: ItemKind
    title: str
    text: str = ""


class ExportItems:
    """The fold from events to items. Chunks of one text become one item.

    Bounded: of a text, at most what its item shows is kept, and one chunk more.
    """

    def __init__(self) -> None:
        self._partial = PartialMessages()
        self._key: tuple[str, str | None] | None = None
        self._parts: list[str] = []
        self._kept_chars = 0
        self._dropped_bytes = 0

    def feed(self, events: Iterable[Event]) -> Iterator[ExportItem]:
        """Yield the items that these events complete."""
        for event in events:
            for complete in self._partial.feed(event):
                yield from self._event(complete)

    def finish(self) -> Iterator[ExportItem]:
        """Yield the remaining items after the last event."""
        for event in self._partial.rest():
            yield from self._event(event)
        yield from self._end_text()

    def _event(self, event: Event) -> Iterator[ExportItem]:
        payload = event.payload
        if isinstance(payload, AssistantMessage | UserMessage):
            if isinstance(payload, UserMessage) and payload.system_prompt:
                yield from self._end_text()
                yield _item("system", "", payload.system_prompt)
            if isinstance(payload, AssistantMessage) and payload.note is not None and payload.note.kind == "error":
                yield from self._end_text()
                yield _item("error", "", format_note(payload.note))
            for block in payload.blocks:
                yield from self._block(event, payload, block)
            return
        yield from self._end_text()
        yield from _headline(event)

    def _block(self, event: Event, message: AssistantMessage | UserMessage, block: Block) -> Iterator[ExportItem]:
        if isinstance(block, TextBlock) and isinstance(message, AssistantMessage):
            key = (event.path, block.stream or message.message_id)
            if key != self._key:
                yield from self._end_text()
                self._key = key
            if self._kept_chars < ARCHIVE_RESULT_BYTES:
                self._parts.append(block.text)
                self._kept_chars += len(block.text)
            else:
                self._dropped_bytes += len(block.text.encode("utf-8", "replace"))
            return
        yield from self._end_text()
        match block:
            case TextBlock():
                yield _item("user", "", block.text)
            case ThinkingBlock():
                yield _item("thinking", "", block.thinking)
            case CommandBlock():
                yield _item("command", "", block.command)
            case StreamBlock():
                yield _item("output", "unparsed" if block.unparsed else block.tool_name or "stream", block.chunk)
            case ToolUseBlock() | ToolResultBlock():
                # Tool calls and results have events of their own.
                pass
            case _:
                yield _item("output", block.type, _json(block.data))

    def _end_text(self) -> Iterator[ExportItem]:
        if self._key is not None:
            kind: ItemKind = "output" if self._key[1] in ("stdout", "stderr") else "assistant"
            title = "stderr" if self._key[1] == "stderr" else ""
            yield _item(kind, title, "".join(self._parts), dropped_bytes=self._dropped_bytes)
            self._key, self._parts, self._kept_chars, self._dropped_bytes = None, [], 0, 0


def _headline(event: Event) -> Iterator[ExportItem]:
    match event.payload:
        case StepStarted(name=name):
            yield _item("step", name)
        case CallStarted(name=name):
            yield _item("step", f"{name} → run {event.child_run_id}" if event.child_run_id else name)
        case StepCompleted() | CallCompleted() as step:
            if step.error:
                yield _item("error", step.name, "\n".join(filter(None, [step.error, step.traceback])))
        case ToolCall() as call:
            yield _item("tool", call.name, _json(call.input))
        case ToolResult() as result:
            if result.error is not None:
                yield _item("error", result.name, result.error)
            else:
                yield _item("result", result.name, _json(result.output))
        case RunStarted(attempt=attempt) if attempt > 1:
            yield _item("step", f"Attempt {attempt}")
        case RunCompleted(error=error) if error is not None:
            yield _item("error", error.code, f"{error.message}\n{error.hint}" if error.hint else error.message)
        case _:
            pass


def _item(kind: ItemKind, title: str, text: str = "", *, dropped_bytes: int = 0) -> ExportItem:
    """Return an item with its text shortened. `dropped_bytes`: the size of what followed the text."""
    text = _clean(text)
    total_bytes = len(text.encode()) + dropped_bytes if dropped_bytes else None
    return ExportItem(kind, _clean(title), truncate_bytes(text, ARCHIVE_RESULT_BYTES, total_bytes=total_bytes))


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


_SURROGATES: Final = range(0xD800, 0xE000)
_HIDDEN: Final = dict.fromkeys((*C0_CONTROLS, DEL, *C1_CONTROLS, *DIRECTION_CONTROLS, *_SURROGATES), REPLACEMENT)
"""Characters that control a viewer or change the direction of text, and halves of characters."""


def _clean(text: str) -> str:
    return text.replace("\r\n", "\n").translate(_HIDDEN)


class ExportWriter(Protocol):
    """Writes a document: its beginning, each item, and its end."""

    def head(self, row: RunRow) -> str: ...

    def item(self, item: ExportItem) -> str: ...

    def tail(self, note: str = "") -> str: ...


def facts_of(row: RunRow) -> list[tuple[str, str]]:
    """Return what is known about a run, as names and values."""
    cost = row.spending.tree.cost_usd
    error = ": ".join(part for part in (row.error_code, row.error_message) if part)
    facts = [
        ("Run", row.id),
        ("Worker", row.name),
        ("Status", row.status),
        ("Error", error),
        ("Started", row.started_at),
        ("Ended", row.completed_at or ""),
        ("Duration", "" if row.duration_ms is None else f"{row.duration_ms / 1000:,.1f} s"),
        ("Model", row.model or ""),
        ("Cost", "" if cost is None else f"${cost:.4f}"),
    ]
    return [(name, _clean(value)) for name, value in facts if value]


def _title_of(row: RunRow) -> str:
    return " ".join(_clean(row.title).split()) or row.id


class MarkdownWriter:
    """Writes Markdown. Prose of the run stays Markdown, without HTML, images and odd links; the rest is code."""

    def head(self, row: RunRow) -> str:
        facts = "\n".join(f"- **{name}**: {inline_code(value)}" for name, value in facts_of(row))
        return f"# {safe_line(_title_of(row))}\n\n{facts}\n"

    def item(self, item: ExportItem) -> str:
        if item.kind == "step":
            return f"\n## {safe_line(item.title)}\n"
        title = f" {inline_code(item.title)}" if item.title else ""
        text = safe_markdown(item.text) if item.kind in _PROSE else fence(item.text)
        return f"\n**{_LABELS[item.kind]}**{title}\n\n{text}\n"

    def tail(self, note: str = "") -> str:
        return f"\n---\n\n{note}\n" if note else ""


_STYLE: Final = """
:root{color-scheme:light dark;--fg:#1c2024;--bg:#fff;--dim:#60646c;--line:#d9d9e0;--code:#f4f4f6;--bad:#b3261e}
@media(prefers-color-scheme:dark){
:root{--fg:#edeef0;--bg:#111113;--dim:#a4a7ae;--line:#363a3f;--code:#1b1c1f;--bad:#ff9592}}
body{margin:0 auto;max-width:52rem;padding:1.5rem 1rem;color:var(--fg);background:var(--bg)}
body{font:15px/1.55 system-ui,sans-serif}
h1{font-size:1.35rem;overflow-wrap:anywhere}
h2{font-size:1rem;margin:1.8rem 0 .4rem;border-top:1px solid var(--line);padding-top:1rem;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
section,details{margin:.9rem 0}b,summary{color:var(--dim);font-weight:600;font-size:.85rem}summary{cursor:pointer}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0;unicode-bidi:isolate}
pre{font:13px/1.5 ui-monospace,monospace}.prose pre{font:inherit}
.code pre{background:var(--code);border:1px solid var(--line);border-radius:6px;padding:.6rem .8rem}
.error b,.error pre{color:var(--bad)}
"""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
EXPORT_POLICY: Final = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'"
"""The Content-Security-Policy of an exported page: nothing but its own style."""


class HtmlWriter:
    """Writes one HTML file: no script, no link, no request; every text of the run is escaped."""

    def head(self, row: RunRow) -> str:
        title = escape(_title_of(row))
        facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts_of(row))
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{escape(EXPORT_POLICY)}">\n'
            '<meta name="referrer" content="no-referrer">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title><style>{_STYLE}</style></head>\n"
            f"<body><main><h1>{title}</h1>\n<dl>{facts}</dl>\n"
        )

    def item(self, item: ExportItem) -> str:
        if item.kind == "step":
            return f"<h2>{escape(item.title)}</h2>\n"
        label = escape(f"{_LABELS[item.kind]} {item.title}".strip())
        look = "prose" if item.kind in _PROSE else f"code {item.kind}"
        text = f"<pre>{escape(item.text)}</pre>"
        if item.kind in _FOLDED:
            return f'<details class="{look}"><summary>{label}</summary>{text}</details>\n'
        return f'<section class="{look}"><b>{label}</b>{text}</section>\n'

    def tail(self, note: str = "") -> str:
        return f"<p>{escape(note)}</p></main></body></html>\n" if note else "</main></body></html>\n"


EXPORT_WRITERS: Final[dict[ExportFormat, type[ExportWriter]]] = {"md": MarkdownWriter, "html": HtmlWriter}
