"""Rules for every stream: the TypeScript SDK accepts each event, and each input and result appears once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
from tests.sdk.vocabulary import event_faults

from shopfloor.log import Delta, Event
from shopfloor.views import StreamState, encode_event, stream_step

Wire = dict[str, Any]


def folded(ones: Iterable[Event | Delta]) -> list[Wire]:
    """Return the events of a stream made from these, as they are sent."""
    state = StreamState()
    events: list[Wire] = []
    for item in ones:
        state, stage = stream_step(state, item)
        events += [msgspec.json.decode(encode_event(event)) for event in stage]
    return events


def checked(events: list[Wire]) -> list[Wire]:
    """Return the events if they follow the rules.

    An agent may use a call id again once the call has a result: that is another call.
    """
    assert [fault for event in events for fault in event_faults(event)] == []
    stage: dict[str, str] = {}
    for place, event in enumerate(events):
        call_id = event.get("toolCallId", "")
        match event["type"]:
            case "tool-input-available":
                assert stage.get(call_id) != "input", f"the input of {call_id} appears twice"
                stage[call_id] = "input"
                assert json.loads(inputs_of(events[:place])[call_id]) == event["input"]
            case "tool-output-available" | "tool-output-error":
                assert stage.get(call_id) != "output", f"the result of {call_id} appears twice"
                stage[call_id] = "output"
            case _:
                pass
    return events


def inputs_of(events: list[Wire]) -> dict[str, str]:
    """Return the joined input deltas of each call; an input that starts over counts from there."""
    inputs: dict[str, str] = {}
    for event in events:
        if event["type"] == "tool-input-start":
            inputs[event["toolCallId"]] = ""
        elif event["type"] == "tool-input-delta":
            inputs[event["toolCallId"]] += event["inputTextDelta"]
    return inputs
