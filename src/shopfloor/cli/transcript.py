"""Formatting of a transcript as lines for a terminal, event by event, in bounded memory."""

from __future__ import annotations

import json
import shlex
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from shopfloor.cli.limits import FOLD_HEAD_LINES, FOLD_LINE_CHARS, FOLD_TAIL_LINES, FULL_LINE_CHARS
from shopfloor.cli.style import Style, escape_controls, format_duration, format_traceback, one_line
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.log import (
    INTERRUPTED_STOP,
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
    UnknownPayload,
    UserMessage,
)
from shopfloor.views import APPROVAL, PartialMessages, WaitState, describe_approval, format_note, wait_state_step

_COLUMN = 21


class FoldedText:
    """Text that arrives in chunks. Only its first and last lines are kept, and the number of lines between them."""

    def __init__(self, *, full: bool) -> None:
        self._full = full
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._folded_lines = 0
        self._open: list[str] = []
        self._open_chars = 0

    def add(self, text: str) -> None:
        """Append text."""
        first, *rest = text.split("\n")
        self._extend_line(first)
        for line in rest:
            self._end_line()
            self._extend_line(line)

    def _extend_line(self, text: str) -> None:
        """Append to the open line. Of the part that will be truncated, only the length is kept."""
        self._open.append(text if self._full else text[: max(0, FOLD_LINE_CHARS - self._open_chars)])
        self._open_chars += len(text)
        if self._full and self._open_chars > FULL_LINE_CHARS:
            self._end_line()

    def _end_line(self) -> None:
        line, cut = "".join(self._open), self._open_chars - FOLD_LINE_CHARS
        self._open, self._open_chars = [], 0
        if not self._full and cut > 0:
            line += f"… ({cut:,} characters cut; --full shows them)"
        if self._full or len(self._head) < FOLD_HEAD_LINES:
            self._head.append(line)
            return
        self._tail.append(line)
        if len(self._tail) > FOLD_TAIL_LINES:
            self._tail.popleft()
            self._folded_lines += 1

    def take_complete_lines(self) -> list[str]:
        """Remove and return the complete lines, if nothing is folded; otherwise nothing is final yet."""
        complete, self._head = (self._head, []) if self._full else ([], self._head)
        return complete

    def lines(self) -> Iterator[tuple[str, bool]]:
        """Yield each line, and whether it is text of the transcript (not the note about folded lines)."""
        if self._open_chars:
            self._end_line()
        yield from ((line, True) for line in self._head)
        if self._folded_lines:
            yield f"… {self._folded_lines:,} lines folded; --full shows them", False
        yield from ((line, True) for line in self._tail)


