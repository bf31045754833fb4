"""Live rendering of a run: its text goes to stdout, everything else to stderr. It does no I/O itself."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from shopfloor.cli.json_output import escape_json_for_terminal
from shopfloor.cli.style import Style, escape_controls, format_duration, one_line
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
_COMMAND_OUTPUT = "seq-"
"""The prefix of text ids for the output of a command; other texts belong to messages."""


class RenderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Display options of a run."""

    as_json: bool = False
    quiet: bool = False
    stdout_is_terminal: bool = False
    progress: bool = False
    """Whether stderr is a terminal on which a progress line can be redrawn."""
    style: Style = Style(enabled=False)
    width: int = 80


def render_options_from_args(args: Namespace) -> RenderOptions:
    """Return the display options for the command line and the terminal."""
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return RenderOptions(
        as_json=args.json,
        quiet=args.quiet,
        stdout_is_terminal=sys.stdout.isatty(),
        progress=is_terminal,
        style=Style(enabled=is_terminal and not os.environ.get("NO_COLOR")),
        width=shutil.get_terminal_size((80, 24)).columns,
    )


class RunRenderer:
    """Turns the stream events of a run into chunks for stdout and stderr."""

    def __init__(self, options: RenderOptions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._started_at = clock()
        self._steps: dict[str, tuple[str, float]] = {}
        """The name and start time of each open step, by block id."""
        self._texts: dict[str, list[str]] = {}
        """The deltas of each open text, oldest text first. Only the oldest is printed; the others wait for its end."""
        self._ended_texts: set[str] = set()
        self._last_text = ""
        """The text that was printed last."""
        self._at_line_start: dict[StreamName, bool] = {"stdout": True, "stderr": True}
        self._is_progress_drawn = False
        self._frame = 0
        self.input_tokens = self.output_tokens = 0
        self.cost: float | None = None

    def render_event(self, event: StreamEvent | UnknownEvent) -> list[OutputChunk]:
        """Return the chunks to write for this event."""
        if isinstance(event, UsageEvent):
            self.input_tokens += event.input_tokens + event.cache_read_tokens + event.cache_write_tokens
            self.output_tokens += event.output_tokens
            if event.cost_usd is not None:
                self.cost = (self.cost or 0) + event.cost_usd
        if self._options.as_json:
            # Each event has its own type here, also those that the wire format sends as a `resource-update`.
            raw = msgspec.json.encode(event.data if isinstance(event, UnknownEvent) else event)
            return self._out(escape_json_for_terminal(raw.decode()) + "\n")
        match event:
            case TextStart(id=name):
                if not self._options.quiet:
                    self._texts[name] = []
                return []
            case TextDelta(id=name, delta=text):
                return self._add_text(name, text)
            case TextEnd(id=name):
                return self._end_text(name)
            case WorkerResult(error=None, output=output):
                return self._render_output(output)
            case _:
                return self._render_status(event)

    # Texts.

    def _add_text(self, name: str, text: str) -> list[OutputChunk]:
        if name.startswith(_COMMAND_OUTPUT):
            return [] if self._options.quiet else self._err(self._options.style.paint(escape_controls(text), "dim"))
        if self._options.quiet:
            # Only the result is printed, when it is known.
            return []
        self._texts.setdefault(name, []).append(text)
        return self._out(self._escape(text)) if next(iter(self._texts)) == name else []

    def _end_text(self, name: str) -> list[OutputChunk]:
        self._ended_texts.add(name)
        written: list[OutputChunk] = []
        while self._texts and (first := next(iter(self._texts))) in self._ended_texts:
            # Parallel branches may write texts at the same time; the texts are printed one after another.
            self._ended_texts.discard(first)
            text = "".join(self._texts.pop(first))
            self._last_text = text or self._last_text
            written += self._end_line("stdout") if text else []
            if self._texts:
                written += self._out(self._escape("".join(next(iter(self._texts.values())))))
        self._ended_texts &= self._texts.keys()
        return written

    def _render_output(self, output: Any) -> list[OutputChunk]:
        """Print the output of the worker, unless it is the text that was printed last."""
        if output is None or output in ("", self._last_text):
            return []
        return [*self._end_line("stdout"), *self._out(self._escape(format_output(output))), *self._end_line("stdout")]

    def _escape(self, text: str) -> str:
        return escape_controls(text) if self._options.stdout_is_terminal else text

    # Status lines.

    def _render_status(self, event: StreamEvent | UnknownEvent) -> list[OutputChunk]:
        match event:
            case BlockStart(block_id=block_id, block_name=name):
                self._steps[block_id] = name, self._clock()
                return []
            case BlockEnd(block_id=block_id, block_name=name, error=error, duration_ms=duration_ms):
                self._steps.pop(block_id, None)
                line = f"{'  ' * block_id.count('.')}{'✗' if error else '✓'} {one_line(name, PREVIEW_CHARS)}"
                details = (one_line(error or "", PREVIEW_CHARS), format_duration(duration_ms))
                return self.note(" · ".join(filter(None, [line, *details])), is_error=bool(error))
            case ToolInputAvailable(tool_name=tool, input=arguments):
                return self.note(f"→ {preview(tool, arguments)}")
            case ToolOutputAvailable(tool_name=tool, output=output):
                return self.note(f"← {preview(tool, output)}")
            case ToolOutputError(tool_name=tool, error=error):
                return self.note(f"✗ {preview(tool, error)}", is_error=True)
            case Notice(kind=kind, message=message):
                return self.note(f"! {one_line(message, PREVIEW_CHARS)}", is_error=kind == "error")
            case Question(question=question, waits=False):
                return self.note(f"? {one_line(question, PREVIEW_CHARS)}")
            case _:
                return []

    def note(self, line: str, *, is_error: bool = False) -> list[OutputChunk]:
        """Return a status line, or nothing in quiet and JSON mode."""
        if self._options.quiet or self._options.as_json:
            return []
        return self.stderr_line(self._options.style.paint(line, "red" if is_error else "dim"))

    def stderr_line(self, line: str) -> list[OutputChunk]:
        """Return a line for stderr, in every mode."""
        before = self._end_line("stdout") if self._options.stdout_is_terminal else []
        return [*before, *self._end_line("stderr"), *self._err(line + "\n")]

    def tick(self) -> list[OutputChunk]:
        """Redraw the progress line, unless another line is being written."""
        at_start = self._at_line_start
        is_mid_line = not at_start["stderr"] or (self._options.stdout_is_terminal and not at_start["stdout"])
        if not self._options.progress or self._options.quiet or is_mid_line:
            return []
        self._frame += 1
        name, since = next(reversed(self._steps.values()), ("", self._started_at))
        took = format_duration(round((self._clock() - since) * 1000) // 1000 * 1000) or "0 s"
        spinner = _FRAMES[self._frame % len(_FRAMES)]
        line = f"{spinner} {one_line(' · '.join(part for part in (name, took) if part), self._options.width - 3)}"
        self._is_progress_drawn = True
        return [_chunk("stderr", _CLEAR + self._options.style.paint(line, "dim"))]

    def clear_progress(self) -> list[OutputChunk]:
        """Remove the progress line and end open lines, so that others can write or the user can type."""
        cleared = self._clear_line()
        return [
            *cleared,
            *(self._end_line("stdout") if self._options.stdout_is_terminal else []),
            *self._end_line("stderr"),
        ]

    # Writing.

    def _out(self, text: str) -> list[OutputChunk]:
        before = [*self._clear_line(), *(self._end_line("stderr") if self._options.stdout_is_terminal else [])]
        return [*before, *self._write("stdout", text)]

    def _err(self, text: str) -> list[OutputChunk]:
        return [*self._clear_line(), *self._write("stderr", text)]

    def _write(self, stream: StreamName, text: str) -> list[OutputChunk]:
        if not text:
            return []
        self._at_line_start[stream] = text.endswith(("\n", "\n\x1b[0m"))
        return [_chunk(stream, text)]

    def _end_line(self, stream: StreamName) -> list[OutputChunk]:
        return [] if self._at_line_start[stream] else [*self._clear_line(), *self._write(stream, "\n")]

    def _clear_line(self) -> list[OutputChunk]:
        was_drawn, self._is_progress_drawn = self._is_progress_drawn, False
        return [_chunk("stderr", _CLEAR)] if was_drawn else []


def _chunk(stream: StreamName, text: str) -> OutputChunk:
    return OutputChunk(stream, text.encode("utf-8", "replace"))


def format_output(value: Any) -> str:
    """Return a string unchanged and any other value as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def preview(name: str, value: Any) -> str:
    """Return the name of a tool and its arguments or its result, as one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return one_line(f"{name} {text}" if value not in (None, {}, "") else name, PREVIEW_CHARS)


def summary_line(status: str, run_id: str, ms: int | None, facts: Sequence[str] = ()) -> str:
    """Return the last line of a command about a run, such as `shopfloor: completed in 2.3 s · shopfloor show 5f3a…`."""
    took = f" in {format_duration(ms)}" if ms is not None else ""
    return " · ".join([f"shopfloor: {status}{took}", *facts, f"shopfloor show {run_id[:8]}"])
