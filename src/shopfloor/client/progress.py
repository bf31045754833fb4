"""How far a caller has been told of a run, so that a stream that was cut goes on without a gap and without repeats."""

from __future__ import annotations

import re
from collections import Counter

import msgspec

from shopfloor.views import (
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Start,
    StreamedBlock,
    StreamedInput,
    StreamEvent,
    StreamState,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputAvailable,
    ToolInputDelta,
    ToolInputStart,
    UnknownEvent,
    encode_event,
)

_TEXT_ID = re.compile(r"(?P<key>(?P<message>.*):[0-9]+?)(?::r(?P<round>[0-9]+))?", re.DOTALL)


class Progress:
    def __init__(self, run_id: str | None = None) -> None:
        self.run_id = run_id
        self.seq: int | None = None
        """The log up to here was told. None where that is not known: a stream gone on with by its id alone."""
        self._since: Counter[bytes] = Counter()
        """What was told beyond it."""
        self._ended: dict[str, StreamedBlock] = {}
        """Texts that came to their end beyond it."""
        self._open: dict[str, StreamedBlock] = {}
        self._inputs: dict[str, StreamedInput] = {}
        """The calls whose input was begun, and how much of it was told."""
        self._whole_inputs: set[str] = set()
        """The calls whose input was told to its end beyond it."""

    def advance_to(self, seq: int) -> None:
        self.seq = seq
        self._since.clear()
        self._ended.clear()
        self._whole_inputs.clear()

    def record(self, event: StreamEvent | UnknownEvent) -> None:
        """Takes in what the caller is told."""
        match event:
            case Start(execution_id=run_id):
                self.run_id = run_id
            case TextStart(id=name) | ReasoningStart(id=name):
                kind = "text" if isinstance(event, TextStart) else "thinking"
                self._open[name] = StreamedBlock(id=name, kind=kind, step_key="", message_id=_message_id(name))
            case TextDelta(id=name, delta=text) | ReasoningDelta(id=name, delta=text):
                if name in self._open:
                    self._open[name] = self._open[name].with_text(text)
            case TextEnd(id=name) | ReasoningEnd(id=name):
                if name in self._open:
                    self._ended[name] = self._open.pop(name)
            case ToolInputStart(tool_call_id=call_id):
                self._inputs[call_id] = StreamedInput(broken=True)
            case ToolInputDelta(tool_call_id=call_id, input_text_delta=text):
                if call_id in self._inputs:
                    self._inputs[call_id] = self._inputs[call_id].with_text(text)
            case _:
                self._since[encode_event(event)] += 1
                if isinstance(event, ToolInputAvailable):
                    self._inputs.pop(event.tool_call_id, None)
                    self._whole_inputs.add(event.tool_call_id)

    def was_delivered(self, event: StreamEvent) -> bool:
        """Whether the caller was told this already. Each event that was told answers for one only."""
        match event:
            case TextStart(id=name) | ReasoningStart(id=name):
                return name in self._ended
            case TextDelta(id=name, delta=text) | ReasoningDelta(id=name, delta=text):
                # One that was cut off says something else than the whole, which is told all the same.
                return name in self._ended and self._ended[name].is_prefix_of(text)
            case TextEnd(id=name) | ReasoningEnd(id=name):
                return self._ended.pop(name, None) is not None
            case ToolInputStart(tool_call_id=call_id) | ToolInputDelta(tool_call_id=call_id):
                return call_id in self._whole_inputs
            case _:
                raw = encode_event(event)
                known = self._since[raw] > 0
                self._since[raw] -= known
                return known

    def with_open_texts(self, state: StreamState) -> StreamState:
        """The state of a stream that has told these beginnings too."""
        open_, rounds = dict(state.texts.open), dict(state.texts.restarts)
        for name, told in self._open.items():
            if found := _TEXT_ID.fullmatch(name):
                open_[found["key"]] = told
                if found["round"]:
                    rounds[found["key"]] = int(found["round"]) - 1
        inputs = {**state.texts.inputs, **self._inputs}
        texts = msgspec.structs.replace(state.texts, open=open_, restarts=rounds, inputs=inputs)
        return msgspec.structs.replace(state, texts=texts)


def _message_id(name: str) -> str:
    found = _TEXT_ID.fullmatch(name)
    return found["message"] if found else name
