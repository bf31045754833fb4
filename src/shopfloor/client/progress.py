"""What a caller has received of a run's stream, so that it continues after a disconnect without gaps or repeats."""

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
    """Records the events that a caller has received, and recognizes them when they are replayed from the log."""

    def __init__(self, run_id: str | None = None) -> None:
        self.run_id = run_id
        self.seq: int | None = None
        """The caller has everything up to this event of the log. None if unknown: the run was continued by its id."""
        self._since: Counter[bytes] = Counter()
        """Other events received after `seq`, with their number."""
        self._ended: dict[str, StreamedBlock] = {}
        """Texts that ended after `seq`."""
        self._open: dict[str, StreamedBlock] = {}
        self._inputs: dict[str, StreamedInput] = {}
        """The received part of inputs that are not complete, by the call's id."""
        self._complete_inputs: set[str] = set()
        """Calls whose input was completed after `seq`."""

    def advance_to(self, seq: int) -> None:
        """Record that the caller has everything up to this event of the log."""
        self.seq = seq
        self._since.clear()
        self._ended.clear()
        self._complete_inputs.clear()

    def record(self, event: StreamEvent | UnknownEvent) -> None:
        """Record an event that the caller receives."""
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
                    self._complete_inputs.add(event.tool_call_id)

    def was_delivered(self, event: StreamEvent) -> bool:
        """Return whether the caller already has this event. Each received event matches once only."""
        match event:
            case TextStart(id=name) | ReasoningStart(id=name):
                return name in self._ended
            case TextDelta(id=name, delta=text) | ReasoningDelta(id=name, delta=text):
                # A text that broke off may differ from the final one, which the caller then gets as well.
                return name in self._ended and self._ended[name].is_prefix_of(text)
            case TextEnd(id=name) | ReasoningEnd(id=name):
                return self._ended.pop(name, None) is not None
            case ToolInputStart(tool_call_id=call_id) | ToolInputDelta(tool_call_id=call_id):
                return call_id in self._complete_inputs
            case _:
                raw = encode_event(event)
                known = self._since[raw] > 0
                self._since[raw] -= known
                return known

    def with_open_texts(self, state: StreamState) -> StreamState:
        """Return the state of a stream that has also sent the texts and inputs which the caller has in part."""
        open_, rounds = dict(state.texts.open), dict(state.texts.restarts)
        for name, block in self._open.items():
            if found := _TEXT_ID.fullmatch(name):
                open_[found["key"]] = block
                if found["round"]:
                    rounds[found["key"]] = int(found["round"]) - 1
        inputs = {**state.texts.inputs, **self._inputs}
        texts = msgspec.structs.replace(state.texts, open=open_, restarts=rounds, inputs=inputs)
        return msgspec.structs.replace(state, texts=texts)


def _message_id(name: str) -> str:
    found = _TEXT_ID.fullmatch(name)
    return found["message"] if found else name