class TranscriptFormatter:
    """Formats events as lines. Output that arrived in many chunks is one paragraph, unless it is shown `live`.

    A partial message is shown when it is certain that the complete message does not follow.
    """

    def __init__(self, style: Style, *, full: bool = False, live: bool = False) -> None:
        self._paint = style.paint
        self._full = full
        self._live = live
        self._paragraph: tuple[str, str | None] | None = None
        self._fold = FoldedText(full=full)
        self._mark = ""
        self._stderr = False
        self._partial = PartialMessages()
        self._waits = WaitState()
        self._step_names: dict[str, str] = {}
        """The names of the open steps, by path."""

    def lines(self, events: Iterable[Event], later: Iterable[Event] = ()) -> Iterator[str]:
        """Yield the lines of events. `later` events are not shown; they are read only to settle partial messages."""
        for event in events:
            yield from self.event(event)
        self._partial.settle(later)
        yield from self.end()

    def event(self, event: Event) -> Iterator[str]:
        """Yield the lines that this event completes."""
        for shown in self._partial.feed(event):
            yield from self._event(shown)

    def end(self) -> Iterator[str]:
        """Yield the remaining lines after the last event."""
        for event in self._partial.rest():
            yield from self._event(event)
        yield from self._end_paragraph()

    def _event(self, event: Event) -> Iterator[str]:
        payload = event.payload
        if isinstance(payload, AssistantMessage | UserMessage):
            yield from self._message(event, payload)
        else:
            yield from self._end_paragraph()
            yield from self._headed(event, self._headline(event))
            self._waits = wait_state_step(self._waits, event)
        if self._live:
            yield from self._end_paragraph()
        for problem in event.problems:
            yield from self._end_paragraph()
            yield from self._headed(event, [self._paint(f"? {problem}", "yellow")])

    def _message(self, event: Event, message: AssistantMessage | UserMessage) -> Iterator[str]:
        if isinstance(message, UserMessage) and message.system_prompt:
            yield from self._end_paragraph()
            yield from self._headed(event, self._folded(message.system_prompt, "system  ", "dim"))
        note = message.note if isinstance(message, AssistantMessage) else None
        if note is not None and note.kind not in ("ready", "left"):
            yield from self._end_paragraph()
            look = "red" if note.kind == "error" else "yellow"
            yield from self._headed(event, self._folded(format_note(note), "! ", look))
        for block in message.blocks:
            stream = block.stream if isinstance(block, TextBlock) else None
            if isinstance(block, TextBlock) and isinstance(message, AssistantMessage):
                paragraph = (event.path, stream or message.message_id)
                if paragraph != self._paragraph:
                    yield from self._end_paragraph()
                    self._paragraph = paragraph
                    self._mark = self._gutter(event)
                    self._stderr = stream == "stderr"
                self._fold.add(block.text)
                # Shown at once: a command may print without end.
                yield from self._paragraph_lines((line, True) for line in self._fold.take_complete_lines())
                continue
            yield from self._end_paragraph()
            yield from self._headed(event, self._block(block))
        if isinstance(message, AssistantMessage) and message.stop_reason == INTERRUPTED_STOP:
            yield from self._end_paragraph()
            yield from self._headed(event, [self._paint("… the message was not completed", "yellow")])

    def _end_paragraph(self) -> Iterator[str]:
        if self._paragraph is not None:
            yield from self._paragraph_lines(self._fold.lines())
            self._paragraph = None
            self._fold = FoldedText(full=self._full)

    def _paragraph_lines(self, lines: Iterable[tuple[str, bool]]) -> Iterator[str]:
        is_command = self._paragraph is not None and self._paragraph[1] in ("stdout", "stderr")
        bar, look = ("┃ ", ("red",)) if self._stderr else ("│ " if is_command else "", ())
        for line, is_text in lines:
            text = (
                self._paint(escape_controls(line), *look)
                if is_text and look
                else escape_controls(line)
                if is_text
                else self._paint(line, "dim")
            )
            yield f"{self._mark}{self._paint(bar, *(look or ('dim',)))}{text}"
            self._mark = " " * _COLUMN

    def _gutter(self, event: Event) -> str:
        text = f"#{event.seq}".ljust(7) + escape_controls(event.timestamp[11:23])
        return self._paint(text.ljust(_COLUMN - 1), "dim") + " "

    def _headed(self, event: Event, lines: Iterable[str]) -> Iterator[str]:
        mark = self._gutter(event)
        for line in lines:
            yield mark + line
            mark = " " * _COLUMN

    def _folded(self, text: str, label: str, *looks: str) -> Iterator[str]:
        fold = FoldedText(full=self._full)
        fold.add(text)
        for line, _ in fold.lines():
            yield self._paint(label + escape_controls(line), *looks)
            label = " " * len(label)

    def _block(self, block: Block) -> Iterable[str]:
        match block:
            case CommandBlock():
                return chain(self._folded(block.command, "$ ", "bold"), self._variables(block))
            case TextBlock():
                return self._folded(block.text, "> ", "bold")
            case ThinkingBlock():
                return self._folded(block.thinking, "thinking  ", "dim", "italic")
            case StreamBlock():
                label = (
                    "unparsed"
                    if block.unparsed
                    else f"→ {escape_controls(block.tool_name)}"
                    if block.tool_name
                    else "stream"
                )
                return self._folded(block.chunk, f"{label}  ", "yellow")
            case ToolUseBlock() | ToolResultBlock():
                # Shown by the tool.call and tool.result events.
                return ()
            case _:
                return [self._paint(f"block {one_line(_json(block.data), PREVIEW_CHARS)}", "yellow")]

    def _variables(self, block: CommandBlock) -> Iterator[str]:
        for name, value in (block.variables or {}).items():
            yield self._paint(f"  {escape_controls(name)}={one_line(shlex.quote(value), PREVIEW_CHARS)}", "dim")

    def _headline(self, event: Event) -> Iterable[str]:
        match event.payload:
            case RunStarted() as run:
                label = "resumed" if self._waits.is_waiting else f"attempt {run.attempt}"
                return [self._paint(f"▶ {label} on {escape_controls(run.host)}", "cyan")]
            case RunCompleted() as run:
                return self._outcome(run)
            case StepStarted() | CallStarted() as step:
                child = f" → run {escape_controls(event.child_run_id)}" if event.child_run_id else ""
                again = f" (try {step.try_})" if step.try_ > 1 else ""
                self._step_names[event.path] = step.name
                return [self._paint(f"▸ {self._step_title(event.path, step.name)}{again}{child}", "cyan")]
            case StepCompleted() | CallCompleted() as step:
                self._step_names.pop(event.path, None)
                traceback = self._traceback(step.traceback)
                return [self._step_end(event.path, step), *traceback, *self._ended_processes(step)]
            case ToolCall() as call:
                waits = f" (waits for {escape_controls(call.awaits.kind)})" if call.awaits else ""
                is_approval = call.awaits is not None and call.awaits.kind == APPROVAL
                text = describe_approval(call.input).removeprefix("approval ") if is_approval else _json(call.input)
                arguments = one_line(text, PREVIEW_CHARS)
                return [self._paint(f"→ {escape_controls(call.name)}", "bold") + f" {arguments}{waits}"]
            case ToolResult() as result:
                return self._tool_result(result)
            case UnknownPayload() as unknown:
                return [f"{escape_controls(event.type)} {one_line(_json(unknown.data), PREVIEW_CHARS)}"]
            case _:
                return ()

    def _step_title(self, path: str, name: str) -> str:
        """Return the names of a step and of the steps around it. A loop's index has no name and stays as it is."""
        *outer, _ = path.split(".")
        paths = (".".join(outer[: depth + 1]) for depth in range(len(outer)))
        names = [self._step_names.get(path, key) for path, key in zip(paths, outer, strict=True)]
        return one_line(" / ".join([*names, name]), PREVIEW_CHARS)

    def _step_end(self, path: str, step: StepCompleted | CallCompleted) -> str:
        sign, look = ("✗", "red") if step.error else ("✓", "green")
        parts = [
            f"{sign} {self._step_title(path, step.name)}",
            one_line(step.error or "", PREVIEW_CHARS),
            format_duration(step.duration_ms),
        ]
        match step.result:
            case {"unparsed": int(count)}:
                parts.append(f"{count:,} {'line' if count == 1 else 'lines'} not understood")
            case _:
                pass
        return self._paint(" · ".join(part for part in parts if part), look)

    def _ended_processes(self, step: StepCompleted | CallCompleted) -> Iterator[str]:
        for process in step.ended_processes or ():
            command = one_line(shlex.join([process.command, *process.args]), PREVIEW_CHARS)
            yield self._paint(
                f"! process {process.pid} ({command}) outlived the step and was ended by {process.signal}", "yellow"
            )

    def _outcome(self, run: RunCompleted) -> Iterator[str]:
        sign, look = {"completed": ("✓", "green"), "cancelled": ("■", "yellow")}.get(run.status, ("✗", "red"))
        yield self._paint(f"{sign} {one_line(outcome_text(run), PREVIEW_CHARS)}", look, "bold")
        if run.error is not None and run.error.hint:
            yield f"hint: {one_line(run.error.hint, PREVIEW_CHARS)}"
        yield from self._traceback((run.error.traceback or None) if run.error is not None else None)

    def _traceback(self, text: str | None) -> Iterator[str]:
        for line in format_traceback(text, full=self._full) if text is not None else ():
            yield self._paint(f"  {line}", "dim")

    def _tool_result(self, result: ToolResult) -> Iterator[str]:
        failed = result.error is not None
        text = result.error if result.error is not None else result.output
        took = f" ({format_duration(result.duration_ms)})" if result.duration_ms is not None else ""
        label = f"{'✗' if failed else '←'} {escape_controls(result.name)}{took}  "
        return self._folded(text if isinstance(text, str) else _json(text), label, *(("red",) if failed else ("dim",)))


def outcome_text(run: RunCompleted) -> str:
    """Return a line such as `failed · command_failed: exit code 3 · 11 ms` or `cancelled by SIGINT · 2.0 s`."""
    error = run.error
    if error is None:
        parts = [run.status]
    elif error.code == run.status:
        parts = [error.message if error.message.startswith(run.status) else f"{run.status}: {error.message}"]
    else:
        parts = [run.status, f"{error.code}: {error.message}"]
    return " · ".join(filter(None, [*parts, format_duration(run.duration_ms)]))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
