"""A run as it happens, for who watches: its text to stdout, all else to stderr. Sans I/O."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from shopfloor.cli.style import Style, escape_controls, escape_json_for_terminal, format_duration, one_line
from shopfloor.client import (
    BlockEnd,
    BlockStart,
    Notice,
    Question,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputAvailable,
    ToolOutputAvailable,
    ToolOutputError,
    UnknownEvent,
    UsageEvent,
    WorkerResult,
)
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.ports import OutputChunk

if TYPE_CHECKING:
    from shopfloor.ports import StreamName

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_CLEAR = "\r\x1b[K"
_PRINTED = "seq-"
"""How the ids of texts begin that a command printed: they are of no message."""


class RenderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How somebody wants to see a run."""

    as_json: bool = False
    quiet: bool = False
    stdout_is_terminal: bool = False
    progress: bool = False
    """Whether a line that changes can be drawn on stderr."""
    style: Style = Style(enabled=False)
    width: int = 80


class RunRenderer:
    def __init__(self, look: RenderOptions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._look = look
        self._clock = clock
        self._began = clock()
        self._steps: dict[str, tuple[str, float]] = {}
        """The open steps: their names, and since when."""
        self._texts: dict[str, list[str]] = {}
        """Texts that are being told, in their order; those after the first wait for it to end."""
        self._over: set[str] = set()
        self._said = ""
        """The text that was told last."""
        self._lines: dict[StreamName, bool] = {"stdout": True, "stderr": True}
        """Whether each stands at the beginning of a line."""
        self._drawn = False
        self._frame = 0
        self.input_tokens = self.output_tokens = 0
        self.cost: float | None = None

    def render_event(self, event: StreamEvent | UnknownEvent) -> list[OutputChunk]:
        """What is to be written when this happens."""
        if isinstance(event, UsageEvent):
            self.input_tokens += event.input_tokens + event.cache_read_tokens + event.cache_write_tokens
            self.output_tokens += event.output_tokens
            if event.cost_usd is not None:
                self.cost = (self.cost or 0) + event.cost_usd
        if self._look.as_json:
            # Under their own type, also those that go over the wire as a `resource-update`.
            raw = msgspec.json.encode(event.data if isinstance(event, UnknownEvent) else event)
            return self._out(escape_json_for_terminal(raw.decode()) + "\n")
        match event:
            case TextStart(id=name):
                self._texts[name] = []
                return []
            case TextDelta(id=name, delta=text):
                return self._text(name, text)
            case TextEnd(id=name):
                return self._text_ended(name)
            case WorkerResult(error=None, output=output):
                return self._output(output)
            case _:
                return self._beside(event)

    # Texts.

    def _text(self, name: str, text: str) -> list[OutputChunk]:
        if name.startswith(_PRINTED):
            return [] if self._look.quiet else self._err(self._look.style.paint(escape_controls(text), "dim"))
        pieces = self._texts.setdefault(name, [])
        pieces.append(text)
        return self._out(self._shown(text)) if next(iter(self._texts)) == name else []

    def _text_ended(self, name: str) -> list[OutputChunk]:
        self._over.add(name)
        written: list[OutputChunk] = []
        while self._texts and (first := next(iter(self._texts))) in self._over:
            # Branches may speak at the same time; what they say is told one after another.
            self._over.discard(first)
            text = "".join(self._texts.pop(first))
            self._said = text or self._said
            written += self._end_line("stdout") if text else []
            if self._texts:
                written += self._out(self._shown("".join(next(iter(self._texts.values())))))
        self._over &= self._texts.keys()
        return written

    def _output(self, output: Any) -> list[OutputChunk]:
        """What the worker gave, where it is not what it said last."""
        if output is None or output in ("", self._said):
            return []
        return [*self._end_line("stdout"), *self._out(self._shown(format_output(output))), *self._end_line("stdout")]

    def _shown(self, text: str) -> str:
        return escape_controls(text) if self._look.stdout_is_terminal else text

    # What else there is.

    def _beside(self, event: StreamEvent | UnknownEvent) -> list[OutputChunk]:
        match event:
            case BlockStart(block_id=place, block_name=name):
                self._steps[place] = name, self._clock()
                return []
            case BlockEnd(block_id=place, block_name=name, error=error):
                _, since = self._steps.pop(place, ("", self._clock()))
                took = format_duration(round((self._clock() - since) * 1000))
                line = f"{'  ' * place.count('.')}{'✗' if error else '✓'} {one_line(name, PREVIEW_CHARS)} · {took}"
                return self.note(f"{line} · {one_line(error, PREVIEW_CHARS)}" if error else line, is_error=bool(error))
            case ToolInputAvailable(tool_name=tool, input=given):
                return self.note(f"→ {preview(tool, given)}")
            case ToolOutputAvailable(tool_name=tool, output=output):
                return self.note(f"← {preview(tool, output)}")
            case ToolOutputError(tool_name=tool, error=error):
                return self.note(f"✗ {preview(tool, error)}", is_error=True)
            case Notice(kind=kind, message=said):
                return self.note(f"! {one_line(said, PREVIEW_CHARS)}", is_error=kind == "error")
            case Question(question=question, waits=False):
                return self.note(f"? {one_line(question, PREVIEW_CHARS)}")
            case _:
                return []

    def note(self, line: str, *, is_error: bool = False) -> list[OutputChunk]:
        """A line of ours."""
        if self._look.quiet or self._look.as_json:
            return []
        return self.line(self._look.style.paint(line, "red" if is_error else "dim"))

    def line(self, line: str) -> list[OutputChunk]:
        """A line on stderr, whatever was wanted."""
        before = self._end_line("stdout") if self._look.stdout_is_terminal else []
        return [*before, *self._end_line("stderr"), *self._err(line + "\n")]

    def tick(self) -> list[OutputChunk]:
        """The line that says what is being done, drawn anew."""
        busy = not self._lines["stderr"] or (self._look.stdout_is_terminal and not self._lines["stdout"])
        if not self._look.progress or self._look.quiet or busy:
            return []
        self._frame += 1
        name, since = next(reversed(self._steps.values()), ("", self._began))
        took = format_duration(round((self._clock() - since) * 1000) // 1000 * 1000) or "0 s"
        sign = _FRAMES[self._frame % len(_FRAMES)]
        line = f"{sign} {one_line(' · '.join(part for part in (name, took) if part), self._look.width - 3)}"
        self._drawn = True
        return [_piece("stderr", _CLEAR + self._look.style.paint(line, "dim"))]

    def pause(self) -> list[OutputChunk]:
        """Makes room for somebody to type, or for whoever writes next."""
        cleared = self._cleared()
        return [
            *cleared,
            *(self._end_line("stdout") if self._look.stdout_is_terminal else []),
            *self._end_line("stderr"),
        ]

    # Writing.

    def _out(self, text: str) -> list[OutputChunk]:
        before = [*self._cleared(), *(self._end_line("stderr") if self._look.stdout_is_terminal else [])]
        return [*before, *self._written("stdout", text)]

    def _err(self, text: str) -> list[OutputChunk]:
        return [*self._cleared(), *self._written("stderr", text)]

    def _written(self, stream: StreamName, text: str) -> list[OutputChunk]:
        if not text:
            return []
        self._lines[stream] = text.endswith(("\n", "\n\x1b[0m"))
        return [_piece(stream, text)]

    def _end_line(self, stream: StreamName) -> list[OutputChunk]:
        return [] if self._lines[stream] else [*self._cleared(), *self._written(stream, "\n")]

    def _cleared(self) -> list[OutputChunk]:
        drawn, self._drawn = self._drawn, False
        return [_piece("stderr", _CLEAR)] if drawn else []


def _piece(stream: StreamName, text: str) -> OutputChunk:
    return OutputChunk(stream, text.encode("utf-8", "replace"))


def format_output(value: Any) -> str:
    """A text as it is, anything else as readable JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def preview(name: str, value: Any) -> str:
    """A tool and what it was given, or gave, on one line."""
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return one_line(f"{name} {said}" if value not in (None, {}, "") else name, PREVIEW_CHARS)


def summary_line(status: str, run_id: str, ms: int | None, facts: Sequence[str] = ()) -> str:
    took = f" in {format_duration(ms)}" if ms is not None else ""
    return " · ".join([f"shopfloor: {status}{took}", *facts, f"shopfloor show {run_id[:8]}"])
